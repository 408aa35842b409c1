"""Operations that compute the same of the same values are computed once."""

from __future__ import annotations

from collections.abc import Sequence

from nki.graph.ir import Module, Op, Region, Value
from nki.graph.passes.context import GraphContext
from nki.graph.passes.fingerprint import attribute_text, op_text

_OWN = frozenset({"rng", "custom_call", "optimization_barrier", "call", "while", "infeed", "recv", "send", "outfeed"})
_BLOCKS = frozenset({"while", "case", "if"})
"""Operations whose regions may use what is computed outside; the others' regions stand for themselves."""

_LEAVES = frozenset({"constant", "iota"})
"""What each block makes itself, because a kernel in it holds them as numbers."""


def cse(module: Module, context: GraphContext) -> Module:
    """The model with equal operations merged into the first one; inner blocks see what outer ones computed."""
    for function in module.functions.values():
        same: dict[Value, Value] = {}
        ops = [item for item in function.body if isinstance(item, Op)]
        function.body = list(_block(ops, {}, same))
        function.results = tuple(same.get(value, value) for value in function.results)
    return module


def _block(ops: Sequence[Op], known: dict[object, Op], same: dict[Value, Value]) -> list[Op]:
    kept: list[Op] = []
    for op in ops:
        op = _current(op, known, same)
        if op.name in _OWN:
            kept.append(op)
            continue
        key = _key(op)
        first = known.setdefault(key, op)
        if first is op:
            kept.append(op)
        else:
            same.update(zip(op.results, first.results, strict=True))
    return kept


def _current(op: Op, known: dict[object, Op], same: dict[Value, Value]) -> Op:
    operands = tuple(same.get(value, value) for value in op.operands)
    if op.regions:
        known = {k: first for k, first in known.items() if first.name not in _LEAVES} if op.name in _BLOCKS else {}
    regions = tuple(_region(region, known, same) for region in op.regions)
    if operands == op.operands and not op.regions:
        return op
    return Op(op.name, operands, op.results, op.attributes, regions, op.location)


def _region(region: Region, known: dict[object, Op], same: dict[Value, Value]) -> Region:
    """What a region computes is not there outside, so it gets a copy of what is known."""
    ops = _block([item for item in region.ops if isinstance(item, Op)], dict(known), same)
    return Region(region.arguments, list(ops), tuple(same.get(value, value) for value in region.results))


def _key(op: Op) -> object:
    types = tuple(result.type for result in op.results)
    if not op.regions:
        return op.name, op.operands, types, attribute_text(op.attributes)
    inside = {argument: -1 - i for i, argument in enumerate(a for r in op.regions for a in r.arguments)}
    names: dict[Value, int] = {}
    text = "\n".join(op_text(op, names))
    outer = tuple(value for value in names if value not in inside and value not in _made(op))
    return op.name, op.operands, types, text, outer


def _made(op: Op) -> set[Value]:
    found = set(op.results)
    for region in op.regions:
        found.update(region.arguments)
        for inner in region.ops:
            if isinstance(inner, Op):
                found |= _made(inner)
    return found
