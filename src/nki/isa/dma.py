"""Data movement by the DMA engines between HBM and SBUF."""

from __future__ import annotations

from math import prod
from typing import Annotated, Any

from nki.core.nki_tensor import NkiTensor
from nki.core.tensor import FreeIndirection, MemoryRegion, ScalarOffset, VectorOffset, View
from nki.spec import cost_dma
from nki.spec.arrays import Arrays
from nki.spec.engine import dge_mode, oob_mode
from nki.spec.engine import engine as Engine
from nki.spec.instruction import Deprecated, instruction
from nki.spec.operand import DMA_REACHABLE, Name, Operand, choice, out, source
from nki.spec.rule import Rule
from nki.target.model import Target

_ISA = "nki/api/nki/isa dma_copy"
_DGE = "nki/deep-dives/nki-dge.rst"
_APS = "nki/deep-dives/nki-aps.rst"

DmaDst = Annotated[NkiTensor, out(DMA_REACHABLE, dma=True)]
DmaSrc = Annotated[NkiTensor, source(DMA_REACHABLE, dma=True)]
Priority = Annotated["int | None", Operand("int")]
DgeMode = Annotated[dge_mode, choice(dge_mode)]
OobMode = Annotated[oob_mode, choice(oob_mode)]


def size_of(view: View) -> int:
    """Number of elements."""
    return prod(view.shape)


def by_rows(view: View) -> bool:
    """True if an index tensor chooses the rows (``vector_offset``)."""
    return isinstance(view.dynamic, VectorOffset)


def operands(a: Any) -> list[View]:
    """All tensors of a DMA instruction, sources one by one."""
    sources = a.srcs if "srcs" in a._fields else (a.src,)
    return [a.dst, *sources]


def _index_tensors(a: Any) -> list[View]:
    dynamic = [view.dynamic for view in operands(a)]
    return [d.indices for d in dynamic if isinstance(d, ScalarOffset | VectorOffset) and isinstance(d.indices, View)]


def _row_indices(a: Any) -> list[tuple[View, View]]:
    return [(view, view.dynamic.indices) for view in operands(a) if isinstance(view.dynamic, VectorOffset)]


PRIORITY = Rule(
    "priority",
    "priority is a class that the target has, counted from 0, which is the highest",
    lambda a, t: a.priority is None or 0 <= a.priority < t.dma.priorities,
    _ISA,
    "omit priority",
    lambda a, t: f"priority is {a.priority}, {t.name} has {t.dma.priorities or 'no'} DMA priorities",
)

HWDGE_TARGET = Rule(
    "hwdge-target",
    "hardware descriptor generation exists on the target",
    lambda a, t: a.dge_mode is not dge_mode.hwdge or t.dma.hwdge,
    _ISA,
    "use nisa.dge_mode.unknown",
    lambda a, t: f"dge_mode is nisa.dge_mode.hwdge; {t.name} has no hardware descriptor generation",
)

INDIRECTION = Rule(
    "tensor-indirection",
    "tensor indirection works in engines, not in DMA",
    lambda a, t: not any(isinstance(v.dynamic, FreeIndirection) for v in operands(a)),
    _APS,
    "use nisa.tensor_copy, or vector_offset on an HBM tensor",
    lambda a, t: ", ".join(v.describe() for v in operands(a) if isinstance(v.dynamic, FreeIndirection)),
)

OFFSET_TENSOR = Rule(
    "offset-tensor",
    "offsets that are only known at run time are integers in SBUF, or registers",
    lambda a, t: all(v.region is MemoryRegion.sbuf and v.dtype.is_integer for v in _index_tensors(a)),
    _APS,
    "load the offsets into an integer SBUF tensor first",
    lambda a, t: f"offsets in {', '.join(v.describe() for v in _index_tensors(a))}",
)

INDIRECT_TARGET = Rule(
    "indirect-target",
    "DMA by index tensor exists on the target",
    lambda a, t: t.has("dma_indirect") or not _row_indices(a),
    _DGE,
    "copy row by row with a scalar offset",
    lambda a, t: f"rows are picked by an index tensor; {t.name} has no DMA that does so",
)

# dma_copy names (P, 1) for the index tensor; two-dimensional ones exist for dma_transpose only.
ROW_INDEX = Rule(
    "row-index",
    "vector_offset holds one index per row, in shape (rows, 1)",
    lambda a, t: all(i.free_size == 1 and i.shape[0] >= view.shape[0] for view, i in _row_indices(a)),
    _ISA,
    "slice the index tensor to (rows, 1)",
    lambda a, t: ", ".join(f"{list(i.shape)} indices for {v.shape[0]} rows" for v, i in _row_indices(a)),
)


def _fewer_elements(a: Any, t: Target) -> str:
    """The fix for a copy between different sizes: a row for every partition is repeated while it is read from HBM."""
    rows, each = a.dst.shape[0], size_of(a.src)
    if rows > 1 and size_of(a.dst) == rows * each and not a.src.region.on_chip:
        return (
            f"to have all of src in each of the {rows} rows of dst, write src.reshape((1, {each})).broadcast(0, {rows})"
        )
    return "slice or reshape one of them"


