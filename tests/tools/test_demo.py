"""`nki demo`: it passes, it can fail, and its bound is neither generous nor too tight."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import scipy.special

import nki.tools.demo as demo
from nki.tools.attention import Accuracy, Inputs, accuracy, random_inputs, weights
from nki.tools.examples import example
from tests.tools.running import nki, nki_json

REPOSITORY = Path(__file__).resolve().parents[2]
BFLOAT16 = ml_dtypes.bfloat16


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shorter sequence takes less time and goes the same way."""
    monkeypatch.setattr(demo, "SEQUENCE", 512)


@pytest.mark.parametrize("causal", [False, True])
def test_the_reference_equals_another_one(causal: bool) -> None:
    inputs = random_inputs(64, 16, seed=3)
    q, k = inputs.q.astype(np.float64), inputs.k.astype(np.float64)
    rows = []
    for query in range(64):
        seen = query + 1 if causal else 64
        scores = np.array([sum(q[d, query] * k[d, key] for d in range(16)) / 4.0 for key in range(seen)])
        rows.append(np.concatenate([scipy.special.softmax(scores), np.zeros(64 - seen)]))
    np.testing.assert_allclose(weights(inputs, causal), rows, rtol=1e-12, atol=1e-15)


def rounded_twice(inputs: Inputs, causal: bool) -> np.ndarray:
    """Attention with the two roundings that the bound is made for."""
    share = weights(inputs, causal)
    peak = share.max(axis=1, keepdims=True)
    rounded = (share / peak).astype(BFLOAT16).astype(np.float64) * peak
    return (rounded @ inputs.v.astype(np.float64)).astype(BFLOAT16)


def measured(result: np.ndarray, inputs: Inputs) -> Accuracy:
    return accuracy(result, inputs, causal=True)


def test_two_roundings_are_within_the_bound_and_use_much_of_it() -> None:
    inputs = random_inputs(256, 32, seed=1)
    found = measured(rounded_twice(inputs, True), inputs)
    assert found.passed
    assert found.of_allowed > 0.3


@pytest.mark.parametrize("wrong", ["scale", "mask", "one element", "nan"])
def test_mistakes_are_outside_the_bound(wrong: str) -> None:
    inputs = random_inputs(256, 32, seed=1)
    result = rounded_twice(inputs, causal=wrong != "mask")
    if wrong == "scale":
        result = (result.astype(np.float64) * 1.02).astype(BFLOAT16)
    if wrong == "one element":
        result[100, 5] = result[100, 5] + BFLOAT16(0.05)
    if wrong == "nan":
        result[7, 7] = np.nan
    assert not measured(result, inputs).passed


@pytest.mark.usefixtures("small")
def test_it_passes_and_says_how() -> None:
    told = nki_json("demo")
    assert told["passed"] is True
    assert 0.0 < told["accuracy"]["of_allowed"] <= 1.0
    assert (told["target"], told["mode"], told["findings"]) == ("trn2", "compiled", [])
    assert told["makespan_ns"] > 0.0
    assert told["validated"] is True
    assert list(told["seconds"]) == ["check", "compile", "run", "compare"]
    assert told["instructions"]["tensor"] > 0
    for memory in ("sbuf", "psum"):
        name = f"{memory}_bytes_per_partition"
        assert 0 < told["memory_peak"][name] <= told["capacity"][name]


@pytest.mark.usefixtures("small")
def test_the_table_has_the_same() -> None:
    shown = nki("demo", "--full", "--lnc", "2").stdout
    for text in ("passed", "against float64", "SBUF peak", "of 16 KiB", "2 core(s)", "compare", "two roundings"):
        assert text in shown


def replaced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, old: str, new: str) -> None:
    """Make the demo use a changed copy of the example."""
    source = example("flash_attention.py").read_text(encoding="utf-8")
    assert old in source
    (tmp_path / "flash_attention.py").write_text(source.replace(old, new), encoding="utf-8")
    monkeypatch.setattr(demo, "example", lambda name: tmp_path / name)


@pytest.mark.usefixtures("small")
def test_a_wrong_kernel_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    replaced(monkeypatch, tmp_path, "scale = HEAD**-0.5", "scale = HEAD**-0.45")
    assert nki_json("demo", code=1)["passed"] is False
    assert "FAILED" in nki("demo", code=1).stdout


@pytest.mark.usefixtures("small")
def test_a_kernel_that_is_refused_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    replaced(monkeypatch, tmp_path, "buffer=nl.psum", "buffer=nl.sbuf")
    nki("demo", code=1)


def test_an_installed_package_finds_its_examples(tmp_path: Path) -> None:
    """As the wheel lays it out: the examples inside the package, and no checkout around it."""
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(REPOSITORY / "src" / "nki", tmp_path / "nki", ignore=ignore)
    shutil.copytree(REPOSITORY / "examples", tmp_path / "nki" / "examples", ignore=ignore)
    find = "from nki.tools.examples import example; print(example('flash_attention.py'))"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", find], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(tmp_path / "nki" / "examples" / "flash_attention.py")


def test_a_missing_example_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"no flash_attention\.py"):
        example("flash_attention.py", (tmp_path,))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(("target", "said"), [("trn2", "was compared"), ("trn3", "was NOT compared")])
def test_it_says_what_is_behind_its_time(target: str, said: str) -> None:
    shown = " ".join(nki("demo", "--target", target).stdout.split())
    assert re.search(rf"time on the device . [\d.,]+ µs, simulated, the timing model of {target} {said}", shown), shown
    assert ("--target trn2" in shown) is (target == "trn3")
