"""Which operations matter: those that a result needs, and those that have an effect."""

from __future__ import annotations

from collections.abc import Sequence

from nki.graph.ir import Function, Op, Region, Value
from nki.graph.passes.regions import outside_values

_EFFECTS = frozenset({"custom_call", "outfeed", "send", "infeed", "recv"})


def drop_unneeded(function: Function) -> None:
    """Take out what does not reach a function's results."""
    ops = [item for item in function.body if isinstance(item, Op)]
    function.body = list(_block(ops, function.results))


def has_effect(op: Op) -> bool:
    """True if the operation matters although its results are not used."""
    return op.name in _EFFECTS and bool(op.attributes.get("has_side_effect", op.name != "custom_call"))


def _block(ops: Sequence[Op], results: Sequence[Value]) -> list[Op]:
    needed = set(results)
    kept: list[Op] = []
    for op in reversed(ops):
        if has_effect(op) or any(result in needed for result in op.results) or _acts(op):
            op = _loop(op, needed) if op.name == "while" else op
            regions = tuple(
                Region(r.arguments, list(_block([i for i in r.ops if isinstance(i, Op)], r.results)), r.results)
                for r in op.regions
            )
            if any(len(new.ops) != len(old.ops) for new, old in zip(regions, op.regions, strict=True)):
                op = Op(op.name, op.operands, op.results, op.attributes, regions, op.location)
            needed.update(outside_values(op))
            kept.append(op)
    kept.reverse()
    return kept


def _acts(op: Op) -> bool:
    return any(isinstance(inner, Op) and (has_effect(inner) or _acts(inner)) for r in op.regions for inner in r.ops)


def _loop(op: Op, needed: set[Value]) -> Op:
    """A loop without the carried values that are not used after it and that no other carried value needs."""
    condition, body = op.regions
    count = len(op.operands)
    used = {i for i in range(count) if op.results[i] in needed}
    used |= {i for i in range(count) if condition.arguments[i] in _reached(condition, condition.results)}
    while True:
        reached = _reached(body, [body.results[i] for i in sorted(used)])
        more = used | {i for i in range(count) if body.arguments[i] in reached}
        if more == used:
            break
        used = more
    if len(used) == count or _acts(op):
        return op
    keep = sorted(used)

    def picked(values: Sequence[Value]) -> tuple[Value, ...]:
        return tuple(values[i] for i in keep)

    regions = (
        Region(picked(condition.arguments), condition.ops, condition.results),
        Region(picked(body.arguments), body.ops, picked(body.results)),
    )
    return Op(op.name, picked(op.operands), picked(op.results), op.attributes, regions, op.location)


def _reached(region: Region, results: Sequence[Value]) -> set[Value]:
    needed = set(results)
    for op in reversed([item for item in region.ops if isinstance(item, Op)]):
        if any(result in needed for result in op.results):
            needed.update(outside_values(op))
    return needed
