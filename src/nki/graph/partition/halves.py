"""A compiled kernel cut in two: each half stores one part of the results, and does what these stores need.

The halves consist of the kernel's own instructions in their order, at their places on chip and on their queues. So they
compute the same bits as the whole, and nothing is compiled again; what both need, such as a weight, both load.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from nki.core.tensor import Buffer
from nki.graph.partition.device_bytes import Marks, marks
from nki.graph.partition.narrow_transfers import in_two, narrowed
from nki.isa import reduce_cmd
from nki.passes.analysis.disjoint import disjoint
from nki.passes.analysis.footprints import Accesses, Footprint, Resource, Space, Touched
from nki.passes.editing.remove import without_unused_tensors
from nki.passes.scheduling.resynchronize import relink
from nki.spec.program import Block, Issued, Program
from nki.target.model import Target
from nki.timing.timeline import timeline

_GAIN = 0.97
"""Part of a kernel's time that its longer half may take at most."""

Two = tuple[Program, Program]


@dataclass(frozen=True, slots=True)
class Cut:
    """A kernel as two programs, whose arguments are those of the whole.

    Attributes:
        programs: of the first and the second core.
        ns: that each takes alone.
    """

    programs: Two
    ns: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Divisible:
    """A kernel and its halves.

    Attributes:
        ns: that the whole kernel takes alone.
        cuts: ways to cut it, all of which are shorter than the whole.
        why: there are none.
        state: whether it uses what a core keeps from one kernel to the next, so that it runs on the first core.
    """

    ns: float
    cuts: tuple[Cut, ...] = ()
    why: str = ""
    state: bool = False


def halves(program: Program, results: Sequence[Buffer], target: Target) -> Divisible:
    """Cut a compiled kernel in two.

    Args:
        program: compiled for one core.
        results: the tensors that it makes.
    """
    whole = timeline(program, target).makespan
    cutter = _Cutter(program, results, target)
    why = cutter.obstacle()
    if why:
        return Divisible(whole, why=why, state=bool(cutter.state))
    cutters = [_Cutter(each, results, target) for each in cutter.with_two_stores()] or [cutter]
    pairs = [pair for each in cutters for pair in map(each.halves, each.cuts()) if pair is not None]
    if not pairs:
        return Divisible(whole, why="its halves would meet in memory")
    cuts = [Cut(pair, (_alone(pair[0], target), _alone(pair[1], target))) for pair in pairs]
    shorter = tuple(cut for cut in cuts if max(cut.ns) <= _GAIN * whole)
    least = min(max(cut.ns) for cut in cuts)
    return Divisible(whole, shorter, "" if shorter else f"half of it takes {least / whole:.0%} of its time")


def _alone(program: Program, target: Target) -> float:
    return timeline(relink(program, target), target).makespan


