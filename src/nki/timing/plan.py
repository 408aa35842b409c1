"""A synchronized program made ready for timing: segments with resolved waits, and loops with their trips."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nki.core.errors import VerificationError
from nki.spec.program import Block, ForLoop, Issued, Placement, Program, Sync, WhileLoop
from nki.target.model import Target
from nki.timing.hardware import FIRST_BANK, Hardware, hardware_of
from nki.timing.overlap import Boxes
from nki.timing.recipe import Recipe, Recipes, Touch, indices, touched

ASSUMED_TRIPS = 1.0
"""Trips of a loop of which neither the bounds nor a run tell them."""


class SegmentPlan:
    """Instructions between two loops; all lists are by position in the segment.

    Attributes:
        first: position of its first instruction in the walk over the program.
        recipes: of the instructions.
        queue: queues by number.
        producers: whose completion each waits for.
        consumers: who waits for its completion; None for nobody.
        after: the next instruction of the same queue, or -1.
        missing: how many events have to happen before it may start: producers, and its turn in the queue.
        ports: shared ports that it occupies.
        meets, joins: number of instructions that meet the other core, and of those that meet other ranks.
        boxes: for comparing what instructions touch.
    """

    def __init__(self, first: int, items: list[Issued], recipes: list[Recipe]) -> None:
        self.first = first
        self.items = items
        self.recipes = recipes
        self.queue: list[int] = []
        self.producers: Sequence[Sequence[int]] = ()
        self.consumers: list[list[int] | None] = [None] * len(items)
        self.after = [-1] * len(items)
        self.missing: list[int] = []
        self.ports: list[tuple[int, ...]] = []
        self.meets = sum(recipe.meets for recipe in recipes)
        self.joins = sum(recipe.joins for recipe in recipes)
        self.boxes = Boxes()

    def order(self, queues: Sequence[int], producers: Sequence[Sequence[int]]) -> None:
        """Say in which queue each instruction is, by number, and whose completion it waits for.

        It makes no difference whether those are named that completed before another one that is waited for.
        """
        last: dict[int, int] = {}
        after, missing, consumers = self.after, self.missing, self.consumers
        for position, (queue, awaited) in enumerate(zip(queues, producers, strict=True)):
            before = last.get(queue, -1)
            if before >= 0:
                after[before] = position
                missing.append(1 + len(awaited))
            else:
                missing.append(len(awaited))
            last[queue] = position
            for producer in awaited:
                waiting = consumers[producer]
                if waiting is None:
                    consumers[producer] = [position]
                else:
                    waiting.append(position)
        self.queue, self.producers = list(queues), producers

    def needs(self, position: int) -> list[Touch]:
        """What an instruction must not overtake the writing of."""
        recipe, arguments = self.recipes[position], self.items[position].arguments
        if recipe.plain:
            return [arguments[each] for each in recipe.needs]
        found = touched(arguments, recipe.needs)
        return found + indices(arguments, recipe.touches) if recipe.dynamic else found

    def makes(self, position: int) -> list[Touch]:
        """What an instruction writes."""
        recipe, arguments = self.recipes[position], self.items[position].arguments
        return [arguments[each] for each in recipe.writes] if recipe.plain else touched(arguments, recipe.writes)


class LoopPlan:
    """A loop.

    Attributes:
        number: position among all loops, an outer one before those in it.
        first, last: range of its instructions in the walk over the program.
        trips: for each time that it is entered; a mean if a run gave different ones.
        assumed: whether nothing says how many trips there are.
        body: what it repeats.
    """

    def __init__(self, number: int, trips: float, assumed: bool) -> None:
        self.number = number
        self.trips = trips
        self.assumed = assumed
        self.first = self.last = 0
        self.body: BlockPlan


class BlockPlan:
    """Segments and loops in order; `meets` and `joins` say whether the other core, and other ranks, are met in it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.parts: list[SegmentPlan | LoopPlan] = []
        self.meets = self.joins = False


