"""Spilling: tensors that wait long for their next use make room, and are copied back before it."""

from __future__ import annotations

import heapq
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import nki.isa as nisa
from nki.core.dtypes import DType, uint32
from nki.core.source import Location
from nki.core.tensor import Buffer, MemoryRegion, View
from nki.passes.allocation.fixed_addresses import demands
from nki.passes.allocation.lifetime_holes import Gap, complete_after, tensors
from nki.passes.allocation.spill_findings import Move, told
from nki.passes.analysis.footprints import Accesses
from nki.passes.analysis.liveness import liveness
from nki.passes.analysis.memory_demand import Demand
from nki.passes.analysis.ordered_positions import ordered_positions
from nki.passes.analysis.pressure import load
from nki.passes.analysis.tile_loads import Store, tile_loads
from nki.passes.editing.rewrite import Edit, renamed, rewritten
from nki.spec.instruction import Instruction
from nki.spec.program import Issued, Program
from nki.spec.rule import Finding
from nki.target.model import Target

Waiting = tuple[int, int, int, int]
"""A gap that has begun: minus its end, minus its size, the id of its buffer, its number; the first one goes first."""


def spill(program: Program, target: Target, share: float = 1.0) -> tuple[Program, list[Finding]]:
    """The program with so many tensors out of the way that no more than `share` of each memory is live at once.

    Before: ``v`` is used, then not for long, then again, while more is live than there is. After: ``v`` is copied to
    private HBM (from PSUM: to SBUF) behind the use before the gap, and from there to a new buffer before the next use;
    all later uses mean that one. Those whose next use is farthest away go first. Never moved are tensors with an
    explicit address, those that are not completely written by then, and PSUM tensors that are written afterwards. A
    loop that uses a tensor needs it all the time. What a load brought from HBM, and nothing has written to since, there
    or in SBUF, is not copied anywhere: it is loaded from there again. The kernel computes the same bytes.

    Where nothing is left to move, more stays live than fits, and allocation says so. Returns a finding for each line
    whose tensors wait elsewhere, and one for each whose tensors are loaded again; that which moves most comes first.
    """
    findings: list[Finding] = []
    for number, away in ((1, MemoryRegion.sbuf), (0, MemoryRegion.private_hbm)):
        live = liveness(program)
        needs = demands(program, live, target)[0][number]
        gaps = _chosen(program, needs, target, live.positions, int(needs.memory.limit * share))
        if gaps:
            sources = _sources(program, gaps) if away is MemoryRegion.private_hbm else {}
            spiller = _Spiller(program, target, away, sources)
            program = spiller.apply(gaps)
            findings += told(spiller.moves, needs.memory)
    return program, findings


def spilled_bytes(program: Program, target: Target) -> int:
    """Bytes that cross to and from HBM for the tensors that have to go if no more than SBUF holds is live at once."""
    before, after = (_moved(each) for each in (program, spill(program, target)[0]))
    return after - before


def _moved(program: Program) -> int:
    return sum(issued.arguments.dst.nbytes for issued in program.body.walk() if issued.instruction.name == "dma_copy")


def _chosen(program: Program, needs: Demand, target: Target, positions: int, limit: int) -> list[Gap]:
    """The gaps to use, as many as it takes or as there are."""
    size, region = needs.memory.size, needs.memory.region
    bytes_live = load(needs.items, needs.fixed, positions)
    worst = np.flatnonzero(bytes_live > limit).tolist()
    if not worst:
        return []
    known = tensors(program, region)
    gaps = [Gap(tensor, number) for tensor in known for number in range(len(tensor.uses) - 1)]
    gaps = sorted((gap for gap in gaps if gap.end > gap.start), key=lambda gap: (gap.start, gap.tensor.buffer.id))
    written = _Written(Accesses(program, target))
    waiting: list[Waiting] = []
    chosen: list[Gap] = []
    begun = 0
    for position in worst:
        while begun < len(gaps) and gaps[begun].start <= position:
            buffer = gaps[begun].tensor.buffer
            heapq.heappush(waiting, (-gaps[begun].end, -size(buffer), buffer.id, begun))
            begun += 1
        # The first one has the farthest end: if that gap is over, all are.
        while waiting and bytes_live[position] > limit and -waiting[0][0] > position:
            gap = gaps[heapq.heappop(waiting)[-1]]
            if _possible(gap, written, target):
                chosen.append(gap)
                bytes_live[gap.start : gap.end] -= size(gap.tensor.buffer)
    return chosen


class _Written:
    """When tensors are complete, each of them looked at once."""

    def __init__(self, accesses: Accesses) -> None:
        self._accesses = accesses
        self._after: dict[int, int | None] = {}

    def before(self, gap: Gap) -> bool:
        """Whether every byte of a tensor was certainly written before a gap."""
        tensor = gap.tensor
        if tensor.buffer.id not in self._after:
            self._after[tensor.buffer.id] = complete_after(tensor, self._accesses)
        after = self._after[tensor.buffer.id]
        return after is not None and after < gap.start


def _possible(gap: Gap, written: _Written, target: Target) -> bool:
    """Whether copies keep everything that the tensor is; matmuls add only to what matmuls have written."""
    buffer = gap.tensor.buffer
    if buffer.region is MemoryRegion.psum:
        columns = buffer.row_bytes // _copied_as(buffer).itemsize
        if gap.writes_later or columns > target.psum.max_free_elements:
            return False
    return written.before(gap)


