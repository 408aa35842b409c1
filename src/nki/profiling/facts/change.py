"""A change of a program that an advice speaks of: which instructions it takes out, and what the others cost then."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field

from nki.core.locks import cached_property
from nki.passes.analysis.dependences import dependences, segments_of
from nki.profiling.facts.dependence_edges import Edges
from nki.profiling.facts.timed_core import CoreFacts, is_transfer
from nki.spec.program import Issued
from nki.timing.hardware import DMA
from nki.timing.recipe import TRANSFER, Recipe

OVERWRITES = ("anti", "output")
"""Kinds of dependences that are gone if every tile has memory of its own."""

_DATA = ("flow", "register", "state", "schedule")
_FEW = 64


UNUSED, MERGED = -1, -2
"""Why an instruction is gone: nobody needs its result, or who needed it does its work from the same operands."""


@dataclass(frozen=True, slots=True)
class Change:
    """What is different; positions are those of the walk over the program.

    Attributes:
        recipes: what instructions cost instead.
        items: what those are that are other instructions now.
        gone: instructions that are no longer there, each with the one whose result is used instead, or `UNUSED`, or
            `MERGED` if who used the result takes what the instruction took.
        own_tiles: whether nothing waits because a tile is overwritten.
        pieces: the part of every transfer and instruction after which the next one can begin, if tiles are split.
        unrolled: whether the barriers of device loops are gone.
        no_ports: whether no engine waits for another one at a port of memory.
    """

    recipes: Mapping[int, Recipe] = field(default_factory=dict)
    items: Mapping[int, Issued] = field(default_factory=dict)
    gone: Mapping[int, int] = field(default_factory=dict)
    own_tiles: bool = False
    pieces: float = 1.0
    unrolled: bool = False
    no_ports: bool = False


class Needs:
    """What each instruction needs of others because of the kernel's own tiles, wherever the compiler puts them.

    The compiler puts a tile where an earlier one has been, and with other instructions it chooses other places. What
    follows from places alone is therefore left out: it need not hold of a changed program.
    """

    def __init__(self, core: CoreFacts, edges: Edges) -> None:
        self._core, self._edges = core, edges

    @cached_property
    def logical(self) -> Sequence[tuple[int, ...]]:
        """Earlier positions that must complete before each instruction."""
        core = self._core
        found: list[tuple[int, ...]] = [()] * len(core.items)
        program = copy(core.program)
        program.placement = None
        for segment in segments_of(program):
            needs = dependences(segment.items, program, core.target, segment.edges, segment.fences)
            found[segment.walk : segment.walk + len(needs)] = [tuple(segment.walk + p for p in each) for each in needs]
        return found

    def of(self, position: int, change: Change) -> list[int]:
        """Producers that an instruction of the changed program needs."""
        found: dict[int, None] = {}
        seen: set[tuple[int, bool]] = set()  # chains of stores and loads meet again and again: there may be 2**n ways
        for producer in self._kept(position) if change.own_tiles else self.logical[position]:
            self._resolve(producer, position, change, found, seen, through=False)
        return list(found)

    def _resolve(
        self,
        producer: int,
        position: int,
        change: Change,
        found: dict[int, None],
        seen: set[tuple[int, bool]],
        *,
        through: bool,
    ) -> None:
        """Find who is needed in the place of a producer that is gone.

        If that was a load of what the kernel had stored (`through`), who made what was stored.
        """
        while change.gone.get(producer, UNUSED) >= 0:
            producer = change.gone[producer]
        if (producer, through) in seen:
            return
        seen.add((producer, through))
        merged = change.gone.get(producer) == MERGED
        if merged or (through and _stores(self._core.items[producer])):
            load = merged and is_transfer(self._core, producer)
            for other in self.logical[producer]:
                self._resolve(other, position, change, found, seen, through=through or load)
        elif producer not in change.gone and producer < position:
            found[producer] = None

    def _kept(self, position: int) -> Iterator[int]:
        """Without those that only overwrite, but with what followed from them and is for data."""
        kind, logical = self._edges.kind, self.logical
        for producer in logical[position]:
            if kind(producer, position)[0] not in OVERWRITES:
                yield producer
            elif len(logical[producer]) <= _FEW:
                yield from (first for first in logical[producer] if kind(first, position)[0] in _DATA)


def _stores(issued: Issued) -> bool:
    return any(view.buffer.region.is_hbm for view in issued.written())


def recipe_of(core: CoreFacts, issued: Issued) -> Recipe:
    """What an instruction that is not in the program would cost."""
    return Recipe(issued, core.target, core.plan.hardware)


def scaled(recipe: Recipe, starting: float = 1.0, working: float = 1.0) -> Recipe:
    """A recipe whose start, of a transfer, and whose work take a part of the time."""
    made = copy(recipe)
    if recipe.kind == TRANSFER:
        made.chain = tuple((unit, ns * starting, latency) for unit, ns, latency in recipe.chain)
    else:
        made.chain = tuple((unit, ns * working, latency) for unit, ns, latency in recipe.chain)
    made.ns, made.work, made.skew = recipe.ns * working, recipe.work * working, min(recipe.skew, recipe.ns * working)
    before = sum(ns for _, ns, _ in recipe.chain) + (recipe.ns if recipe.kind == TRANSFER else 0.0)
    after = sum(ns for _, ns, _ in made.chain) + (made.ns if recipe.kind == TRANSFER else 0.0)
    made.alone = recipe.alone - before + after
    made.busy = tuple((unit, ns) for unit, ns, _ in made.chain if unit != DMA)
    return made


def unused(core: CoreFacts, gone: Mapping[int, int]) -> dict[int, int]:
    """What is gone, and with it everything on chip that nobody else reads."""
    found = dict(gone)
    readers: dict[int, set[int]] = defaultdict(set)
    for at, issued in enumerate(core.items):
        operands = issued.instruction.operands
        for name, view in issued.views():
            if operands[name].reads:
                readers[view.buffer.id].add(at)
    touched = {view.buffer.id for at in gone for _, view in core.items[at].views()}
    for at in reversed(range(len(core.items))):
        issued = core.items[at]
        if at in found or issued.instruction.effects(issued.arguments):
            continue
        written = [view.buffer for view in issued.written()]
        if not written or not all(buffer.on_chip and buffer.id in touched for buffer in written):
            continue
        if all(readers[buffer.id] <= found.keys() | {at} for buffer in written):
            found[at] = UNUSED
            touched |= {view.buffer.id for _, view in issued.views()}
    return found


def joined(recipe: Recipe, working: float) -> Recipe:
    """A recipe whose work is a part of that of a longer instruction: others of the same one need not wait for it."""
    made = scaled(recipe, working=working)
    made.latency = made.signal = made.chained = 0.0
    made.chain = tuple((unit, ns, 0.0) for unit, ns, _ in made.chain)
    made.alone = sum(ns for _, ns, _ in made.chain)
    return made
