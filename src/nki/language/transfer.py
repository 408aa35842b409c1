"""Data between memories: load, store, copy, load_transpose2d, gather_flattened, device_print."""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
from nki.core.dtypes import int32, uint32
from nki.core.errors import ArgumentError, DtypeError, TensorError
from nki.core.nki_tensor import NkiTensor
from nki.core.tensor import MemoryRegion
from nki.isa import functions as unit
from nki.isa import sync
from nki.language.arguments import hbm_tensor, integer, public, result_dtype, tile
from nki.language.combine import cast, copied, in_sbuf
from nki.language.memory import new_tile
from nki.spec.operator import names_operator
from nki.spec.sink import current_sink

_EXACT_COPY_SINCE = "0.6"


@public
def load(src: NkiTensor, dtype: Any = None) -> NkiTensor:
    """A new SBUF tile with the values of an HBM tensor.

    Args:
        src: HBM tensor or a view of one. Its first dimension becomes the partitions; a vector gives ``(N, 1)``.
        dtype: of the tile; that of `src` by default. A cast passes through float32.
    """
    source = hbm_tensor(src, "src", "load")
    shape = source.shape if source.ndim > 1 else (*source.shape, 1)
    result = new_tile(shape, result_dtype(dtype, source.dtype))
    nisa.dma_copy(dst=result, src=source)
    return result


@public
def store(dst: NkiTensor, value: NkiTensor) -> None:
    """Write a tile to an HBM tensor, which has as many elements; a cast passes through float32.

    Args:
        dst: HBM tensor or a view of one.
        value: tile in SBUF; one in PSUM, where DMA cannot read, is copied to SBUF first.
    """
    if isinstance(dst, NkiTensor) and isinstance(value, NkiTensor) and dst.buffer.on_chip > value.buffer.on_chip:
        raise TensorError(
            "language.region",
            f"nl.store: dst is {dst.view_record.describe()}, value is {value.view_record.describe()}",
            rule="nl.store writes a tile to a tensor in HBM",
            source="nki/api/nki/language/__init__.py",
            fix="exchange the two to write the tensor in HBM, or write dst[...] = value to read it",
        )
    target = hbm_tensor(dst, "dst", "store")
    nisa.dma_copy(dst=target, src=in_sbuf(tile(value, "value", "store", packed=True)))


@names_operator(unit.COPY)
@public
def copy(x: Any, dtype: Any = None) -> NkiTensor:
    """A new SBUF tile with the values of `x`: the bits, unless `dtype` asks for a cast through float32.

    With NKI_API_VERSION below 0.6 it is what it was then: the Scalar engine copies through float32, from SBUF only
    (release-notes/components/nki.rst, 0.6.0 and the known issues of 0.4.0).
    """
    source = tile(x, "x", "copy", packed=True)
    kind = result_dtype(dtype, source.dtype)
    if current_sink("nl.copy").options.api >= _EXACT_COPY_SINCE:
        return copied(source, kind)
    if source.buffer is MemoryRegion.psum:
        raise TensorError(
            "language.copy-region",
            f"nl.copy: x is {source.view_record.describe()}, and NKI_API_VERSION is below {_EXACT_COPY_SINCE}",
            rule="before NKI 0.6, nl.copy did not copy from PSUM to SBUF",
            source="release-notes/components/nki.rst",
            fix=f"use nisa.tensor_copy, or set NKI_API_VERSION={_EXACT_COPY_SINCE}, or write "
            f"@nki.jit(api={_EXACT_COPY_SINCE!r})",
        )
    result = new_tile(source.shape, kind)
    nisa.activation(dst=result, op=unit.COPY, data=source)
    return result


@public
def load_transpose2d(src: NkiTensor, dtype: Any = None) -> NkiTensor:
    """A new SBUF tile ``(columns, rows)`` with the transpose of a 2-D HBM tensor ``(rows, columns)``.

    By nisa.dma_transpose where the target has it for this dtype, else by a DMA that reads with a stride. Dimensions of
    size 1 beyond two are left out, the last ones first.
    """
    source = _two_dimensional(hbm_tensor(src, "src", "load_transpose2d"))
    target = current_sink("nl.load_transpose2d").target
    result = new_tile((source.shape[1], source.shape[0]), source.dtype)
    if target.has("dma_transpose") and source.dtype.itemsize in target.dma.transpose_dtype_bytes:
        nisa.dma_transpose(dst=result, src=source)
    else:
        nisa.dma_copy(dst=result, src=source.permute((1, 0)))
    return cast(result, result_dtype(dtype, source.dtype))


def _two_dimensional(source: NkiTensor) -> NkiTensor:
    """The tensor without dimensions of size 1, until it has two."""
    given = source
    for at in reversed(range(source.ndim)):
        if source.ndim > 2 and source.shape[at] == 1:
            source = source.squeeze_dim(at)
    if source.ndim != 2:
        raise TensorError(
            "language.rank",
            f"nl.load_transpose2d: src is {given.view_record.describe()}",
            rule="src has two dimensions, beside those of size 1",
            fix="slice or reshape it",
        )
    return source


@public
def gather_flattened(data: NkiTensor, indices: NkiTensor, axis: int = 0, dtype: Any = None) -> NkiTensor:
    """``result[p, i] = data[p].flatten()[indices[p, i]]``: a new SBUF tile of the shape of `indices`, on GpSimd.

    Args:
        data: tile; its free dimensions count as one.
        indices: uint32 or int32 tile with the partitions of `data`; each index is inside the row of `data`.
        axis: 0, the partitions, which stay apart; nothing else exists.
        dtype: of the result; that of `data` by default.
    """
    source = in_sbuf(tile(data, "data", "gather_flattened"))
    index = in_sbuf(tile(indices, "indices", "gather_flattened"))
    if integer(axis, "axis", "gather_flattened") != 0:
        raise ArgumentError(
            "language.axis",
            f"nl.gather_flattened: axis is {axis}",
            rule="rows are gathered from within each partition",
            fix="omit axis; permute the free dimensions before if their order matters",
        )
    if index.dtype not in (uint32, int32):
        raise DtypeError(
            "language.index",
            f"nl.gather_flattened: indices is {index.view_record.describe()}",
            rule="indices are 32-bit integers",
            fix="use nl.copy(indices, dtype=nl.uint32)",
        )
    result = new_tile(index.shape, source.dtype)
    nisa.nc_n_gather(dst=result, data=source, indices=index.view(uint32))
    return cast(result, result_dtype(dtype, source.dtype))


@public
def device_print(print_prefix: str, tensor: NkiTensor) -> None:
    """Print a tensor in SBUF or HBM when the kernel runs, after a prefix that is known when it is traced."""
    sync.device_print(prefix=print_prefix, tensor=tensor)