def _name(gap: Gap) -> tuple[int, int]:
    return gap.tensor.buffer.id, gap.number


def _sources(program: Program, gaps: Sequence[Gap]) -> dict[tuple[int, int], Issued]:
    """For gaps of tiles that a load filled, and whose source is the same at their ends, that load."""
    found = tile_loads(program)
    stores = [event for event in found.events if type(event) is Store]
    written: dict[int, list[int]] = {}
    for store in stores:
        for buffer in store.written:
            written.setdefault(buffer, []).append(store.position)
    met = [store.position for store in stores if store.meets]
    ordered = ordered_positions(program, sum(1 for _ in program.body.walk()))
    sources: dict[tuple[int, int], Issued] = {}
    for gap in gaps:
        loads = found.by_tile.get(gap.tensor.buffer.id, ())
        if len(loads) != 1 or ordered[loads[0].position]:
            continue
        first, source = loads[0].position, loads[0].issued.arguments.src.buffer
        changed = written.get(source.id, []) if source.role == "fixed" else [*written.get(source.id, []), *met]
        if not any(first < position < gap.end for position in changed):
            sources[_name(gap)] = loads[0].issued
    return sources


class _Spiller:
    """Makes the copies and the buffers for them.

    Args:
        sources: loads that are done again, by the names of gaps, in place of a copy and of its way back.

    Attributes:
        moves: what waits elsewhere for the time of each gap.
    """

    def __init__(
        self,
        program: Program,
        target: Target,
        away: MemoryRegion,
        sources: Mapping[tuple[int, int], Issued],
    ) -> None:
        self._sources = sources
        self._program = program
        self._target = target
        self._away = away
        self._last_id = max(buffer.id for buffer in (*program.inputs, *program.body.all_buffers()))
        self._edits: dict[int, Edit] = {}
        self.moves: list[Move] = []

    def apply(self, gaps: list[Gap]) -> Program:
        by_tensor: dict[int, list[Gap]] = {}
        for gap in gaps:
            by_tensor.setdefault(gap.tensor.buffer.id, []).append(gap)
        for own in by_tensor.values():
            self._tensor(sorted(own, key=lambda gap: gap.number))
        return rewritten(self._program, self._edits)

    def _tensor(self, gaps: list[Gap]) -> None:
        """Copy out behind each gap's first end, unless the copy is still good, and in before the other end."""
        tensor = gaps[0].tensor
        edit = self._edits.setdefault(id(tensor.block), Edit())
        away: Buffer | None = None
        current, since = tensor.buffer, 0
        for number, gap in enumerate(gaps):
            before, after = tensor.uses[gap.number], tensor.uses[gap.number + 1]
            load = self._sources.get(_name(gap))
            stale = away is None or any(use.writes for use in tensor.uses[since : gap.number + 1])
            self.moves.append(Move(tensor.buffer, before.location, after.location, load, load is None and stale))
            if load is None and stale:
                if away is None:
                    away = self._buffer(tensor.buffer, f"{tensor.buffer.name}.away", self._away)
                    edit.buffers.append(away)
                edit.after.setdefault(before.item, []).append(self._copy(away, current))
            back = self._buffer(tensor.buffer, f"{tensor.buffer.name}.back{number}", tensor.buffer.region)
            edit.buffers.append(back)
            if load is not None:
                again = renamed(load, {tensor.buffer.id: back})
            else:
                assert away is not None, "it was copied there"
                again = self._copy(back, away)
            edit.before.setdefault(after.item, []).append(again)
            edit.renames.setdefault(after.item, {})[tensor.buffer.id] = back
            current, since = back, gap.number + 1

    def _buffer(self, like: Buffer, name: str, region: MemoryRegion) -> Buffer:
        self._last_id += 1
        role = "spilled" if region is MemoryRegion.private_hbm else "temporary"
        return Buffer(
            self._last_id, name, region, like.shape, like.dtype, role=role, location=like.location, trace=like.trace
        )

    def _copy(self, dst: Buffer, src: Buffer) -> Issued:
        on_chip = dst.on_chip and src.on_chip
        instruction: Instruction[Any] = nisa.tensor_copy if on_chip else nisa.dma_copy
        kind = _copied_as(dst) if on_chip else dst.dtype
        return _issued(instruction, self._target, src.location, dst=_rows(dst, kind), src=_rows(src, kind))


def _copied_as(buffer: Buffer) -> DType:
    """What an engine copies the bits as: a PSUM row of narrow elements may be too long for one instruction."""
    narrow = buffer.dtype.itemsize < uint32.itemsize and buffer.row_bytes % uint32.itemsize == 0
    return uint32 if narrow else buffer.dtype


def _rows(buffer: Buffer, dtype: DType) -> View:
    """All of a buffer as ``(partitions, elements)``; in HBM the first dimension counts as the partition."""
    columns = buffer.nbytes // buffer.shape[0] // dtype.itemsize
    return View(buffer, dtype, (buffer.shape[0], columns), (columns, 1), 0)


def _issued(instruction: Instruction[Any], target: Target, location: Location, **given: View) -> Issued:
    """An instruction with the defaults of its signature."""
    parameters = inspect.signature(instruction).parameters
    values = [given[name] if name in given else parameters[name].default for name in instruction.operands]
    arguments = instruction.arguments._make(values)
    return Issued(instruction, arguments, location, instruction.engine_for(arguments, target))
