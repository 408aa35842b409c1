"""Names of targets: every spelling, wherever a target is given."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.core.errors import NkiError
from nki.target.load import load_target
from tests.support import environment
from tests.tools.running import nki as command
from tests.tools.running import nki_json

X = np.ones((2, 3), np.float32)
NAMES = {
    "trn1": ("trn1", 2),
    "inf2": ("trn1", 2),
    "gen2": ("trn1", 2),
    "trn2": ("trn2", 3),
    "gen3": ("trn2", 3),
    "trn3": ("trn3", 4),
    "gen4": ("trn3", 4),
}
EACH = pytest.mark.parametrize(("name", "target", "generation"), [(name, *found) for name, found in NAMES.items()])
RUNS = pytest.mark.parametrize("eager", [False, True], ids=["compiled", "eager"])


def generation_of(a: Any) -> Any:
    """Adds the number of the generation."""
    tile = nl.load(a)
    nisa.tensor_scalar(tile, tile, nl.add, float(nisa.get_nc_version().value))
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out


def run(kernel: Any, eager: bool) -> tuple[float, str]:
    made = nki.simulate(kernel) if eager else kernel
    return float(made(X)[0, 0]) - 1, made.report.target


@RUNS
@EACH
def test_in_the_environment(name: str, target: str, generation: int, eager: bool) -> None:
    with environment(NEURON_PLATFORM_TARGET_OVERRIDE=name):
        assert run(nki.jit(generation_of), eager) == (generation, target)
        assert nisa.get_nc_version().value == generation


@RUNS
@EACH
def test_in_the_decorator(name: str, target: str, generation: int, eager: bool) -> None:
    with pytest.warns(DeprecationWarning, match="platform_target"):
        kernel = nki.jit(platform_target=name)(generation_of)
    assert run(kernel, eager) == (generation, target)
    with environment(NEURON_PLATFORM_TARGET_OVERRIDE="trn2"):
        assert run(kernel, eager) == (3, "trn2")


@EACH
def test_on_the_command_line(name: str, target: str, generation: int, tmp_path: Path) -> None:
    file = tmp_path / "kernels.py"
    file.write_text(
        "import nki\nimport nki.language as nl\n\n\n@nki.jit\ndef same(a):\n"
        "    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)\n    nl.store(out, nl.load(a))\n    return out\n"
    )
    words = (f"{file}::same", "--arg", "a=2x3:float32", "--target", name)
    assert f"for {target}: accepted" in command("check", *words).stdout
    command("run", *words)
    command("ir", *words)
    assert nki_json("targets", name)["name"] == target


@EACH
def test_case_and_spaces_do_not_matter(name: str, target: str, generation: int) -> None:
    assert load_target(name) is load_target(target)
    assert load_target(f" {name.upper()} ") is load_target(target)


@RUNS
def test_another_name_lists_those_that_exist(eager: bool) -> None:
    with environment(NEURON_PLATFORM_TARGET_OVERRIDE="trn9"), pytest.raises(NkiError) as caught:
        run(nki.jit(generation_of), eager)
    assert caught.value.code == "target.unknown"
    assert all(name in caught.value.fix for name in NAMES)


@RUNS
def test_without_a_name_it_is_the_newest(eager: bool) -> None:
    with environment(NEURON_PLATFORM_TARGET_OVERRIDE=""), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run(nki.jit(generation_of), eager) == (4, "trn3")
