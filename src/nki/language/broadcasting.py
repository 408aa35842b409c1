"""One shape for several tiles: free dimensions by views, partitions by products with ones or by shuffles."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import nki.isa as nisa
from nki.core.dtypes import float32
from nki.core.errors import TensorError
from nki.core.nki_tensor import NkiTensor
from nki.core.tensor import MemoryRegion
from nki.isa import functions as unit
from nki.language.arguments import integer, public, result_dtype, tile
from nki.language.memory import copied_tile, ndarray, new_tile
from nki.spec.allocation import checked_shape
from nki.spec.sink import current_sink


def common_shape(function: str, tiles: Iterable[NkiTensor]) -> tuple[int, ...]:
    """The shape that all tiles broadcast to.

    Partitions meet partitions; free dimensions align at the end, as in NumPy. A size 1 repeats.
    """
    shapes = [t.shape for t in tiles]
    rank = max(len(shape) for shape in shapes)
    padded = [(shape[0], *[1] * (rank - len(shape)), *shape[1:]) for shape in shapes]
    sizes = [{n for n in dim if n != 1} for dim in zip(*padded, strict=True)]
    if any(len(found) > 1 for found in sizes):
        raise TensorError(
            "language.broadcast",
            f"nl.{function}: shapes {' and '.join(str(list(s)) for s in shapes)} do not fit together",
            rule="sizes are equal or 1; partitions meet partitions, free dimensions align at the end",
            fix="slice or reshape one of them, or insert a dimension with nl.expand_dims",
        )
    return tuple(found.pop() if found else 1 for found in sizes)


def fit(x: NkiTensor, shape: tuple[int, ...]) -> NkiTensor:
    """`x` with a shape that `common_shape` gave: a view, or a new tile if it has to be spread over partitions."""
    if x.shape[0] != shape[0]:
        x = spread(x, shape[0])
    while x.ndim < len(shape):
        x = x.expand_dim(1)
    for dim, size in enumerate(shape):
        if x.shape[dim] != size:
            x = x.broadcast(dim, size)
    return x


def spread(x: NkiTensor, partitions: int) -> NkiTensor:
    """A new SBUF tile with the single partition of `x` in all of its partitions.

    Floats of 2 and 4 bytes are multiplied by ones on the Tensor engine (nki/guides/architecture/
    trainium_inferentia2_arch.rst, "NKI invokes such matmul under the hood"), which leaves Vector free; a negative zero
    becomes 0. All others are shuffled on Vector, bit for bit: integers have no product there, and 8-bit floats have
    NaNs that a product does not keep.
    """
    target = current_sink("nl.broadcast_to").target
    if x.dtype.is_float and x.dtype.itemsize > 1 and x.dtype in target.pe.input_dtypes:
        return _multiplied(x, partitions)
    return _shuffled(x, partitions)


def _multiplied(x: NkiTensor, partitions: int) -> NkiTensor:
    """Repeat a row by a product with ones, a bank of PSUM at a time.

    The tile is a copy, because a kernel may give it to what cannot read PSUM.
    """
    target = current_sink("nl.broadcast_to").target
    row, size = _first_partition(x, target.quadrant), x.view_record.free_size
    if row.buffer is not MemoryRegion.sbuf or not row.is_contiguous():
        row = new_tile(x.shape, x.dtype)
        nisa.tensor_copy(dst=row, src=x)
    ones = new_tile((1, partitions), x.dtype)
    nisa.memset(dst=ones, value=1.0)
    result = copied_tile((partitions, *x.shape[1:]), x.dtype)
    flat, wide, columns = row.reshape((1, size)), result.reshape((partitions, size)), target.psum.bank_bytes // 4
    for start in range(0, size, columns):
        part = flat[:, start : min(start + columns, size)]
        product = ndarray((partitions, part.shape[1]), float32, MemoryRegion.psum)
        nisa.nc_matmul(dst=product, stationary=ones, moving=part, is_stationary_onezero=True)
        nisa.activation(dst=wide[:, start : start + part.shape[1]], op=unit.COPY, data=product)
    return result


def _shuffled(x: NkiTensor, partitions: int) -> NkiTensor:
    """One shuffle per quadrant of the result; the source may be the first partition of any (nki/api/nki/isa
    nc_stream_shuffle)."""
    quadrant = current_sink("nl.broadcast_to").target.quadrant
    row, result = _first_partition(x, quadrant), new_tile((partitions, *x.shape[1:]), x.dtype)
    for start in range(0, partitions, quadrant):
        rows = result[start : min(start + quadrant, partitions)]
        nisa.nc_stream_shuffle(dst=rows, src=row, shuffle_mask=[0] * quadrant)
    return result


def _first_partition(x: NkiTensor, quadrant: int) -> NkiTensor:
    """`x`, or a copy of it if it is in a partition of SBUF where no operand starts; a DMA brings it there."""
    if x.view_record.start_partition % quadrant == 0 or x.buffer is not MemoryRegion.sbuf:
        return x
    first = new_tile(x.shape, x.dtype)
    nisa.dma_copy(dst=first, src=x)
    return first


@public
def expand_dims(x: Any, axis: int) -> NkiTensor:
    """A view of `x` with a new dimension of size 1 at position `axis`, which is not the partition's."""
    return tile(x, "x", "expand_dims", packed=True).expand_dim(integer(axis, "axis", "expand_dims"))


@public
def broadcast_to(x: Any, shape: Any, dtype: Any = None) -> NkiTensor:
    """`x` repeated along its dimensions of size 1: a new SBUF tile, or `x` itself if nothing changes.

    Args:
        x: tile in SBUF or PSUM.
        shape: as many sizes as `x` has; each one is that of `x`, or `x` has 1 there.
        dtype: of the result; that of `x` by default.
    """
    source = tile(x, "x", "broadcast_to", packed=True)
    sizes = checked_shape(shape, MemoryRegion.sbuf)
    kind = result_dtype(dtype, source.dtype)
    if len(sizes) != source.ndim or any(a not in (1, b) for a, b in zip(source.shape, sizes, strict=True)):
        raise TensorError(
            "language.broadcast",
            f"nl.broadcast_to: {source.view_record.describe()} does not broadcast to {list(sizes)}",
            rule="the rank stays, and only sizes of 1 change",
            fix="insert dimensions with nl.expand_dims first",
        )
    if sizes == source.shape and kind == source.dtype:
        return source
    if sizes[1:] == source.shape[1:] and kind == source.dtype:
        return spread(source, sizes[0])
    result = new_tile(sizes, kind)
    nisa.tensor_copy(dst=result, src=fit(source, sizes))
    return result
