"""Sums while DMA moves data."""

from __future__ import annotations

from functools import reduce
from typing import Annotated, Any

import numpy as np

from nki.core.nki_tensor import NkiTensor
from nki.core.tensor import MemoryRegion, ScalarOffset, VectorOffset, View
from nki.isa.alu import ADD
from nki.isa.dma import (
    INDIRECT_TARGET,
    INDIRECTION,
    OFFSET_TENSOR,
    ROW_INDEX,
    DmaDst,
    OobMode,
    by_rows,
    operands,
    size_of,
)
from nki.spec.arrays import Arrays
from nki.spec.cost_dma import SUMS
from nki.spec.engine import engine as Engine
from nki.spec.engine import oob_mode
from nki.spec.instruction import instruction
from nki.spec.operand import DMA_REACHABLE, Flag, Name, Op, Operand
from nki.spec.rule import Rule
from nki.target.model import Target

_COMPUTE = "nki/api/nki/isa dma_compute"


def _same_place(first: View, second: View) -> bool:
    """Whether two views name the same elements in the same order, dimensions of size 1 aside."""

    def key(view: View) -> tuple[Any, ...]:
        dims = [(n, s) for n, s in zip(view.shape, view.strides, strict=True) if n != 1]
        return view.buffer, view.dtype, view.offset, view.dynamic, dims

    return key(first) == key(second)


def _indirect(a: Any) -> bool:
    return any(by_rows(view) for view in operands(a))


def _own_and_other(a: Any) -> tuple[View, View]:
    """The two sources of a read-modify-write: the one in the place of the destination, by rows or not, and the other.

    That the first is the destination is a rule, `_updates`; here it is not asked, as an executor may keep what a tile
    held elsewhere than what it holds next.
    """
    first, second = a.srcs
    return (first, second) if by_rows(first) == by_rows(a.dst) else (second, first)


def _updates(a: Any, t: Target) -> bool:
    if not _indirect(a):
        return True
    if len(a.srcs) != 2 or by_rows(a.srcs[0]) == by_rows(a.srcs[1]):
        return False
    own, other = _own_and_other(a)
    inside = other if by_rows(a.dst) else a.dst
    return _same_place(own, a.dst) and inside.region is MemoryRegion.sbuf


