"""Which ranks take part in a collective of StableHLO.

The numbers of its replica groups are the ranks of a launch: processes along one of its two axes, replicas or
partitions, or along both as ``use_global_device_ids`` counts them.
"""

from __future__ import annotations

from collections.abc import Sequence

from nki.graph.errors import unsupported
from nki.graph.ir import Op


def groups_of(op: Op) -> tuple[tuple[int, ...], ...]:
    """The lists of ranks that take part together, without the -1 that fills the rows of unequal ones.

    Raises:
        GraphError: "graph.unsupported": no groups, which stands for all ranks, whose number a model does not say, or
            lists of unequal length.
    """
    rows = op.attributes.get("replica_groups", ())
    groups = tuple(tuple(int(rank) for rank in row if rank >= 0) for row in rows)
    if not groups or not all(groups):
        raise unsupported(op, "it names no replica groups", "write the ranks: replica_groups = dense<[[0, 1]]>")
    if len(set(map(len, groups))) > 1:
        raise unsupported(op, f"its replica groups have {_lengths(groups)} ranks", "make all groups equally long")
    return groups


def _lengths(groups: Sequence[Sequence[int]]) -> str:
    return " and ".join(map(str, sorted(set(map(len, groups)))))
