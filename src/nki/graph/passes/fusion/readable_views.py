"""What kernels can read: whether views inside of a group are regular patterns for the emitter of its kind."""

from __future__ import annotations

from collections.abc import Sequence

from nki.graph.emit.kit.access import NotAffineError, resolve
from nki.graph.emit.kit.coordinates import Coordinates
from nki.graph.errors import GraphError
from nki.graph.ir import Group, Op, Value
from nki.graph.passes.kinds import is_pointwise

VIEWS = frozenset({"broadcast_in_dim", "reshape", "transpose", "slice"})
"""Operations that kernels read through."""

_OF_PRODUCTS = frozenset({"broadcast_in_dim", "reshape", "transpose"})


def is_view(op: Op) -> bool:
    """True for operations that rename elements and leave the last dimension where it is, so that runs stay runs."""
    if op.name in ("broadcast_in_dim", "reshape"):
        return True
    if op.name == "transpose":
        rank = len(op.attributes["permutation"])
        return rank > 0 and op.attributes["permutation"][-1] == rank - 1
    return op.name == "slice" and op.attributes["strides"][-1:] == (1,)


def readable(kind: str, ops: Sequence[Op], inputs: Sequence[Value], outputs: Sequence[Value]) -> bool:
    """True if the emitter of a kind reads all operands of these operations in regular patterns."""
    if kind == "pointwise":
        return _pointwise(ops, outputs)
    if kind == "rows":
        return _rows(ops, outputs)
    if kind in ("dot", "conv"):
        return _product(Group(kind, tuple(ops), tuple(inputs), tuple(outputs)))
    return False


def _pointwise(ops: Sequence[Op], outputs: Sequence[Value]) -> bool:
    by_shape: dict[tuple[int, ...], list[Value]] = {}
    for value in outputs:
        by_shape.setdefault(value.type.shape, []).append(value)
    try:
        for wanted in by_shape.values():
            found = resolve(ops, wanted)
            if len(found.ops) > sum(map(is_pointwise, ops)):  # something is computed in two orders of elements
                return False
    except NotAffineError:
        return False
    return len(by_shape) <= 1


def _rows(ops: Sequence[Op], outputs: Sequence[Value]) -> bool:
    reduce = next(op for op in ops if op.name == "reduce")
    shape, dims = reduce.operands[0].type.shape, tuple(reduce.attributes["dimensions"])
    try:
        found = resolve(ops, outputs, shape, dims)
    except NotAffineError:
        return False
    return len(found.ops) <= sum(op.name == "reduce" or is_pointwise(op) for op in ops)


def _product(group: Group) -> bool:
    if any(op.name in VIEWS and op.name not in _OF_PRODUCTS for op in group.ops):
        return False
    try:
        Coordinates(group)
    except GraphError:
        return False
    return True
