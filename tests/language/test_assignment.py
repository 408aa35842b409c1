"""``tensor[key] = value``: what it issues, and where it writes; NumPy's assignment is the reference."""

from __future__ import annotations

import linecache
from collections import Counter
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from tests.support import both, rejection
from tests.together import together

pytestmark = pytest.mark.filterwarnings("ignore:.*return.nothing:nki.report.NkiWarning")  # kernels for one line

BFLOAT16 = ml_dtypes.bfloat16
X = np.arange(64 * 48, dtype=np.float32).reshape(64, 48)
REGIONS = {"sbuf": nl.sbuf, "psum": nl.psum, "hbm": nl.hbm}

ISSUED = {
    ("sbuf", "sbuf"): ["tensor_copy"],
    ("sbuf", "psum"): ["tensor_copy"],
    ("psum", "sbuf"): ["tensor_copy"],
    ("psum", "psum"): ["tensor_copy"],
    ("hbm", "sbuf"): ["dma_copy"],
    ("sbuf", "hbm"): ["dma_copy"],
    ("hbm", "hbm"): ["dma_copy"],
    ("hbm", "psum"): ["tensor_copy", "dma_copy"],
    ("psum", "hbm"): ["dma_copy", "tensor_copy"],
}


def placed(a: Any, region: Any) -> Any:
    """A copy of an HBM tensor in a region."""
    if region is nl.hbm:
        tensor = nl.ndarray(a.shape, a.dtype, buffer=nl.hbm)
        nisa.dma_copy(dst=tensor, src=a)
        return tensor
    tile = nl.load(a)
    if region is nl.sbuf:
        return tile
    tensor = nl.ndarray(a.shape, a.dtype, buffer=nl.psum)
    nisa.tensor_copy(dst=tensor, src=tile)
    return tensor


def returned(tensor: Any) -> Any:
    out = nl.ndarray(tensor.shape, tensor.dtype, buffer=nl.shared_hbm)
    if tensor.buffer is nl.hbm:
        nisa.dma_copy(dst=out, src=tensor)
    else:
        nl.store(out, tensor)
    return out


def names(run: Any) -> list[str]:
    return [issued.instruction.name for issued in run.report.programs[0].body.walk()]


@pytest.mark.parametrize(("dst", "src"), ISSUED)
def test_between_memories(dst: str, src: str) -> None:
    def kernel(a: Any, b: Any, assigned: bool) -> Any:
        target, value = placed(a, REGIONS[dst]), placed(b, REGIONS[src])
        if assigned:
            target[0:32, 8:24] = value[32:64, 0:16]
        return returned(target)

    other = X[::-1] + 0.5
    wanted = X.copy()
    wanted[0:32, 8:24] = other[32:64, 0:16]
    np.testing.assert_array_equal(both(kernel, X, other, True), wanted)
    with_it, without = nki.simulate(kernel), nki.simulate(kernel)
    with_it(X, other, True)
    without(X, other, False)
    assert Counter(names(with_it)) - Counter(names(without)) == Counter(ISSUED[dst, src])


@pytest.mark.parametrize("region", REGIONS)
@together(
    "key",
    [
        np.s_[...],
        np.s_[0:32],
        np.s_[:, 5:7],
        np.s_[32:64, 0:48:3],
        np.s_[0],
        np.s_[3, 1:48:2],
        np.s_[:, 47],
    ],
)
@together("number", [2.5, -0.0, np.float32(7), 3, True])
def test_numbers(region: str, key: Any, number: Any) -> None:
    if region != "hbm" and key == np.s_[3, 1:48:2]:
        key = np.s_[0, 1:48:2]  # an engine's access does not start at partition 3

    def kernel(a: Any) -> Any:
        target = placed(a, REGIONS[region])
        target[key] = number
        return returned(target)

    wanted = X.copy()
    wanted[key] = number
    np.testing.assert_array_equal(both(kernel, X), wanted)


