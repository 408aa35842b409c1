"""What a traced program certainly does wrong with memory: reads of what nobody wrote, wrong sums, useless stores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from nki.core.source import Location
from nki.core.tensor import Buffer, MemoryRegion, View
from nki.passes.analysis.accumulation import adds_to_sum
from nki.passes.analysis.footprints import Accesses, Space
from nki.passes.analysis.memory_usage import place_of
from nki.passes.lint.control_flow import ControlFlow
from nki.passes.lint.partial_writes import Kept, keeps_a_part
from nki.passes.lint.writers import MAYBE, NOBODY, Plane
from nki.spec.engine import engine as Engine
from nki.spec.program import Block, ForLoop, Issued, Program, WhileLoop
from nki.spec.rule import Finding
from nki.target.model import Target

_MOST_BYTES = 1 << 26
"""Bytes of the largest tensor that is followed byte by byte."""

_OWN = ("temporary", "copy", "spilled")
"""Roles of tensors that only the program itself writes and reads."""

_ISA = "nki/api/nki/isa"


def memory_findings(programs: Sequence[Program], target: Target) -> list[Finding]:
    """Warnings about the cores of a traced kernel, each core in the order of its program.

    A finding is certain: it is about instructions that run whatever the data is, and about bytes that are known. What
    has a dynamic address, or is in a loop that may have no trip, may have written anything and read anything. Of a
    loop the first trip counts, and what a later trip reads of the one before. A line is a dead store if all that it
    ever writes, on all cores, is not read.

    Codes: ``memory.uninitialized``, ``psum.accumulate-unwritten``, ``psum.accumulate-foreign``,
    ``psum.accumulate-finished``, ``lint.dead-store``.
    """
    walks = [_Bytes(program, target) for program in programs]
    for walk, program in zip(walks, programs, strict=True):
        walk.block(program.body, certain=True)
        for view in program.outputs:
            walk.everything_read(view.buffer)
    alive = {location for walk in walks for location in walk.alive()}
    found: list[Finding] = []
    for walk in walks:
        dead = [(at, finding) for at, finding in walk.dead_stores() if finding.location not in alive]
        found += [finding for _, finding in sorted([*walk.found, *dead], key=lambda pair: pair[0])]
    return found


class _UselessWrite(NamedTuple):
    """An instruction that would be useless if nobody read what it writes."""

    issued: Issued
    position: int


class _Bytes(ControlFlow):
    """Follows a program; `found` holds positions with findings."""

    def __init__(self, program: Program, target: Target) -> None:
        self.found: list[tuple[int, Finding]] = []
        self._target = target
        self._alone = program.cores == 1
        self._inputs = {buffer.id for buffer in program.inputs}
        self._accesses = Accesses(program, target)
        self._planes: dict[Space, Plane] = {}
        self._position = 0
        self._first = True  # whether nothing of a block ran before
        self._issued: dict[int, Issued] = {}
        self._stores: dict[int, _UselessWrite] = {}
        self._read: set[int] = set()
        self._overwritten: dict[int, Issued] = {}
        self._told: set[tuple[Location, str]] = set()
        self._kept = Kept()
        self._finished: set[int] = set()

    def enter(self, block: Block) -> None:
        """Forget the bytes of tensors that are allocated anew."""
        for buffer in block.buffers:
            self._planes.pop(buffer.id, None)

    def loop(self, loop: ForLoop | WhileLoop, trips: int | None, certain: bool) -> None:
        """Follow the body of a loop for its first trip, and once more for what a later one reads of the one before."""
        begin = self._position
        if trips == 0:
            self._position += sum(1 for _ in loop.body.walk())
            return
        self.block(loop.body, certain=certain)
        if trips != 1:
            first, self._first = self._first, False
            self._position = begin
            self.block(loop.body, certain=certain)
            self._first = first

    def instruction(self, issued: Issued, certain: bool) -> None:
        """Look at what it reads, then at what it writes."""
        self._position += 1
        number, first = self._position, certain and self._first
        self._issued[number] = issued
        operands = issued.instruction.operands
        written: list[View] = []
        for name, view in issued.views():
            if view.dynamic is not None and isinstance(view.dynamic.indices, View):
                self._reads(issued, view.dynamic.indices, first)
            if operands[name].reads:
                self._reads(issued, view, first and not operands[name].writes)
            if operands[name].writes:
                written.append(view)
        adds = adds_to_sum(issued)
        for view in written:
            if adds is not False:
                self._adds(issued, view, bool(adds), first)
        if "fence" in issued.instruction.effects(issued.arguments):
            self._anything()
        if certain and written and all(self._is_store(view) for view in written) and not _has_effects(issued):
            self._stores[number] = _UselessWrite(issued, number)
        for view in written:
            self._writes(issued, view, number if certain and view.dynamic is None else MAYBE)

    def _reads(self, issued: Issued, view: View, certain: bool) -> None:
        plane = self._plane(view.buffer)
        if plane is None:
            return
        writers = plane.writers(self._accesses.footprint(view))
        self._read |= writers
        if issued.engine is not Engine.tensor:
            self._finished |= writers
        if certain and view.dynamic is None:
            self._leftovers(view.buffer, writers)
        if certain and view.dynamic is None and NOBODY in writers:
            self._tell(
                "memory.uninitialized",
                f"{issued.instruction.label} reads {_some(writers)} of {_named(view.buffer)} before anything is "
                "written there",
                "memory is written before it is read",
                "",
                f"write all of {view.buffer.name} first, for example with nisa.memset, or read what is written",
                issued,
                {"tensor": view.buffer.name},
            )

    def _leftovers(self, buffer: Buffer, writers: set[int]) -> None:
        """Copies under a predicate whose destination is read although nobody wrote the rest of it."""
        for copy in self._kept.read(writers):
            self._tell(
                "memory.uninitialized",
                f"{copy.instruction.label} leaves {_named(buffer)} as it is where its predicate does not choose, and "
                "nothing is written there before it is read",
                "memory is written before it is read",
                "",
                f"write all of {buffer.name} first, for example with nisa.memset, or copy what the predicate leaves",
                copy,
                {"tensor": buffer.name},
            )

    def _adds(self, issued: Issued, view: View, always: bool, certain: bool) -> None:
        """A matmul that adds to what is there."""
        plane = self._plane(view.buffer)
        if plane is None:
            return
        writers = plane.writers(self._accesses.footprint(view))
        self._read |= writers
        if not certain or view.dynamic is not None:
            return
        if always and NOBODY in writers:
            self._tell_unwritten(issued, view.buffer, writers)
        self._tell_mixed(issued, view.buffer, writers)

    def _tell_unwritten(self, issued: Issued, buffer: Buffer, writers: set[int]) -> None:
        self._tell(
            "psum.accumulate-unwritten",
            f"accumulate=True adds to {_some(writers)} of {_named(buffer)}, which nobody has written",
            "a sum starts with a matmul that overwrites",
            f"{_ISA}, nc_matmul",
            "pass accumulate=False in the first matmul, or omit accumulate",
            issued,
            {"tensor": buffer.name},
        )

    def _tell_mixed(self, issued: Issued, buffer: Buffer, writers: set[int]) -> None:
        """Sums that go on after they were read, or on what another engine has written."""
        name = _named(buffer)
        finished = [self._issued[n] for n in sorted(writers & self._finished) if n > 0]
        if finished and all(each.engine is Engine.tensor for each in finished):
            self._tell(
                "psum.accumulate-finished",
                f"a matmul adds to the sum of {_at(finished[0])} in {name}, which was read before",
                "a sum ends when it is read, and the next one starts with a matmul that overwrites",
                f"{_ISA}, nc_matmul",
                "pass accumulate=False in the first matmul of the next sum, or allocate the tensor in the loop",
                issued,
                {"tensor": buffer.name},
            )
        others = [self._issued[n] for n in sorted(writers) if n > 0 and self._issued[n].engine is not Engine.tensor]
        if others and not self._target.pe.accumulate_over_foreign_psum:
            self._tell(
                "psum.accumulate-foreign",
                f"a matmul adds to {name}, which {_at(others[0])} has written: undefined on {self._target.name}",
                "a sum consists of matmuls only",
                f"{_ISA}, nc_matmul",
                "start the sum with a matmul, and add the initial value afterwards",
                issued,
                {"tensor": buffer.name},
            )

    def _writes(self, issued: Issued, view: View, number: int) -> None:
        plane = self._plane(view.buffer)
        if plane is None:
            return
        footprint = self._accesses.footprint(view)
        before = plane.writers(footprint)
        self._finished.discard(number)
        if number != MAYBE:
            self._kept.write(issued, view, number, before)
        if number == MAYBE or keeps_a_part(issued, view):
            self._read |= before
        else:
            for other in before - {number, NOBODY, MAYBE}:
                self._overwritten[other] = issued
        plane.write(footprint, number)

    def everything_read(self, buffer: Buffer) -> None:
        """All of a tensor is needed after the program."""
        plane = self._plane(buffer)
        if plane is not None:
            self._read |= plane.everybody()

    def alive(self) -> Iterator[Location]:
        """The lines of instructions that are no dead stores."""
        for number, issued in self._issued.items():
            if number in self._read or number not in self._stores:
                yield issued.location

    def dead_stores(self) -> Iterator[tuple[int, Finding]]:
        """Stores that nobody has read, once the program is over."""
        for number, (issued, position) in self._stores.items():
            if number in self._read:
                continue
            names = ", ".join(_named(v.buffer) for n, v in issued.views() if issued.instruction.operands[n].writes)
            by = self._overwritten.get(number)
            end = "before the end of the kernel" if by is None else f"before {_at(by)} overwrites it"
            yield (
                position,
                Finding(
                    "lint.dead-store",
                    "warning",
                    f"what {issued.instruction.label} writes to {names} is not read {end}",
                    "what is written is read",
                    "",
                    "remove the instruction, or read its result",
                    issued.location,
                    {"overwritten": "" if by is None else place_of(by.location)},
                ),
            )

    def _anything(self) -> None:
        """Memory that is no operand is read and written."""
        for plane in self._planes.values():
            self._read |= plane.everybody()
            plane.doubt()

    def _is_store(self, view: View) -> bool:
        """Whether the fate of what is written is known."""
        return view.dynamic is None and view.buffer.address is None and self._plane(view.buffer) is not None

    def _plane(self, buffer: Buffer) -> Plane | None:
        """None for memory that others write or read, and for what is too large."""
        if buffer.address is not None and buffer.on_chip:
            psum = buffer.region is MemoryRegion.psum
            memory = self._target.psum if psum else self._target.sbuf
            space: Space = "psum" if psum else "sbuf"
            rows, pitch = self._target.partitions, memory.bytes_per_partition
        else:
            shared = buffer.region is MemoryRegion.shared_hbm and not self._alone
            if buffer.id in self._inputs or buffer.role not in _OWN or shared or buffer.nbytes > _MOST_BYTES:
                return None
            space, rows, pitch = buffer.id, buffer.partitions, buffer.row_bytes
        if space not in self._planes:
            self._planes[space] = Plane(rows, pitch)
        return self._planes[space]

    def _tell(
        self, code: str, message: str, rule: str, source: str, fix: str, issued: Issued, facts: dict[str, str]
    ) -> None:
        if (issued.location, code) not in self._told:
            self._told.add((issued.location, code))
            finding = Finding(code, "warning", message, rule, source, fix, issued.location, facts)
            self.found.append((self._position, finding))


def _has_effects(issued: Issued) -> bool:
    """Whether an instruction does something beside writing tensors."""
    registers = any(o.writes and o.kind.startswith("register") for o in issued.instruction.operands.values())
    return registers or bool(issued.instruction.effects(issued.arguments))


def _named(buffer: Buffer) -> str:
    return f"{buffer.name} ({place_of(buffer.location)})"


def _at(issued: Issued) -> str:
    return f"{issued.instruction.label} at {place_of(issued.location)}"


def _some(writers: set[int]) -> str:
    return "all" if writers == {NOBODY} else "a part"
