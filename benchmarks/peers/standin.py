"""A stand-in for a plain simulator: every instruction is a few lines of NumPy, as public documents describe it.

Tensors start as NaN, shapes are checked, low precision is stored with ml_dtypes and computed in float32. Tiles are
128 x 512, and the matrix product is blocked as in the documents' fastest tutorial kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from benchmarks.peers.cases import EPSILON, SCALE, SHIFT, Case, on_chip_layout

F4 = np.float32
ROWS, COLUMNS = 128, 512
SBUF, PSUM, HBM = "sbuf", "psum", "hbm"


class Tile:
    """An array in one of the memories; slices share the note whether a matmul has written the whole."""

    __slots__ = ("data", "memory", "root", "written")

    def __init__(self, data: np.ndarray, memory: str, root: Tile | None = None) -> None:
        self.data, self.memory, self.root, self.written = data, memory, root or self, False

    @property
    def shape(self) -> tuple[int, ...]:
        return self.data.shape

    @property
    def dtype(self) -> np.dtype:
        return self.data.dtype

    def __getitem__(self, index: Any) -> Tile:
        return Tile(self.data[index], self.memory, self.root)


def allocated(shape: tuple[int, ...], dtype: Any, memory: str) -> Tile:
    """NaN, so that what was never written shows."""
    if memory != HBM:
        _require(shape[0] <= ROWS, "partitions")
    return Tile(np.full(shape, np.nan, dtype), memory)


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(what)


def _checked(*tiles: Any) -> None:
    for tile in tiles:
        if isinstance(tile, Tile) and tile.memory != HBM:
            _require(tile.data.shape[0] <= ROWS, "partitions")
            _require(tile.data.ndim >= 2, "dimensions")


def _float(tile: Tile) -> np.ndarray:
    return tile.data.astype(F4) if tile.data.dtype != F4 else tile.data


def _operand(value: Any) -> Any:
    return _float(value) if isinstance(value, Tile) else F4(value)


def copy(dst: Tile, src: Tile) -> None:
    """dma_copy and tensor_copy."""
    _checked(dst, src)
    _require(dst.shape == src.shape, "shapes")
    dst.data[...] = src.data


def matmul_tile(dst: Tile, stationary: Tile, moving: Tile) -> None:
    """nc_matmul: adds to what a matmul wrote before."""
    _checked(dst, stationary, moving)
    _require((dst.memory, stationary.memory, moving.memory) == (PSUM, SBUF, SBUF), "memories")
    (depth, height), (same, width) = stationary.shape, moving.shape
    _require(depth == same and height <= ROWS and width <= COLUMNS and dst.shape == (height, width), "shapes")
    product = np.matmul(_float(stationary).T, _float(moving))
    if dst.root.written:
        dst.data += product
    else:
        dst.data[...] = product
        dst.root.written = True


def transpose_tile(dst: Tile, data: Tile) -> None:
    """nc_transpose."""
    _checked(dst, data)
    _require(dst.memory == PSUM, "memories")
    dst.data[...] = data.data.T


def activation(dst: Tile, op: Any, data: Tile, bias: Any = None, scale: float = 1.0, total: Tile | None = None) -> None:
    """``op(data * scale + bias)``, and its sum along the rows."""
    _checked(dst, data, bias)
    values = _float(data) * F4(scale)
    if bias is not None:
        values = values + _operand(bias)
    result = op(values)
    if total is not None:
        total.data[...] = np.add.reduce(result, axis=1, keepdims=True)
    dst.data[...] = result


def tensor_tensor(dst: Tile, a: Tile, b: Tile, op: Any) -> None:
    """Elementwise."""
    _checked(dst, a, b)
    _require(a.shape == b.shape == dst.shape, "shapes")
    dst.data[...] = op(_float(a), _float(b))


def tensor_scalar(dst: Tile, data: Tile, op: Any, operand: Any, op1: Any = None, operand1: Any = None) -> None:
    """Elementwise with a number or a column."""
    _checked(dst, data)
    values = op(_float(data), _operand(operand))
    if op1 is not None:
        values = op1(values, _operand(operand1))
    dst.data[...] = values


def reduced(dst: Tile, op: Any, data: Tile, negate: bool = False) -> None:
    """tensor_reduce along the rows."""
    _checked(dst, data)
    values = op.reduce(_float(data), axis=1, keepdims=True)
    dst.data[...] = -values if negate else values


def reciprocal(dst: Tile, data: Tile) -> None:
    """``1 / data``."""
    _checked(dst, data)
    dst.data[...] = 1 / _float(data)


def _gelu(x: np.ndarray) -> np.ndarray:
    return F4(0.5) * x * (1 + np.tanh(F4(0.7978845608028654) * (x + F4(0.044715) * x * x * x)))


def _rsqrt(x: np.ndarray) -> np.ndarray:
    return 1 / np.sqrt(x)


def _column(dtype: Any = F4) -> Tile:
    return allocated((ROWS, 1), dtype, SBUF)


def _pieces(width: int) -> list[slice]:
    return [slice(start, start + COLUMNS) for start in range(0, width, COLUMNS)]


def _rows(height: int) -> list[slice]:
    return [slice(start, start + ROWS) for start in range(0, height, ROWS)]


def vadd(x: Tile, y: Tile) -> Tile:
    """``x + y``."""
    out = allocated(x.shape, x.dtype, HBM)
    for rows in _rows(x.shape[0]):
        for columns in _pieces(x.shape[1]):
            a, b, total = (allocated((ROWS, COLUMNS), x.dtype, SBUF) for _ in range(3))
            copy(a, x[rows, columns])
            copy(b, y[rows, columns])
            tensor_tensor(total, a, b, np.add)
            copy(out[rows, columns], total)
    return out


def gelu(x: Tile) -> Tile:
    """``gelu(x * SCALE + SHIFT)``."""
    out = allocated(x.shape, x.dtype, HBM)
    for rows in _rows(x.shape[0]):
        for columns in _pieces(x.shape[1]):
            a, result = (allocated((ROWS, COLUMNS), x.dtype, SBUF) for _ in range(2))
            copy(a, x[rows, columns])
            activation(result, _gelu, a, bias=SHIFT, scale=SCALE)
            copy(out[rows, columns], result)
    return out


def softmax(x: Tile) -> Tile:
    """Over the columns."""
    out = allocated(x.shape, x.dtype, HBM)
    width, pieces = x.shape[1], _pieces(x.shape[1])
    for rows in _rows(x.shape[0]):
        row, largest = allocated((ROWS, width), x.dtype, SBUF), allocated((ROWS, len(pieces)), F4, SBUF)
        for i, here in enumerate(pieces):
            copy(row[:, here], x[rows, here])
            reduced(largest[:, i : i + 1], np.maximum, row[:, here])
        low = _column()
        reduced(low, np.maximum, largest, negate=True)
        exponentials, sums = allocated((ROWS, width), F4, SBUF), allocated((ROWS, len(pieces)), F4, SBUF)
        for i, here in enumerate(pieces):
            activation(exponentials[:, here], np.exp, row[:, here], bias=low, total=sums[:, i : i + 1])
        total, inverse = _column(), _column()
        reduced(total, np.add, sums)
        reciprocal(inverse, total)
        for here in pieces:
            result = allocated((ROWS, COLUMNS), x.dtype, SBUF)
            tensor_scalar(result, exponentials[:, here], np.multiply, inverse)
            copy(out[rows, here], result)
    return out


def rmsnorm(x: Tile, weight: Tile) -> Tile:
    """``x / sqrt(mean(x ** 2) + EPSILON) * weight``."""
    out = allocated(x.shape, x.dtype, HBM)
    width, pieces = x.shape[1], _pieces(x.shape[1])
    gain = allocated((ROWS, width), x.dtype, SBUF)
    copy(gain, Tile(np.broadcast_to(weight.data, (ROWS, width)), HBM))
    for rows in _rows(x.shape[0]):
        row, sums = allocated((ROWS, width), x.dtype, SBUF), allocated((ROWS, len(pieces)), F4, SBUF)
        for i, here in enumerate(pieces):
            copy(row[:, here], x[rows, here])
            activation(allocated((ROWS, COLUMNS), F4, SBUF), np.square, row[:, here], total=sums[:, i : i + 1])
        total, mean, scale = _column(), _column(), _column()
        reduced(total, np.add, sums)
        tensor_scalar(mean, total, np.multiply, 1.0 / width, np.add, EPSILON)
        activation(scale, _rsqrt, mean)
        for here in pieces:
            scaled, result = allocated((ROWS, COLUMNS), F4, SBUF), allocated((ROWS, COLUMNS), x.dtype, SBUF)
            tensor_scalar(scaled, row[:, here], np.multiply, scale)
            tensor_tensor(result, scaled, gain[:, here], np.multiply)
            copy(out[rows, here], result)
    return out


def _loaded(source: Tile) -> Tile:
    tile = allocated(source.shape, source.dtype, SBUF)
    copy(tile, source)
    return tile


def matmul(a: Tile, b: Tile) -> Tile:
    """``a.T @ b``: K in blocks of up to 8 x 128 that are summed in PSUM, the blocks in SBUF."""
    (depth, height), width = a.shape, b.shape[1]
    tall, wide, deep = min(16, height // ROWS), min(2, width // COLUMNS), min(8, depth // ROWS)
    out = allocated((height, width), a.dtype, HBM)
    for left in range(0, width, wide * COLUMNS):
        columns = slice(left, left + wide * COLUMNS)
        sums: dict[tuple[int, int], Tile] = {}
        for i in range(height // ROWS):
            for j in range(wide):
                sums[i, j] = allocated((ROWS, COLUMNS), F4, SBUF)
                sums[i, j].data.fill(0.0)
        for first in range(0, depth, deep * ROWS):
            ks = [slice(k, k + ROWS) for k in range(first, first + deep * ROWS, ROWS)]
            right = [_loaded(b[k, columns]) for k in ks]
            for top in range(0, height, tall * ROWS):
                lefts = [_loaded(a[k, top : top + tall * ROWS]) for k in ks]
                for j, here in enumerate(_pieces(wide * COLUMNS)):
                    for i, rows in enumerate(_rows(tall * ROWS)):
                        product = allocated((ROWS, COLUMNS), F4, PSUM)
                        for x, y in zip(lefts, right, strict=True):
                            matmul_tile(product, x[:, rows], y[:, here])
                        total = sums[top // ROWS + i, j]
                        tensor_tensor(total, total, product, np.add)
        for i, rows in enumerate(_rows(height)):
            result = allocated((ROWS, wide * COLUMNS), a.dtype, SBUF)
            for j, here in enumerate(_pieces(wide * COLUMNS)):
                copy(result[:, here], sums[i, j])
            copy(out[rows, columns], result)
    return out


def attention(q: Tile, k: Tile, v: Tile) -> Tile:
    """All scores of 128 queries at once; q and k are (128, sequence)."""
    head, sequence = q.shape
    out = allocated((sequence, head), q.dtype, HBM)
    queries, keys = _loaded(q), _loaded(k)
    values = [_loaded(v[rows]) for rows in _rows(sequence)]
    pieces, scale = _pieces(sequence), head**-0.5
    for rows in _rows(sequence):
        scores = [allocated((ROWS, COLUMNS), F4, PSUM) for _ in pieces]
        for score, here in zip(scores, pieces, strict=True):
            matmul_tile(score, queries[:, rows], keys[:, here])
        largest = allocated((ROWS, len(pieces)), F4, SBUF)
        for i, score in enumerate(scores):
            reduced(largest[:, i : i + 1], np.maximum, score)
        low, bias = _column(), _column()
        reduced(low, np.maximum, largest, negate=True)
        tensor_scalar(bias, low, np.multiply, scale)
        weights, sums = allocated((ROWS, sequence), q.dtype, SBUF), allocated((ROWS, len(pieces)), F4, SBUF)
        for i, (score, here) in enumerate(zip(scores, pieces, strict=True)):
            activation(weights[:, here], np.exp, score, bias=bias, scale=scale, total=sums[:, i : i + 1])
        total, inverse = _column(), _column()
        reduced(total, np.add, sums)
        reciprocal(inverse, total)
        product = allocated((ROWS, head), F4, PSUM)
        for chunk, here in zip(values, _rows(sequence), strict=True):
            turned, back = allocated((ROWS, ROWS), q.dtype, PSUM), allocated((ROWS, ROWS), q.dtype, SBUF)
            transpose_tile(turned, weights[:, here])
            copy(back, turned)
            matmul_tile(product, back, chunk)
        result = allocated((ROWS, head), q.dtype, SBUF)
        tensor_scalar(result, product, np.multiply, inverse)
        copy(out[rows], result)
    return out


KERNELS: dict[str, Callable[..., Tile]] = {
    "vadd": vadd, "gelu": gelu, "softmax": softmax, "rmsnorm": rmsnorm, "matmul": matmul, "attention": attention,
}  # fmt: skip


def build(case: Case, arrays: list[np.ndarray], variant: str) -> tuple[Callable[[], Any], Callable[[Any], np.ndarray]]:
    """A call, and how its result becomes a float32 array; there is one variant."""
    kernel, given = KERNELS[case.kernel], on_chip_layout(case, arrays)
    return lambda: kernel(*(Tile(array, HBM) for array in given)).data, lambda result: result.astype(F4)
