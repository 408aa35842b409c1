"""Data movement by the DMA engines between HBM and SBUF."""

from __future__ import annotations

from math import prod
from typing import Annotated, Any

from nki.core.nki_tensor import NkiTensor
from nki.core.tensor import FreeIndirection, View, VectorOffset
from nki.spec.arrays import Arrays
from nki.spec.engine import dge_mode, oob_mode
from nki.spec.engine import engine as Engine
from nki.spec.instruction import instruction
from nki.spec.operand import DMA_REACHABLE, Name, Operand, choice, out, source
from nki.spec.rule import Rule
from nki.target.model import Target

_ISA = "nki/api/nki/isa dma_copy"
DmaDst = Annotated[NkiTensor, out(DMA_REACHABLE, dma=True)]
DmaSrc = Annotated[NkiTensor, source(DMA_REACHABLE, dma=True)]
Priority = Annotated["int | None", Operand("int")]


def _dma_engine(a: Any, t: Target) -> Engine:
    return Engine.dma


def _size(view: View) -> int:
    return prod(view.shape)


@instruction(
    engines=(Engine.dma, Engine.sync, Engine.scalar),
    choose=_dma_engine,
    source=_ISA,
    rules=[
        Rule(
            "element-count",
            "src and dst hold equally many elements",
            lambda a, t: _size(a.dst) == _size(a.src),
            _ISA,
            "slice or reshape one of them",
            lambda a, t: f"dst {list(a.dst.shape)} holds {_size(a.dst)}, src {list(a.src.shape)} holds {_size(a.src)}",
        ),
        Rule(
            "packed-cast",
            "packed x4 values are moved, not cast",
            lambda a, t: a.dst.dtype == a.src.dtype or not (a.dst.dtype.is_packed or a.src.dtype.is_packed),
            _ISA,
            "give both the same dtype",
            lambda a, t: f"dst is {a.dst.dtype}, src is {a.src.dtype}",
        ),
        Rule(
            "hwdge-target",
            "hardware descriptor generation exists on the target",
            lambda a, t: a.dge_mode is not dge_mode.hwdge or t.dma.hwdge,
            _ISA,
            "use nisa.dge_mode.unknown",
            lambda a, t: f"the target is {t.name}",
        ),
        Rule(
            "hwdge-cast",
            "hardware descriptor generation moves bytes and does not cast",
            lambda a, t: a.dge_mode is not dge_mode.hwdge or a.dst.dtype == a.src.dtype,
            _ISA,
            "give both the same dtype, or use another dge_mode",
            lambda a, t: f"dst is {a.dst.dtype}, src is {a.src.dtype}",
        ),
        Rule(
            "vector-offset-dge",
            "a vector offset needs software descriptor generation",
            lambda a, t: (
                a.dge_mode in (dge_mode.unknown, dge_mode.swdge)
                or not any(isinstance(v.dynamic, VectorOffset) for v in (a.dst, a.src))
            ),
            _ISA,
            "use nisa.dge_mode.swdge",
            lambda a, t: f"dge_mode is {a.dge_mode.name}",
        ),
        Rule(
            "tensor-indirection",
            "tensor indirection works in engines, not in DMA",
            lambda a, t: not any(isinstance(v.dynamic, FreeIndirection) for v in (a.dst, a.src)),
            _ISA,
            "use nisa.tensor_copy, or vector_offset on an HBM tensor",
        ),
        Rule(
            "engine",
            "engine is given only with hwdge, as sync or scalar",
            lambda a, t: (
                a.engine is Engine.unknown
                or (a.dge_mode is dge_mode.hwdge and a.engine in (Engine.sync, Engine.scalar))
            ),
            _ISA,
            "omit engine",
            lambda a, t: f"engine is {a.engine.name}, dge_mode is {a.dge_mode.name}",
        ),
        Rule(
            "priority",
            "priority is 0 to 3, on targets that have DMA priorities",
            lambda a, t: a.priority is None or (t.has("dma_priority") and 0 <= a.priority <= 3),
            _ISA,
            "omit priority",
            lambda a, t: f"priority is {a.priority}, the target is {t.name}",
        ),
    ],
)
def dma_copy(
    dst: DmaDst,
    src: DmaSrc,
    priority: Priority = None,
    oob_mode: Annotated[oob_mode, choice(oob_mode)] = oob_mode.error,
    dge_mode: Annotated[dge_mode, choice(dge_mode)] = dge_mode.unknown,
    engine: Annotated[Engine, choice(Engine)] = Engine.unknown,
    name: Name = None,
) -> None:
    """``dst = src`` between HBM and SBUF, in element order; the shapes may differ, the element counts may not.

    Equal dtypes move as bytes; different ones pass through float32. Dynamic addresses come from ``tensor.ap`` with
    ``scalar_offset`` or ``vector_offset``, or from ``tensor.select``; out of bounds they raise, or with
    ``oob_mode.skip`` leave the destination untouched.

    Args:
        dst, src: HBM or SBUF, any dtype; never PSUM.
        priority: 0 (highest) to 3, where the target has DMA priorities.
        dge_mode: who writes the descriptors.
        engine: sync or scalar, only with ``dge_mode.hwdge``.
    """


@dma_copy.body
def _(a: Any, x: Arrays) -> None:
    x.dma(a.dst, a.src, a.oob_mode is oob_mode.skip)
