"""Measured next to predicted: counts and times by engine and by kind of instruction, and what is on one side alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, NamedTuple

import numpy as np

from nki.profiling.formats.executed import START
from nki.profiling.formats.opcodes import kind_of, opcodes
from nki.profiling.measured.capture import Capture, Event, read_capture
from nki.profiling.measured.matching import HOW, Matched, Pair, match
from nki.profiling.measured.predicted import Item, streams
from nki.profiling.record import Profile

DATA = "DMA data"
"""The kind of what transfers move, beside their starts on engines."""


class Times(NamedTuple):
    """A pair in ns: predicted, and measured."""

    engine: str
    kind: str
    predicted: float
    measured: float


class Sums(NamedTuple):
    """An engine, or a kind of instruction on an engine.

    Attributes:
        engine: name, "dma" for the data of transfers.
        kind: of instruction, or "" for all of the engine.
        matched: pairs.
        predicted_only, measured_only: executions on one side alone.
        predicted_ns, measured_ns: of the pairs, added up.
        error: predicted over measured, less 1; None without measured time.
        mean_error: mean of the same of each pair without its sign.
    """

    engine: str
    kind: str
    matched: int
    predicted_only: int
    measured_only: int
    predicted_ns: float
    measured_ns: float
    error: float | None
    mean_error: float | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """A profile and what was measured of the same kernel.

    Attributes:
        profile: predicted.
        capture: measured.
        matched: which instruction is which.
    """

    profile: Profile
    capture: Capture
    matched: Matched

    @property
    def offset(self) -> float:
        """ns of the device's clock at which the predicted timeline begins, by the pair that was measured first."""
        first = min(self.matched.pairs, key=lambda pair: pair.event.start)
        return first.event.start - first.item.part.start

    @property
    def span(self) -> float:
        """ns from the first measured instruction of the kernel to the end of the last one or of its data."""
        ends = [max(each.end, each.moves[1] if each.moves else 0.0) for each in self._work()]
        return max(ends) - min(each.start for each in self._work())

    @property
    def predicted_span(self) -> float:
        """The span of the predicted timeline, which ends when somebody could see the last byte."""
        rows = self.profile["instructions"]
        last = int(np.argmax(rows["visible_ns"] * (rows["runs"] > 0)))
        tail = rows["visible_ns"][last] - rows["end_ns"][last] if rows["engine"][last] == "dma" else 0.0
        return self.profile.makespan_ns - float(tail)

    def _work(self) -> list[Event]:
        return [*(pair.event for pair in self.matched.pairs), *self.matched.events]

    def times(self) -> Iterator[Times]:
        """Pairs in ns, and the data of transfers."""
        for pair in self.matched.pairs:
            part, event = pair.item.part, pair.event
            yield Times(part.engine, pair.item.kind, part.end - part.start, event.end - event.start)
        moved = {row["instruction"]: row["end_ns"] - row["start_ns"] for row in self.profile["dma"].rows()}
        for pair in self.matched.pairs:
            if pair.event.moves is not None and pair.item.part.what == START:
                start, end, _ = pair.event.moves
                yield Times("dma", DATA, moved[pair.item.part.id], end - start)

    def engines(self) -> list[Sums]:
        """Sums by engine."""
        return self._sums(lambda engine, kind: (engine, ""))

    def kinds(self) -> list[Sums]:
        """Sums by engine and kind of instruction."""
        return self._sums(lambda engine, kind: (engine, kind))

    def _sums(self, group: Any) -> list[Sums]:
        pairs: dict[tuple[str, str], list[Times]] = {}
        for each in self.times():
            pairs.setdefault(group(each.engine, each.kind), []).append(each)
        ours = Counter(group(item.part.engine, item.kind) for item in self.matched.items)
        theirs = Counter(group(event.engine, event.kind) for event in self.matched.events)
        keys = sorted({*pairs, *ours, *theirs})
        return [_sum(key, pairs.get(key, []), ours[key], theirs[key]) for key in keys]

    def to_json(self) -> dict[str, Any]:
        """The comparison for programs; times in ns, errors as parts of the measured time."""
        capture, predicted = self.capture, self.predicted_span
        return {
            "folder": str(capture.folder),
            "schema": capture.version,
            "name": capture.name,
            "simulated": capture.simulated,
            "notes": capture.notes,
            "measured_ns": self.span,
            "predicted_ns": predicted,
            "error": _error(predicted, self.span),
            "matched": dict(Counter(pair.how for pair in self.matched.pairs)),
            "engines": [each._asdict() for each in self.engines()],
            "kinds": [each._asdict() for each in self.kinds()],
            "predicted_only": _groups(self.matched.items),
            "measured_only": _groups(self.matched.events),
            "of_the_device": _groups(self.matched.own),
        }


def compare(profile: Profile, folder: Any) -> Comparison:
    """Read a measured profile and match it with a predicted one.

    Raises:
        ArtifactError: it cannot be read, see `read_capture`, or is of another kernel (``measured.match``).
    """
    capture = read_capture(folder)
    kinds = {opcode: kind_of(opcode) for opcode in {*opcodes().canonical, *opcodes().loads.values()}}
    return Comparison(profile, capture, match(streams(profile, kinds), capture))


def _sum(key: tuple[str, str], pairs: list[Times], ours: int, theirs: int) -> Sums:
    predicted, measured = sum(each.predicted for each in pairs), sum(each.measured for each in pairs)
    errors = [abs(each.predicted / each.measured - 1.0) for each in pairs if each.measured > 0.0]
    mean = sum(errors) / len(errors) if errors else None
    return Sums(*key, len(pairs), ours, theirs, predicted, measured, _error(predicted, measured), mean)


def _error(predicted: float, measured: float) -> float | None:
    return predicted / measured - 1.0 if measured > 0.0 else None


def _groups(found: Iterable[Item | Event]) -> list[dict[str, Any]]:
    """What is on one side alone, by engine, kind and line; most often first."""
    counts = Counter(
        (each.part.engine if isinstance(each, Item) else each.engine, each.kind, PurePath(each.file).name, each.line)
        for each in found
    )
    return [
        {"engine": engine, "kind": kind, "line": f"{file}:{line}" if line else "", "count": count}
        for (engine, kind, file, line), count in sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    ]


__all__ = ["HOW", "Comparison", "Pair", "Sums", "compare"]
