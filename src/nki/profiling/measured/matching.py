"""Which measured instruction is which of the program: by the order on each engine, and by source line.

The device's compiler adds, merges and reorders instructions. Of those with the same kind, line and size the first one
is the first one on both sides, and so on; where one side has fewer, times decide which are missing. What is left
between such pairs that are in order is aligned as a longest common subsequence of kinds and lines, and then of kinds.
What is out of order has to have the same kind and line. Everything else is on one side alone, and is reported.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from nki.profiling.formats.executed import START
from nki.profiling.measured.alignment import Side, aligned, ascending, equals
from nki.profiling.measured.capture import Capture, Event, is_own
from nki.profiling.measured.predicted import Item, Streams
from nki.profiling.measured.refusals import refused

HOW: Mapping[str, str] = {
    "exact": "in order, with the same kind, line and size",
    "line": "in order, with the same kind and line",
    "kind": "in order, with the same kind",
    "moved": "out of order, with the same kind and line",
    "engine": "the start of a transfer on another engine, with the same line",
}
"""How pairs were found."""

Key = Callable[[Any], Hashable]


class Pair(NamedTuple):
    """An execution and its measurement; `how` is one of `HOW`."""

    item: Item
    event: Event
    how: str


class Matched(NamedTuple):
    """Pairs, and what is on one side alone; `own` are instructions of the device that no kernel writes."""

    pairs: list[Pair]
    items: list[Item]
    events: list[Event]
    own: list[Event]


def match(program: Streams, capture: Capture) -> Matched:
    """Match all engines of all cores. Raises ArtifactError "measured.match" if nothing fits."""
    measured: dict[tuple[int, str], list[Event]] = defaultdict(list)
    own = []
    for event in capture.events:
        if is_own(event):
            own.append(event)
        else:
            measured[event.core, event.engine].append(event)
    have = _sizes(capture.events, program)
    exact = _exact(have)
    pairs: list[Pair] = []
    items: list[Item] = []
    events: list[Event] = []
    for place in sorted({*program, *measured}):
        found, left, more = _engine(program.get(place, ()), measured.get(place, ()), exact)
        pairs += [pair if any(have[pair.item.kind]) else _sizeless(pair) for pair in found]
        items += left
        events += more
    found, items, events = _out_of_order(items, events, _elsewhere, "engine")
    pairs += found
    if not pairs:
        message = (
            f"none of {len(capture.events)} measured instructions is one of the kernel's "
            f"{sum(map(len, program.values()))}"
        )
        raise refused("measured.match", message)
    return Matched(pairs, items, events, own)


Sizes = Mapping[str, Sequence[bool]]
"""For each kind, which of its sizes are known of all instructions on both sides."""


def _sizes(events: Sequence[Event], program: Streams) -> Sizes:
    have: dict[str, list[bool]] = {}
    both: list[Item | Event] = [*events, *(item for items in program.values() for item in items)]
    for each in both:
        mine = have.setdefault(each.kind, [True] * len(each.size))
        for at, value in enumerate(each.size):
            mine[at] = mine[at] and value is not None
    return have


def _exact(have: Sizes) -> Key:
    """Kind, line and size; what has no known size is as good as its line."""

    def exact(each: Item | Event) -> Hashable:
        size = tuple(value for value, there in zip(each.size, have[each.kind], strict=True) if there)
        return (*_line(each), size)

    return exact


def _sizeless(pair: Pair) -> Pair:
    """Without a size, the line decided."""
    return pair._replace(how="line") if pair.how == "exact" else pair


def _line(each: Item | Event) -> tuple[str, str, int]:
    return each.kind, PurePath(each.file).name, each.line


def _elsewhere(each: Item | Event) -> Hashable:
    """A transfer's start without its engine; nothing else is compared across engines."""
    started = each.part.what == START if isinstance(each, Item) else each.moves is not None
    core = each.part.core if isinstance(each, Item) else each.core
    return (core, *_line(each)) if started and each.line else None


