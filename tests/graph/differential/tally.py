"""What many graphs came to: counts, and what they covered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from tests.graph.differential.judge import Outcome
from tests.graph.differential.records import Graph
from tests.graph.differential.table import TABLE


def record(graph: Graph, found: Outcome) -> dict[str, Any]:
    """One line of a file of results: what a graph was, and what became of it."""
    first = len(graph.inputs)
    names = ["input"] * first + [node.operator for node in graph.nodes]
    return {
        "graph": graph.seed,
        "front": graph.front,
        "target": graph.target,
        "cores": graph.cores,
        "native": graph.native,
        "constants": len(graph.constants),
        "derived": graph.derived,
        "status": found.status,
        "kind": found.kind,
        "why": found.why,
        "beside": found.beside,
        "operators": names[first:],
        "pairs": [f"{names[k]} > {node.operator}" for node in graph.nodes for k in node.operands if k >= first],
        "dtypes": sorted({x.dtype for x in graph.inputs}),
    }


_DRAWN = ("front", "target", "cores", "native", "derived", "dtypes")


class Tally:
    """The sums over records."""

    def __init__(self, records: Iterable[dict[str, Any]] = ()) -> None:
        self.counts: dict[str, Counter[str]] = {name: Counter() for name in ("status", *_DRAWN, "operators", "pairs")}
        self.refusals: Counter[str] = Counter()
        self.crashes: Counter[str] = Counter()
        self.beside = 0
        for each in records:
            self.add(each)

    def add(self, each: dict[str, Any]) -> None:
        """One more graph."""
        for name, counter in self.counts.items():
            value = each[name]
            counter.update(map(str, value if isinstance(value, list) else [value]))
        self.beside += bool(each["beside"])
        if each["status"] == "refused":
            self.refusals[each["kind"]] += 1
        if each["status"] == "crashed":
            self.crashes[each["kind"]] += 1

    @property
    def graphs(self) -> int:
        return self.counts["status"].total()

    @property
    def faults(self) -> int:
        return sum(self.counts["status"][name] for name in ("wrong", "crashed"))

    def lines(self) -> list[str]:
        """For a terminal."""
        found = [f"{self.graphs} graphs: {_shown(self.counts['status'])}"]
        found += [f"{name:10} {_shown(self.counts[name])}" for name in _DRAWN]
        found += [f"refused    {code}: {count}" for code, count in self.refusals.most_common()]
        found += [f"crashed    {kind}: {count}" for kind, count in self.crashes.most_common()]
        found.append(f"beside     {self.beside} graphs of which the framework's own results are outside of the bounds")
        missing = sorted(set(TABLE) - set(self.counts["operators"]))
        operators, pairs = self.counts["operators"], self.counts["pairs"]
        found.append(f"operators  {len(operators)} of {len(TABLE)}, {operators.total()} in all; pairs {len(pairs)}")
        found += [f"never      {', '.join(missing)}"] if missing else []
        return found


def _shown(counter: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counter.items()))
