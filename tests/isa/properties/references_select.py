"""References of index patterns, selections and searches: loops over rows in Python. All are compared for equality."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from nki.spec.engine import reduce_cmd
from tests.isa.properties.cases import State
from tests.isa.properties.compare import Bits, Expected, exactly
from tests.isa.properties.formats import F64, f32
from tests.isa.properties.places import Tile
from tests.isa.properties.references_alu import eval_relation, wrapped
from tests.isa.properties.references_elementwise import WIDE, number_bits, value
from tests.isa.properties.references_reduce import obey, with_registers

Results = dict[str, Expected]
_LOWEST = -float(np.finfo(np.float32).max)
_SMALL_FLOATS = ("bfloat16", "float16", "float8_e4m3", "float8_e4m3fn", "float8_e5m2")


def _affine(partitions: int, pattern: Any, offset: int, multiplier: int) -> list[list[int]]:
    """Offset, partition and the indices of all pairs, as int32 that wrap."""
    rows = []
    for partition in range(partitions):
        start = offset + partition * multiplier
        indices = itertools.product(*(range(count) for _, count in pattern))
        sums = [start + sum(i * step for i, (step, _) in zip(index, pattern, strict=True)) for index in indices]
        rows.append([wrapped(n, 32, True) for n in sums])
    return rows


def iota(a: Any, state: State) -> Results:
    """The bits in 32-bit integers, elsewhere the float32."""
    rows = _affine(a.dst.partitions, a.pattern, a.offset or 0, a.channel_multiplier or 0)
    if a.dst.dtype.name in WIDE:
        return {"dst": Bits(np.array([[n % 2**32 for n in row] for row in rows], np.uint32))}
    return {"dst": exactly(np.array(rows, np.float64))}


def affine_select(a: Any, state: State) -> Results:
    """The bits between equal dtypes, else by way of float32."""
    rows = _affine(a.dst.partitions, a.pattern, a.offset or 0, a.channel_multiplier)
    name = "equal" if a.cmp_op is None else a.cmp_op.name
    chosen = np.array([[eval_relation(name, n, 0) for n in row] for row in rows])
    return {"dst": selected(a.dst, chosen, a.on_true_tile, a.on_false_value)}


def selected(dst: Tile, chosen: Any, source: Tile, number: float) -> Expected:
    """`source` where chosen, else a number."""
    if dst.dtype is source.dtype:
        return Bits(np.where(chosen, source.bits, number_bits(number, dst)))
    return exactly(np.where(chosen, source.f32, f32(number)))


def _maximum(a: Any, state: State, values: F64, default: reduce_cmd) -> Results:
    command = default if a.reduce_cmd is None else a.reduce_cmd
    obey(state, command, "maximum", values, None)
    return with_registers(a, state, {"dst": exactly(values)}, a.dst.partitions)


def range_select(a: Any, state: State) -> Results:
    """Positions between two bounds; the smallest finite float32 elsewhere."""
    if a.reduce_res is not None and a.dst.dtype.name in _SMALL_FLOATS and a.reduce_res.dtype.name != "float32":
        state.warned.add("range_select.reduce-res-dtype")
    start, count = a.range_start or 0, a.dst.count
    if abs(start) > 2**24 or start + count - 1 > 2**24:
        state.warned.add("range_select.index-range")
    index = f32(np.arange(start, start + count, dtype=np.float64))
    rows = []
    for row, low, high in zip(a.on_true_tile.f32, a.bound0.f32[:, 0], a.bound1.f32[:, 0], strict=True):
        kept = [_related(a.comp_op0.name, i, low) and _related(a.comp_op1.name, i, high) for i in index.tolist()]
        rows.append([v if keep else _LOWEST for v, keep in zip(row.tolist(), kept, strict=True)])
    return _maximum(a, state, np.array(rows), reduce_cmd.reset_reduce)


def _related(name: str, a: float, b: float) -> bool:
    return {"equal": a == b, "less": a < b, "less_equal": a <= b, "greater": a > b, "greater_equal": a >= b}[name]


def select_reduce(a: Any, state: State) -> Results:
    """By predicate, with the maximum before rounding."""
    chosen = (a.predicate.exact != 0) != bool(a.reverse_pred)
    values = np.where(chosen, a.on_true.f32, np.broadcast_to(value(a.on_false), a.on_true.f32.shape))
    return _maximum(a, state, values, reduce_cmd.idle)


# ---- searches


def _key(number: float) -> tuple[bool, float, bool]:
    """NaN above everything, +0 above -0."""
    return (True, 0.0, False) if number != number else (False, number, not np.signbit(number))


def max8(a: Any, state: State) -> Results:
    """The first eight in descending order."""
    return {"dst": exactly(np.array([sorted(row, key=_key, reverse=True)[:8] for row in a.src.f32.tolist()]))}


def _found(row: list[float], wanted: list[float], slots: Any) -> dict[int, int]:
    """The position for each slot, first come, first served; nothing where a value is not left."""
    left: list[float | None] = list(row)
    found: dict[int, int] = {}
    for slot in slots:
        for position, number in enumerate(left):
            if number is not None and number == wanted[slot]:
                found[slot], left[position] = position, None
                break
    return found


def _positions(found: list[dict[int, int]], bits: int) -> Bits:
    ones = (1 << bits) - 1
    return Bits(np.array([[f.get(slot, ones) for slot in range(8)] for f in found], f"u{bits // 8}"))


def nc_find_index8(a: Any, state: State) -> Results:
    """Slots in ascending order."""
    found = [_found(row, w, range(8)) for row, w in zip(a.data.f32.tolist(), a.vals.f32.tolist(), strict=True)]
    return {"dst": _positions(found, a.dst.dtype.bits)}


def nc_match_replace8(a: Any, state: State) -> Results:
    """Slots in descending order."""
    pairs = zip(a.data.f32.tolist(), a.vals.f32.tolist(), strict=True)
    found = [_found(row, w, reversed(range(8))) for row, w in pairs]
    kept = np.array([[i not in f.values() for i in range(a.data.count)] for f in found])
    results: Results = {"dst": selected(a.dst, kept, a.data, a.imm)}
    if a.dst_idx is not None:
        results["dst_idx"] = _positions(found, a.dst_idx.dtype.bits)
    return results


def nonzero_with_count(a: Any, state: State) -> Results:
    """Every 16th partition: positions, padding, their number."""
    bits = a.dst.bits.copy()
    for row in range(0, a.src.partitions, 16):
        places = [i + (a.index_offset or 0) for i, v in enumerate(a.src.f32[row].tolist()) if v != 0]
        padding = [-1 if a.padding_val is None else a.padding_val] * (a.src.count - len(places))
        bits[row] = [n % 2**32 for n in (*places, *padding, len(places))]
    return {"dst": Bits(bits)}


def topk(a: Any, state: State) -> Results:
    """Snakes of 16 partitions: element i at partition i % 16, column i // 16."""
    values, indices = a.val_dst.bits.copy(), a.idx_dst.bits.copy()
    for first in range(0, a.src.partitions, 16):
        snake = [(a.src.f32[first + i % 16, i // 16], a.src.bits[first + i % 16, i // 16], i) for i in range(a.n)]
        best = sorted(snake, key=lambda item: (_key(item[0]), -item[2]))[-a.val_dst.count :]
        for j, (_, bits, i) in enumerate(best):
            values[first + j % 16, j // 16] = bits
            indices[first + j % 16, j // 16] = i
    return {"val_dst": Bits(values), "idx_dst": Bits(indices)}


def sequence_bounds(a: Any, state: State) -> Results:
    """Runs of equal ids, one after the other."""
    ids = a.segment_ids.exact[0].tolist()
    begins, ends, position = [], [], 0
    for segment, run in itertools.groupby(ids):
        size = len(list(run))
        begins += [len(ids) if segment == 0 else position] * size
        ends += [-1 if segment == 0 else position + size] * size
        position += size
    return {"dst": exactly(np.array([begins + ends], np.float64))}
