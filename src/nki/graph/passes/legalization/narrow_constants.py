"""Constants of 64-bit integers with 32 bits: the same numbers, or limits that limit nothing, or none at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from nki.core import dtypes
from nki.core.dtypes import DType
from nki.graph.errors import GraphError
from nki.graph.ir import Module, Op, Value

NARROW: Mapping[DType, DType] = {dtypes.int64: dtypes.int32, dtypes.uint64: dtypes.uint32}
"""What becomes of elements that no device has."""

Uses = Mapping[Value, list[tuple[Op, int]]]
"""Where values are operands: operations, and which of their operands."""

_REPEATED = frozenset({"broadcast_in_dim", "reshape"})
_REDUCED = frozenset({"reduce", "reduce_window"})


def uses_of(module: Module) -> Uses:
    """The uses of all values; results of functions and regions are operands of a return."""
    found: dict[Value, list[tuple[Op, int]]] = {}
    ends = [function.results for function in module.functions.values()]
    ops = list(module.walk())
    ends += [region.results for op in ops for region in op.regions]
    for op in (*ops, *(Op("return", tuple(results), ()) for results in ends)):
        for number, value in enumerate(op.operands):
            found.setdefault(value, []).append((op, number))
    return found


def narrowed(op: Op, array: Any, kind: DType, uses: Uses) -> Any:
    """The elements of a constant in the smaller type; a limit beyond it becomes its limit where that is the same.

    Raises:
        GraphError: "graph.range".
    """
    splat = array.size > 1 and not any(array.strides)
    source = array[(slice(0, 1),) * array.ndim] if splat else array
    info = np.iinfo(kind.numpy)
    if source.size:
        low, high = int(source.min()), int(source.max())
        outside = low < info.min or high > info.max
        if outside and not _limits_nothing(op.results[0], low > info.max, high < info.min, uses):
            raise GraphError(
                "graph.range",
                f"a constant of {array.dtype} has values from {low} to {high}",
                rule=f"{array.dtype} is {kind} on the device",
                fix="keep such numbers on the host, or use ones that fit 32 bits",
                location=op.location,
            )
    return np.broadcast_to(np.clip(source, info.min, info.max).astype(kind.numpy), array.shape)


def _limits_nothing(value: Value, above: bool, below: bool, uses: Uses) -> bool:
    """Whether a number beyond the range is only compared with others such that the range's limit does the same."""
    places = list(_places(value, uses))
    return bool(places) and all(_as_limit(op, number, above, below) for op, number in places)


def _places(value: Value, uses: Uses) -> Iterator[tuple[Op, int]]:
    for op, number in uses.get(value, ()):
        if op.name in _REPEATED or (op.name == "convert" and op.results[0].type.dtype.is_integer):
            yield from _places(op.results[0], uses)
        else:
            yield op, number


def _as_limit(op: Op, number: int, above: bool, below: bool) -> bool:
    if op.name in _REDUCED:  # what a reduction starts with
        return number >= len(op.results) and (above or below)
    if op.name == "clamp":
        return (number == 0 and below) or (number == 2 and above)
    return (op.name == "minimum" and above) or (op.name == "maximum" and below)