class _Cutter:
    """What all cuts of a kernel have in common."""

    def __init__(self, program: Program, results: Sequence[Buffer], target: Target) -> None:
        self._program, self._target = program, target
        self._results = {buffer.id: buffer for buffer in results}
        self._items = [item for item in program.body.items if isinstance(item, Issued)]
        self._accesses = Accesses(replace(program, placement={}), target)  # tensors, not the addresses that they share
        self._touched = [self._accesses.of(issued) for issued in self._items]
        self._stores = [n for n, touched in enumerate(self._touched) if self._stored(touched)]

    @property
    def state(self) -> set[str]:
        """What outlasts the kernel, by the names of effects: the random state, the order of what is printed."""
        walk = self._program.body.walk()
        found = {name for issued in walk for name in issued.instruction.effects(issued.arguments)}
        return found - {"accumulator"}

    def obstacle(self) -> str:
        """Why the kernel cannot be cut, whatever the cut; empty if it can."""
        if len(self._items) < len(self._program.body.items):
            return "it has loops on the device"
        if self.state:
            return f"it uses {' and '.join(sorted(self.state))}"
        if len(self._stores) > 1 or self.with_two_stores():
            return ""
        return "it stores its results at once"

    def with_two_stores(self) -> list[Program]:
        """The program with two stores instead of one, if it has one: along the result, or along what is stored."""
        if len(self._stores) != 1 or self._program.edges or self._program.fences:
            return []
        (at,) = self._stores
        body, found = self._program.body, []
        sync = body.sync or []
        for pair in in_two(self._items[at], self._target):
            block = Block(
                body.buffers,
                [*body.items[:at], *pair, *body.items[at + 1 :]],
                [*sync[:at], sync[at], sync[at], *sync[at + 1 :]],
            )
            found.append(replace(self._program, body=block))
        return found

    def cuts(self) -> list[frozenset[int]]:
        """Stores of the first half: those of the first rows, columns, and instructions; each cut once."""
        orders = (self._row, self._column, float)
        return list(dict.fromkeys(self._first_half(sorted(self._stores, key=order)) for order in orders))

    def halves(self, first: frozenset[int]) -> Two | None:
        """Both halves; None if they meet in memory."""
        one = self._part(first)
        two = self._part(frozenset(self._stores) - first)
        buffers = [*self._program.inputs, *self._results.values()]
        mine, others = marks(one, buffers, self._target), marks(two, buffers, self._target)
        for buffer in buffers:
            (reads, writes), (other_reads, other_writes) = mine[buffer.id], others[buffer.id]
            if meet(writes, other_writes) or meet(writes, other_reads) or meet(reads, other_writes):
                return None
        return one, two

    def _stored(self, touched: Touched) -> Footprint | None:
        """What an instruction writes of the results."""
        return next((footprint for footprint in touched.writes if footprint.space in self._results), None)

    def _place(self, store: int) -> tuple[Footprint, Buffer]:
        footprint = self._stored(self._touched[store])
        assert footprint is not None and isinstance(footprint.space, int), "stores write results"
        return footprint, self._results[footprint.space]

    def _row(self, store: int) -> float:
        """How far into its result a store lies, from 0 to 1."""
        footprint, buffer = self._place(store)
        return (footprint.low + footprint.high) / 2 / buffer.nbytes

    def _column(self, store: int) -> float:
        """How far into the rows of its result a store begins."""
        footprint, buffer = self._place(store)
        row = buffer.shape[-1] * buffer.dtype.itemsize
        return footprint.low % row / row

    def _first_half(self, stores: Sequence[int]) -> frozenset[int]:
        sizes = [_nbytes(self._place(store)[0]) for store in stores]
        chosen: list[int] = []
        total, before = sum(sizes), 0
        for store, size in zip(stores, sizes, strict=True):
            if chosen and before + size / 2 > total / 2:
                break
            chosen.append(store)
            before += size
        return frozenset(chosen if len(chosen) < len(stores) else chosen[:-1])

    def _part(self, stores: frozenset[int]) -> Program:
        """The instructions that some of the stores need, and these."""
        needed, accesses = _Needed(), self._accesses
        kept: list[Issued | None] = [None] * len(self._items)
        # Backwards, so that what is needed of an instruction is known when it comes.
        for position in range(len(self._items) - 1, -1, -1):
            issued, touched = self._items[position], self._touched[position]
            if position in stores or needed.by(touched):
                if position not in stores:
                    made = narrowed(issued, lambda view: needed.bytes(accesses.footprint(view)), self._target)
                    issued, touched = made, touched if made is issued else accesses.of(made)
                kept[position] = issued
                needed.add(touched, starts_anew(issued))
        return _filtered(self._program, kept)


def meet(one: Marks | None, other: Marks | None) -> bool:
    """Whether two sets of bytes have one in common."""
    return one is not None and other is not None and one.meets(other)


class _Needed:
    """What instructions that are kept read, going backwards."""

    def __init__(self) -> None:
        self._bytes: dict[Space, dict[Footprint, None]] = {}
        self._state: set[Resource] = set()

    def by(self, touched: Touched) -> bool:
        """Whether an instruction makes something that is needed later."""
        if any(resource in self._state for resource in touched.sets):
            return True
        return any(map(self.bytes, touched.writes))

    def bytes(self, written: Footprint) -> bool:
        """Whether some of the bytes are read later."""
        return any(not disjoint(written, read) for read in self._bytes.get(written.space, ()))

    def add(self, touched: Touched, anew: bool) -> None:
        """An instruction is kept; `anew` says that it does not go on from what registers of its engine hold."""
        accumulators = {resource for resource in touched.sets if resource[0] == "accumulator"}
        self._state -= accumulators
        if not anew:
            self._state |= accumulators
        self._state.update(touched.uses)
        # Nothing is taken out by a write: an earlier write of the same bytes may be kept for nothing, and none is
        # missing.
        for footprint in touched.reads:
            self._bytes.setdefault(footprint.space, {})[footprint] = None


_ANEW = (reduce_cmd.reset, reduce_cmd.reset_reduce, reduce_cmd.load_reduce)


def starts_anew(issued: Issued) -> bool:
    """Whether an instruction overwrites the accumulator registers of its engine without reading them."""
    command = getattr(issued.arguments, "reduce_cmd", None)
    return issued.instruction.name == "activation_reduce" or command in _ANEW


def _nbytes(footprint: Footprint) -> int:
    size = footprint.run
    for _, count in footprint.dims:
        size *= count
    return size


def _filtered(program: Program, kept: Sequence[Issued | None]) -> Program:
    """The program with what is kept of its instructions, which have queues and no waits."""
    body = program.body
    assert body.sync is not None, "kernels are scheduled"
    items = [issued for issued in kept if issued is not None]
    sync = [entry for entry, issued in zip(body.sync, kept, strict=True) if issued is not None]
    after = [0]
    for issued in kept:
        after.append(after[-1] + (issued is not None))
    edges = [(after[a], after[b]) for a, b in program.edges if kept[a] is not None and kept[b] is not None]
    fences = [(after[a], after[b]) for a, b in program.fences if after[b] - after[a] > 1]
    made = replace(program, body=Block(list(body.buffers), list(items), list(sync)), edges=edges, fences=fences)
    return without_unused_tensors(made)
