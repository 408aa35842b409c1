"""The order in which tensor_reduce adds: that of a Trainium1, whose sums of float32 rows are published."""

from __future__ import annotations

import hashlib
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.isa import reduce
from nki.native.records.forms import form_of
from nki.sim.numpy_arrays import NumpyArrays
from nki.spec.engine import engine as Engine
from nki.target.load import load_target
from tests.support import environment

TARGETS = ("trn1", "trn2", "trn3")


def one_after_the_other(rows: np.ndarray) -> np.ndarray:
    """Sums over the last dimension as a loop of one accumulator has them."""
    total = np.zeros(rows.shape[:-1], np.float32)
    for i in range(rows.shape[-1]):
        total = total + rows[..., i].astype(np.float32)
    return total


def sums(a: Any, kept: int = 1, step: int = 1, negate: bool = False) -> Any:
    rows, columns = a.shape[0], a.shape[1] // step
    tile = nl.load(a)[:, 0 : a.shape[1] : step]
    result = nl.ndarray((rows, kept), nl.float32)
    if kept > 1:
        tile = nl.load(a).reshape((rows, kept, columns // kept))
    nisa.tensor_reduce(dst=result, op=nl.add, data=tile, axis=tile.ndim - 1, negate=negate)
    out = nl.ndarray((rows, kept), nl.float32, buffer=nl.shared_hbm)
    nl.store(out, result)
    return out


CASES = [
    ((128, 128), {}),
    ((128, 1), {}),
    ((128, 15), {}),
    ((1, 33), {}),
    ((77, 513), {"negate": True}),
    ((17, 2049), {}),
    ((128, 96), {"kept": 3}),
    ((19, 200), {"kept": 100}),
    ((33, 90), {"step": 3}),
]


@pytest.mark.parametrize("native", ["always", "0"])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, np.int16])
@pytest.mark.parametrize(("shape", "options"), CASES)
def test_one_sum_from_the_first_element_to_the_last(shape: Any, options: Any, dtype: Any, native: str) -> None:
    values = (np.random.default_rng(1).standard_normal(shape) * 100).astype(dtype)
    rows = values[:, :: options.get("step", 1)].reshape(shape[0], options.get("kept", 1), -1)
    expected = one_after_the_other(rows) * (-1 if options.get("negate") else 1)
    with environment(NKI_NATIVE=native, NEURON_PLATFORM_TARGET_OVERRIDE="trn1"):
        for kernel in (nki.jit(sums), nki.simulate(nki.jit(sums))):
            assert (np.asarray(kernel(values, **options)) == expected).all()


PUBLISHED = {
    3: "167108d24ee210ea9992a7a347a260a064f902c82de00937a5f3385953e07fac",
    7: "5e36626a52c9f0abd64b14578a2cb31b684dfbb41f2e8646b24bc182ea7381ca",
}
"""SHA-256 of the rows whose sums were measured, by the seed that they were drawn with.

github.com/LaelaZorana/kernel-grader-mi300x-rocm-trainium-nki, kernel-nki/device/comparison.json; the README beside it
says that the sums in order, from 0.0 on, were those of the device in all of the 4,096 rows.
"""


def tiled(rows: Any) -> Any:
    out = nl.ndarray((rows.shape[0], 1), nl.float32, buffer=nl.shared_hbm)
    for first in range(0, rows.shape[0], 128):
        total = nl.ndarray((128, 1), nl.float32)
        nisa.tensor_reduce(dst=total, op=nl.add, data=nl.load(rows[first : first + 128]), axis=(1,))
        nl.store(out[first : first + 128], total)
    return out


@pytest.mark.parametrize(("target", "seed"), [("trn1", 3), ("trn1", 7), ("trn2", 3), ("trn3", 3)])
def test_the_published_rows(target: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(2):
        rng.random((128, 512), dtype=np.float32)  # the operands of another kernel
    rows = rng.random((4096, 128), dtype=np.float32)
    assert hashlib.sha256(rows.tobytes()).hexdigest() == PUBLISHED[seed]
    with environment(NEURON_PLATFORM_TARGET_OVERRIDE=target):
        found = np.asarray(nki.simulate(nki.jit(tiled))(rows))[:, 0]
    assert (found.view(np.uint32) == one_after_the_other(rows).view(np.uint32)).all()


def test_targets_say_where_the_order_comes_from() -> None:
    origins = {name: load_target(name).provenance("features.sums_in_order") for name in TARGETS}
    assert all(origin.value for origin in origins.values())
    assert origins["trn1"].source and not origins["trn1"].estimate
    assert all(origins[name].estimate and not origins[name].source for name in ("trn2", "trn3"))


@pytest.mark.parametrize("native", ["always", "0"])
def test_zeros_infinities_and_nan(native: str) -> None:
    rows = np.zeros((8, 40), np.float32)
    rows[0] = -0.0
    rows[1, 3], rows[1, 39] = np.inf, -np.inf
    rows[2, 7] = np.nan
    rows[3, 20] = np.inf
    rows[4, :2] = 3e38
    rows[5, :3] = 3e38, 3e38, -3e38
    rows[6] = 1e-45
    with environment(NKI_NATIVE=native):
        found = np.asarray(nki.jit(sums)(rows))[:, 0]
    with np.errstate(all="ignore"):
        expected = one_after_the_other(rows)
    assert (np.isnan(found) == np.isnan(expected)).all()
    assert (found[expected == expected] == expected[expected == expected]).all()
    assert not np.signbit(found[0])


def test_a_target_without_it_adds_in_lanes() -> None:
    """The toy target has the order of the other reductions."""
    assert not load_target("unit").has("sums_in_order")
    rows = np.random.default_rng(0).random((2, 64), dtype=np.float32)
    arrays = NumpyArrays()
    assert (arrays.sum_in_order(rows)[:, 0] == one_after_the_other(rows)).all()
    lanes = rows.reshape(2, 4, 16)
    total = ((lanes[:, 0] + lanes[:, 1]) + lanes[:, 2]) + lanes[:, 3]
    for half in (8, 4, 2, 1):
        total = total[:, :half] + total[:, half : 2 * half]
    assert (arrays.reduce(reduce.ADD, rows) == total).all()


@pytest.mark.parametrize("target", TARGETS)
def test_it_runs_natively(target: str) -> None:
    with environment(NKI_NATIVE="always", NEURON_PLATFORM_TARGET_OVERRIDE=target):
        kernel = nki.jit(sums)
        kernel(np.ones((128, 64), np.float32))
        reduced = [each for each in kernel.report.programs[0].body.walk() if each.instruction.name == "tensor_reduce"]
        assert reduced[0].engine is Engine.vector
        assert form_of(reduced[0], load_target(target), "ordered").native is not None
        assert "natively" in kernel.report.provenance()