def _engine(items: Sequence[Item], events: Sequence[Event], exact: Key) -> tuple[list[Pair], list[Item], list[Event]]:
    """Pairs of one engine, and what is left on both sides."""
    pairs, gaps = _alike(items, events, exact)
    pairs, gaps = _in_order(pairs, gaps, "line", _line)
    moved, left, more = _out_of_order(_all(gap[0] for gap in gaps), _all(gap[1] for gap in gaps), _known_line, "moved")
    mine, theirs = set(map(id, left)), set(map(id, more))
    gaps = [([i for i in a if id(i) in mine], [e for e in b if id(e) in theirs]) for a, b in gaps]
    pairs, gaps = _in_order([*pairs, *moved], gaps, "kind", lambda each: each.kind)
    return pairs, _all(gap[0] for gap in gaps), _all(gap[1] for gap in gaps)


Gap = tuple[Sequence[Item], Sequence[Event]]
"""What lies between pairs that follow each other."""


def _alike(items: Sequence[Item], events: Sequence[Event], exact: Key) -> tuple[list[Pair], list[Gap]]:
    """The first of equal instructions is the first one on both sides, and so on; and what lies between such pairs."""
    mine, theirs = _places(items, exact), _places(events, exact)
    found: dict[int, int] = {}
    for key in mine.keys() & theirs.keys():
        here, there = mine[key], theirs[key]
        for a, b in equals(_side([items[at] for at in here], exact), _side([events[at] for at in there], exact)):
            found[here[a]] = there[b]
    ties = sorted(found.items())
    anchors = ascending([b for _, b in ties])
    pairs = [Pair(items[a], events[b], "exact" if at in anchors else "moved") for at, (a, b) in enumerate(ties)]
    used = set(found.values())
    gaps: list[Gap] = []
    first = start = 0
    fixed = [tie for at, tie in enumerate(ties) if at in anchors]
    for a, b in (*fixed, (len(items), len(events))):
        left = [items[at] for at in range(first, a) if at not in found]
        more = [events[at] for at in range(start, b) if at not in used]
        if left or more:
            gaps.append((left, more))
        first, start = a + 1, b + 1
    return pairs, gaps


def _places(found: Sequence[Item | Event], exact: Key) -> dict[Hashable, list[int]]:
    """Where each key is; not of what has no line."""
    places: dict[Hashable, list[int]] = defaultdict(list)
    for at, each in enumerate(found):
        if each.line:
            places[exact(each)].append(at)
    return places


def _side(found: Sequence[Item | Event], key: Key) -> Side:
    starts = [each.part.start if isinstance(each, Item) else each.start for each in found]
    return Side([key(each) for each in found], starts, [each.done for each in found])


def _in_order(pairs: list[Pair], gaps: Sequence[Gap], how: str, key: Key) -> tuple[list[Pair], list[Gap]]:
    """Align every gap; the pairs with those that are new, and the gaps that are left."""
    pairs, left = list(pairs), []
    for items, events in gaps:
        first = start = 0
        ties = aligned(_side(items, key), _side(events, key))
        pairs += [Pair(items[a], events[b], how) for a, b in ties]
        for a, b in (*ties, (len(items), len(events))):
            if a > first or b > start:
                left.append((items[first:a], events[start:b]))
            first, start = a + 1, b + 1
    return pairs, left


def _all(parts: Iterable[Sequence[Any]]) -> list[Any]:
    return [each for part in parts for each in part]


def _known_line(each: Item | Event) -> Hashable:
    return _line(each) if each.line else None


def _out_of_order(
    items: Sequence[Item], events: Sequence[Event], key: Key, how: str
) -> tuple[list[Pair], list[Item], list[Event]]:
    """Equal keys in the order in which they come; a key of None has no partner."""
    waiting: dict[Hashable, deque[Event]] = defaultdict(deque)
    for event in events:
        waiting[key(event)].append(event)
    pairs, left = [], []
    for item in items:
        found = key(item)
        if found is not None and waiting.get(found):
            pairs.append(Pair(item, waiting[found].popleft(), how))
        else:
            left.append(item)
    rest = {event.id for each in waiting.values() for event in each}
    return pairs, left, [event for event in events if event.id in rest]
