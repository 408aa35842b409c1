"""Sets of operations that grow by merging, as long as the graph between them has no cycle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from nki.graph.ir import Op, Value
from nki.graph.passes.regions import outside_values


@dataclass(eq=False, slots=True)
class Cluster:
    """Operations of one future group.

    Attributes:
        members: positions of the operations in the block, ascending.
        kind: of the group; "" if it is one operation that stays outside.
        shape: of what it computes, without the reduced results of "rows".
        rows: for "rows" the reduced dimensions.
        rank: place in a topological order of all clusters.
        before, after: clusters that it uses, and that use it.
    """

    members: list[int]
    kind: str
    shape: tuple[int, ...]
    rows: tuple[int, ...] = ()
    rank: int = 0
    before: set[Cluster] = field(default_factory=set)
    after: set[Cluster] = field(default_factory=set)


class Clusters:
    """One cluster for each operation of a block at first."""

    def __init__(self, ops: Sequence[Op], made: Sequence[Cluster], results: Sequence[Value]) -> None:
        self.ops = ops
        self.results = frozenset(results)
        self.of: list[Cluster] = list(made)
        self._ranked: list[Cluster | None] = list(made)
        for rank, cluster in enumerate(made):
            cluster.rank = rank
        self.producer: dict[Value, int] = {result: i for i, op in enumerate(ops) for result in op.results}
        self.users: dict[Value, list[int]] = {}
        for position, op in enumerate(ops):
            for value in outside_values(op):
                self.users.setdefault(value, []).append(position)
                source = self.producer.get(value)
                if source is not None:
                    self._join(self.of[source], self.of[position])

    @staticmethod
    def _join(earlier: Cluster, later: Cluster) -> None:
        if earlier is not later:
            earlier.after.add(later)
            later.before.add(earlier)

    def mergeable(self, earlier: Cluster, later: Cluster) -> bool:
        """True if no third cluster uses `earlier` and is used by `later`, directly or not."""
        return later.before.isdisjoint(self._between(earlier, later))

    def _between(self, earlier: Cluster, later: Cluster) -> set[Cluster]:
        """What uses `earlier`, directly or not, and comes before `later` in the order."""
        found: set[Cluster] = set()
        pending = [cluster for cluster in earlier.after if cluster.rank < later.rank]
        while pending:
            cluster = pending.pop()
            if cluster not in found:
                found.add(cluster)
                pending += [other for other in cluster.after if other.rank < later.rank]
        return found

    def merge(self, earlier: Cluster, later: Cluster) -> Cluster:
        """Both as one, which keeps the object `earlier`. What uses `earlier` moves behind it in the order."""
        # Only the ranks from one to the other change: there, what uses `earlier` goes behind both, and the rest before
        # them. So the order stays topological at the cost of that window.
        moved = self._between(earlier, later)
        ranks = range(earlier.rank, later.rank + 1)
        window = [c for c in self._ranked[earlier.rank : later.rank + 1] if c is not None and c not in (earlier, later)]
        order = [c for c in window if c not in moved] + [earlier] + [c for c in window if c in moved]
        for rank in ranks:
            self._ranked[rank] = None
        for rank, cluster in zip(ranks, order, strict=False):
            cluster.rank = rank
            self._ranked[rank] = cluster
        for other in later.before - {earlier}:
            other.after.discard(later)
            self._join(other, earlier)
        for other in later.after - {earlier}:
            other.before.discard(later)
            self._join(earlier, other)
        earlier.after.discard(later)
        earlier.before.discard(later)
        for position in later.members:
            self.of[position] = earlier
        earlier.members = sorted(earlier.members + later.members)
        return earlier

    def move(self, position: int, later: Cluster) -> None:
        """Put an operation into a cluster that uses its cluster, and that uses all of its operands already."""
        home = self.of[position]
        home.members.remove(position)
        later.members = sorted([*later.members, position])
        self.of[position] = later
        self._relink(home)
        self._relink(later)

    def _relink(self, cluster: Cluster) -> None:
        """Find again what a cluster uses and what uses it."""
        for other in cluster.before:
            other.after.discard(cluster)
        for other in cluster.after:
            other.before.discard(cluster)
        cluster.before, cluster.after = set(), set()
        for position in cluster.members:
            for value in outside_values(self.ops[position]):
                if value in self.producer:
                    self._join(self.of[self.producer[value]], cluster)
            for value in self.ops[position].results:
                for user in self.users.get(value, ()):
                    self._join(cluster, self.of[user])

    def ordered(self) -> list[Cluster]:
        """All clusters, each after those that it uses."""
        return [cluster for cluster in self._ranked if cluster is not None]
