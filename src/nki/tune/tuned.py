"""What tuning found: every candidate with its time or the reason why it has none, and the one that was chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nki.core.html import html_table
from nki.profiling.evidence import evidence
from nki.target.load import load_target

STATES: Mapping[str, str] = {
    "chosen": "the least time of all that compute the same as the default configuration",
    "timed": "timed, but not the fastest",
    "pruned": "not timed: its busiest unit alone takes longer than the chosen one",
    "over budget": "not timed: the budget was used up by candidates with smaller bounds",
    "failed": "refused by the rules, or not compiled",
    "wrong": "computes something else than the default configuration",
}


@dataclass(frozen=True, slots=True)
class Candidate:
    """One configuration.

    Attributes:
        label: the configuration as text.
        state: one of `STATES`.
        ns: time of the compiled kernel, without what a launch adds; None if it was not timed.
        bound_ns: what it takes at least; None if it was refused before.
        default: whether it is what the others are compared with.
        checked: whether it was run and gave the same results; also true of the default.
        assumed: whether loops of unknown trips count as one trip.
        reason: of "failed" and "wrong".
    """

    label: str
    state: str
    ns: float | None = None
    bound_ns: float | None = None
    default: bool = False
    checked: bool = False
    assumed: bool = False
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """JSON types only."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Tuned:
    """The result for one kernel, target and key.

    Attributes:
        kernel, target: names.
        key: what chose this entry, as text.
        candidates: in the order of the configurations; the default comes first if it is none of them.
        origin: "searched", from "memory" or "disk", or "pinned" by a file.
    """

    kernel: str
    target: str
    key: str
    candidates: tuple[Candidate, ...]
    origin: str = "searched"

    @property
    def chosen(self) -> Candidate:
        """The winner."""
        return next(each for each in self.candidates if each.state == "chosen")

    @property
    def speedup(self) -> float | None:
        """Time of the default over that of the winner; None if a pinned entry was not timed."""
        default = next((each for each in self.candidates if each.default), None)
        if default is None or default.ns is None or not self.chosen.ns:
            return None
        return default.ns / self.chosen.ns

    def to_json(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "kernel": self.kernel,
            "target": self.target,
            "key": self.key,
            "origin": self.origin,
            "is_simulation": True,
            "chosen": self.chosen.label,
            "speedup": self.speedup,
            "candidates": [each.to_json() for each in self.candidates],
        }

    def __str__(self) -> str:
        chosen, speedup = self.chosen, self.speedup
        time = "" if chosen.ns is None else f": {chosen.ns / 1000:.2f} µs"
        gain = "" if speedup is None else f", {speedup:.2f} times as fast as the default"
        return f"{self.kernel} on {self.target} ({self.key}): {chosen.label}{time}{gain} ({self.origin}, simulated)"

    def _repr_html_(self) -> str:
        rows = [
            (
                each.label,
                "" if each.ns is None else f"{each.ns / 1000:.2f}",
                f"{each.state}{', the default' if each.default else ''}",
                each.reason,
            )
            for each in self.candidates
        ]
        return html_table(str(self), rows, ("configuration", "µs", "state", "reason"), [_evidence(self.target)])


def _evidence(target: str) -> str:
    return evidence(target, load_target(target).validated)


def tuned_from(document: Any, origin: str) -> Tuned | None:
    """What `Tuned.to_json` wrote; None if it is something else."""
    try:
        candidates = tuple(Candidate(**each) for each in document["candidates"])
        found = Tuned(document["kernel"], document["target"], document["key"], candidates, origin)
        well = all(type(each.label) is str and each.state in STATES for each in candidates)
        return found if well and sum(each.state == "chosen" for each in candidates) == 1 else None
    except (TypeError, KeyError):
        return None
