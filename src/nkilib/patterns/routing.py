"""What a model computes of the experts that its tokens chose: places in the order of experts, and where they end.

Numbers of tokens, choices and experts are few, so what is computed of them element by element is known by trying all of
them. What is linear in how many choices each expert has is known by trying one expert after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from nki.graph.patterns import Op, Rewriter, Value, is_pointwise, known

Array = np.ndarray[Any, Any]
_MOVES = frozenset({"reshape", "convert"})
_LINEAR = frozenset({"add", "broadcast_in_dim", "concatenate", "convert", "pad", "reshape", "slice", "transpose"})


@dataclass(frozen=True, slots=True)
class Order:
    """Choices sorted by expert.

    Attributes:
        experts: the chosen experts, in any shape: choices of a token beside each other.
        sorted: the same, sorted.
        places: which choice is at each place of the order.
    """

    experts: Value
    sorted: Value
    places: Value


def order_of(r: Rewriter, places: Value) -> Order | None:
    """The order that a value has the places of: the second result of a sort, beside the numbers that are sorted."""
    sort = r.maker(places, "sort")
    if sort is None or len(sort.operands) != len(sort.results) or sort.results[-1] is not places:
        return None
    region = sort.regions[0]
    compare = region.ops[0] if len(region.ops) == 1 else None
    if not isinstance(compare, Op) or compare.name != "compare" or len(sort.operands) != 2:
        return None
    ascending = compare.attributes["comparison_direction"] == "LT" and compare.operands == region.arguments[:2]
    numbers = known(r, sort.operands[1])
    if len(places.type.shape) != 1 or not ascending or not is_identity(numbers):
        return None
    return Order(sort.operands[0], sort.results[0], places)


def source_of(r: Rewriter, value: Value, wanted: Callable[[Op], bool]) -> Iterator[Op]:
    """The operations of a kind that a value depends on, nearest first, with nothing like them in between."""
    pending, seen = [value], set()
    while pending:
        op = r.maker(pending.pop(0))
        if op is None or id(op) in seen:
            continue
        seen.add(id(op))
        if wanted(op):
            yield op
        else:
            pending += op.operands


def function_of(r: Rewriter, value: Value, source: Value, count: int) -> Array | None:
    """What a value is for each number below `count` that `source` may be; None if elements depend on others."""
    if not _is_function(r, value, source, {}):
        return None
    size, kind = source.type.size, source.type.dtype.numpy
    tables = []
    for first in range(0, count, size):
        numbers = np.minimum(np.arange(first, first + size), count - 1).astype(kind).reshape(source.type.shape)
        found = known(r, value, given={source: numbers})
        if found is None:
            return None
        tables.append(found.reshape(-1))
    return np.concatenate(tables)[:count]


def _is_function(r: Rewriter, value: Value, source: Value, found: dict[Value, bool]) -> bool:
    """Whether each element depends on the element of the source in its place alone."""
    if value is source or r.scalar_of(value) is not None:
        return True
    if value not in found:
        op = r.maker(value)
        plain = op is not None and not op.regions and value.type.size == source.type.size
        plain = plain and op is not None and (op.name in _MOVES or is_pointwise(op))
        found[value] = plain and op is not None and all(_is_function(r, each, source, found) for each in op.operands)
    return found[value]


def is_identity(table: Array | None) -> bool:
    """Whether each number stands for itself."""
    return table is not None and np.array_equal(table, np.arange(len(table)))


def is_inverse(r: Rewriter, value: Value, order: Order) -> bool:
    """Whether a value has the place of each choice: positions that were written to the places of an order."""
    scatter = r.maker(value, "scatter")
    if scatter is None or not _is_flat(scatter) or len(scatter.operands) != 3:
        return False
    region, count = scatter.regions[0], order.places.type.size
    last = not region.ops and region.results == region.arguments[1:]
    numbers = known(r, scatter.operands[2])
    whole = scatter.operands[0].type.shape == (count,) and numbers is not None
    table = function_of(r, scatter.operands[1], order.places, count)
    return last and whole and is_identity(numbers) and is_identity(table)


def are_ends(r: Rewriter, value: Value, order: Order) -> bool:
    """Whether a value has for each expert how many choices are its own, or of experts before it."""
    experts = value.type.size
    for scatter in source_of(r, value, lambda op: op.name == "scatter"):
        counts = scatter.results[0]
        added = _adds(scatter) and r.scalar_of(scatter.operands[0]) == 0 and _is_flat(scatter)
        if not added or counts.type.shape != (experts,):
            return False
        for source in (order.sorted, order.experts):
            numbers, ones = (function_of(r, each, source, experts) for each in scatter.operands[1:])
            if is_identity(numbers) and ones is not None and bool(np.all(ones == 1)):
                return _sums_up(r, value, counts)
        return False
    return False


def _adds(scatter: Op) -> bool:
    region = scatter.regions[0]
    inner = region.ops[0] if len(region.ops) == 1 else None
    return isinstance(inner, Op) and inner.name == "add" and set(inner.operands) == set(region.arguments)


def _is_flat(scatter: Op) -> bool:
    """Whether single elements are written to places of a vector."""
    a = scatter.attributes
    plain = not any(a.get(name) for name in ("update_window_dims", "input_batching_dims"))
    whole = tuple(a["inserted_window_dims"]) == (0,) and tuple(a["scatter_dims_to_operand_dims"]) == (0,)
    return plain and whole and a["index_vector_dim"] == len(scatter.operands[1].type.shape) - 1


def _sums_up(r: Rewriter, value: Value, counts: Value) -> bool:
    """Whether a value has the sums of counts up to each of them."""
    if not _is_linear(r, value, counts):
        return False
    size, kind = counts.type.size, counts.type.dtype.numpy
    for place in range(size):
        one = (np.arange(size) == place).astype(kind)
        found = known(r, value, given={counts: one})
        if found is None or not np.array_equal(found.reshape(-1), np.arange(size) >= place):
            return False
    return True


def _is_linear(r: Rewriter, value: Value, source: Value) -> bool:
    op = r.maker(value)
    if value is source or r.scalar_of(value) == 0:
        return True
    return op is not None and op.name in _LINEAR and all(_is_linear(r, each, source) for each in op.operands)


def members(r: Rewriter, value: Value) -> Value | None:
    """The ends of groups, of truth values (places, groups): whether a place is before an end, and not before others."""
    both = r.maker(value, "and")
    for inside, outside in (both.operands, both.operands[::-1]) if both is not None else ():
        inverted, compare = r.maker(outside, "not"), r.maker(inside, "compare")
        before = None if inverted is None else r.maker(inverted.operands[0], "concatenate")
        if compare is None or before is None or len(before.operands) != 2:
            continue
        none, rest = before.operands
        shifted = r.maker(rest, "slice")
        if shifted is None or shifted.operands[0] is not inside or not _drops_last(shifted):
            continue
        if before.attributes["dimension"] == 1 and none.type.shape == (value.type.shape[0], 1):
            return _ends(r, compare) if r.scalar_of(none) == 0 else None
    return None


def _drops_last(op: Op) -> bool:
    rows, columns = op.operands[0].type.shape
    a = op.attributes
    whole = tuple(a["start_indices"]) == (0, 0) and tuple(a["strides"]) == (1, 1)
    return whole and tuple(a["limit_indices"]) == (rows, columns - 1)


def _ends(r: Rewriter, compare: Op) -> Value | None:
    """The vector of ends of ``place < end``."""
    places, wide = compare.operands
    numbers, ends = known(r, places), r.maker(wide, "broadcast_in_dim")
    rows, columns = wide.type.shape
    if compare.attributes["comparison_direction"] != "LT" or numbers is None or ends is None:
        return None
    right = np.array_equal(numbers, np.broadcast_to(np.arange(rows)[:, None], (rows, columns)))
    return ends.operands[0] if right and tuple(ends.attributes["broadcast_dimensions"]) == (1,) else None
