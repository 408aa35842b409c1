"""What every instruction of a segment has to wait for: data, registers, shared state and the kernel's own schedule.

For a pass that reorders or synchronises, segment by segment (loops are barriers, so that segments are independent)::

    for segment in segments_of(program):
        needs = dependences(segment.items, program, target, segment.edges, segment.fences)
        needs[i]   # sorted earlier positions in segment.items that must complete before i starts

Dependences that follow from others are left out where that costs nothing. Any order of the instructions in which
each comes after its dependences gives the results of the program order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from nki.passes.analysis.exact_index import ExactIndex, all_apart
from nki.passes.analysis.footprints import Accesses, Footprint, Outline, Outlines, Resource, Space
from nki.passes.analysis.interval_index import Plane
from nki.passes.analysis.memory_boxes import IndexLayout, layout_of
from nki.passes.editing.segments import segments
from nki.spec.program import Block, Issued, Program
from nki.target.model import Target

_FEW = 64
Order = Sequence[tuple[int, int]]


class Segment(NamedTuple):
    """A run of instructions between loops.

    Attributes:
        block: that holds it.
        first, after: positions in ``block.items``.
        walk: position of its first instruction in ``program.body.walk()``.
        items: the instructions.
        edges, fences: those of the program that lie in it, as positions in `items`.
    """

    block: Block
    first: int
    after: int
    walk: int
    items: list[Issued]
    edges: list[tuple[int, int]]
    fences: list[tuple[int, int]]


def segments_of(program: Program) -> Iterator[Segment]:
    """All segments of a program in the order of ``body.walk()``, with the edges and fences that lie in each.

    Edges between segments need nothing: a loop between them is a barrier.
    """
    found = [Segment(*place, _instructions(place[0], place[1], place[2]), [], []) for place in _places(program.body, 0)]
    starts = [segment.walk for segment in found]

    def local(first: int, last: int, kind: Literal["edges", "fences"]) -> None:
        at = bisect_right(starts, first) - 1
        walk, length = starts[at], len(found[at].items)
        if kind == "edges" and last - walk < length:
            found[at].edges.append((first - walk, last - walk))
        elif kind == "fences":
            found[at].fences.append((first - walk, min(last - walk, length)))

    for producer, consumer in program.edges:
        local(producer, consumer, "edges")
    for first, after in program.fences:
        if after > first:
            local(first, after, "fences")
    return iter(found)


def dependences(
    items: Sequence[Issued],
    program: Program,
    target: Target,
    edges: Order = (),
    fences: Order = (),
    outlines: Outlines | None = None,
) -> list[tuple[int, ...]]:
    """For each instruction of a segment the earlier positions that must complete before it starts, ascending.

    Args:
        items: the instructions between two loops, in an order whose results count.
        program: says where its buffers lie (`placement`); a buffer without a place shares bytes with no other.
        target: of the program.
        edges: ``(producer, consumer)`` positions in `items`, see `segments_of`.
        fences: ``(first, after)`` ranges of positions whose instructions keep their order.
        outlines: of the instructions, if others orders or placements of them are looked at too.
    """
    accesses = Accesses(program, target, outlines)
    outlined = [accesses.outline(issued) for issued in items]
    extra: dict[int, set[int]] = {}
    for producer, consumer in edges:
        extra.setdefault(consumer, set()).add(producer)
    for first, after in fences:
        for position in range(first + 1, after):
            extra.setdefault(position, set()).add(position - 1)
    state = _AccessHistory(outlined, accesses)
    return [state.add(position, item, extra.get(position, ())) for position, item in enumerate(outlined)]


class _AccessHistory:
    """The last accesses of a growing sequence of instructions."""

    def __init__(self, outlined: Sequence[Outline], accesses: Accesses) -> None:
        """All instructions are known beforehand: what none of them writes need not be watched."""
        self._footprints = _footprints(outlined, accesses)
        written = {self._footprints[number].space for number in set().union(*[each.writes for each in outlined])}
        indices = _indices(written, self._footprints.values())
        # Of each number the index that watches it, and what it stands for.
        self._watched = {number: (indices.get(each.space), each) for number, each in self._footprints.items()}
        self._needs: list[tuple[int, ...]] = []
        self._setter: dict[Resource, int] = {}
        self._users: dict[Resource, list[int]] = {}
        self._fence = -1
        self._open: set[int] = set()
        self._rendezvous = -1
        self._device: set[int] = set()
        self._has_fence = any(outline.fence for outline in outlined)
        self._has_rendezvous = any(outline.rendezvous for outline in outlined)

    def add(self, position: int, touched: Outline, extra: Sequence[int] | set[int]) -> tuple[int, ...]:
        """The dependences of the next instruction."""
        found = set(extra)
        if touched.reads or touched.writes:
            self._memory(position, touched, found)
        if touched.uses or touched.sets:
            self._resources(position, touched, found)
        found.discard(position)
        if self._has_rendezvous:
            self._around_rendezvous(position, touched, found)
        if self._has_fence:
            self._around_fence(position, touched, found)
        needs = self._reduced(found) if len(found) > 1 else tuple(found)
        self._needs.append(needs)
        return needs

    def _reduced(self, found: set[int]) -> tuple[int, ...]:
        """Without what the others already wait for themselves."""
        # One step only: what follows from longer chains stays, and `synchronize` finds that it needs no wait. A long
        # list stays as it is, because each member costs a pass over its own needs.
        if len(found) <= _FEW:
            needs = self._needs
            found.difference_update(*[needs[position] for position in found])
        return tuple(sorted(found))

    def _memory(self, position: int, touched: Outline, found: set[int]) -> None:
        watched = self._watched
        for number in touched.reads:
            index, footprint = watched[number]
            if index is not None:
                index.read(position, footprint, found)
        for number in touched.writes:
            index, footprint = watched[number]
            assert index is not None, "what is written is watched"
            index.write(position, footprint, found)

    def _resources(self, position: int, touched: Outline, found: set[int]) -> None:
        for resource in touched.uses:
            if resource in self._setter:
                found.add(self._setter[resource])
            self._users.setdefault(resource, []).append(position)
        for resource in touched.sets:
            # Users follow the setter before them, so that who follows them need not name it.
            users = self._users.pop(resource, None)
            if users:
                found.update(users)
            elif resource in self._setter:
                found.add(self._setter[resource])
            self._setter[resource] = position

    def _around_rendezvous(self, position: int, touched: Outline, found: set[int]) -> None:
        """Accesses to HBM stay on their side of a rendezvous; those that another one follows need no mention."""
        if touched.rendezvous:
            found |= self._device
            self._device = set()
            self._rendezvous = position
        elif self._on_device(touched):
            if self._rendezvous >= 0:
                found.add(self._rendezvous)
            self._device -= found
            self._device.add(position)

    def _on_device(self, touched: Outline) -> bool:
        """Whether device memory is accessed that a core may write."""
        reads, writes = ([self._footprints[number] for number in each] for each in (touched.reads, touched.writes))
        return any(each.hbm and not each.fixed for each in reads) or any(each.hbm for each in writes)

    def _around_fence(self, position: int, touched: Outline, found: set[int]) -> None:
        """Everything stays on its side of a fence."""
        if touched.fence:
            found |= self._open
            self._open = set()
            if self._fence >= 0 and not found:
                found.add(self._fence)
            self._fence = position
        else:
            if self._fence >= 0 and not any(other >= self._fence for other in found):
                found.add(self._fence)
            # A fence follows those that nobody follows yet; it follows the others through them.
            self._open -= found
        self._open.add(position)


def _footprints(outlined: Sequence[Outline], accesses: Accesses) -> dict[int, Footprint]:
    """All footprints of a segment by number."""
    numbers = set().union(*[outline.reads for outline in outlined], *[outline.writes for outline in outlined])
    return {number: accesses.at(number) for number in numbers}


def _indices(written: set[Space], footprints: Iterable[Footprint]) -> dict[Space, Plane | ExactIndex]:
    """An index for each space that is written."""
    touched: dict[Space, set[Footprint]] = {space: set() for space in written}
    for footprint in footprints:
        own = touched.get(footprint.space)
        if own is not None:
            own.add(footprint)
    exact = ExactIndex()  # a footprint is of one space, so that one index serves several
    indices: dict[Space, Plane | ExactIndex] = {}
    for space, own in touched.items():
        layout = layout_of(own) if next(iter(own)).hbm else IndexLayout()
        indices[space] = exact if all_apart(own, layout.pitch) else Plane(layout)
    return indices


def _places(block: Block, walk: int) -> Iterator[tuple[Block, int, int, int]]:
    """``(block, first, after, walk)`` of all segments in the order of the walk."""
    runs = dict(segments(block))
    for position, item in enumerate(block.items):
        if position in runs:
            yield block, position, runs[position], walk
        if isinstance(item, Issued):
            walk += 1
        else:
            yield from _places(item.body, walk)
            walk += sum(1 for _ in item.body.walk())


def _instructions(block: Block, first: int, after: int) -> list[Issued]:
    return [item for item in block.items[first:after] if isinstance(item, Issued)]