@instruction(
    moves_bits=True,
    engines=(Engine.dma,),
    feature="dma_compute",
    source=_COMPUTE,
    rules=[
        Rule(
            "source-count",
            "srcs has 1 to {t.limits.dma_compute_max_sources} tensors",
            lambda a, t: len(a.srcs) <= t.limits.dma_compute_max_sources,
            _COMPUTE,
            "add in several steps",
            lambda a, t: f"srcs has {len(a.srcs)} tensors",
        ),
        Rule(
            "element-count",
            "srcs and dst hold equally many elements",
            lambda a, t: len({size_of(view) for view in operands(a)}) == 1,
            _COMPUTE,
            "slice or reshape them",
            lambda a, t: f"dst holds {size_of(a.dst)}, srcs hold {', '.join(str(size_of(v)) for v in a.srcs)}",
        ),
        Rule(
            "packed",
            "packed x4 values have no float32 form",
            lambda a, t: not any(view.dtype.is_packed for view in operands(a)),
            "nki/get-started/about/nki-dma-overview.rst",
            "move them with nisa.dma_copy",
            lambda a, t: ", ".join(str(view.dtype) for view in operands(a)),
        ),
        Rule(
            "operator",
            "reduce_op is nl.add",
            lambda a, t: a.reduce_op == ADD,
            _COMPUTE,
            "use nl.add, or compute with nisa.tensor_tensor",
            lambda a, t: f"reduce_op is nl.{a.reduce_op}",
        ),
        Rule(
            "scales",
            "scales is omitted, or 1.0 for every source",
            lambda a, t: a.scales is None or a.scales == (1.0,) * len(a.srcs),
            _COMPUTE,
            "scale with nisa.tensor_scalar",
            lambda a, t: f"scales is {list(a.scales)} for {len(a.srcs)} sources",
        ),
        Rule(
            "update",
            "with a vector offset there are two sources: dst itself, and SBUF data to scatter or HBM rows to gather",
            _updates,
            _COMPUTE,
            "write dma_compute(dst, [dst, src], nl.add)",
            lambda a, t: f"dst is {a.dst.describe()}, srcs are {', '.join(v.describe() for v in a.srcs)}",
        ),
        Rule(
            "unique-indices",
            "unique_indices is True with a vector offset",
            lambda a, t: a.unique_indices or not _indirect(a),
            _COMPUTE,
            "make the indices unique and pass unique_indices=True",
            lambda a, t: "unique_indices is False",
        ),
        Rule(
            "static-address",
            "addresses are static, or rows of a vector offset",
            lambda a, t: not any(isinstance(view.dynamic, ScalarOffset) for view in operands(a)),
            _COMPUTE,
            "copy to a static address with nisa.dma_copy first",
            lambda a, t: "a tensor has a scalar offset",
        ),
        Rule(
            "oob-mode",
            "oob_mode.skip needs a vector offset",
            lambda a, t: a.oob_mode is oob_mode.error or _indirect(a),
            "release-notes/components/nki.rst 0.4.0",
            "omit oob_mode",
            lambda a, t: "all addresses are static",
        ),
        INDIRECT_TARGET,
        ROW_INDEX,
        OFFSET_TENSOR,
        INDIRECTION,
    ],
    steps=SUMS,
)
def dma_compute(
    dst: DmaDst,
    srcs: Annotated[list[NkiTensor], Operand("tensors", reads=True, regions=DMA_REACHABLE, engine_access=False)],
    reduce_op: Op,
    scales: Annotated[list[float] | None, Operand("numbers")] = None,
    unique_indices: Flag = True,
    oob_mode: OobMode = oob_mode.error,
    name: Name = None,
) -> None:
    """``dst = srcs[0] + srcs[1] + ...`` in float32, from left to right, rounded once to the dtype of `dst`.

    With a vector offset it updates in place: ``dma_compute(rows, [rows, data], nl.add)`` adds SBUF data to rows of an
    HBM tensor, ``dma_compute(data, [data, rows], nl.add)`` adds such rows to SBUF data; the order of the two sources is
    free. Rows out of bounds raise, or with ``oob_mode.skip`` change nothing. A row that appears twice in one scatter
    loses an addition, which is reported as a warning. No sum is exact for integers beyond 2**24.

    Args:
        dst: HBM or SBUF.
        srcs: 1 to 16 tensors in HBM or SBUF with the element count of `dst`.
        reduce_op: nl.add.
        scales: None, or 1.0 per source.
        unique_indices: True; a promise that the indices of a scatter do not repeat.
        oob_mode: what an index outside the tensor does.
    """


@dma_compute.body
def _(a: Any, x: Arrays) -> None:
    if _indirect(a):
        _warn_repeated(x, a.dst)
        own, other = _own_and_other(a)
        x.dma(a.dst, other, a.oob_mode is oob_mode.skip, add=own)
        return
    shape = (a.dst.shape[0], a.dst.free_size)
    x.store(a.dst, reduce(x.add, [x.reshape(x.load(view), shape) for view in a.srcs]))


def _warn_repeated(x: Arrays, dst: View) -> None:
    if not isinstance(dst.dynamic, VectorOffset):
        return
    rows = np.asarray(x.load_raw(dst.dynamic.indices)).reshape(-1)[: dst.shape[0]].astype(np.int64)
    inside = rows[(rows >= 0) & (rows < dst.buffer.nbytes // dst.dtype.itemsize // dst.dynamic.scale)]
    if len(np.unique(inside)) != len(inside):
        x.warn(
            "dma_compute.repeated-index",
            "rows repeat in a scatter that adds, so that some additions are lost",
            "make the indices unique",
        )
