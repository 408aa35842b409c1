"""Transposes while DMA moves data."""

from __future__ import annotations

from typing import Annotated, Any

from nki.core.dtypes import uint32
from nki.core.tensor import ScalarOffset, View
from nki.isa.dma import (
    INDIRECTION,
    OFFSET_TENSOR,
    PRIORITY,
    DgeMode,
    DmaDst,
    DmaSrc,
    OobMode,
    Priority,
    by_rows,
)
from nki.spec.arrays import Arrays
from nki.spec.cost_dma import DMA_TRANSPOSE
from nki.spec.engine import dge_mode, oob_mode
from nki.spec.engine import engine as Engine
from nki.spec.instruction import instruction
from nki.spec.operand import Name, Operand
from nki.spec.rule import Rule
from nki.target.model import Target

_TRANSPOSE = "nki/api/nki/isa dma_transpose"
_DGE = "nki/deep-dives/nki-dge.rst"

_PERMUTATIONS = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}
_MAX_COLUMNS = 128  # of a transpose whose descriptors are generated on the device
_GROUP = 16  # rows that such a transpose handles together


def _permuted(a: Any) -> tuple[int, ...]:
    return tuple(a.src.shape[axis] for axis in _PERMUTATIONS[a.src.ndim])


def _generated(a: Any) -> bool:
    """Whether descriptors are generated on the device: by hardware, or for an indirect source by GpSimd."""
    return a.dge_mode is dge_mode.hwdge or by_rows(a.src)


def _rows_fit(a: Any, t: Target) -> bool:
    rows, shape = a.src.shape[0], a.src.shape
    if by_rows(a.src):
        return rows % _GROUP == 0
    if a.dge_mode is not dge_mode.hwdge:
        return True
    return rows == _GROUP if a.src.ndim == 2 else rows in (1, 2, 4, 8, 16) and rows * shape[-2] % _GROUP == 0


def _index_fits(a: Any, t: Target) -> bool:
    if not by_rows(a.src):
        return True
    index = a.src.dynamic.indices
    if index.ndim != 2 or index.dtype != uint32 or index.size < a.src.shape[0]:
        return False
    partitions, columns = index.shape
    return partitions % _GROUP == 0 and (columns == 1 or partitions == t.partitions)


