"""The k largest elements of each row by GpSimd, whose instruction takes as long for many as for few of them.

A row lies on the 16 partitions of a processor, in 16 segments as it is stored, so that it is loaded in long runs. The
instruction counts elements across the partitions, as a snake: its position s is element s // 16 of segment s % 16. The
eight processors search eight rows at a time; what they find is put one row on each partition, and sorted there.

Layouts: (rows, V) bfloat16; values (rows, k), indices uint32. Equal elements are taken in any order, each once. -inf is
less than every number. Limits: V of 8 to 65,535, k of at most 16,384.

Plan: GpSimd bounds the kernel, with four cycles for an element of eight rows; Vector sorts the rows of 16 searches at
once, with two passes over the k for every eight of them.

Source: the instruction topk.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib import limits
from nkilib.core.topk.topk_plan import AT_ONCE, TopkPlan
from nkilib.core.topk.topk_ring import MASKED, constants, load_segments, looked_up, put, taken
from nkilib.streaming import ceil_div, filled, load, result, sbuf, size, spans, store

_SEGMENTS = 16
_MOST = 65_535
_SORTED = 16_384
"""Elements of a partition that Vector searches at most."""


@dataclass(frozen=True)
class GpsimdTopkConfig(nl.NKIObject):
    """What is asked for: see `create_gpsimd_topk_config`."""

    inp_shape: tuple[int, ...]
    inp_dtype: Any
    k: int
    sorted: bool
    num_programs: int


def create_gpsimd_topk_config(
    inp_shape: tuple[int, ...], inp_dtype: Any, k: int, sorted: bool = True, num_programs: int = 2
) -> GpsimdTopkConfig:
    """What is asked for.

    Args:
        inp_shape: (rows, V), or (batch, sequence, V), whose first two are the rows.
        inp_dtype: bfloat16.
        k: elements of each row.
        sorted: whether the largest comes first; otherwise any order will do.
        num_programs: cores of the launch.

    Raises:
        KernelLimit: another number of dimensions, V or k outside of the limits, another dtype.
    """
    shape = tuple(inp_shape)
    limits.need(len(shape) in (2, 3), "inp_shape", list(shape), "inp has two or three dimensions", "reshape inp")
    limits.one_of("inp_dtype", inp_dtype, (nl.bfloat16,))
    limits.between("V", shape[-1], AT_ONCE, _MOST, "GpSimd searches so many elements")
    limits.between("k", k, 1, min(shape[-1], _SORTED), "k elements of a row of V are taken, and sorted")
    return GpsimdTopkConfig(shape, inp_dtype, k, sorted, num_programs)


@nki.jit
def gpsimd_topk(inp: nl.NkiTensor, config: GpsimdTopkConfig) -> tuple[nl.NkiTensor, nl.NkiTensor]:
    """The largest elements of the rows of a matrix; the cores of the launch divide the rows.

    Args:
        inp: (rows, V) bfloat16 in HBM.
        config: of `create_gpsimd_topk_config`, for this shape.

    Returns:
        Values in bfloat16, and indices in uint32, (rows, k) each.

    Raises:
        KernelLimit: another shape than that of the config, another dtype.
    """
    limits.generation("gpsimd_topk", 3, "Vector selects by position there")
    limits.shape("inp", inp, (prod(config.inp_shape[:-1]), config.inp_shape[-1]))
    limits.dtype("inp", inp, (nl.bfloat16,))
    (rows, columns), k = inp.shape, config.k
    plan = TopkPlan(_SEGMENTS, ceil_div(columns, _SEGMENTS), AT_ONCE)
    lengths = load(nl.shared_constant(constants(plan, int(nl.tile_size.pmax) // _SEGMENTS, columns)))[:, -1:]
    found = result((rows, k), inp.dtype), result((rows, k), nl.uint32)
    wide = _SEGMENTS * ceil_div(k, _SEGMENTS)
    for some in spans(rows, ceil_div(rows, nl.num_programs(0)), shared=True):
        for block in spans(size(some), nl.tile_size.pmax):
            here = slice(some.start + block.start, some.start + block.stop)
            values, places = sbuf((size(here), wide), inp.dtype), sbuf((size(here), wide), nl.uint32)
            for eight in spans(size(here), plan.together):
                searched = slice(here.start + eight.start, here.start + eight.stop)
                _search(inp, searched, plan, lengths, k, (values[eight], places[eight]))
            if config.sorted or wide != k:
                values, order = _sorted(values, k)
                places = looked_up(places, order)
            put(values, positions(places, plan.length), found, here)
    return found


def _search(source: Any, rows: slice, plan: TopkPlan, lengths: Any, k: int, into: tuple[Any, Any]) -> None:
    """The k largest of at most eight rows, and their places in the snake, in any order: (rows, k or a little more)."""
    for target, made in zip(into, snakes(source, rows, plan, lengths, k), strict=True):
        store(target, made[:, : ceil_div(k, _SEGMENTS)])


def snakes(source: Any, rows: slice, plan: TopkPlan, lengths: Any, k: int) -> tuple[Any, Any]:
    """The k largest of at most eight rows, and their places in the snake, as the instruction leaves them.

    Args:
        source: (all rows, V) in HBM; other dtypes are converted to bfloat16.
        lengths: (128, 1), how many elements the segment on each partition has.

    Returns:
        Values in bfloat16, places in uint32, (16 * rows, k), of which the first ``ceil(k / 16)`` columns count.
    """
    tile = sbuf((size(rows) * _SEGMENTS, plan.length), nl.bfloat16)
    load_segments(source, rows, plan, tile)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.maximum, operand0=MASKED)
    missing = _SEGMENTS * plan.length - source.shape[1]
    if missing:
        first = max(0, plan.length - missing)
        tail, limit = tile[:, first:], lengths[: tile.shape[0]]
        bounds = {"comp_op0": nl.less, "comp_op1": nl.less, "bound0": limit, "bound1": limit}
        nisa.range_select(dst=tail, on_true_tile=tail, range_start=first, **bounds)
    values = filled((tile.shape[0], k), nl.bfloat16, float("-inf"))
    places = filled((tile.shape[0], k), nl.uint32, 0)
    nisa.topk(val_dst=values, idx_dst=places, src=tile, n=min(_SEGMENTS * plan.length, _MOST))
    return values, places


def _sorted(values: Any, k: int) -> tuple[Any, Any]:
    """The k largest of each row in descending order, and where they were."""
    pool = sbuf((values.shape[0], max(AT_ONCE, values.shape[1])), nl.float32)
    nisa.tensor_copy(dst=pool[:, : values.shape[1]], src=values, engine=nisa.engine.scalar)
    return taken(pool, k)


def positions(places: Any, length: int) -> Any:
    """Indices in the row of places in the snake."""
    segment, element, indices = (sbuf(places.shape, nl.uint32) for _ in range(3))
    nisa.tensor_scalar(dst=segment, data=places, op0=nl.bitwise_and, operand0=_SEGMENTS - 1)
    nisa.tensor_scalar(dst=element, data=places, op0=nl.right_shift, operand0=4)
    nisa.scalar_tensor_tensor(
        dst=indices, data=segment, op0=nl.multiply, operand0=float(length), op1=nl.add, operand1=element
    )
    return indices
