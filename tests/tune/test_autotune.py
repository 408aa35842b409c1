"""When tuning happens, what is remembered, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nki
from nki.core.errors import LaunchError
from tests.tune import kernels
from tests.tune.kernels import TILES, scale

A = np.random.default_rng(2).standard_normal((128, 2048), np.float32)
POOL = ThreadPoolExecutor(1)  # of which nobody asks anything
CONFIGS = [{"tile": tile} for tile in TILES]


def tuner(**more: Any) -> Any:
    return nki.autotune(**{"configs": CONFIGS, "processes": 1, **more})(nki.jit(scale))


def test_it_is_found_once_for_each_shape_and_dtype() -> None:
    kernel = tuner()
    assert kernel.tuned is None and kernel.profile is None
    origins = []
    for array in (A, A + 1, A[:, :1024], A.astype(np.float16), A):
        kernel(array)
        origins.append(kernel.tuned.origin)
    assert origins == ["searched", "memory", "searched", "searched", "memory"]


def test_key_names_what_counts() -> None:
    def both(a: Any, b: Any, tile: int = 256) -> Any:
        return scale(a, tile), scale(b, tile)

    kernel = nki.autotune(configs=CONFIGS, key=("a",), processes=1)(both)
    kernel(A, A)
    kernel(A, A[:, :1024].copy())
    assert (kernel.tuned.key, kernel.tuned.origin) == ("a=float32[128, 2048]", "memory")
    kernel(A[:, :1024].copy(), A)
    assert kernel.tuned.origin == "searched"


def test_the_disk_remembers_while_the_kernel_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    first = tuner().tune(A)
    again = tuner().tune(A)
    assert (first.origin, again.origin) == ("searched", "disk")
    assert again.candidates == first.candidates
    assert tuner(budget=1).tune(A).origin == "searched", "other settings"
    assert tuner(configs=CONFIGS[1:]).tune(A).origin == "searched", "other candidates"
    monkeypatch.setattr(kernels, "FACTOR", 4.0)
    assert tuner().tune(A).origin == "searched", "a value that it reads"
    monkeypatch.setenv("NKI_CACHE", "0")
    assert tuner().tune(A).origin == "searched"


def test_memory_forgets_when_the_kernel_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = tuner()
    kernel.tune(A)
    assert kernel.tune(A).origin == "memory"
    monkeypatch.setattr(kernels, "FACTOR", 7.0)
    assert kernel.tune(A).origin == "searched"
    assert np.array_equal(kernel(A), 7 * A)


def test_another_process_reads_what_this_one_kept() -> None:
    """Keys cover the sources of a checkout, which somebody may edit while tests run."""
    code = (
        "import nki.store.keys as keys; keys._source_hash = lambda: ''\n"
        "import numpy as np; from tests.tune.kernels import tuned; print(tuned.tune(np.zeros((128, 2048), 'f4')))"
    )
    run = [sys.executable, "-c", code]
    said = [subprocess.run(run, capture_output=True, text=True, check=True).stdout for _ in range(2)]
    assert "(searched, simulated)" in said[0]
    assert said[0].replace("searched", "disk") == said[1]


def test_pinned_entries_are_used_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "pinned.json"
    slow = nki.autotune(configs=[{"tile": 128}], processes=1)(scale)
    slow.tune(A)
    slow.pin(file)
    entries = json.loads(file.read_text())
    entries["entries"][0]["config"] = "tile=128"
    entries["entries"].append({**entries["entries"][0], "kernel": "another", "config": "gone"})
    file.write_text(json.dumps(entries))
    kernel = tuner(pinned=file)
    kernel(A)
    assert (kernel.tuned.chosen.label, kernel.tuned.origin, kernel.tuned.speedup) == ("tile=128", "pinned", None)
    kernel(A[:, :1024].copy())
    assert kernel.tuned.origin == "searched", "no entry for it"
    kernel.pin(file)
    kept = json.loads(file.read_text())["entries"]
    assert {(each["kernel"], each["key"]) for each in kept} == {
        ("another", "a=float32[128, 2048], fault=''"),
        ("scale", "a=float32[128, 2048], fault=''"),
        ("scale", "a=float32[128, 1024], fault=''"),
    }


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no json",
        "[]",
        '{"format": "nki-tuned", "version": 2, "entries": []}',
        '{"format": "nki-tuned", "version": 1}',
        '{"format": "nki-tuned", "version": 1, "entries": [3]}',
        '{"format": "nki-tuned", "version": 1, "entries": [{"kernel": "scale", "target": "trn2", "key": "", '
        '"config": "tile=77"}]}',
        "[" * 100_000,
    ],
)
def test_a_file_that_cannot_be_used(text: str, tmp_path: Path) -> None:
    file = tmp_path / "pinned.json"
    file.write_text(text)
    with pytest.raises(LaunchError) as caught:
        tuner(pinned=file)
    assert caught.value.code == "tune.pinned"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(LaunchError) as caught:
        tuner(pinned=tmp_path / "none.json")
    assert caught.value.code == "tune.pinned"


@pytest.mark.parametrize(
    "given,code",
    [
        ({"configs": []}, "tune.config"),
        ({"configs": {"tile": 256}}, "tune.config"),
        ({"configs": 3}, "tune.config"),
        ({"configs": [3]}, "tune.config"),
        ({"configs": [{"tiel": 256}]}, "tune.config"),
        ({"configs": [{"tile": 256}, nki.Config({"tile": 256})]}, "tune.config"),
        ({"configs": [{"tile": A}]}, "tune.config"),
        ({"configs": [{"lnc": 0}]}, "tune.config"),
        ({"configs": [{"lnc": "2"}]}, "tune.config"),
        ({"configs": [{"compile_config": 1}]}, "tune.config"),
        ({"budget": 0}, "tune.argument"),
        ({"budget": 1.5}, "tune.argument"),
        ({"processes": 0}, "tune.argument"),
        ({"timeout": 0}, "tune.argument"),
        ({"timeout": 9, "processes": 1}, "tune.argument"),
        ({"executor": POOL, "processes": 2}, "tune.argument"),
        ({"executor": POOL, "processes": None, "timeout": 9}, "tune.argument"),
        ({"executor": "processes", "processes": None}, "tune.executor"),
        ({"executor": ThreadPoolExecutor, "processes": None}, "tune.executor"),
        ({"tolerance": -1}, "tune.argument"),
        ({"tolerance": "much"}, "tune.argument"),
        ({"pinned": 3}, "tune.argument"),
        ({"key": ()}, "tune.key"),
        ({"key": ("b",)}, "tune.key"),
        ({"key": ("tile",)}, "tune.key"),
        ({"key": 3}, "tune.key"),
    ],
)
def test_what_cannot_be(given: dict[str, Any], code: str) -> None:
    with pytest.raises(LaunchError) as caught:
        tuner(**given)
    assert caught.value.code == code
    assert caught.value.fix and caught.value.rule


def test_a_call_does_not_set_what_configurations_set() -> None:
    for call in (lambda: tuner()(A, tile=128), lambda: tuner()(A, 128)):
        with pytest.raises(LaunchError) as caught:
            call()
        assert caught.value.code == "tune.conflict"
    with pytest.raises(LaunchError) as caught:
        tuner(configs=[{"tile": 256, "fault": ""}])(A, 256, "")
    assert caught.value.code == "tune.conflict"


def test_it_is_not_called_from_a_kernel() -> None:
    inner = tuner()

    @nki.jit
    def outer(a: Any) -> Any:
        return inner(a)

    with pytest.raises(LaunchError) as caught:
        outer(A)
    assert caught.value.code == "tune.nested"


def test_a_schedule_and_a_number_of_cores_keep_the_configurations() -> None:
    kernel = tuner()
    assert kernel[2].configs == kernel.configs
    assert kernel[2].launch().lnc == 2
    assert kernel.with_schedule([]).configs == kernel.configs