def _dma_engine(a: Any, t: Target) -> Engine:
    return Engine.dma


@instruction(
    moves_bits=True,
    engines=(Engine.dma, Engine.sync, Engine.scalar),
    choose=_dma_engine,
    source=_ISA,
    rules=[
        Rule(
            "element-count",
            "src and dst hold equally many elements",
            lambda a, t: size_of(a.dst) == size_of(a.src),
            _ISA,
            "slice or reshape one of them",
            lambda a, t: (
                f"dst {list(a.dst.shape)} holds {size_of(a.dst)}, src {list(a.src.shape)} holds {size_of(a.src)}"
            ),
            remedy=_fewer_elements,
        ),
        Rule(
            "packed-cast",
            "packed x4 values are moved, not cast",
            lambda a, t: a.dst.dtype == a.src.dtype or not (a.dst.dtype.is_packed or a.src.dtype.is_packed),
            "nki/get-started/about/nki-dma-overview.rst",
            "give both the same dtype",
            lambda a, t: f"dst is {a.dst.dtype}, src is {a.src.dtype}",
        ),
        HWDGE_TARGET,
        Rule(
            "hwdge-cast",
            "hardware descriptor generation moves bytes and does not cast",
            lambda a, t: a.dge_mode is not dge_mode.hwdge or a.dst.dtype == a.src.dtype,
            "release-notes/components/nki.rst 0.3.0",
            "view both as one dtype, or use another dge_mode",
            lambda a, t: f"dst is {a.dst.dtype}, src is {a.src.dtype}",
        ),
        Rule(
            "vector-offset-dge",
            "a vector offset needs software descriptor generation",
            lambda a, t: a.dge_mode in (dge_mode.unknown, dge_mode.swdge) or not _row_indices(a),
            _DGE,
            "use nisa.dge_mode.swdge",
            lambda a, t: f"dge_mode is {a.dge_mode.name}",
        ),
        INDIRECT_TARGET,
        ROW_INDEX,
        OFFSET_TENSOR,
        INDIRECTION,
        Rule(
            "engine",
            "engine is given only with hwdge, as sync or scalar",
            lambda a, t: (
                a.engine is Engine.unknown or (a.dge_mode is dge_mode.hwdge and a.engine.name in t.dma.hwdge_engines)
            ),
            _ISA,
            "omit engine, or pass dge_mode=nisa.dge_mode.hwdge as well",
            lambda a, t: f"engine is {a.engine.name}, dge_mode is {a.dge_mode.name}",
        ),
        PRIORITY,
    ],
    deprecated=[
        Deprecated(
            "unique_indices",
            "omit it, or use nisa.dma_compute to add to the destination",
            lambda value, bound: value is True,
            "indices that repeat are not supported",
        ),
        Deprecated(
            "dst_rmw_op",
            "use nisa.dma_compute(dst, [dst, src], nl.add)",
            lambda value, bound: value is None,
            "dma_copy does not compute any more",
        ),
    ],
    steps=cost_dma.COPY,
)
def dma_copy(
    dst: DmaDst,
    src: DmaSrc,
    priority: Priority = None,
    oob_mode: OobMode = oob_mode.error,
    dge_mode: DgeMode = dge_mode.unknown,
    engine: Annotated[Engine, choice(Engine)] = Engine.unknown,
    name: Name = None,
) -> None:
    """``dst = src`` between HBM and SBUF, in element order; the shapes may differ, the element counts may not.

    Equal dtypes move as bytes; different ones pass through float32, which keeps integers exact up to 2**24 only.

    Addresses may depend on the run: ``tensor.select(dim, index)`` or ``.ap(..., scalar_offset=index)`` start at a
    register or at an integer ``(1, 1)`` SBUF tensor, ``tensor.vector_select(0, rows)`` or ``.ap(...,
    vector_offset=rows)`` take row p from ``rows[p]`` of an HBM tensor (a gather on `src`, a scatter on `dst`). An index
    counts rows of the tensor that ``.ap`` was called on, whatever the pattern says. An address outside the tensor
    raises; with ``oob_mode.skip`` nothing is copied, of a gather or scatter the rows concerned, and a negative row is
    outside. If rows of a scatter repeat, the last one stays.

    Args:
        dst, src: HBM or SBUF, any dtype; never PSUM.
        priority: 0 (highest) to 3, where the target has DMA priorities.
        oob_mode: what an address outside the tensor does; of no effect on static addresses.
        dge_mode: who writes the descriptors. hwdge cannot cast, and vector offsets need swdge. With none, a scalar
            offset is accepted as in the table of nki-dge.rst, though its text asks for static addresses.
        engine: sync or scalar, only with ``dge_mode.hwdge``.
    """


@dma_copy.body
def _(a: Any, x: Arrays) -> None:
    x.dma(a.dst, a.src, a.oob_mode is oob_mode.skip)
