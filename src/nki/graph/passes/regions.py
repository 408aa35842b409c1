"""Regions: what they use from outside; those that combine elements, on whole tensors or taken apart by result."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nki.graph.copies import copy_region
from nki.graph.ir import Op, Region, TensorType, Value, walk
from nki.graph.passes.rewriter import Rewriter


def is_plain(region: Region) -> bool:
    """Whether all of its operations have one result and no regions, so that tensors can take the place of scalars."""
    return all(isinstance(item, Op) and not item.regions and len(item.results) == 1 for item in region.ops)


def on_tensors(r: Rewriter, region: Region, arguments: Sequence[Value]) -> tuple[Value, ...]:
    """What a plain region of scalars makes of tensors of one shape, element by element; the region stays as it is."""
    shape = arguments[0].type.shape
    copy = copy_region(region, {})
    inside = {*copy.arguments, *(value for item in copy.ops if isinstance(item, Op) for value in item.results)}
    outer: dict[Value, Value] = {}
    for item in copy.ops:
        assert isinstance(item, Op), "regions have no groups before fusion"
        for value in item.operands:
            if value not in inside and value not in outer:
                outer[value] = r.broadcast(r.now(value), shape, ())
        item.operands = tuple(outer.get(value, value) for value in item.operands)
        for value in item.results:
            value.type = TensorType(shape, value.type.dtype)
        if item.name == "constant":
            item.attributes = {"value": np.broadcast_to(item.attributes["value"], shape)}
    results = r.inline(copy, arguments)
    return tuple(value if value.type.shape == shape else r.broadcast(value, shape, ()) for value in results)


def taken_apart(region: Region, count: int) -> list[Region] | None:
    """A region for each of several results, if each depends on its own two arguments only.

    Args:
        count: of results; argument number n and number n + count belong to result n.
    """
    if len(region.arguments) != 2 * count or not is_plain(region):
        return None
    made = []
    for number, result in enumerate(region.results):
        wanted, ops = {result}, []
        for item in reversed(region.ops):
            if isinstance(item, Op) and wanted.intersection(item.results):
                ops.append(item)
                wanted.update(item.operands)
        own = (region.arguments[number], region.arguments[number + count])
        if wanted.intersection(region.arguments) - set(own):
            return None
        made.append(copy_region(Region(own, list(reversed(ops)), (result,)), {}))
    return made


def operator(region: Region) -> str:
    """The name of the operation, if the region is one on both of its arguments in any order, else ""."""
    if len(region.ops) != 1 or len(region.results) != 1:
        return ""
    (inner,) = region.ops
    if not isinstance(inner, Op) or inner.results != region.results or set(inner.operands) != set(region.arguments):
        return ""
    return inner.name


def outside_values(op: Op) -> list[Value]:
    """What an operation uses: its operands, and values that its regions take from outside; each once."""
    if not op.regions:
        return list(dict.fromkeys(op.operands))
    inside: set[Value] = set()
    used: list[Value] = list(op.operands)
    for inner in walk(op):
        used += inner.operands
        inside.update(inner.results)
        for region in inner.regions:
            inside.update(region.arguments)
            used += region.results
    inside.difference_update(op.results)
    return [value for value in dict.fromkeys(used) if value not in inside]
