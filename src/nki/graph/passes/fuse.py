"""Fusion: operations become groups, each of which is one kernel that reads and writes device memory once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

from nki.graph.copies import copy_op
from nki.graph.errors import unsupported
from nki.graph.ir import Group, Module, Op, Region, Value
from nki.graph.passes.clusters import Cluster, Clusters, outside_values
from nki.graph.passes.context import Context
from nki.graph.passes.fingerprint import attribute_text, group_name
from nki.graph.passes.fuse_products import can_end, can_join, merge_products, products_readable
from nki.graph.passes.kernels_can import VIEWS, is_view, readable
from nki.graph.passes.kinds import KINDS, is_pointwise, kind_of, nbytes
from nki.graph.passes.limits import fits
from nki.graph.passes.splats import is_splat

_LEAVES = frozenset({"constant", "iota", "broadcast_in_dim"})
_VIEWS = VIEWS - {"broadcast_in_dim"}
_EPILOGUES = frozenset({"pointwise", "rows", "dot", "conv"})


def fuse(module: Module, context: Context) -> Module:
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


def _block(ops: Sequence[Op], results: Sequence[Value], context: Context) -> list[Op | Group]:
    clusters = Clusters(ops, [_alone(position, op) for position, op in enumerate(ops)], results)
    for position in range(len(ops)):
        _grow(clusters, position, results, context)
    _pair(clusters, results, context)
    merge_products(
        clusters, lambda members, first: _possible(clusters, members, (first.kind, first.shape, ()), results, context)
    )
    for position in reversed(range(len(ops))):
        _hand_on(clusters, position, results, context)
    body: list[Op | Group] = []
    traffic = context.traffic
    for op in ops:
        if kind_of(op):
            traffic.kernels_before += op.name != "constant"
            traffic.bytes_before += _moved(op.operands) + _moved(op.results) if op.name != "constant" else 0
    for cluster in clusters.ordered():
        members = [ops[position] for position in cluster.members]
        if not cluster.kind:
            body.append(_nested(members[0], context))
            continue
        if all(op.name == "constant" for op in members):  # its bytes are in device memory from the start
            body += members
            continue
        group = _group(cluster, clusters, results)
        traffic.kernels_after += 1
        traffic.bytes_after += _moved(group.inputs) + _moved(group.outputs)
        body.append(group)
    return body


def _moved(values: Sequence[Value]) -> int:
    return sum(nbytes(value.type) for value in values)


def _nested(op: Op, context: Context) -> Op:
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


def _grow(clusters: Clusters, position: int, results: Sequence[Value], context: Context) -> None:
    """Merge the operation's cluster with those that make its operands, the largest operand first; with a view comes
    what it views."""
    pending = _sources(clusters, position)
    while pending:
        source, user = pending.pop(0)
        earlier, later = clusters.of[source], clusters.of[user]
        if earlier is later or not _compatible(clusters, earlier, later, source, user):
            continue
        if not clusters.mergeable(earlier, later):
            continue
        kind, shape, rows = _joined(earlier, later, clusters.ops[user])
        if not _possible(clusters, sorted(earlier.members + later.members), (kind, shape, rows), results, context):
            continue
        view = _only_leaves(clusters, earlier)
        merged = clusters.merge(earlier, later)
        merged.kind, merged.shape, merged.rows = kind, shape, rows
        if view:
            pending += _sources(clusters, source)


def _pair(clusters: Clusters, results: Sequence[Value], context: Context) -> None:
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


def _hand_on(clusters: Clusters, position: int, results: Sequence[Value], context: Context) -> None:
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
    context: Context,
) -> bool:
    """Whether a kernel has room for the operations, and reads their views."""
    kind, shape, rows = form
    ops = [clusters.ops[position] for position in members]
    if kind == "joined":
        return can_join(ops, _boundary(clusters, ops, members, results)[1])
    if kind not in _EPILOGUES:
        return True
    if not fits(ops, kind, shape, rows, context.target):
        return False
    products = kind in ("dot", "conv")
    if all(op.name not in _VIEWS for op in ops) and (not products or sum(kind_of(op) == kind for op in ops) == 1):
        return True
    inputs, outputs = _boundary(clusters, ops, members, results)
    if products:
        return products_readable(kind, _roots_first(kind, ops), inputs, outputs)
    return readable(kind, ops, inputs, outputs)


def _joined(earlier: Cluster, later: Cluster, user: Op) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    if user.name == "concatenate":
        return "joined", later.shape, ()
    if earlier.kind not in ("rows", "dot", "conv"):
        return later.kind or "pointwise", later.shape, later.rows
    return earlier.kind, earlier.shape, earlier.rows


def _only_leaves(clusters: Clusters, cluster: Cluster) -> bool:
    return all(clusters.ops[p].name in _LEAVES or is_view(clusters.ops[p]) for p in cluster.members)


def _compatible(clusters: Clusters, earlier: Cluster, later: Cluster, source: int, position: int) -> bool:
    """Whether one kernel can compute both."""
    maker, user = clusters.ops[source], clusters.ops[position]
    if all(clusters.ops[p].name == "constant" for p in earlier.members):
        return is_splat(maker) and _takes_constants(maker, user, later)
    if _only_leaves(clusters, earlier) and not _viewed_only_by(clusters, earlier, later):
        return False
    if is_view(maker) and maker.name != "broadcast_in_dim" and len(earlier.members) == 1:
        return later.kind in _EPILOGUES and (is_pointwise(user) or is_view(user) or user.name == "reduce")
    if later.kind == "pointwise" and earlier.kind in ("pointwise", "dot", "conv"):
        return _same_elements(clusters, earlier, later, maker, user)
    if earlier.kind == "pointwise" and later.kind == "rows":
        return _into_rows(earlier, later, user)
    if earlier.kind == "rows" and later.kind == "rows":
        return earlier.shape == later.shape and earlier.rows == later.rows and _reads_rows(later)
    if earlier.kind == "rows" and later.kind == "pointwise":
        return _after_rows(earlier, later, user)
    if user.name == "concatenate":
        return earlier.kind == "pointwise" and not _only_leaves(clusters, earlier)
    if earlier.kind == "dot" and later.kind == "move":
        return can_end(user, later)
    if earlier.kind == "pointwise" and later.kind in ("dot", "conv"):  # beside the epilogue
        return earlier.shape == later.shape and is_pointwise(user)
    return False


def _same_elements(clusters: Clusters, earlier: Cluster, later: Cluster, maker: Op, user: Op) -> bool:
    """Elementwise operations on the same elements, seen in another shape perhaps."""
    if user.name == "reshape":
        return prod(earlier.shape) == prod(later.shape) and len(later.members) > 1
    if _only_leaves(clusters, earlier):
        return earlier.kind == "pointwise" and earlier.shape == later.shape and is_pointwise(user)
    if not is_pointwise(user):
        return False
    made = maker.results[0].type.shape
    return made == later.shape and prod(earlier.shape) == prod(made)


def _viewed_only_by(clusters: Clusters, earlier: Cluster, later: Cluster) -> bool:
    """Views and constants are made inside of a kernel only if nobody else needs them in device memory."""
    mine = {*earlier.members, *later.members}
    made = [value for p in earlier.members for value in clusters.ops[p].results]
    return all(user in mine for value in made for user in clusters.users.get(value, ())) and not any(
        value in clusters.results for value in made
    )


def _takes_constants(maker: Op, user: Op, later: Cluster) -> bool:
    if not later.kind or later.kind == "call":
        return False
    if later.kind in ("pointwise", "rows"):
        return True
    if later.kind in ("dot", "conv"):
        return is_pointwise(user) or user.name == "broadcast_in_dim"
    return later.kind == "move" and user.name == "pad"


def _into_rows(earlier: Cluster, later: Cluster, user: Op) -> bool:
    """Elementwise operations before a reduce, or beside the reduced values."""
    if not _reads_rows(later):
        return False
    if user.name == "reshape":
        return prod(earlier.shape) == prod(later.shape)
    if earlier.shape == later.shape:
        return user.name == "reduce" or is_pointwise(user)
    return earlier.shape == _reduced(later) and is_pointwise(user)


def _after_rows(earlier: Cluster, later: Cluster, user: Op) -> bool:
    """Elementwise operations on rows or on the reduced values, and a reduced value once for each element of its row."""
    reduced = _reduced(earlier)
    if user.name == "broadcast_in_dim":
        wanted = tuple(dim for dim in range(len(earlier.shape)) if dim not in earlier.rows)
        return (
            _reads_rows(earlier)
            and later.shape == earlier.shape
            and tuple(user.attributes["broadcast_dimensions"]) == wanted
        )
    if not is_pointwise(user):
        return False
    if later.shape == earlier.shape:
        return _reads_rows(earlier)
    return later.shape == reduced


def _reads_rows(cluster: Cluster) -> bool:
    """True if the last dimension is reduced, so that what is on one partition lies in runs in memory."""
    return bool(cluster.rows) and cluster.rows[-1] == len(cluster.shape) - 1


def _reduced(cluster: Cluster) -> tuple[int, ...]:
    return tuple(size for dim, size in enumerate(cluster.shape) if dim not in cluster.rows)


def _group(cluster: Cluster, clusters: Clusters, results: Sequence[Value]) -> Group:
    ops = [clusters.ops[position] for position in cluster.members]
    ops = _without_repeats(ops, frozenset(_boundary(clusters, ops, cluster.members, results)[1]))
    if cluster.kind in ("dot", "conv"):
        ops = _roots_first(cluster.kind, ops)
    inputs, outputs = _boundary(clusters, ops, cluster.members, results)
    group = Group(cluster.kind, tuple(ops), inputs, outputs)
    group.name = group_name(group)
    return group


def _roots_first(kind: str, ops: Sequence[Op]) -> list[Op]:
    return sorted(ops, key=lambda op: kind_of(op) != kind)


def _boundary(
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
        if op.name in _LEAVES and op.results[0] not in kept:
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
