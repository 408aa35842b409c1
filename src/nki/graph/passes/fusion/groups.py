"""Groups of clusters: what they take and hand on, and the order of their operations."""

from __future__ import annotations

from collections.abc import Sequence

from nki.graph.copies import copy_op
from nki.graph.ir import Group, Op, Value
from nki.graph.passes.fingerprint import attribute_text, group_name
from nki.graph.passes.fusion.clusters import Cluster, Clusters
from nki.graph.passes.fusion.rules import LEAVES
from nki.graph.passes.kinds import kind_of
from nki.graph.passes.regions import outside_values


def group_of(cluster: Cluster, clusters: Clusters, results: Sequence[Value]) -> Group:
    """The group that a cluster becomes; `results` are those of its block."""
    ops = [clusters.ops[position] for position in cluster.members]
    ops = _without_repeats(ops, frozenset(boundary(clusters, ops, cluster.members, results)[1]))
    if cluster.kind in ("dot", "conv"):
        ops = roots_first(cluster.kind, ops)
    inputs, outputs = boundary(clusters, ops, cluster.members, results)
    group = Group(cluster.kind, tuple(ops), inputs, outputs)
    group.name = group_name(group)
    return group


def roots_first(kind: str, ops: Sequence[Op]) -> list[Op]:
    """What makes operands of the products, the products, the rest."""
    needed = {value for op in ops if kind_of(op) == kind for value in op.operands}
    for op in reversed(ops):
        if op.results[0] in needed:
            needed.update(op.operands)
    return sorted(ops, key=lambda op: 1 if kind_of(op) == kind else 0 if op.results[0] in needed else 2)


def boundary(
    clusters: Clusters, ops: Sequence[Op], members: Sequence[int], results: Sequence[Value]
) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
    """What operations take from outside, and what others take from them."""
    mine, final = set(members), set(results)
    inside = {value for op in ops for value in op.results}
    inputs = dict.fromkeys(v for op in ops for v in outside_values(op) if v not in inside)
    outputs = [
        value
        for op in ops
        for value in op.results
        if value in final or any(user not in mine for user in clusters.users.get(value, ()))
    ]
    return tuple(inputs), tuple(outputs)


def _without_repeats(members: list[Op], kept: frozenset[Value]) -> list[Op]:
    """Constants, iotas and broadcasts once, where several operations brought their own."""
    known: dict[tuple[object, ...], Op] = {}
    values: dict[Value, Value] = {}
    result: list[Op] = []
    for op in members:
        if any(value in values for value in outside_values(op)):
            op = _on(op, values)
        if op.name in LEAVES and op.results[0] not in kept:
            key = (op.name, op.operands, op.results[0].type, attribute_text(op.attributes))
            first = known.setdefault(key, op)
            if first is not op:
                values[op.results[0]] = first.results[0]
                continue
        result.append(op)
    return result


def _on(op: Op, values: dict[Value, Value]) -> Op:
    """The operation on other operands, with its own results."""
    if not op.regions:
        return Op(op.name, tuple(values.get(v, v) for v in op.operands), op.results, op.attributes, (), op.location)
    return copy_op(op, {**values, **{result: result for result in op.results}})
