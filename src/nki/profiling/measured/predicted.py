"""What the model predicts, in the order in which each engine executes it: device loops as often as they run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from nki.profiling.formats.executed import LOAD, START, Part, executed
from nki.profiling.measured.capture import SIZES
from nki.profiling.measured.refusals import refused
from nki.profiling.record import Profile

MOST_ITEMS = 5_000_000
"""Executions that are compared."""


class Item(NamedTuple):
    """One execution of a part of an instruction.

    Attributes:
        part: what is executed.
        kind: one name for all spellings of its opcode.
        file, line: that it came from.
        size: as that of `Event`.
        done: ns; when its result, or the last byte of the transfer that it starts, is there.
    """

    part: Part
    kind: str
    file: str
    line: int
    size: tuple[int | None, ...]
    done: float


Streams = Mapping[tuple[int, str], Sequence[Item]]
"""Executions by core and engine."""


def streams(profile: Profile, kinds: Mapping[str, str]) -> dict[tuple[int, str], list[Item]]:
    """All executions of a profile.

    Args:
        profile: of the kernel.
        kinds: the name of each opcode.

    Raises:
        ArtifactError: loops have more trips than can be compared (``measured.size``).
    """
    by_engine: dict[tuple[int, str], list[Item]] = defaultdict(list)
    rows = [*profile["instructions"].rows()]
    sources = [*profile["sources"].rows()]
    for part in executed(profile):
        by_engine[part.core, part.engine].append(_item(part, rows[part.id], sources, kinds))
    found: dict[tuple[int, str], list[Item]] = {}
    count = 0
    for (core, engine), items in by_engine.items():
        items.sort(key=lambda item: item.part.start)
        around = _around(profile, core)
        found[core, engine] = expanded = []
        for item, trips in _trips([(item, around(rows[item.part.id])) for item in items], 0):
            count += trips
            if count > MOST_ITEMS:
                raise refused("measured.size", f"the kernel executes more than {MOST_ITEMS} instructions")
            expanded.append(item)
    return found


def _item(part: Part, row: Mapping[str, Any], sources: Sequence[Mapping[str, Any]], kinds: Mapping[str, str]) -> Item:
    source = sources[row["source"]] if row["source"] >= 0 else None
    size: tuple[int | None, ...] = (None,) * (len(SIZES) + 1)
    if part.what != LOAD:
        flops = round((row["flops"] + row["transpose_flops"]) * part.share)
        size = (*(row[name] for name in SIZES), flops)
    file = PurePath(source["file"]).name if source else ""
    line, done = source["line"] if source else 0, row["end_ns"] if part.what == START else part.end
    return Item(part, kinds.get(part.opcode, part.opcode), file, line, size, done)


Around = tuple[tuple[int, int], ...]
"""The loops around an instruction from the outside, with their trips."""


def _around(profile: Profile, core: int) -> Any:
    loops = {row["loop"]: row for row in profile["loops"].rows() if row["core"] == core}
    known: dict[int, Around] = {-1: ()}

    def of(row: Mapping[str, Any]) -> Around:
        number = row["loop"]
        if number not in known:
            chain: list[tuple[int, int]] = []
            at = number
            while at >= 0:
                chain.insert(0, (at, round(loops[at]["trips"])))
                at = loops[at]["parent"]
            known[number] = tuple(chain)
        return known[number]

    return of


def _trips(items: list[tuple[Item, Around]], depth: int) -> Any:
    """Items in the order of execution; those of a loop come as often as it has trips."""
    at = 0
    while at < len(items):
        item, around = items[at]
        if len(around) <= depth:
            yield item, 1
            at += 1
            continue
        loop, trips = around[depth]
        end = at
        while end < len(items) and len(items[end][1]) > depth and items[end][1][depth][0] == loop:
            end += 1
        for _ in range(trips):
            yield from _trips(items[at:end], depth + 1)
        at = end