@instruction(
    moves_bits=True,
    engines=(Engine.dma,),
    feature="dma_transpose",
    source=_TRANSPOSE,
    rules=[
        Rule(
            "rank",
            "src has 2, 3 or 4 dimensions",
            lambda a, t: a.src.ndim in _PERMUTATIONS,
            _TRANSPOSE,
            "reshape src",
            lambda a, t: f"src has {a.src.ndim} dimensions",
        ),
        Rule(
            "axes",
            "axes is (1, 0), (2, 1, 0) or (3, 1, 2, 0), by the rank of src",
            lambda a, t: a.src.ndim not in _PERMUTATIONS or a.axes in (None, _PERMUTATIONS[a.src.ndim]),
            _TRANSPOSE,
            "omit axes",
            lambda a, t: f"axes is {a.axes}, src has {a.src.ndim} dimensions",
        ),
        Rule(
            "shape",
            "dst has exactly the permuted shape of src, including the rank",
            lambda a, t: a.src.ndim not in _PERMUTATIONS or a.dst.shape == _permuted(a),
            "release-notes/components/nki.rst 0.4.0",
            "give dst the rank of src, with dimensions of size 1 where needed",
            lambda a, t: f"dst is {list(a.dst.shape)}, src {list(a.src.shape)} becomes {list(_permuted(a))}",
            remedy=lambda a, t: f"give dst the shape {list(_permuted(a))}",
        ),
        Rule(
            "dtypes",
            "src and dst have the same dtype",
            lambda a, t: a.dst.dtype == a.src.dtype,
            _TRANSPOSE,
            "cast with nisa.dma_copy or nisa.tensor_copy",
            lambda a, t: f"dst is {a.dst.dtype}, src is {a.src.dtype}",
        ),
        Rule(
            "element-size",
            "elements have one of {t.dma.transpose_dtype_bytes} bytes, with descriptors from the device 2",
            lambda a, t: a.src.dtype.itemsize == 2 or (a.src.dtype.itemsize in _sizes(t) and not _generated(a)),
            "nki/guides/architecture/trainium2_arch.rst, DMA Transpose",
            "view the elements as another dtype of 2 bytes",
            lambda a, t: f"src is {a.src.dtype}",
        ),
        Rule(
            "dge-mode",
            "a direct transpose takes unknown, hwdge or none, an indirect one unknown or swdge",
            lambda a, t: a.dge_mode in ((dge_mode.unknown, dge_mode.swdge) if by_rows(a.src) else _direct_modes(a.src)),
            _DGE,
            "use nisa.dge_mode.unknown",
            lambda a, t: f"dge_mode is {a.dge_mode.name}, src is {'in' if by_rows(a.src) else ''}direct",
        ),
        Rule(
            "columns",
            f"with descriptors from the device, the last dimension of src is at most {_MAX_COLUMNS}",
            lambda a, t: not _generated(a) or a.src.shape[-1] <= _MAX_COLUMNS,
            _TRANSPOSE,
            f"transpose pieces of {_MAX_COLUMNS} columns",
            lambda a, t: f"the last dimension is {a.src.shape[-1]}",
        ),
        Rule(
            "rows",
            "an indirect src has a multiple of 16 rows; with hwdge a 2-d src has 16, and others 1, 2, 4, 8 or 16 with "
            "a multiple of 16 together with the last but one dimension",
            _rows_fit,
            _TRANSPOSE,
            "transpose other pieces, or let dge_mode be unknown",
            lambda a, t: f"src is {list(a.src.shape)}",
        ),
        Rule(
            "indirect-rank",
            "a 4-d indirect src has size 1 in dimension 1 or 2",
            lambda a, t: not by_rows(a.src) or a.src.ndim != 4 or 1 in a.src.shape[1:3],
            _TRANSPOSE,
            "transpose slice by slice",
            lambda a, t: f"src is {list(a.src.shape)}",
        ),
        Rule(
            "index",
            "the index is a 2-d uint32 tensor of 16 to 128 partitions, in steps of 16 (128 if it has several columns), "
            "and holds an index for every row",
            _index_fits,
            _TRANSPOSE,
            "load the indices as uint32 of shape (128, columns)",
            lambda a, t: f"the index is {a.src.dynamic.indices.describe()} for {a.src.shape[0]} rows",
        ),
        OFFSET_TENSOR,
        INDIRECTION,
        Rule(
            "dst-direct",
            "dst takes no vector offset",
            lambda a, t: not by_rows(a.dst),
            _TRANSPOSE,
            "transpose to SBUF, then scatter with nisa.dma_copy",
            lambda a, t: "dst has a vector offset",
        ),
        Rule(
            "oob-mode",
            "oob_mode.skip needs a src whose address is known at run time only",
            lambda a, t: a.oob_mode is oob_mode.error or a.src.dynamic is not None,
            _TRANSPOSE,
            "omit oob_mode",
            lambda a, t: "the address of src is static",
        ),
        PRIORITY,
    ],
    steps=DMA_TRANSPOSE,
)
def dma_transpose(
    dst: DmaDst,
    src: DmaSrc,
    axes: Annotated[tuple[int, ...] | None, Operand("ints")] = None,
    priority: Priority = None,
    dge_mode: DgeMode = dge_mode.unknown,
    oob_mode: OobMode = oob_mode.error,
    name: Name = None,
) -> None:
    """Transpose while moving: the last dimension of `src` becomes the first of `dst`, bit for bit.

    The permutation belongs to the rank: (1, 0), (2, 1, 0) or (3, 1, 2, 0).

    `src` may gather rows of an HBM tensor (``.ap(..., vector_offset=index)``): row r comes from
    ``index.T.flatten()[r]``, so the index counts down the partitions first. With ``oob_mode.skip``, the columns of
    `dst` that belong to rows out of bounds stay as they are. nki-dge.rst still lists older limits for hwdge; those of
    the instruction reference count here. It allows ``dge_mode.none`` for a direct transpose, which the reference
    leaves out; it is accepted.

    Args:
        dst: SBUF or HBM, the dtype of src.
        src: HBM or SBUF, 2-byte or 4-byte elements, with hwdge or an index tensor only 2-byte ones.
        axes: the permutation, only as a reminder.
        priority: 0 (highest) to 3, where the target has DMA priorities.
        dge_mode: who writes the descriptors.
        oob_mode: what a row outside the tensor does.
    """


def _sizes(t: Target) -> tuple[int, ...]:
    return t.dma.transpose_dtype_bytes


def _direct_modes(src: View) -> tuple[dge_mode, ...]:
    if isinstance(src.dynamic, ScalarOffset):
        return tuple(dge_mode)
    return (dge_mode.unknown, dge_mode.hwdge, dge_mode.none)


@dma_transpose.body
def _(a: Any, x: Arrays) -> None:
    x.dma(a.dst, a.src, a.oob_mode is oob_mode.skip, axes=_PERMUTATIONS[a.src.ndim])
