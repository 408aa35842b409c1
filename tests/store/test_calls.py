"""Kernels that are called again: in memory, from disk, and after an edit of what they read."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import nki
from nki.report import NkiWarning
from tests.frontend.dependencies.remembering import load

ROOT = Path(__file__).resolve().parents[2]
SOURCE = """
import dataclasses
SIZE = 1


@dataclasses.dataclass
class Config:
    tile: int = 1


def helper():
    return SIZE


@nki.jit
def kernel(x, config=None):
    return fill(helper() * x.shape[0] + (config or Config()).tile)
"""
X = np.zeros((10, 4), np.float32)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NKI_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("NKI_CACHE", raising=False)
    monkeypatch.setenv("NKI_NATIVE", "0")  # objects of native code are kept there as well
    return tmp_path / "cache"


def call(kernel: Any, *args: Any) -> tuple[float, str]:
    result = kernel(*args)
    assert (result == result[0, 0]).all()
    return float(result[0, 0]), kernel.report.compiled


def test_memory_then_edits(tmp_path: Path) -> None:
    module = load(tmp_path, SOURCE)
    assert [call(module.kernel, X) for _ in range(3)] == [(11.0, "compiled"), (11.0, "memory"), (11.0, "memory")]
    module.SIZE = 2
    assert [call(module.kernel, X) for _ in range(2)] == [(21.0, "compiled"), (21.0, "memory")]
    module.Config.__init__.__defaults__ = (5,)
    assert call(module.kernel, X) == (25.0, "compiled")
    exec("def helper():\n    return 7", vars(module))
    assert call(module.kernel, X) == (75.0, "compiled")
    assert call(module.kernel, np.zeros((20, 4), np.float32)) == (145.0, "compiled")
    assert call(module.kernel, X, module.Config(6)) == (76.0, "compiled")
    assert call(module.kernel, X, module.Config(6)) == (76.0, "memory")
    assert call(module.kernel, X) == (75.0, "memory")


def test_what_was_before_an_edit_comes_back_from_disk(tmp_path: Path) -> None:
    module = load(tmp_path, SOURCE)
    assert call(module.kernel, X) == (11.0, "compiled")
    first = module.kernel.report.kernel_hash
    module.SIZE = 2
    assert call(module.kernel, X) == (21.0, "compiled")
    module.SIZE = 1
    assert call(module.kernel, X) == (11.0, "disk")
    assert module.kernel.report.kernel_hash == first


def test_without_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_cache: Path) -> None:
    monkeypatch.setenv("NKI_CACHE", "0")
    module = load(tmp_path, SOURCE)
    assert [call(module.kernel, X) for _ in range(2)] == [(11.0, "compiled"), (11.0, "memory")]
    assert not own_cache.exists()


def test_a_kernel_that_reads_the_environment_is_traced_every_time_and_compiled_if_that_gives_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_cache: Path
) -> None:
    monkeypatch.setenv("SIZE", "1")
    module = load(tmp_path, "import os\n@nki.jit\ndef kernel():\n    return fill(os.environ['SIZE'])")
    assert [call(module.kernel) for _ in range(2)] == [(1.0, "compiled"), (1.0, "memory")]
    assert "os.environ" in module.kernel.report.doubt
    monkeypatch.setenv("SIZE", "2")
    assert call(module.kernel) == (2.0, "compiled")
    monkeypatch.setenv("SIZE", "1")
    assert call(module.kernel) == (1.0, "memory")
    assert not own_cache.exists()


def test_a_constant_in_a_file_is_read_in_every_call(tmp_path: Path, own_cache: Path) -> None:
    source = (
        "@nki.jit\ndef kernel(path):\n    out = nl.ndarray((4, 4), dtype=nl.float32, buffer=nl.shared_hbm)\n"
        "    nisa.dma_copy(dst=out, src=nl.shared_constant(path))\n    return out\n"
    )
    path, module = tmp_path / "constant.npy", load(tmp_path, source)
    for size, origin in ((1, "compiled"), (2, "compiled"), (2, "memory")):
        np.save(path, np.full((4, 4), size, np.float32))
        assert call(module.kernel, str(path)) == (size, origin)
        assert "constant.npy', which may change" in module.kernel.report.doubt
    assert not list(own_cache.rglob("*.nkic"))


def test_a_number_that_changes_in_every_call_does_not_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nki.driver.compiled._MOST_KEPT", 3)
    monkeypatch.setenv("NKI_CACHE", "0")
    module = load(tmp_path, "@nki.jit\ndef kernel(scale):\n    return fill(scale)")
    origins = [call(module.kernel, scale)[1] for scale in (1, 2, 3, 1, 4, 1, 2)]
    assert origins == ["compiled"] * 3 + ["memory", "compiled", "memory", "compiled"]
    assert len(module.kernel.cache) == 3


def test_few_different_traces_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = load(tmp_path, "import os\n@nki.jit\ndef kernel():\n    return fill(os.environ['SIZE'])")
    origins = []
    for size in (*range(9), 8, 1, 0):
        monkeypatch.setenv("SIZE", str(size))
        value, origin = call(module.kernel)
        assert value == size
        origins.append(origin)
    assert origins == ["compiled"] * 9 + ["memory", "memory", "compiled"]


def test_another_target_or_core_count_is_another_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = load(tmp_path, SOURCE)
    assert call(module.kernel, X)[1] == "compiled"
    two = module.kernel[2]
    assert call(two, X)[1] == "compiled"
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
    assert call(module.kernel, X)[1] == "compiled"
    monkeypatch.setenv("NKI_API_VERSION", "0.5")
    assert call(module.kernel, X)[1] == "compiled"


def test_another_process_reads_it_from_disk(tmp_path: Path) -> None:
    load(tmp_path, SOURCE, "calls_of_processes")
    program = (
        "import numpy as np, calls_of_processes as m\n"
        "x = np.zeros((10, 4), np.float32)\n"
        "print(float(m.kernel(x)[0, 0]), m.kernel.report.compiled, m.kernel.report.kernel_hash)"
    )

    def run() -> list[str]:
        path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
        env = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=env, capture_output=True, check=True)
        return done.stdout.decode().split()

    one, two = run(), run()
    assert (one[:2], two[:2]) == (["11.0", "compiled"], ["11.0", "disk"])
    assert one[2] == two[2]
    file = tmp_path / "calls_of_processes.py"
    file.write_text(file.read_text().replace("SIZE = 1", "SIZE = 3"))
    assert run()[:2] == ["31.0", "compiled"]


def test_damage_on_disk_is_a_miss(tmp_path: Path, own_cache: Path) -> None:
    source = SOURCE
    for number, entry in enumerate(range(2)):
        module = load(tmp_path, source, "calls_damaged")
        call(module.kernel, X)
        files = sorted((own_cache / "v1").glob("*.nkic"))
        data = bytearray(files[entry].read_bytes())
        data[-1] ^= 1
        files[entry].write_bytes(data)
        module = load(tmp_path, source, "calls_damaged")
        assert call(module.kernel, X) == (11.0, "compiled"), number
        module = load(tmp_path, source, "calls_damaged")
        assert call(module.kernel, X) == (11.0, "disk")


class Pair(NamedTuple):
    first: Any
    second: Any


def test_results_keep_their_form(tmp_path: Path) -> None:
    trees = {"fill(1), [fill(2), {'x': fill(3)}]": True, "Pair(fill(1), fill(2))": False}
    for tree, stored in trees.items():
        source = f"from tests.store.test_calls import Pair\n@nki.jit\ndef kernel():\n    return {tree}"
        forms = []
        for _ in range(2):
            module = load(tmp_path, source, "calls_forms")
            forms.append((repr(module.kernel()), module.kernel.report.compiled))
        assert forms[0][0] == forms[1][0]
        assert forms[1][1] == ("disk" if stored else "compiled")


def test_warnings_come_back(tmp_path: Path) -> None:
    source = (
        "@nki.jit\ndef kernel():\n    out = nl.ndarray((128, 4), dtype=nl.float32, buffer=nl.private_hbm)\n"
        "    tile = nl.ndarray((128, 4), dtype=nl.float32, buffer=nl.sbuf)\n    nisa.memset(tile, value=1.0)\n"
        "    nisa.dma_copy(dst=out, src=tile)\n    return out\n"
    )
    said = []
    for expected in ("compiled", "disk"):
        module = load(tmp_path, source, "calls_warnings")
        for origin in (expected, "memory"):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                module.kernel()
            assert module.kernel.report.compiled == origin
            said.append([str(each.message) for each in caught if isinstance(each.message, NkiWarning)])
    assert len(said[0]) == 1 and "return.private-hbm" in said[0][0]
    assert said.count(said[0]) == 4


def test_eager_calls_keep_nothing(tmp_path: Path, own_cache: Path) -> None:
    module = load(tmp_path, SOURCE)
    kernel = nki.simulate(module.kernel)
    assert float(kernel(X)[0, 0]) == 11.0
    module.SIZE = 2
    assert float(kernel(X)[0, 0]) == 21.0
    assert kernel.report.compiled == "" and not own_cache.exists()
