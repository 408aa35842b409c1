"""What fusion asks of the kernels of products, which may be several and end with transposes, and of concatenations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from nki.graph.emit.access import NotAffineError
from nki.graph.emit.coordinates import Coordinates
from nki.graph.emit.joined import pieces
from nki.graph.emit.product_group import in_order, split
from nki.graph.errors import GraphError
from nki.graph.ir import Group, Op, Value
from nki.graph.passes.clusters import Cluster, Clusters
from nki.graph.passes.fingerprint import attribute_text
from nki.graph.passes.kernels_can import VIEWS

_READ = frozenset({"broadcast_in_dim", "reshape", "transpose"})
_MOST_PRODUCTS = 3
"""In one kernel: each takes a bank of PSUM, and one more for the next block."""

_MOST_JOINED = 60
"""Operations, constants included, that make the pieces of a concatenation."""

Possible = Callable[[list[int], Cluster], bool]


def can_end(user: Op, later: Cluster) -> bool:
    """Whether an operation is a transpose that a product can do when it stores: rows stay rows."""
    if user.name != "transpose" or len(later.members) > 1:
        return False
    permutation = user.attributes["permutation"]
    return bool(permutation) and permutation[-1] == len(permutation) - 1


def merge_products(clusters: Clusters, possible: Possible) -> None:
    """Merge products of the same left operand and of one shape, so that it is loaded once and their epilogues meet."""
    for value in list(clusters.users):
        by_form: dict[object, list[int]] = {}
        for position in clusters.users[value]:
            op = clusters.ops[position]
            if op.name == "dot_general" and op.operands[0] is value and op.operands[1] is not value and _is_wide(op):
                form = (op.results[0].type, op.operands[1].type, attribute_text(op.attributes))
                by_form.setdefault(form, []).append(position)
        for positions in by_form.values():
            _merge(clusters, positions, possible)


def _merge(clusters: Clusters, positions: Sequence[int], possible: Possible) -> None:
    first = positions[0]
    for position in positions[1:]:
        earlier, later = sorted((clusters.of[first], clusters.of[position]), key=lambda cluster: cluster.rank)
        if earlier is later or not clusters.mergeable(earlier, later):
            continue
        members = sorted(earlier.members + later.members)
        if _independent(clusters, members) and possible(members, earlier):
            clusters.merge(earlier, later)
        else:
            first = position


def _is_wide(op: Op) -> bool:
    """Whether the right operand has more than one column, so that it stays on the right."""
    taken = (*op.attributes["rhs_batching_dimensions"], *op.attributes["rhs_contracting_dimensions"])
    return prod(size for dim, size in enumerate(op.operands[1].type.shape) if dim not in taken) > 1


def _independent(clusters: Clusters, members: Sequence[int]) -> bool:
    roots = [clusters.ops[p] for p in members if clusters.ops[p].name == "dot_general"]
    inside = {result for p in members for result in clusters.ops[p].results}
    return len(roots) <= _MOST_PRODUCTS and not any(value in inside for op in roots for value in op.operands)


def can_join(ops: Sequence[Op], outputs: Sequence[Value]) -> bool:
    """Whether the pieces of a concatenation can be computed where they go, and nobody needs them elsewhere."""
    if tuple(outputs) != ops[-1].results or len(ops) > _MOST_JOINED:
        return False
    try:
        pieces(tuple(ops))
    except NotAffineError:
        return False
    return True


def products_readable(kind: str, ops: Sequence[Op], inputs: Sequence[Value], outputs: Sequence[Value]) -> bool:
    """True if the emitter of products reads what the epilogue needs in regular patterns; products come first."""
    if any(op.name in VIEWS and op.name not in _READ for op in ops):
        return False
    parts = split(Group(kind, tuple(ops), tuple(inputs), tuple(outputs)))
    try:
        in_order(parts, Coordinates(parts.inner))
    except GraphError:
        return False
    return True
