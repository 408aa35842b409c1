"""Runs of equal segment ids."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from nki.core.dtypes import (
    float32,
    int32,
)
from nki.core.nki_tensor import NkiTensor
from nki.isa.indirection import no_indirection
from nki.spec.arrays import Arrays
from nki.spec.cost import UNPUBLISHED, streams
from nki.spec.engine import engine as Engine
from nki.spec.instruction import instruction
from nki.spec.operand import (
    SBUF,
    Name,
    out,
    source,
)
from nki.spec.rule import Rule

_ISA = "nki/api/nki/isa"
_Bounds = (float32, int32)


@instruction(
    engines=(Engine.gpsimd,),
    source=_ISA,
    rules=[
        Rule(
            "partitions",
            "dst and segment_ids have one partition",
            lambda a, t: a.dst.shape[0] == 1 and a.segment_ids.shape[0] == 1,
            _ISA,
            "use one instruction per sequence of ids",
            lambda a, t: f"dst has {a.dst.shape[0]} partitions, segment_ids has {a.segment_ids.shape[0]}",
        ),
        Rule(
            "size",
            "dst holds two values per id: shape (1, 2, n) for n ids",
            lambda a, t: a.dst.free_size == 2 * a.segment_ids.free_size,
            _ISA,
            "allocate dst as (1, 2, n)",
            lambda a, t: f"dst is {list(a.dst.shape)}, segment_ids is {list(a.segment_ids.shape)}",
        ),
        no_indirection(),
    ],
    steps=streams("SequenceBounds", "dst", source="", estimate=UNPUBLISHED),
)
def sequence_bounds(
    dst: Annotated[NkiTensor, out(SBUF, _Bounds)],
    segment_ids: Annotated[NkiTensor, source(SBUF, _Bounds)],
    name: Name = None,
) -> None:
    """Where the run of equal ids around every element begins, and where it ends (exclusive); on GpSimd.

    ``dst[0, 0, i]`` is the first position of the run of element i, ``dst[0, 1, i]`` the position after its last one. A
    run ends where the neighbour has another id, so one id may have several runs. Id 0 is padding: its bounds are n and
    -1. Ids are non-negative integers.

    Args:
        dst: SBUF ``(1, 2, n)``, float32 or int32.
        segment_ids: SBUF ``(1, n)``, float32 or int32.
    """


@sequence_bounds.body
def _(a: Any, x: Arrays) -> None:
    ids = x.load_raw(a.segment_ids)[0]
    count = ids.size
    position = np.arange(count)
    differs = ids[1:] != ids[:-1]
    starts = np.maximum.accumulate(np.where(np.concatenate(([True], differs)), position, 0))
    ends = np.where(np.concatenate((differs, [True])), position + 1, count)
    ends = np.minimum.accumulate(ends[::-1])[::-1]
    padding = ids == 0
    bounds = np.concatenate((np.where(padding, count, starts), np.where(padding, -1, ends)))
    x.store(a.dst, x.to_float(bounds[None, :]))
