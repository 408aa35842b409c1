"""A step as a Perfetto trace: a process for each rank, and flows from the rank that came last to a collective.

Many ranks are shown by some: one of each class, and the lowest ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from nki.profiling.errors import unwritable
from nki.profiling.formats.perfetto_file import Slice, TraceFile
from nki.profiling.ranks.meetings import coalesced, meetings_of, shown_of
from nki.profiling.ranks.rows import RankClass, StepTimes

if TYPE_CHECKING:
    from nki.profiling.ranks.record import StepProfile

MOST_RANKS = 256
"""Ranks that a trace has."""

MOST_WORK = 2000
"""Intervals of work of a rank; the shortest pauses between them are left out."""


def write_trace(profile: StepProfile, file: Path) -> None:
    """Write a ``.pftrace`` file. Raises UsageError "profile.write"."""
    try:
        with file.open("wb") as stream:
            _write(profile, TraceFile(stream))
    except OSError as problem:
        raise unwritable(file, problem) from problem


def _write(profile: StepProfile, trace: TraceFile) -> None:
    ranks = shown_of(profile, MOST_RANKS)
    flows = _flows(profile, ranks)
    classes = {rank: each for each in profile.classes for rank in each.ranks}
    process = trace.process(f"{profile.name}: {profile.ranks} ranks on {profile.instance} (simulated)")
    trace.track(process, "critical path", 0, _path(profile))
    for rank in ranks:
        process = trace.process(f"rank {rank}: {profile.name} on {profile.instance} (simulated)")
        for place, (name, slices) in enumerate(_tracks(profile, classes[rank], rank, flows).items()):
            trace.track(process, name, place, slices)


def _path(profile: StepTimes) -> Iterator[Slice]:
    for piece in profile.path:
        facts = (("rank", piece.rank),)
        if piece.collective < 0:
            yield Slice(piece.start_ns, piece.end_ns, f"work of rank {piece.rank}", "critical", facts)
        else:
            yield Slice(piece.start_ns, piece.end_ns, profile.collectives[piece.collective].name, "critical", facts)


class Flows(NamedTuple):
    """Flows between ranks: what begins at a rank, with the time and the name of the moment, and what ends at a call."""

    begun: Mapping[int, list[Slice]]
    ended: Mapping[tuple[int, int], tuple[int, ...]]


def _flows(profile: StepTimes, ranks: Sequence[int]) -> Flows:
    """From the rank that came last to all others that meet; if it is not shown, from the lowest one that is.

    A flow begins a ns before the data move: a reader of the trace has to see its begin before its end.
    """
    begun: dict[int, dict[int, Slice]] = defaultdict(dict)
    ended: dict[tuple[int, int], tuple[int, ...]] = {}
    number = 0
    for meeting in meetings_of(profile, ranks):
        known = meeting.last in meeting.members
        source = meeting.last if known else min(meeting.members)
        others = [rank for rank in sorted(meeting.members) if rank != source]
        ids = tuple(range(number + 1, number + 1 + len(others)))
        number += len(others)
        ended.update({(rank, meeting.members[rank]): (flow,) for rank, flow in zip(others, ids, strict=True)})
        if others:
            at = round(meeting.start_ns)
            name = "comes last" if known else "meets others"
            before = begun[source].get(at)
            flows = ids if before is None else (*before.flows, *ids)
            begun[source][at] = Slice(max(at - 1, 0), at, name, "meeting", (), flows)
    return Flows({rank: list(found.values()) for rank, found in begun.items()}, ended)


def _tracks(profile: StepTimes, found: RankClass, rank: int, flows: Flows) -> dict[str, list[Slice]]:
    """The tracks of a rank; collectives that overlap are on several."""
    tracks: dict[str, list[Slice]] = {
        "programs": [Slice(run.start_ns, run.end_ns, run.name, "program") for run in found.runs],
        "work": [Slice(start, end, "work", "work") for start, end in coalesced(found.work, MOST_WORK)],
    }
    for number, made in enumerate(found.communications):
        about = profile.collectives[made.collective]
        facts = (
            ("bytes", about.nbytes),
            ("ranks", about.group),
            ("where", about.where),
            ("algorithm", about.how),
            ("exposed ns", made.exposed_ns),
        )
        ended = flows.ended.get((rank, number), ())
        _put(tracks, "collectives", Slice(made.start_ns, made.end_ns, about.name, "collective", facts, (), ended))
        if made.start_ns > made.ready_ns:
            last = profile.classes[made.last].ranks[0]
            waits = Slice(made.ready_ns, made.start_ns, f"waits for a rank like {last}", "wait", facts[:3])
            _put(tracks, "waits", waits)
    return {**tracks, "meetings": flows.begun.get(rank, [])}


def _put(tracks: dict[str, list[Slice]], name: str, made: Slice) -> None:
    """On the first track of that name whose last slice is over."""
    number = 1
    while True:
        track = tracks.setdefault(name if number == 1 else f"{name} {number}", [])
        if not track or round(track[-1].end) <= round(made.start):
            track.append(made)
            return
        number += 1
