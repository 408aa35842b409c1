"""From the timeline of a step to its profile: what every class of ranks spends its time on."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath

import numpy as np

from nki.core.source import Location
from nki.profiling.ranks.coverage import Covered
from nki.profiling.ranks.record import StepProfile
from nki.profiling.ranks.rows import Collective, Communicated, Interval, PathPiece, RankClass
from nki.target.model import Target
from nki.timing.ranks.sites import Place, Site
from nki.timing.ranks.step import Step
from nki.timing.ranks.timeline import ClassTimeline, Communication, StepTimeline, step_timeline
from nki.topology import Instance

Kind = tuple[tuple[str, str, str, int, int, str, float], tuple[int, int] | None]
"""What collectives that are alike have in common: first fields of `Collective`; of messages from whom to whom."""


def profile_step(step: Step, instance: Instance, target: Target, name: str, notes: Sequence[str] = ()) -> StepProfile:
    """The profile of a step; see `nki.timing.ranks.timeline.step_timeline` for arguments and errors."""
    line = step_timeline(step, instance, target)
    kinds = _Kinds(line)
    classes = [_class(each, step, line.makespan, kinds) for each in line.classes]
    order = kinds.order(classes, line)
    places = {kind: place for place, kind in enumerate(order)}
    return StepProfile(
        name=name,
        ranks=line.ranks,
        instance=instance.name,
        target=target.name,
        makespan_ns=line.makespan,
        classes=[_renumbered(each, places) for each in classes],
        collectives=[kinds.collective(kind, classes, line) for kind in order],
        path=[
            PathPiece(
                each.start,
                each.end,
                line.classes[each.number].ranks[0],
                -1 if each.call is None else places[kinds.of(each.number, each.call[1])],
            )
            for each in line.path
        ],
        groups=[kinds.groups(kind) for kind in order],
        notes=notes,
    )


class _Kinds:
    """Numbers collectives that are alike."""

    def __init__(self, line: StepTimeline) -> None:
        self._known: dict[Kind, int] = {}
        self._of: dict[tuple[int, Place], int] = {}
        self._groups: dict[int, dict[tuple[int, ...], None]] = defaultdict(dict)
        for number, each in enumerate(line.classes):
            for made in each.communications:
                kind = _kind(made.site, each.ranks[0])
                known = self._of[number, made.call[1]] = self._known.setdefault(kind, len(self._known))
                if made.site.channel(each.ranks[0]) is not None:
                    self._groups[known].update(dict.fromkeys(_groups(made.site, each.ranks)))
        self._critical: dict[int, float] = defaultdict(float)
        for piece in line.path:
            if piece.call is not None:
                self._critical[self.of(piece.number, piece.call[1])] += piece.end - piece.start

    def of(self, number: int, place: Place) -> int:
        """The kind of the call of a class."""
        return self._of[number, place]

    def groups(self, kind: int) -> list[tuple[int, ...]]:
        """The lists of ranks that meet in the collectives of a kind."""
        return list(self._groups[kind])

    def order(self, classes: Sequence[RankClass], line: StepTimeline) -> list[int]:
        """Kinds by what the critical path, then all ranks spend on them."""
        found = {kind: self.collective(kind, classes, line) for kind in self._known.values()}
        return sorted(found, key=lambda kind: (-found[kind].critical_ns, -found[kind].exposed_ns, kind))

    def collective(self, kind: int, classes: Sequence[RankClass], line: StepTimeline) -> Collective:
        """What the ranks spend on the collectives of a kind."""
        count = moving = exposed = waiting = 0.0
        for each in classes:
            share = len(each.ranks) / line.ranks
            for made in each.communications:
                if made.collective == kind:
                    count += share
                    moving += share * (made.end_ns - made.start_ns)
                    exposed += share * made.exposed_ns
                    waiting += share * (made.start_ns - made.ready_ns)
        about = next(key for key, number in self._known.items() if number == kind)
        return Collective(*about[0], count, moving, exposed, waiting, self._critical[kind])


def _kind(site: Site, rank: int) -> Kind:
    channel = site.channel(rank)
    group = 1 if channel is None else len(channel[1])
    where = re.sub(r"\d+", "*", site.module) if site.module else _line(site.location)
    operation = site.operation if site.pair is None else "send" if site.pair[0] == 0 else "receive"
    return (site.name, operation, where, site.nbytes, group, site.how, site.ns), site.pair


def _line(location: Location) -> str:
    """File, without its folder, and line; empty if nobody knows."""
    frame = location.frame
    return "" if frame is None else f"{PurePath(frame.file).name}:{frame.line}"


def _groups(site: Site, ranks: Sequence[int]) -> list[tuple[int, ...]]:
    found = (site.channel(rank) for rank in ranks)
    return [channel[1] for channel in found if channel is not None]


def _class(found: ClassTimeline, step: Step, makespan: float, kinds: _Kinds) -> RankClass:
    work = Covered(found.work)
    moving = _rows(found.communications, "start")
    waiting = _rows(found.communications, "ready")
    exposed = (moving[:, 1] - moving[:, 0] - work.within(moving)).tolist()
    data = Covered(moving)
    hidden = float(work.within(data.rows).sum())
    busy = work.with_(data.rows)
    waits = Covered(waiting)
    alone = max(waits.ns - float(busy.within(waits.rows).sum()), 0.0)
    return RankClass(
        ranks=found.ranks,
        program=step.programs[found.program].rank,
        slowdown=found.slow,
        end_ns=found.end,
        work_ns=work.ns,
        hidden_ns=hidden,
        exposed_ns=max(data.ns - hidden, 0.0),
        waiting_ns=alone,
        idle_ns=max(makespan - busy.ns - alone, 0.0),
        work=[(start, end) for start, end in found.work.tolist()],
        runs=[Interval(run.name, run.start, run.end) for run in found.runs],
        communications=[
            Communicated(
                kinds.of(made.call[0], made.call[1]), made.ready, made.start, made.end, part, made.last, made.partners
            )
            for made, part in zip(found.communications, exposed, strict=True)
        ],
    )


def _rows(made: Sequence[Communication], first: str) -> np.ndarray:
    """From "ready" until data move, or from the "start" of that to their end."""
    rows = [(each.ready, each.start) if first == "ready" else (each.start, each.end) for each in made]
    return np.array(rows, float).reshape(-1, 2)


def _renumbered(found: RankClass, places: Mapping[int, int]) -> RankClass:
    return replace(
        found, communications=[each._replace(collective=places[each.collective]) for each in found.communications]
    )
