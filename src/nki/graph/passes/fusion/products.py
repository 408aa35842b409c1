"""What fusion asks of the kernels of products, which may be several and end with transposes, and of concatenations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from nki.graph.emit.joined import pieces
from nki.graph.emit.kit.access import NotAffineError
from nki.graph.emit.kit.coordinates import Coordinates
from nki.graph.emit.kit.operand_views import view_of
from nki.graph.emit.kit.product_group import checked, columns_of, split
from nki.graph.errors import GraphError
from nki.graph.ir import Group, Op, Value
from nki.graph.passes.fingerprint import attribute_text
from nki.graph.passes.fusion.clusters import Cluster, Clusters
from nki.graph.passes.fusion.readable_views import VIEWS
from nki.graph.passes.kinds import combiner

OPERAND_VIEWS = frozenset({"reshape", "slice", "transpose"})
"""What the kernels of products read an operand through."""

_READ = frozenset({"broadcast_in_dim", "reshape", "transpose"})
_MOST_PRODUCTS = 3
"""In one kernel: each takes a bank of PSUM, and one more for the next block."""

_STARTS = {"add": 0.0, "maximum": float("-inf"), "minimum": float("inf")}

_MOST_JOINED = 60
"""Operations, constants included, that make the pieces of a concatenation."""

Possible = Callable[[list[int], Cluster, tuple[int, ...]], bool]
"""Whether a product's kernel can compute these operations, with reductions over these dimensions."""


def can_end(user: Op, later: Cluster) -> bool:
    """Whether an operation is a transpose that a product can do when it stores: rows stay rows."""
    if user.name != "transpose" or len(later.members) > 1:
        return False
    permutation = user.attributes["permutation"]
    return bool(permutation) and permutation[-1] == len(permutation) - 1


def merge_rows(clusters: Clusters, possible: Possible, most: int) -> None:
    """Merge products with what is computed of their rows: norms and softmax.

    Args:
        most: columns in a bank of PSUM.
    """
    for rows in clusters.ordered():
        if rows.kind != "rows":
            continue
        made = [p for p in rows.before if p.kind == "dot" and _can_reduce(clusters, p, rows, most)]
        for product in sorted(made, key=lambda cluster: -cluster.rank):
            members = sorted(product.members + rows.members)
            if clusters.mergeable(product, rows) and possible(members, product, rows.rows):
                clusters.merge(product, rows).rows = rows.rows
                break


def _can_reduce(clusters: Clusters, product: Cluster, rows: Cluster, most: int) -> bool:
    """Whether a product's kernel can compute reductions: over all of its columns, which a bank of PSUM must hold.

    Args:
        most: columns in a bank.
    """
    root = next(clusters.ops[p] for p in product.members if clusters.ops[p].name == "dot_general")
    if product.shape != rows.shape or rows.rows != columns_of(root) or product.rows not in ((), rows.rows):
        return False
    return 1 < prod(product.shape[dim] for dim in rows.rows) <= most and all(
        _is_plain(clusters, clusters.ops[p]) for p in rows.members if clusters.ops[p].name == "reduce"
    )


def _is_plain(clusters: Clusters, op: Op) -> bool:
    """A reduction of float32 that starts with what changes nothing."""
    name = combiner(op)
    if name not in _STARTS or op.operands[0].type.dtype.name != "float32" or op.operands[1] not in clusters.producer:
        return False
    start = clusters.ops[clusters.producer[op.operands[1]]]
    return start.name == "constant" and bool((start.attributes["value"] == _STARTS[name]).all())


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
        if _independent(clusters, members) and possible(members, earlier, ()):
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
    try:
        parts = split(Group(kind, tuple(ops), tuple(inputs), tuple(outputs)))
        for op in parts.roots if parts.views else ():
            for value in op.operands:
                view_of(value, parts.views)
        checked(parts, Coordinates(parts.inner))
    except (GraphError, NotAffineError):
        return False
    return all(op.name not in VIEWS or op.name in _READ for op in (*parts.epilogue, *parts.inner.ops))
