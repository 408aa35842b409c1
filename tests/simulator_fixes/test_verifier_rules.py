"""What a loose simulator computes and the compiler refuses, what a strict one refuses, and what computes otherwise."""

from __future__ import annotations

import linecache
from typing import Any

import numpy as np
import pytest

import nki.isa as nisa
import nki.language as nl
from nki.core.errors import NkiError
from tests.isa.tiles import dma_load as load
from tests.isa.tiles import filled, store
from tests.support import both, rejection

X = np.arange(32, dtype=np.float32).reshape(4, 8)


def refused(kernel: Any, *args: Any, code: str, at: str, **options: Any) -> NkiError:
    """Refused in both modes for this reason, with this text underlined, and with a remedy."""
    error = rejection(kernel, *args, **options)
    assert (error.code, bool(error.rule), bool(error.fix)) == (code, True, True), error
    frame = error.location.frames[0]
    line = linecache.getline(frame.file, frame.line)
    assert line[frame.column : frame.end_column] == at
    return error


def test_tensor_scalar_operand_is_float32() -> None:
    def kernel(a: Any) -> Any:
        tile, column = load(a), filled((4, 1), 3, np.int32)
        nisa.tensor_scalar(tile, tile, nl.add, column)
        return store(tile)

    refused(kernel, X, code="tensor_scalar.operand-dtype", at="nisa.tensor_scalar(tile, tile, nl.add, column)")


def test_tensor_scalar_operand_is_a_column() -> None:
    def kernel(a: Any) -> Any:
        tile = load(a)
        nisa.tensor_scalar(tile, tile, nl.add, tile[:, 0:2])
        return store(tile)

    refused(kernel, X, code="operand.column", at="nisa.tensor_scalar(tile, tile, nl.add, tile[:, 0:2])")


def test_shift_after_arithmetic() -> None:
    def kernel(a: Any) -> Any:
        tile = load(a)
        nisa.tensor_scalar(tile, tile, nl.add, 1, op1=nl.right_shift, operand1=2)
        return store(tile)

    def two_steps(a: Any) -> Any:
        tile = load(a)
        nisa.tensor_scalar(tile, tile, nl.add, 1.0)
        nisa.tensor_scalar(tile, tile, nl.right_shift, 2)
        return store(tile)

    at = "nisa.tensor_scalar(tile, tile, nl.add, 1, op1=nl.right_shift, operand1=2)"
    whole = X.astype(np.int32)
    refused(kernel, whole, code="tensor_scalar.mixed-classes", at=at)
    np.testing.assert_array_equal(both(two_steps, whole), (whole + 1) >> 2)


def test_divide_is_no_operator() -> None:
    def kernel(a: Any) -> Any:
        tile = load(a)
        nisa.tensor_tensor(tile, tile, tile, nl.divide)
        return store(tile)

    error = refused(kernel, X, code="operand.operator", at="nisa.tensor_tensor(tile, tile, tile, nl.divide)")
    assert "reciprocal" in error.fix


def test_divide_of_integers() -> None:
    def kernel(a: Any, b: Any) -> Any:
        return store(nl.divide(load(a), load(b)))

    a, b = np.array([[7, -9, 100, 2**20, 5, 6]], np.int32), np.array([[2, 4, 7, 3, -5, 4]], np.int32)
    wanted = [[round(int(x) / int(y)) for x, y in zip(a[0], b[0], strict=True)]]
    assert both(kernel, a, b).tolist() == wanted


def test_logical_cores_of_a_kernel() -> None:
    def halves(a: Any) -> Any:
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        half = (a.shape[0] + 1) // nl.num_programs()
        start = nl.program_id(0) * half
        nisa.dma_copy(dst=out[start : start + half], src=a[start : start + half])
        return out

    np.testing.assert_array_equal(both(halves, X, lnc=2), X)
    refused(halves, X[:3], lnc=2, code="access.out-of-bounds", at="out[start : start + half]")
    assert rejection(halves, X, lnc=3).code == "launch.lnc"
    assert rejection(halves, X, lnc=2, target="trn1").code == "launch.lnc"


def test_partitions_of_an_operand() -> None:
    def kernel(a: Any) -> Any:
        tile = nl.ndarray((129, 8), a.dtype, buffer=nl.sbuf)
        return store(tile)

    at = "nl.ndarray((129, 8), a.dtype, buffer=nl.sbuf)"
    assert "129" in refused(kernel, X, code="tensor.partitions", at=at).message


def test_start_partition() -> None:
    def kernel(a: Any) -> Any:
        tile = filled((128, 8), 0.0)
        nisa.tensor_copy(tile[32:96], tile[0:64])
        return store(tile)

    error = refused(kernel, X, code="operand.start-partition", at="nisa.tensor_copy(tile[32:96], tile[0:64])")
    assert "32" in error.message and "64" in error.message


def test_broadcast_by_pattern() -> None:
    """Partitions meet partitions: NumPy would align a leading size with a free dimension."""

    def multiply(a: Any, b: Any) -> Any:
        return store(nl.multiply(load(a), load(b)))

    def instruction(a: Any, b: Any) -> Any:
        tile, other = load(a), load(b)
        nisa.tensor_tensor(tile, tile, other, nl.multiply)
        return store(tile)

    def by_pattern(a: Any, b: Any) -> Any:
        tile, other = load(a), load(b)
        nisa.tensor_tensor(tile, tile, other.expand_dim(1).broadcast(1, 3), nl.multiply)
        return store(tile)

    r = np.random.default_rng(1)
    a, b, small = (r.integers(-9, 9, shape).astype(np.float32) for shape in ((4, 3, 5), (4, 5), (3, 5)))
    wanted = np.stack([a[row] * b[row] for row in range(4)])
    np.testing.assert_array_equal(both(multiply, a, b), wanted)
    np.testing.assert_array_equal(both(by_pattern, a, b), wanted)
    refused(multiply, a, small, code="language.broadcast", at="nl.multiply(load(a), load(b))")
    at = "nisa.tensor_tensor(tile, tile, other, nl.multiply)"
    refused(instruction, a, b, code="tensor_tensor.shapes", at=at)


