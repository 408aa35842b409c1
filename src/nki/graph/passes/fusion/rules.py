"""Which two sets of operations one kernel can compute."""

from __future__ import annotations

from math import prod

from nki.graph.ir import Op
from nki.graph.passes.fusion.clusters import Cluster, Clusters
from nki.graph.passes.fusion.products import OPERAND_VIEWS, can_end
from nki.graph.passes.fusion.readable_views import is_view
from nki.graph.passes.fusion.splats import is_splat
from nki.graph.passes.kinds import is_pointwise

LEAVES = frozenset({"constant", "iota", "broadcast_in_dim"})
EPILOGUES = frozenset({"pointwise", "rows", "dot", "conv"})
"""Kinds of groups to which elementwise operations and views can belong."""


def compatible(clusters: Clusters, earlier: Cluster, later: Cluster, source: int, position: int) -> bool:
    """Whether one kernel can compute both."""
    maker, user = clusters.ops[source], clusters.ops[position]
    if all(clusters.ops[p].name == "constant" for p in earlier.members):
        return is_splat(maker) and _takes_constants(maker, user, later)
    if only_leaves(clusters, earlier) and not _viewed_only_by(clusters, earlier, later):
        return False
    if later.kind == "dot" and (user.name == "dot_general" or position in _operand_views(clusters, later)):
        return len(earlier.members) == 1 and _is_operand_view(clusters, maker)
    if is_view(maker) and maker.name != "broadcast_in_dim" and len(earlier.members) == 1:
        return later.kind in EPILOGUES and (is_pointwise(user) or is_view(user) or user.name == "reduce")
    if later.kind == "pointwise" and earlier.kind in ("pointwise", "dot", "conv"):
        return _same_elements(clusters, earlier, later, maker, user)
    if earlier.kind == "pointwise" and later.kind == "rows":
        return _into_rows(earlier, later, user)
    if earlier.kind == "rows" and later.kind == "rows":
        return earlier.shape == later.shape and earlier.rows == later.rows and _reads_rows(later)
    if earlier.kind == "rows" and later.kind == "pointwise":
        return _after_rows(earlier, later, user)
    if user.name == "concatenate":
        return earlier.kind == "pointwise" and not only_leaves(clusters, earlier)
    if earlier.kind == "dot" and later.kind == "move":
        return can_end(user, later)
    if earlier.kind == "pointwise" and later.kind in ("dot", "conv"):  # beside the epilogue
        return earlier.shape == later.shape and is_pointwise(user)
    return False


def joined(earlier: Cluster, later: Cluster, user: Op) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    """Kind, shape and reduced dimensions of both together, where `user` uses `earlier`."""
    if user.name == "concatenate":
        return "joined", later.shape, ()
    if earlier.kind not in ("rows", "dot", "conv"):
        return later.kind or "pointwise", later.shape, later.rows
    return earlier.kind, earlier.shape, earlier.rows


def only_leaves(clusters: Clusters, cluster: Cluster) -> bool:
    """Whether nothing is computed: constants, positions and views."""
    return all(clusters.ops[p].name in LEAVES or is_view(clusters.ops[p]) for p in cluster.members)


def _is_operand_view(clusters: Clusters, op: Op) -> bool:
    """Whether a product reads through it; reshapes cost nothing and stay outside, unless there is a view behind."""
    if op.name != "reshape":
        return op.name in OPERAND_VIEWS
    source = clusters.producer.get(op.operands[0])
    return source is not None and clusters.ops[source].name in OPERAND_VIEWS


def _operand_views(clusters: Clusters, product: Cluster) -> set[int]:
    """Operations of a product's cluster that make its operands."""
    found: set[int] = set()
    pending = [p for p in product.members if clusters.ops[p].name == "dot_general"]
    while pending:
        for value in clusters.ops[pending.pop()].operands:
            position = clusters.producer.get(value, -1)
            if position in product.members:
                found.add(position)
                pending.append(position)
    return found


def _same_elements(clusters: Clusters, earlier: Cluster, later: Cluster, maker: Op, user: Op) -> bool:
    """Elementwise operations on the same elements, seen in another shape perhaps."""
    if user.name == "reshape":
        return prod(earlier.shape) == prod(later.shape) and len(later.members) > 1
    if only_leaves(clusters, earlier):
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
