"""What ``nl.affine_range`` promises: no trip reads what another one wrote, and no two write one place in HBM.

Sums are excepted, which every trip adds to (``x += value``, products in PSUM, `nl.loop_reduce`). Trips run in their
order here, whatever they do, so that a broken promise changes no value. On the device they may run in any order
(nki/api/nki/language/__init__.py affine_range, nki/api/nki.errors.rst err_unexpected_output_dependencies).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

import nki.isa as nisa
from nki.beta1.errors import DOCUMENT
from nki.core.source import Location
from nki.core.tensor import Buffer, View
from nki.passes.analysis.dependences import dependences
from nki.passes.analysis.disjoint import disjoint
from nki.passes.analysis.footprints import Accesses
from nki.spec.operator import Operator
from nki.spec.program import Block, Issued, Program
from nki.spec.rule import Finding
from nki.target.model import Target


@dataclass(eq=False, slots=True)
class AffineLoop:
    """One run of a loop.

    Attributes:
        body: what it stands in; what it runs, if the device runs it.
        starts: the number of items before each of its trips.
        end: the number of items behind it.
        device: whether the device runs it.
    """

    location: Location
    body: Block
    starts: list[int] = field(default_factory=list)
    end: int = 0
    device: bool = False

    def trip(self, position: int) -> int | None:
        """The trip that an instruction belongs to."""
        if not self.starts or not self.starts[0] <= position < self.end:
            return None
        return bisect_right(self.starts, position) - 1


Summed = Mapping[int, tuple[str, int]]
"""For the identity of an instruction that is a part of ``target += value``: the operator, and identity of a buffer."""


def broken_promises(loops: Sequence[AffineLoop], program: Program, target: Target, summed: Summed) -> Iterator[Finding]:
    """The first broken promise of each loop, as the error that it is."""
    bodies = {id(loop.body): loop.body for loop in loops if not loop.device}
    for key, body in bodies.items():
        items, places = _flat(body)
        own = [_placed(loop, places) for loop in loops if id(loop.body) == key and not loop.device]
        yield from _broken_promises(own, items, program, target, summed)
    for loop in loops:
        if loop.device:
            trip, inner = list(loop.body.walk()), {id(buffer) for buffer in loop.body.all_buffers()}
            twice = AffineLoop(loop.location, loop.body, [0, len(trip)], 2 * len(trip))
            yield from _broken_promises([twice], [*trip, *trip], program, target, summed, inner)


def left_early(loop: AffineLoop, rest: int) -> list[Finding]:
    """What is told of a loop of which `rest` trips do not run."""
    if not rest:
        return []
    ran = len(loop.starts)
    return [
        Finding(
            "beta1.loop_left_early",
            "warning",
            f"{rest} of {ran + rest} trips of nl.affine_range do not run, because trip {ran - 1} returns or breaks",
            "the compiler of the first NKI looks at a body once, for all trips",
            DOCUMENT,
            "put the return behind the loop; leave loops of nl.static_range alone early",
            loop.location,
            {"ran": ran, "left": rest},
        )
    ]


def _flat(body: Block) -> tuple[list[Issued], list[int]]:
    """The instructions of a body, those of loops of the device once, and how many are before each of its items."""
    items: list[Issued] = []
    places = [0]
    for item in body.items:
        items.extend((item,) if isinstance(item, Issued) else item.body.walk())
        places.append(len(items))
    return items, places


def _placed(loop: AffineLoop, places: Sequence[int]) -> AffineLoop:
    """A loop by the numbers of instructions, and not of items."""
    return AffineLoop(loop.location, loop.body, [places[start] for start in loop.starts], places[loop.end])


def _broken_promises(
    loops: Sequence[AffineLoop],
    items: Sequence[Issued],
    program: Program,
    target: Target,
    summed: Summed,
    own: Set[int] = frozenset(),
) -> Iterator[Finding]:
    """The broken promises of loops over one sequence of instructions; `own` buffers are new ones in each trip."""
    several = [loop for loop in loops if len(loop.starts) > 1]
    if not several:
        return
    tree = _Trips(several, len(items))
    watched = _shared(tree, items, own)
    needs, accesses = dependences([items[at] for at in watched], program, target), Accesses(program, target)
    told: set[Location] = set()
    for at, earlier_ones in enumerate(needs):
        for earlier, later in [(watched[each], watched[at]) for each in earlier_ones]:
            for loop in tree.around(later):
                trips = loop.trip(earlier), loop.trip(later)
                if trips[0] is None or trips[0] == trips[1] or loop.location in told:
                    continue
                found = _broken(items[earlier], items[later], accesses, summed)
                if found is not None:
                    told.add(loop.location)
                    yield _finding(found, items[earlier], items[later], loop, (trips[0], trips[1] or 0))


class _Trips:
    """Which trip of the innermost loop each instruction belongs to, and which trip that one is in.

    Attributes:
        of: the number of the trip, by position of the instruction; 0 outside of all loops.
    """

    def __init__(self, loops: Sequence[AffineLoop], count: int) -> None:
        self.of = [0] * count
        self._loops: list[tuple[AffineLoop, int] | None] = [None]
        for loop in sorted(loops, key=lambda each: (each.starts[0], -each.end)):  # what is inside comes later
            for start, end in zip(loop.starts, [*loop.starts[1:], loop.end], strict=True):
                if start < end:
                    self._loops.append((loop, self.of[start]))
                    self.of[start:end] = [len(self._loops) - 1] * (end - start)

    def around(self, position: int) -> Iterator[AffineLoop]:
        """The loops around an instruction, from the inside."""
        return (loop for loop, _ in self.chain(self.of[position]))

    def chain(self, trip: int) -> Iterator[tuple[AffineLoop, int]]:
        """A trip by its number, and those that it is in, each with its loop, from the inside."""
        while (found := self._loops[trip]) is not None:
            yield found[0], trip
            trip = found[1]


@dataclass(eq=False, slots=True)
class _Uses:
    """What instructions of some trips do with a buffer.

    Attributes:
        first: the number of the first trip that reaches it.
        several: whether others do.
        positions: of the instructions.
    """

    buffer: Buffer
    first: int
    several: bool = False
    reads: bool = False
    writes: bool = False
    positions: list[int] = field(default_factory=list)

    @property
    def may_depend(self) -> bool:
        """Whether a trip may need what another one did: what is written twice on chip is a scratch tile, or a sum."""
        return self.several and self.writes and (self.reads or not self.buffer.on_chip)


def _shared(trips: _Trips, items: Sequence[Issued], own: Set[int]) -> list[int]:
    """The positions of instructions on buffers with which a trip may depend on another one of its loop."""
    found: dict[int, _Uses] = {}
    for at, (instruction, arguments, _, _) in enumerate(items):
        trip = trips.of[at]
        for position, _ in instruction.tensor_positions:
            value = arguments[position]
            for view in (value,) if type(value) is View else value if type(value) is tuple else ():
                uses = found.get(id(view.buffer))
                if uses is None:
                    uses = found[id(view.buffer)] = _Uses(view.buffer, trip)
                elif uses.first != trip:
                    uses.several = True
                uses.reads = uses.reads or position in instruction.read_positions
                uses.writes = uses.writes or position in instruction.written_positions
                uses.positions.append(at)
    wanted = [
        uses for key, uses in found.items() if key not in own and uses.may_depend and _in_one_loop(uses, trips, items)
    ]
    return sorted({at for uses in wanted for at in uses.positions})


def _in_one_loop(uses: _Uses, trips: _Trips, items: Sequence[Issued]) -> bool:
    """Whether trips of one loop may depend on each other by a buffer."""
    loops: dict[int, _Uses] = {}
    for at in uses.positions:
        operands = items[at].instruction.operands
        own = [operands[name] for name, view in items[at].views() if view.buffer is uses.buffer]
        reads, writes = any([each.reads for each in own]), any([each.writes for each in own])
        for loop, trip in trips.chain(trips.of[at]):
            found = loops.get(id(loop))
            if found is None:
                found = loops[id(loop)] = _Uses(uses.buffer, trip)
            found.several = found.several or found.first != trip
            found.reads, found.writes = found.reads or reads, found.writes or writes
    return any(each.may_depend for each in loops.values())


def _broken(earlier: Issued, later: Issued, accesses: Accesses, summed: Summed) -> View | None:
    """What the later instruction should not have found: written by the earlier one, and no sum."""
    if _copied_again(earlier, later):
        return None
    update = summed.get(id(later))
    same = update[1] if update is not None and update == summed.get(id(earlier)) else None
    for written in earlier.written():
        for name, view in later.views():
            operand = later.instruction.operands[name]
            if view.dynamic is not None or written.dynamic is not None:
                continue  # rows that are known at run time alone, such as those of a permutation
            if view.buffer is not written.buffer or disjoint(accesses.footprint(view), accesses.footprint(written)):
                continue
            operator = _sum(later, view)
            if id(view.buffer) == same or (operator and operator == _sum(earlier, written)):
                continue
            if (operand.reads and not _overwritten(later, view)) or (operand.writes and view.buffer.region.is_hbm):
                return view
    return None


def _copied_again(earlier: Issued, later: Issued) -> bool:
    """Whether a line copies its own copy of the trip before: ``x = nl.copy(x, dtype)`` gives the same in all trips."""
    if not (earlier.instruction is later.instruction is nisa.tensor_copy and earlier.location == later.location):
        return False
    return bool(
        later.arguments.src == earlier.arguments.dst and later.arguments.dst.dtype == earlier.arguments.dst.dtype
    )


def _sum(issued: Issued, target: View) -> str:
    """The operator with which an instruction changes what is there, as a sum does; "" if it does something else."""
    arguments = issued.arguments
    if getattr(arguments, "accumulate", None) is not None:
        return "add" if arguments.accumulate else ""
    operands = issued.instruction.operands
    roles = [(operands[name].reads, operands[name].writes) for name, view in issued.views() if view == target]
    if not (any(reads for reads, _ in roles) and any(writes for _, writes in roles)):
        return ""
    operator = getattr(arguments, "op", None) or getattr(arguments, "op0", None)
    single = getattr(arguments, "op1", None) is None
    return str(operator) if isinstance(operator, Operator) and operator.reduces and single else ""


def _overwritten(issued: Issued, view: View) -> bool:
    """Whether an instruction only writes there; `also_read` operands of a product that starts anew are not read."""
    return getattr(issued.arguments, "accumulate", None) is False and view == issued.arguments.dst


def _finding(view: View, earlier: Issued, later: Issued, loop: AffineLoop, trips: tuple[int, int]) -> Finding:
    name, frame = view.buffer.name, earlier.location.frame
    line = f" in line {frame.line}" if frame is not None else ""
    return Finding(
        "beta1.unexpected_output_dependencies",
        "error",
        f"trip {trips[1]} of an affine_range uses `{name}`, {view.describe()}, in {later.instruction.label}, which "
        f"{earlier.instruction.label} wrote in trip {trips[0]}{line}",
        "trips of nl.affine_range may run in any order, so that none uses what another one wrote, sums excepted",
        DOCUMENT,
        "write nl.sequential_range, or make the tensor in the body of the loop",
        later.location,
        {"tensor": name, "trips": list(trips), "loop": str(loop.location)},
    )