def test_fill_value_is_honoured_or_refused() -> None:
    def kernel(a: Any) -> Any:
        tile, low = load(a), filled((4, 1), 0.0)
        nisa.range_select(tile, tile, nl.greater, nl.less, low, low, on_false_value=0.0)
        return store(tile)

    at = "nisa.range_select(tile, tile, nl.greater, nl.less, low, low, on_false_value=0.0)"
    assert "0.0" in refused(kernel, X, code="range_select.on-false-value", at=at).message


def test_bias_of_an_activation() -> None:
    def immediate(a: Any) -> Any:
        tile = load(a)
        nisa.activation(tile, nl.square, tile, bias=1.0)
        return store(tile)

    def tile_of_ones(a: Any) -> Any:
        tile = load(a)
        nisa.activation(tile, nl.square, tile, bias=filled((4, 1), 1.0))
        return store(tile)

    at = "nisa.activation(tile, nl.square, tile, bias=1.0)"
    refused(immediate, X, target="trn1", code="activation.bias-immediate", at=at)
    for kernel, target in ((immediate, "trn2"), (tile_of_ones, "trn1")):
        np.testing.assert_array_equal(both(kernel, X, target=target), (X + 1) ** 2)


def test_dma_reads_no_psum() -> None:
    def kernel(a: Any) -> Any:
        bank, out = filled(a.shape, 1.0, buffer=nl.psum), nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=bank)
        return out

    refused(kernel, X, code="operand.region", at="nisa.dma_copy(dst=out, src=bank)")


@pytest.mark.parametrize("rows", [1, 7, 33, 127])
def test_matmul_of_few_rows(rows: int) -> None:
    def kernel(a: Any, b: Any) -> Any:
        total = nl.ndarray((5, 6), np.float32, buffer=nl.psum)
        nisa.nc_matmul(total, load(a), load(b))
        return store(nl.copy(total))

    r = np.random.default_rng(rows)
    a, b = r.integers(-3, 4, (rows, 5)).astype(np.float32), r.integers(-3, 4, (rows, 6)).astype(np.float32)
    wanted = sum(np.outer(x, y) for x, y in zip(a, b, strict=True))
    np.testing.assert_array_equal(both(kernel, a, b), wanted)


def test_transposed_load_as_moving() -> None:
    def kernel(a: Any, b: Any) -> Any:
        total = nl.ndarray((3, 8), np.float32, buffer=nl.psum)
        nisa.nc_matmul(total, nl.load(a), nl.load_transpose2d(b))
        return store(nl.copy(total))

    r = np.random.default_rng(2)
    a, b = r.integers(-3, 4, (12, 3)).astype(np.float32), r.integers(-3, 4, (8, 12)).astype(np.float32)
    np.testing.assert_array_equal(both(kernel, a, b), np.einsum("km,nk->mn", a, b))


def test_transpose_goes_on_chip() -> None:
    def kernel(a: Any) -> Any:
        turned = nl.transpose(nl.load(a))
        assert nl.is_on_chip(turned.buffer)
        return store(nl.add(turned, 1.0))

    np.testing.assert_array_equal(both(kernel, X), np.array([[X[i, j] + 1 for i in range(4)] for j in range(8)]))


def test_copy_is_no_view() -> None:
    def kernel(a: Any) -> Any:
        tile = nl.load(a)
        copied = nl.copy(tile)
        nisa.memset(copied, 0.0)
        return store(tile), store(copied)

    tile, copied = both(kernel, X)
    np.testing.assert_array_equal(tile, X)
    assert not copied.any()


@pytest.mark.filterwarnings("ignore:.lint.integer-precision.")
def test_wide_integers_on_vector() -> None:
    def kernel(a: Any) -> Any:
        tile, ones = load(a), filled(a.shape, 1, np.int32)
        by_float, exact = filled(a.shape, 0, np.int32), filled(a.shape, 0, np.int32)
        nisa.tensor_scalar(by_float, tile, nl.add, 1.0)
        nisa.tensor_tensor(exact, tile, ones, nl.add)
        return store(by_float), store(exact)

    a = np.array([[2**24 + 1, -(2**30) - 5, 77, 2**31 - 2]], np.int32)
    by_float, exact = both(kernel, a)
    np.testing.assert_array_equal(exact, a + 1)
    rounded = (a.astype(np.float32) + np.float32(1)).astype(np.float64)
    np.testing.assert_array_equal(by_float, np.minimum(rounded, 2**31 - 1))


def test_local_gather_of_runs() -> None:
    def kernel(a: Any, names: Any) -> Any:
        tile = filled((16, 10), -1.0)
        nisa.local_gather(tile, load(a), load(names), num_elem_per_idx=2, num_valid_indices=3)
        return store(tile)

    a, names = np.random.default_rng(3).standard_normal((16, 12)).astype(np.float32), np.zeros((16, 1), np.uint16)
    names[:3, 0] = 4, 0, 10
    wanted = np.full((16, 10), -1, np.float32)
    wanted[:, :6] = a[:, [4, 5, 0, 1, 10, 11]]
    with pytest.warns(UserWarning, match=r"local_gather\.dst-exact"):
        np.testing.assert_array_equal(both(kernel, a, names), wanted)
