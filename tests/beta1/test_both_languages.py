"""Kernels of the first NKI and of today's in one process: called next to each other, and in each other."""

from __future__ import annotations

import sys
from importlib import import_module

import numpy as np
import pytest

import nki
import nki.beta1 as old
import nki.beta1.language as ol
import nki.isa as nisa
import nki.language as nl
from nki.beta1.library import _served
from nki.beta1.served import serve
from nki.core.errors import NkiError
from tests.beta1.both_languages import A, new_double


@nki.jit
def new_double_of_a_tile(tile):
    out = nl.ndarray(tile.shape, tile.dtype)
    nisa.tensor_scalar(dst=out, data=tile, op0=nl.multiply, operand0=2.0)
    return out


@old.jit
def old_plus_one(a):
    out = ol.ndarray(a.shape, a.dtype, buffer=ol.shared_hbm)
    rows, columns = ol.arange(128)[:, None], ol.arange(64)[None, :]
    ol.store(out[rows, columns], ol.load(a[rows, columns]) + 1)
    return out


@old.trace
def old_triple_of_a_tile(tile):
    return tile * 3


@old.jit
def old_calls_new(a):
    out = ol.ndarray(a.shape, a.dtype, buffer=ol.shared_hbm)
    ol.store(out, new_double_of_a_tile(ol.load(new_double(a))) + 1)
    return out


@nki.jit
def new_calls_old(a):
    return new_double(old_plus_one(a))


@nki.jit
def new_calls_old_with_a_tile(a):
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    nl.store(out, old_triple_of_a_tile(nl.load(a)))
    return out


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize(
    ("kernel", "wanted"),
    [(old_calls_new, 4 * A + 1), (new_calls_old, 2 * (A + 1)), (new_calls_old_with_a_tile, 3 * A)],
    ids=["new in old", "old in new", "old helper in new"],
)
def test_a_kernel_of_one_calls_one_of_the_other(kernel, wanted: np.ndarray, eager: bool) -> None:
    found = (kernel.simulated() if eager else kernel)(A)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_in_another_kernel_there_is_no_grid() -> None:
    def launches(a):
        return old_plus_one[2](a)

    for jit in (nki.jit, old.jit):
        with pytest.raises(NkiError) as caught:
            jit(launches)(A)
        assert caught.value.code == "beta1.nested_kernel_with_spmd_grid"
        assert "old_plus_one[2]" in caught.value.message


def test_in_a_loop_of_the_device_old_kernels_are_refused() -> None:
    @nki.jit
    def repeats(a):
        tile = nl.load(a)
        for _ in nl.dynamic_range(4):
            old_triple_of_a_tile(tile)
        return new_double(a)

    with pytest.raises(NkiError) as caught:
        repeats(A)
    assert caught.value.code == "beta1.inside_device_loop"


def test_no_library_of_kernels_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, finders = dict(sys.modules), list(sys.meta_path)
    monkeypatch.setattr("nki.beta1.library.entry_points", lambda group: [])
    _served.cache_clear()
    try:
        serve()
        with pytest.raises(ModuleNotFoundError) as caught:
            import_module("neuronxcc.nki.kernels.attention")
        assert isinstance(caught.value, NkiError) and caught.value.fix == "install open-nki-library"
    finally:
        for name in [each for each in sys.modules if each.partition(".")[0] == "neuronxcc"]:
            del sys.modules[name]
        sys.modules.update({name: kept[name] for name in kept if name.partition(".")[0] == "neuronxcc"})
        sys.meta_path[:] = finders
        _served.cache_clear()
