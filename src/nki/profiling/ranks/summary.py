"""The profile of a step for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from nki.profiling.evidence import evidence
from nki.profiling.ranks.ranges import shown_ranks
from nki.profiling.ranks.rows import Collective, PathPiece, RankClass, StepTimes
from nki.profiling.summary import as_text, in_bytes, in_us
from nki.target.load import load_target

_ROWS = 12
_WIDTH = 120

_SPENT: Mapping[str, str] = {
    "work": "an engine or a transfer of its own works",
    "exposed": "a collective moves data, and nothing else happens",
    "waiting": "it is ready for a collective, and another rank is not",
    "idle": "nothing of these",
    "hidden": "a collective moves data behind work",
}


def step_text(profile: StepTimes, width: int = _WIDTH) -> str:
    """Plain text."""
    return as_text(lambda console: show_step(console, profile), width)


def show_step(console: Console, profile: StepTimes) -> None:
    """Print all parts."""
    head = f"{profile.name}: {profile.ranks:,} ranks on {profile.instance}: {in_us(profile.makespan_ns)}"
    console.print(Text(head, style="bold"))
    console.print(evidence(profile.target, load_target(profile.target).validated))
    console.print("collectives are estimates, see docs/timing.md")
    for note in profile.notes:
        console.print(note)
    _classes(console, profile)
    _collectives(console, profile)
    _path(console, profile)


def show_sizes(console: Console, profiles: Sequence[StepTimes]) -> None:
    """Print one row for each number of ranks."""
    grid = _grid("ranks", "step", "work", "exposed", "%", "waiting", "hidden", "most on the critical path")
    for each in profiles:
        bound = each.bound_by
        grid.add_row(
            f"{each.ranks:,}",
            in_us(each.makespan_ns),
            in_us(each.work_ns),
            in_us(each.exposed_ns),
            _percent(each.exposed_ns, each.makespan_ns),
            in_us(each.waiting_ns),
            in_us(each.hidden_ns),
            "no collective" if bound is None else f"{bound.name}, {in_bytes(bound.nbytes)}",
        )
    console.print(f"{profiles[0].name} on {profiles[0].instance}, means of all ranks")
    console.print(grid)


def _classes(console: Console, profile: StepTimes) -> None:
    equal = "" if len(profile.classes) == 1 else f"; ranks that have equal times, {len(profile.classes)} kinds of them"
    console.print(f"\nwhere the time of each rank went, in % of {in_us(profile.makespan_ns)}{equal}")
    grid = _grid("ranks", "program", "work", "exposed", "waiting", "idle", "hidden", "done at")
    ranked = sorted(profile.classes, key=lambda each: (-each.end_ns, each.ranks))
    for each in ranked[:_ROWS]:
        grid.add_row(*_class_row(each, profile.makespan_ns))
    console.print(grid)
    if len(ranked) > _ROWS:
        console.print(f"and {len(ranked) - _ROWS} more kinds of ranks, which are done earlier")
    console.print("; ".join(f"{name}: {text}" for name, text in _SPENT.items()), style="dim")


def _class_row(found: RankClass, makespan: float) -> list[str]:
    slow = f", {found.slowdown:g} times as slow" if found.slowdown != 1.0 else ""
    times = (found.work_ns, found.exposed_ns, found.waiting_ns, found.idle_ns, found.hidden_ns)
    shares = [_percent(ns, makespan) for ns in times]
    return [shown_ranks(found.ranks), f"of rank {found.program}{slow}", *shares, in_us(found.end_ns)]


def _collectives(console: Console, profile: StepTimes) -> None:
    if not profile.collectives:
        console.print("\nno collective: the ranks never meet")
        return
    console.print("\ncollectives, by their part of the critical path; means of all ranks")
    grid = _grid(
        "collective", "bytes", "ranks", "times", "one", "exposed", "waiting", "on the path", "algorithm", "where"
    )
    for each in profile.collectives[:_ROWS]:
        grid.add_row(*_collective_row(each))
    console.print(grid)
    more = profile.collectives[_ROWS:]
    if more:
        console.print(f"and {len(more)} more with {in_us(sum(each.critical_ns for each in more))} on the path")


def _collective_row(found: Collective) -> list[str]:
    return [
        found.name,
        in_bytes(found.nbytes),
        f"{found.group:,}",
        f"{found.count:,.4g}",
        in_us(found.ns),
        in_us(found.exposed_ns),
        in_us(found.waiting_ns),
        in_us(found.critical_ns),
        found.how,
        found.where,
    ]


def _path(console: Console, profile: StepTimes) -> None:
    work = sum(piece.end_ns - piece.start_ns for piece in profile.path if piece.collective < 0)
    rest = profile.makespan_ns - work
    console.print(
        f"\ncritical path: {_percent(work, profile.makespan_ns)} % work, "
        f"{_percent(rest, profile.makespan_ns)} % collectives"
    )
    bound = profile.bound_by
    if bound is not None:
        console.print(
            f"most of them: {bound.name} of {in_bytes(bound.nbytes)} among {bound.group:,} ranks, "
            f"{in_us(bound.critical_ns)}"
        )
    ranks = _ranks_on(profile.path)
    if len(ranks) > 1:
        console.print(f"it goes through ranks {' -> '.join(map(str, ranks[:_ROWS]))}{' ...' * (len(ranks) > _ROWS)}")


def _ranks_on(path: Sequence[PathPiece]) -> list[int]:
    """Ranks one after another; each is the lowest of those with equal times."""
    found: list[int] = []
    for piece in path:
        if not found or found[-1] != piece.rank:
            found.append(piece.rank)
    return found


def _grid(*names: str) -> Grid:
    grid = Grid(box=None, pad_edge=False)
    for number, name in enumerate(names):
        grid.add_column(name, justify="left" if number in (0, len(names) - 1) else "right")
    return grid


def _percent(ns: float, makespan: float) -> str:
    return f"{100.0 * ns / makespan if makespan else 0.0:.1f}"
