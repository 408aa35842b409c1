"""Fusion: operations become groups, each of which is one kernel that reads and writes device memory once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

from nki.graph.errors import unsupported
from nki.graph.ir import Group, Module, Op, Region, Value
from nki.graph.passes.context import GraphContext, Traffic
from nki.graph.passes.fusion.clusters import Cluster, Clusters
from nki.graph.passes.fusion.groups import boundary, group_of, roots_first
from nki.graph.passes.fusion.limits import fits
from nki.graph.passes.fusion.products import can_join, merge_products, merge_rows, products_readable
from nki.graph.passes.fusion.readable_views import VIEWS, readable
from nki.graph.passes.fusion.rules import EPILOGUES, compatible, joined, only_leaves
from nki.graph.passes.kinds import KINDS, is_pointwise, kind_of, nbytes
from nki.graph.passes.regions import outside_values

_VIEWS = VIEWS - {"broadcast_in_dim"}


def fuse(module: Module, context: GraphContext) -> Module:
    """Groups in every function and in the bodies of loops and branches; `context.traffic` says what it saves."""
    for function in module.functions.values():
        ops = [item for item in function.body if isinstance(item, Op)]
        function.body = _block(ops, function.results, context)
    context.traffic.distinct = len({group.name for group in groups_of(module)})
    return module


def groups_of(module: Module) -> list[Group]:
    """All groups of a model, those in loops and branches included."""
    found: list[Group] = []

    def visit(items: Sequence[Op | Group]) -> None:
        for item in items:
            if isinstance(item, Group):
                found.append(item)
            else:
                for region in item.regions:
                    visit(region.ops)

    for function in module.functions.values():
        visit(function.body)
    return found


def _block(ops: Sequence[Op], results: Sequence[Value], context: GraphContext) -> list[Op | Group]:
    clusters = Clusters(ops, [_alone(position, op) for position, op in enumerate(ops)], results)
    for position in range(len(ops)):
        _grow(clusters, position, results, context)
    _pair(clusters, results, context)

    def possible(members: list[int], product: Cluster, rows: tuple[int, ...]) -> bool:
        return _possible(clusters, members, (product.kind, product.shape, rows), results, context)

    merge_products(clusters, possible)
    merge_rows(clusters, possible, context.target.psum.bank_bytes // 4)
    # From the last one on, so that an operation can go where its only user has gone.
    for position in reversed(range(len(ops))):
        _hand_on(clusters, position, results, context)
    _count_unfused(ops, context.traffic)
    return _groups(ops, clusters, results, context)


def _count_unfused(ops: Sequence[Op], traffic: Traffic) -> None:
    """The kernels and bytes that there would be if each operation were a kernel; constants are none."""
    for op in ops:
        if kind_of(op) and op.name != "constant":
            traffic.kernels_before += 1
            traffic.bytes_before += _moved(op.operands) + _moved(op.results)


def _groups(ops: Sequence[Op], clusters: Clusters, results: Sequence[Value], context: GraphContext) -> list[Op | Group]:
    """The operations again, those of a cluster as one group."""
    body: list[Op | Group] = []
    traffic = context.traffic
    for cluster in clusters.ordered():
        members = [ops[position] for position in cluster.members]
        if not cluster.kind:
            body.append(_nested(members[0], context))
            continue
        if all(op.name == "constant" for op in members):  # its bytes are in device memory from the start
            body += members
            continue
        group = group_of(cluster, clusters, results)
        traffic.kernels_after += 1
        traffic.bytes_after += _moved(group.inputs) + _moved(group.outputs)
        body.append(group)
    return body


def _moved(values: Sequence[Value]) -> int:
    return sum(nbytes(value.type) for value in values)


def _nested(op: Op, context: GraphContext) -> Op:
    """Control flow: groups inside of its regions."""
    regions = tuple(
        Region(r.arguments, _block([i for i in r.ops if isinstance(i, Op)], r.results, context), r.results)
        for r in op.regions
    )
    return Op(op.name, op.operands, op.results, op.attributes, regions, op.location)


def _alone(position: int, op: Op) -> Cluster:
    kind = kind_of(op)
    if kind == op.name and kind not in KINDS:
        raise unsupported(op, "there is no kernel for it", "write it with other operations of the framework")
    shape = op.results[0].type.shape if op.results else ()
    if kind == "rows":
        return Cluster([position], kind, op.operands[0].type.shape, tuple(sorted(op.attributes["dimensions"])))
    return Cluster([position], kind, shape)


def _grow(clusters: Clusters, position: int, results: Sequence[Value], context: GraphContext) -> None:
    """Merge the operation's cluster with those that make its operands, the largest operand first; with a view comes
    what it views."""
    pending = _sources(clusters, position)
    while pending:
        source, user = pending.pop(0)
        earlier, later = clusters.of[source], clusters.of[user]
        if earlier is later or not compatible(clusters, earlier, later, source, user):
            continue
        if not clusters.mergeable(earlier, later):
            continue
        kind, shape, rows = joined(earlier, later, clusters.ops[user])
        if not _possible(clusters, sorted(earlier.members + later.members), (kind, shape, rows), results, context):
            continue
        view = only_leaves(clusters, earlier)
        merged = clusters.merge(earlier, later)
        merged.kind, merged.shape, merged.rows = kind, shape, rows
        if view:
            pending += _sources(clusters, source)


def _pair(clusters: Clusters, results: Sequence[Value], context: GraphContext) -> None:
    """Merge elementwise kernels of one shape that load the same tensor, so that it is loaded once."""
    for value, users in clusters.users.items():
        for one, two in pairwise(users):
            first, second = sorted((clusters.of[one], clusters.of[two]), key=lambda cluster: cluster.rank)
            alike = first.kind == second.kind == "pointwise" and first.shape == second.shape
            if first is second or not alike or value.type.size < max(prod(first.shape), 1):
                continue
            members = sorted(first.members + second.members)
            form = ("pointwise", first.shape, ())
            if clusters.mergeable(first, second) and _possible(clusters, members, form, results, context):
                clusters.merge(first, second)


def _hand_on(clusters: Clusters, position: int, results: Sequence[Value], context: GraphContext) -> None:
    """Compute what only one other kernel uses in that kernel, if it loads all that is needed anyway."""
    op, home = clusters.ops[position], clusters.of[position]
    users = {clusters.of[p] for value in op.results for p in clusters.users.get(value, ())}
    if len(users) != 1 or len(home.members) == 1 or not is_pointwise(op) or set(op.results) & set(results):
        return
    (there,) = users
    if there is home or there.kind not in ("pointwise", "rows") or there.shape != op.results[0].type.shape:
        return
    loaded = {value for p in there.members for value in outside_values(clusters.ops[p])}
    rest = [p for p in home.members if p != position]
    if not loaded.issuperset(op.operands) or not any(kind_of(clusters.ops[p]) == home.kind for p in rest):
        return
    form = (there.kind, there.shape, there.rows)
    if _possible(clusters, sorted([*there.members, position]), form, results, context):
        clusters.move(position, there)


def _sources(clusters: Clusters, position: int) -> list[tuple[int, int]]:
    operands = sorted(outside_values(clusters.ops[position]), key=lambda value: -nbytes(value.type))
    return [(clusters.producer[value], position) for value in operands if value in clusters.producer]


def _possible(
    clusters: Clusters,
    members: list[int],
    form: tuple[str, tuple[int, ...], tuple[int, ...]],
    results: Sequence[Value],
    context: GraphContext,
) -> bool:
    """Whether a kernel has room for the operations, and reads their views."""
    kind, shape, rows = form
    ops = [clusters.ops[position] for position in members]
    if kind == "joined":
        return can_join(ops, boundary(clusters, ops, members, results)[1])
    if kind not in EPILOGUES:
        return True
    if not fits(ops, kind, shape, rows, context.target):
        return False
    products = kind in ("dot", "conv")
    simple = not products or (sum(kind_of(op) == kind for op in ops) == 1 and not rows)
    if simple and all(op.name not in _VIEWS for op in ops):
        return True
    inputs, outputs = boundary(clusters, ops, members, results)
    if products:
        return products_readable(kind, roots_first(kind, ops), inputs, outputs)
    return readable(kind, ops, inputs, outputs)
