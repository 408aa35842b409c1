"""What a synchronised program orders, and the proof that this is enough: every conflict is ordered.

One thing happens before another if it comes earlier in a queue, if its completion is a signal that the other one waits
for, if a loop lies between them, or by a chain of these. `check` computes it with one clock per instruction (how many
instructions of each queue have certainly completed when it starts) and compares the accesses that conflict. If it finds
nothing, all executions that the queues allow give the bytes of the block's order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nki.passes.analysis.footprints import Accesses, Resource, Touched
from nki.passes.proof.conflicts import Clock, Conflict, Conflicts, Doer
from nki.passes.proof.core_races import between_cores
from nki.passes.proof.faults import Race, broken, state_race, unordered
from nki.passes.proof.vector_clocks import Clocks, SegmentRun
from nki.spec.program import Block, Issued, Program, Sync
from nki.spec.queue import by_dma, dma_queues
from nki.target.model import Target

_MOST = 20
_BLOCK = 256
"""Instructions after which it is asked what can be forgotten."""


def check(programs: Sequence[Program], target: Target) -> list[Race]:
    """Everything that may happen in the wrong order in the programs of the cores of one launch.

    A block without `sync` runs in its order. In others each queue is legal and fits the engine, every wait can be
    satisfied, and conflicting accesses (overlapping bytes, registers, state of the engines, edges and fences of the
    schedule) are ordered as in the block. Of many faults of a segment the first are returned.
    """
    races = list(_written_though_fixed(programs))
    for program in programs:
        accesses = Accesses(program, target)
        edges = _orders(program)
        for run in _runs(program, races):
            races += _check_run(run, accesses, target, edges)
    if len(programs) > 1 and not races:
        races += between_cores(programs, target)
    return races


def _check_run(run: SegmentRun, accesses: Accesses, target: Target, edges: dict[int, list[int]]) -> list[Race]:
    races = list(_queue_faults(run, target))
    plan = Clocks(run)
    races += plan.faults
    if races:
        return races[:_MOST]
    touched = [accesses.of(issued) for issued in run.items]
    watch = _OrderCheck(touched)
    over = plan.over(_BLOCK)
    for position, item in enumerate(touched):
        if position % _BLOCK == 0:
            watch.forget(over[position // _BLOCK])
        watch.step(item, plan.doers[position], plan.clocks[position])
        for producer in edges.get(run.walk + position, ()):
            before = producer - run.walk
            if before >= len(run.items):
                races.append(broken("edge", run.items[position], None, run.core, "an instruction behind a loop"))
            elif before >= 0 and (before >= position or not plan.ordered(before, position)):
                races.append(broken("edge", run.items[position], run.items[before], run.core))
        if len(watch.conflicts) + len(watch.states) + len(races) > _MOST:
            break
    races += [unordered(run.items[c.earlier], run.items[c.later], c, run.core) for c in watch.conflicts]
    races += [state_race(run.items[a], run.items[b], what, run.core) for what, a, b in watch.states]
    return races


class _OrderCheck:
    """Looks at the instructions of a segment in their order, and collects what nothing orders."""

    def __init__(self, touched: Sequence[Touched]) -> None:
        self._memory = Conflicts(f for item in touched for f in (*item.reads, *item.writes))
        self._written = {f.space for item in touched for f in item.writes}
        self._setter: dict[Resource, Doer] = {}
        self._users: dict[Resource, dict[int, Doer]] = {}
        self._fences = any(item.fence for item in touched)
        self._meetings = any(item.rendezvous for item in touched)
        self.conflicts: list[Conflict] = []
        self.states: list[tuple[str, int, int]] = []

    def forget(self, over: Clock) -> None:
        """Note how many instructions of each queue have completed before all that is still to come."""
        self._memory.over = over

    def step(self, touched: Touched, doer: Doer, clock: Clock) -> None:
        """Look at the next instruction, which starts at a clock."""
        for footprint in touched.reads:
            if footprint.space in self._written:
                self._memory.read(doer, footprint, clock, self.conflicts)
        for footprint in touched.writes:
            self._memory.write(doer, footprint, clock, self.conflicts)
        for resource in touched.uses:
            self._use(resource, doer, clock)
        for resource in touched.sets:
            self._set(resource, doer, clock)
        if self._meetings and touched.rendezvous:
            self._set(("rendezvous with HBM", ""), doer, clock)
        elif self._meetings and touched.hbm:
            self._use(("rendezvous with HBM", ""), doer, clock)
        if self._fences and touched.fence:
            self._set(("fence", ""), doer, clock)
        elif self._fences:
            self._use(("fence", ""), doer, clock)

    def _use(self, resource: Resource, doer: Doer, clock: Clock) -> None:
        setter = self._setter.get(resource)
        if setter is not None:
            self._compare(resource, setter, doer, clock)
        users = self._users.setdefault(resource, {})
        if doer.queue not in users or users[doer.queue].done < doer.done:
            users[doer.queue] = doer

    def _set(self, resource: Resource, doer: Doer, clock: Clock) -> None:
        setter = self._setter.get(resource)
        if setter is not None:
            self._compare(resource, setter, doer, clock)
        for user in self._users.pop(resource, {}).values():
            self._compare(resource, user, doer, clock)
        self._setter[resource] = doer

    def _compare(self, resource: Resource, before: Doer, doer: Doer, clock: Clock) -> None:
        if clock[before.queue] < before.done and before.position != doer.position:
            self.states.append((f"{resource[0]} {resource[1]}".strip(), before.position, doer.position))


def _runs(program: Program, races: list[Race]) -> Iterator[SegmentRun]:
    """The synchronised segments of a program; a block whose `sync` does not fit its items is a fault."""
    walk = 0

    def of(block: Block) -> Iterator[SegmentRun]:
        nonlocal walk
        sync = block.sync
        items: list[Issued] = []
        syncs: list[Sync] = []
        for position, item in enumerate(block.items):
            entry = None if sync is None or position >= len(sync) else sync[position]
            if isinstance(item, Issued):
                if entry is not None:
                    items.append(item)
                    syncs.append(entry)
                elif sync is not None:
                    races.append(broken("unscheduled", item, None, program.core))
                walk += 1
                continue
            if items:
                yield SegmentRun(program.core, walk - len(items), items, syncs)
                items, syncs = [], []
            yield from of(item.body)
        if items:
            yield SegmentRun(program.core, walk - len(items), items, syncs)

    yield from of(program.body)


def _written_though_fixed(programs: Sequence[Program]) -> Iterator[Race]:
    """Instructions that write an input which, by the word of some core, nobody writes; cores have the same inputs."""
    fixed = {n for program in programs for n, buffer in enumerate(program.inputs) if buffer.role == "fixed"}
    for program in programs if fixed else ():
        inputs = {buffer.id: buffer.name for n, buffer in enumerate(program.inputs) if n in fixed}
        for issued in program.body.walk():
            for name, view in issued.views():
                if view.buffer.id in inputs and issued.instruction.operands[name].writes:
                    text = f"it writes {inputs[view.buffer.id]}, which is an input that nobody writes"
                    yield broken("fixed", issued, None, program.core, text)


def _orders(program: Program) -> dict[int, list[int]]:
    """For each position of the walk the earlier ones that the kernel's schedule wants before it."""
    found: dict[int, list[int]] = {}
    for producer, consumer in program.edges:
        found.setdefault(consumer, []).append(producer)
    for first, after in program.fences:
        for position in range(first + 1, after):
            found.setdefault(position, []).append(position - 1)
    return found


def _queue_faults(run: SegmentRun, target: Target) -> Iterator[Race]:
    """Instructions on a queue that does not exist, or that does not belong to their engine."""
    transfers = set(dma_queues(target))
    for issued, sync in zip(run.items, run.sync, strict=True):
        if not (sync.queue in transfers if by_dma(issued) else sync.queue == issued.engine.name):
            yield broken("queue", issued, None, run.core, f"{issued.engine.name} engine on queue {sync.queue!r}")