@pytest.mark.parametrize(
    ("shape", "key"),
    [
        ((5000,), np.s_[1:5000:2]),
        ((300, 40), np.s_[:, 1:39]),
        ((3, 200, 700), np.s_[0:2, 5:199, 1:700]),
        ((2, 3, 4, 5), np.s_[:, 1, :, 0:4]),
        ((130, 1030), np.s_[1:130, 2:1030]),
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", [np.int8, np.float32])
def test_a_number_in_large_views_of_hbm_with_gaps(shape: tuple[int, ...], key: Any, dtype: Any) -> None:
    def kernel(a: Any) -> Any:
        out = nl.ndarray(shape, a.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=a)
        out[key] = -3
        return out

    x = np.random.default_rng(3).integers(0, 100, shape).astype(dtype)
    wanted = x.copy()
    wanted[key] = -3
    np.testing.assert_array_equal(both(kernel, x), wanted)


def test_dtypes_are_cast_as_by_the_instruction() -> None:
    def kernel(a: Any) -> Any:
        out = nl.ndarray((2, *a.shape), nl.int16, buffer=nl.shared_hbm)
        half = nl.ndarray(a.shape, nl.bfloat16)
        half[...] = a
        out[0] = half
        whole = nl.ndarray(a.shape, nl.int16)
        whole[...] = half
        out[1] = whole
        return out

    x = np.random.default_rng(4).standard_normal((16, 8)).astype(np.float32) * 300
    wanted = np.rint(x.astype(BFLOAT16).astype(np.float32)).astype(np.int16)
    np.testing.assert_array_equal(both(kernel, x), np.stack([wanted, wanted]))


def test_results_of_functions_views_and_patterns() -> None:
    def kernel(a: Any) -> Any:
        tile, out = nl.load(a), nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        tile.ap([[48, 64], [2, 4]], offset=1)[...] = nl.multiply(tile[:, 0:4], 2)
        tile.reshape((64, 4, 12))[:, 3, 0:6] = tile[:, 0:6]
        out[...] = nl.negative(tile)
        out[0:2].reshape((96,))[90:96] = 1
        return out

    wanted = X.copy()
    wanted[:, 1:8:2] = X[:, 0:4] * 2
    wanted[:, 36:42] = wanted[:, 0:6]
    wanted = -wanted
    wanted[1, 42:48] = 1
    np.testing.assert_array_equal(both(kernel, X), wanted)


def test_indices_of_run_time() -> None:
    def kernel(a: Any, rows: Any, column: Any) -> Any:
        out = nl.ndarray((128, 48), a.dtype, buffer=nl.shared_hbm)
        out[...] = 0
        tile, index = nl.load(a), nl.load(rows)
        out.vector_select(0, index)[...] = tile
        at = nisa.register_alloc(column)
        tile.ap([[48, 64], [1, 1]], scalar_offset=at, indirect_dim=1)[...] = tile[:, 0:1]
        out[64:128] = tile
        out.select(0, at)[...] = 9
        return out

    rows = np.random.default_rng(5).permutation(64).astype(np.uint32)[:, None]
    wanted = np.zeros((128, 48), np.float32)
    wanted[rows[:, 0]] = X
    wanted[64:128] = X
    wanted[64:128, 11] = X[:, 0]
    wanted[11] = 9
    np.testing.assert_array_equal(both(kernel, X, rows, np.array([[11]], np.int32)), wanted)


@pytest.mark.parametrize("loop", ["fori", "dynamic", "static"])
def test_in_loops(loop: str) -> None:
    def kernel(a: Any) -> Any:
        out = nl.ndarray((4, 64, 48), a.dtype, buffer=nl.shared_hbm)
        tile = nl.load(a)

        def body(i: Any) -> None:
            tile[...] = nl.add(tile, 1)
            tile[0:32, 0:4] = tile[32:64, 4:8]
            out.select(0, i)[...] = tile

        if loop == "fori":
            nl.fori_loop(0, 4, body)
        else:
            for i in nl.dynamic_range(4) if loop == "dynamic" else range(4):
                body(i)
        return out

    wanted, now = np.empty((4, 64, 48), np.float32), X.copy()
    for i in range(4):
        now += 1
        now[0:32, 0:4] = now[32:64, 4:8]
        wanted[i] = now
    np.testing.assert_array_equal(both(kernel, X), wanted)


def test_two_cores_write_their_halves() -> None:
    def kernel(a: Any) -> Any:
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        half = nl.ds(nl.program_id(0) * 32, 32)
        out[half] = nl.load(a[half])
        return out

    np.testing.assert_array_equal(both(kernel, X, lnc=2), X)


def test_the_instruction_is_at_the_assignment() -> None:
    def kernel(a: Any) -> Any:
        tile, out = nl.load(a), nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        out[0:64, :] = tile
        return out

    run = nki.simulate(kernel)
    run(X)
    frame = list(run.report.programs[0].body.walk())[-1].location.frames[0]
    assert linecache.getline(frame.file, frame.line)[frame.column : frame.end_column] == "out[0:64, :]"


def test_a_chain_of_targets() -> None:
    def kernel(a: Any) -> Any:
        out, tile = nl.ndarray((2, 64, 48), a.dtype, buffer=nl.shared_hbm), nl.load(a)
        out[0] = out[1] = tile
        return out

    np.testing.assert_array_equal(both(kernel, X), np.stack([X, X]))


def integers(a: Any) -> Any:
    return nl.ndarray(a.shape, nl.int32)


@pytest.mark.parametrize(
    ("code", "assign"),
    [
        ("tensor.assignment", lambda a: nl.load(a).__setitem__(..., None)),
        ("tensor.assignment", lambda a: nl.load(a).__setitem__(..., [1.0])),
        ("tensor.assignment", lambda a: nl.load(a).__setitem__(..., X)),
        ("tensor.assignment", lambda a: nl.load(a).__setitem__(..., nisa.register_alloc(1))),
        ("tensor.assignment", lambda a: a.__setitem__(..., nisa.memset(nl.load(a), 0))),
        ("tensor_copy.shapes", lambda a: nl.load(a).__setitem__(np.s_[:, 0:4], nl.load(a)[:, 0:8])),
        ("tensor_copy.shapes", lambda a: nl.load(a).__setitem__(np.s_[0:32], nl.load(a))),
        ("dma_copy.element-count", lambda a: a.__setitem__(np.s_[0:3], nl.load(a))),
        ("dma_copy.element-count", lambda a: nl.load(a).__setitem__(np.s_[0:3], a)),
        ("operand.start-partition", lambda a: nl.load(a).__setitem__(np.s_[8:48], 0)),
        ("access.out-of-bounds", lambda a: a.__setitem__(64, 0)),
        ("memset.value-kind", lambda a: integers(a).__setitem__(..., 1.5)),
        ("language.number", lambda a: a.__setitem__(..., 10**40)),
    ],
)
def test_refused(code: str, assign: Callable[[Any], None]) -> None:
    def kernel(a: Any) -> Any:
        assign(a)
        return a

    assert rejection(kernel, X).code == code


def test_a_tensor_of_another_call_is_refused() -> None:
    kept = []
    nki.simulate(lambda a: kept.append(nl.load(a)))(X)

    def kernel(a: Any) -> None:
        a[...] = kept[0]

    assert rejection(kernel, X).code == "tensor.escaped"
