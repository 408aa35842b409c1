"""A part of a model as a function of its own, so that it can be compiled and timed."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from nki.graph.copies import copy_op
from nki.graph.ir import Function, Module, Op, Value
from nki.graph.passes.fingerprint import op_text
from nki.graph.passes.kinds import is_pointwise
from nki.graph.passes.regions import outside_values
from nki.graph.passes.rewriter import Rewriter

_LEAVES = frozenset({"constant", "iota", "broadcast_in_dim"})


_MOST_FOLLOWING = 8
"""Operations after a part; more of them are no part of the same kernel, as a rule."""

_MOST_BEFORE = 16
"""Operations before a part, likewise."""

_SMALL = 1 << 10
"""Bytes of constants whose numbers count."""


@dataclass(frozen=True, slots=True)
class Part:
    """Operations between values that are given and values that are wanted.

    Attributes:
        arguments: that the operations use, in the order in which they come to them.
        ops: in topological order.
        results: what is wanted.
    """

    arguments: tuple[Value, ...]
    ops: tuple[Op, ...]
    results: tuple[Value, ...]

    def module(self) -> Module:
        """A copy as a model."""
        values = {value: Value(value.type, value.name) for value in self.arguments}
        arguments = tuple(values.values())
        body = [copy_op(op, values) for op in self.ops]
        main = Function("main", arguments, list(body), tuple(values[value] for value in self.results))
        return Module({"main": main})

    def digest(self, inputs: Sequence[Value] = ()) -> str:
        """Equal for parts that compute the same with the same `inputs` among their values; not of lines and names."""
        names: dict[Value, int] = {}
        text = [f"{names.setdefault(value, len(names))}:{value.type}" for value in self.arguments]
        for op in self.ops:
            text += op_text(op, names)
        text += [str(names.get(value, value.type)) for value in (*self.results, *inputs)]
        return hashlib.sha256("\n".join(text).encode()).hexdigest()


def part_between(r: Rewriter, given: Collection[Value], wanted: Sequence[Value], unwritten: Mapping[Value, Op]) -> Part:
    """What makes the wanted values of the given ones, and of constants.

    Args:
        unwritten: operations that are not in the block yet, by their results.
    """
    arguments: dict[Value, None] = {}
    ops: dict[int, Op] = {}
    pending: list[tuple[Value | None, Op | None]] = [(value, None) for value in reversed(wanted)]
    while pending:
        value, complete = pending.pop()
        if complete is not None:
            ops.setdefault(id(complete), complete)
            continue
        assert value is not None
        op = None if value in given else unwritten.get(value) or r.maker(value)
        if op is None or _is_weight(op):
            arguments.setdefault(value)
        elif id(op) not in ops:
            pending.append((None, op))
            pending += [(each, None) for each in reversed(outside_values(op))]
    return Part(tuple(arguments), tuple(ops.values()), tuple(wanted))


def preceded(r: Rewriter, sources: Collection[Value], part: Part) -> frozenset[Value]:
    """Where a part begins that also has what makes its sources for nobody else, as one kernel might compute it.

    Without the pattern such a value may stay on chip; a kernel that reads it wants it in device memory.
    """
    given = dict.fromkeys(sources)
    inside: dict[Value, int] = {}
    for op in reversed(part.ops):
        elsewhere = any(r.uses.get(v, 0) > inside.get(v, 0) for v in op.results if v not in part.results)
        if not (elsewhere and _is_made_again(op)):  # where that is made again it needs its operands, too
            for value in op.operands:
                inside[value] = inside.get(value, 0) + 1
    for _ in range(_MOST_BEFORE):
        found = next((value for value in given if _is_made_for(r, value, inside)), None)
        maker = None if found is None else r.maker(found)
        if found is None or maker is None:
            break
        del given[found]
        alone = r.uses.get(found, 0) <= inside.get(found, 0)
        for value in maker.operands:
            inside[value] = inside.get(value, 0) + alone
            if value not in part.results:
                given.setdefault(value)
    return frozenset(given)


def _is_made_for(r: Rewriter, value: Value, inside: Mapping[Value, int]) -> bool:
    """Whether a kernel that uses a value in all of its places could make it as well."""
    maker = r.maker(value)
    if maker is None or len(maker.results) != 1:
        return False
    if _is_made_again(maker):
        return True
    only_here = r.uses.get(value, 0) <= inside.get(value, 0)
    return only_here and (is_pointwise(maker) or maker.name in ("reduce", "reshape", "transpose"))


def followed(r: Rewriter, part: Part, old: Value) -> Part:
    """A part, and what alone uses its first result: moves and elementwise operations, as one kernel might compute them.

    Args:
        old: what the first result is, or takes the place of, in the old model.
    """
    arguments, ops, result = dict.fromkeys(part.arguments), list(part.ops), part.results[0]
    inside = {value for op in ops for value in op.results}
    count = len(ops)
    while len(ops) - count < _MOST_FOLLOWING and (op := r.user(old)) is not None and _follows(op):
        operands = tuple(result if value is old else r.now(value) for value in op.operands)
        arguments |= dict.fromkeys(value for value in operands if value not in inside)
        old, result = op.results[0], Value(op.results[0].type)
        ops.append(Op(op.name, operands, (result,), op.attributes, (), op.location))
        inside.add(result)
    return Part(tuple(arguments), tuple(ops), (result, *part.results[1:]))


def _follows(op: Op) -> bool:
    """Whether an operation moves or computes as many elements as it is given."""
    simple = op.name in ("transpose", "reshape") or is_pointwise(op)
    sizes = {value.type.size for value in (*op.operands, *op.results)}
    return simple and not op.regions and len(op.results) == 1 and len(sizes) == 1


def _is_made_again(op: Op) -> bool:
    """Whether fusion computes it again wherever it is used; see the pass `rematerialize`."""
    if op.name != "convert":
        return op.name in _LEAVES
    return op.operands[0].type.dtype.itemsize < op.results[0].type.dtype.itemsize


def _is_weight(op: Op) -> bool:
    """Whether an operation is a constant that differs between layers which are equal otherwise."""
    value = op.attributes.get("value") if op.name == "constant" else None
    return value is not None and value.nbytes > _SMALL and any(value.strides)


@dataclass(frozen=True, slots=True)
class UsedElsewhere:
    """Values inside of a part that other operations use, so that they are made whoever computes the part.

    Attributes:
        made: of the part's arguments.
        known: of constants alone, and worth making once.
    """

    made: tuple[Value, ...]
    known: tuple[Value, ...]


def used_elsewhere(r: Rewriter, part: Part) -> UsedElsewhere:
    """What others use of a part's values in between."""
    inside: dict[Value, int] = {}
    for op in part.ops:
        for value in (*op.operands, *(each for each in outside_values(op) if each not in op.operands)):
            inside[value] = inside.get(value, 0) + 1
    depends = set(part.arguments)
    made: list[Value] = []
    known: list[Value] = []
    for op in part.ops:
        varies = not depends.isdisjoint(outside_values(op))
        if varies:
            depends.update(op.results)
        if _is_made_again(op):
            continue
        for value in op.results:
            if value not in part.results and r.uses.get(value, 0) > inside.get(value, 0):
                (made if varies else known).append(value)
    return UsedElsewhere(tuple(made), tuple(known))
