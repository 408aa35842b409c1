"""A kernel that was imported before its module was loaded again: it runs as it was, and that is said."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import nki
from nki.report import NkiWarning

_SOURCE = """
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def scaled(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=FACTOR)
    nisa.dma_copy(dst=out, src=tile)
    return out


tuned = nki.autotune(configs=[{}])(scaled.func)
"""

A = np.ones((128, 8), np.float32)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "kernels_to_reload.py").write_text(_SOURCE.replace("FACTOR", "2.0"))
    yield importlib.import_module("kernels_to_reload")
    del sys.modules["kernels_to_reload"]


def _edited(module: ModuleType) -> None:
    assert module.__file__ is not None
    Path(module.__file__).write_text(_SOURCE.replace("FACTOR", "3.0"))
    importlib.reload(module)


@pytest.mark.parametrize("kind", ["called", "not called", "two", "eager", "tuned"])
def test_an_earlier_name_runs_the_earlier_kernel_and_says_so(module: ModuleType, kind: str) -> None:
    kernel = module.tuned if kind == "tuned" else module.scaled
    if kind == "called":
        assert kernel(A)[0, 0] == 2
    _edited(module)
    kernel = kernel[2] if kind == "two" else nki.simulate(kernel) if kind == "eager" else kernel
    with pytest.warns(NkiWarning, match=r"\[kernel.reloaded\] scaled is what it was before kernels_to_reload") as told:
        assert kernel(A)[0, 0] == 2
    assert len(told) == 1
    assert "from kernels_to_reload import scaled" in str(told[0].message)
    assert kernel(A)[0, 0] == 2  # and a second time nothing is said
    assert module.scaled(A)[0, 0] == 3


def test_a_module_that_was_not_loaded_again_says_nothing(module: ModuleType) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kernel in (module.scaled, nki.jit(module.scaled.func), nki.simulate(module.scaled.func)):
            assert kernel(A)[0, 0] == 2


def test_another_file_of_the_same_name_is_another_module(module: ModuleType, tmp_path: Path) -> None:
    kernel = module.scaled
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "kernels_to_reload.py").write_text(_SOURCE.replace("FACTOR", "5.0"))
    del sys.modules["kernels_to_reload"]
    sys.path.insert(0, str(tmp_path / "more"))
    try:
        other = importlib.import_module("kernels_to_reload").scaled
    finally:
        del sys.path[0]
    assert (kernel(A)[0, 0], other(A)[0, 0]) == (2, 5)


def test_what_is_typed_in_has_no_module_to_load_again() -> None:
    names: dict[str, object] = {"__name__": "__main__"}
    exec(_SOURCE.replace("FACTOR", "2.0").replace("@nki.jit", "@nki.simulate").partition("tuned")[0], names)
    assert names["scaled"](A)[0, 0] == 2  # type: ignore[operator]


def test_a_call_that_jax_traces_says_so(module: ModuleType) -> None:
    jax = pytest.importorskip("jax")
    kernel = module.scaled
    _edited(module)
    with pytest.warns(NkiWarning, match=r"kernel\.reloaded"):
        assert jax.jit(kernel)(A)[0, 0] == 2
