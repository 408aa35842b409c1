"""Values that are cheaper to make than to load are made once for each of their users."""

from __future__ import annotations

from collections.abc import Sequence

from nki.graph.copies import copy_op
from nki.graph.ir import Module, Op, Region, Value
from nki.graph.passes.context import GraphContext
from nki.graph.passes.fusion.readable_views import is_view
from nki.graph.passes.fusion.splats import is_splat
from nki.graph.passes.kinds import is_pointwise, nbytes
from nki.graph.passes.regions import outside_values


def rematerialize(module: Module, context: GraphContext) -> Module:
    """The model with splat constants, iotas, broadcasts, and conversions from narrower types copied to each user that
    computes them inside of its own kernel."""
    for function in module.functions.values():
        function.body = list(_block([item for item in function.body if isinstance(item, Op)], function.results))
    return module


def is_cheap(op: Op) -> bool:
    """Made of no operand, or a view of one, or of one that has fewer bytes than the result."""
    if op.name == "constant":
        return is_splat(op)
    if op.name == "iota":
        return True
    if op.name == "reshape" or (op.name in ("slice", "transpose") and is_view(op)):
        return True
    if op.name in ("broadcast_in_dim", "convert"):
        return nbytes(op.operands[0].type) < nbytes(op.results[0].type)
    return False


def _block(ops: Sequence[Op], results: Sequence[Value]) -> list[Op]:
    makers = {value: op for op in ops for value in op.results}
    made: list[Op] = []
    for op in ops:
        values: dict[Value, Value] = {}
        if op.regions:
            op = _inside(op)
        for value in outside_values(op):
            if value in makers and _takes(op, makers[value]):
                _copied(value, makers, values, made)
        made.append(_on(op, values) if values else op)
    return made


def _inside(op: Op) -> Op:
    if op.name not in ("while", "case", "if"):
        return op
    regions = tuple(
        Region(r.arguments, list(_block([i for i in r.ops if isinstance(i, Op)], r.results)), r.results)
        for r in op.regions
    )
    return Op(op.name, op.operands, op.results, op.attributes, regions, op.location)


def _takes(user: Op, cheap: Op) -> bool:
    """Whether the user's kernel can make this itself: elementwise ones and reductions anything, a pad its
    value."""
    if is_pointwise(user) or user.name in ("broadcast_in_dim", "reduce"):
        return True
    return user.name == "pad" and cheap.name == "constant"


def _copied(value: Value, makers: dict[Value, Op], values: dict[Value, Value], made: list[Op]) -> None:
    """A copy of a cheap operation before its user; what the copy needs is copied first if it is cheap as well."""
    op = makers[value]
    if value in values or not is_cheap(op):
        return
    inner: dict[Value, Value] = {}
    for operand in op.operands:
        if operand in makers:
            _copied(operand, makers, inner, made)
    copy = copy_op(op, inner)
    made.append(copy)
    values[value] = copy.results[0]


def _on(op: Op, values: dict[Value, Value]) -> Op:
    if op.regions:
        return copy_op(op, {**values, **{result: result for result in op.results}})
    return Op(op.name, tuple(values.get(v, v) for v in op.operands), op.results, op.attributes, (), op.location)