class TimingPlanner:
    """Makes the plan of one program; `size` is the number of its instructions, `loops` all its loops.

    `recipes` are those of an earlier plan of the same instructions on this target.
    """

    def __init__(
        self,
        program: Program,
        target: Target,
        trips: Mapping[int, float] | None,
        recipes: Recipes | None = None,
    ) -> None:
        self._recipes = Recipes(target, hardware_of(target)) if recipes is None else recipes
        self.hardware = self._recipes.hardware
        self.loops: list[LoopPlan] = []
        self.size = 0
        self._number = {name: number for number, name in enumerate(self.hardware.queues)}
        self._ports = Ports(self.hardware, program.placement)
        self._trips = trips or {}
        self._blocks = 0
        self.body = self._block(program.body, 1.0)

    def _block(self, block: Block, entries: float) -> BlockPlan:
        plan = BlockPlan(self._blocks)
        self._blocks += 1
        for part in _parts(block):
            made: SegmentPlan | LoopPlan
            if isinstance(part, tuple):
                made = self._segment(*part)
                plan.meets |= made.meets > 0
                plan.joins |= made.joins > 0
            else:
                made = self._loop(part, entries)
                plan.meets |= made.body.meets
                plan.joins |= made.body.joins
            plan.parts.append(made)
        return plan

    def _loop(self, loop: ForLoop | WhileLoop, entries: float) -> LoopPlan:
        trips, assumed = trips_of(loop, self._trips.get(len(self.loops)), entries)
        plan = LoopPlan(len(self.loops), trips, assumed)
        self.loops.append(plan)
        plan.first = self.size
        plan.body = self._block(loop.body, entries * plan.trips)
        plan.last = self.size
        return plan

    def _segment(self, items: list[Issued], syncs: list[Sync]) -> SegmentPlan:
        recipes = self._recipes
        plan = SegmentPlan(self.size, items, [recipes.of(issued) for issued in items])
        self.size += len(items)
        plan.ports = [self._ports.of(issued, recipe) for issued, recipe in zip(items, plan.recipes, strict=True)]
        queues, signals = self._lanes(items, syncs)
        producers = [
            _producers(sync, signals, items[position]) if sync.waits else () for position, sync in enumerate(syncs)
        ]
        plan.order(queues, producers)
        return plan

    def _lanes(self, items: list[Issued], syncs: list[Sync]) -> tuple[list[int], dict[str, list[int]]]:
        """The queue of each instruction, by number, and the signalling instructions of each queue."""
        queues: list[int] = []
        signals: dict[str, list[int]] = {}
        for position, sync in enumerate(syncs):
            number = self._number.get(sync.queue)
            if number is None:
                raise _unknown_queue(sync.queue, items[position], self.hardware)
            queues.append(number)
            if sync.signals:
                signals.setdefault(sync.queue, []).append(position)
        return queues, signals


class Ports:
    """Which shared ports instructions occupy; of PSUM those of the banks that they touch.

    Args:
        placement: where buffers without an explicit address lie.
    """

    def __init__(self, hardware: Hardware, placement: Placement | None) -> None:
        self._bank_bytes = hardware.bank_bytes
        self._placement = placement
        self._boxes = Boxes()

    def of(self, issued: Issued, recipe: Recipe) -> tuple[int, ...]:
        """By number, see `nki.timing.hardware`."""
        if not recipe.banked:
            return recipe.ports
        banks = self._boxes.banks((view for _, view in issued.views()), self._placement, self._bank_bytes)
        return (*recipe.ports, *(FIRST_BANK + bank for bank in banks))


def _parts(block: Block) -> Iterator[tuple[list[Issued], list[Sync]] | ForLoop | WhileLoop]:
    """Runs of instructions with their `Sync`s, and loops."""
    syncs: list[Any] = [None] * len(block.items) if block.sync is None else block.sync
    items: list[Issued] = []
    found: list[Sync] = []
    for item, sync in zip(block.items, syncs, strict=True):
        if isinstance(item, Issued):
            if sync is None:
                raise _not_synchronized(item)
            items.append(item)
            found.append(sync)
        else:
            if items:
                yield items, found
                items, found = [], []
            yield item
    if items:
        yield items, found


def trips_of(loop: ForLoop | WhileLoop, counted: float | None, entries: float) -> tuple[float, bool]:
    """Trips of a loop each time that it is entered, and whether they are assumed.

    Args:
        counted: how often its body ran in a whole run, if that is known.
        entries: how often it is entered.
    """
    if isinstance(loop, ForLoop) and isinstance(loop.lower, int) and isinstance(loop.upper, int):
        return float(len(range(loop.lower, loop.upper, loop.step))), False
    if counted is None:
        return ASSUMED_TRIPS, True
    return (counted / entries if entries else 0.0), False


def _producers(sync: Sync, signals: Mapping[str, list[int]], issued: Issued) -> tuple[int, ...]:
    """The instructions that give the signals which an instruction waits for."""
    found = []
    for wait in sync.waits:
        given = signals.get(wait.queue, ())
        if wait.signals > len(given):
            label = issued.instruction.label
            raise VerificationError(
                "timeline.wait",
                f"{label} waits for {wait.signals} signals of {wait.queue}, which gives {len(given)}",
                rule="a wait counts signals of the same segment",
                fix="synchronize the program again",
                location=issued.location,
            )
        if wait.signals > 0:
            found.append(given[wait.signals - 1])
    return tuple(found)


def _unknown_queue(name: str, issued: Issued, hardware: Hardware) -> VerificationError:
    return VerificationError(
        "timeline.queue",
        f"{issued.instruction.label} is in queue {name!r}",
        rule=f"the queues are {', '.join(hardware.queues)}",
        fix="schedule the program for this target",
        location=issued.location,
    )


def _not_synchronized(issued: Issued) -> VerificationError:
    return VerificationError(
        "timeline.unsynchronized",
        f"{issued.instruction.label} has no queue",
        rule="a timeline needs a program that was scheduled and synchronized",
        fix="compile the kernel, or run the pass schedule",
        location=issued.location,
    )
