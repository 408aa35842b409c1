"""Spilling: tensors that wait long for their next use make room, and are copied back before it."""

from __future__ import annotations

import heapq
import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import nki.isa as nisa
from nki.core.dtypes import DType, uint32
from nki.core.source import Location
from nki.core.tensor import Buffer, MemoryRegion, View
from nki.passes.allocation.fixed_addresses import demands
from nki.passes.allocation.lifetime_holes import Gap, Part, complete_after, tensors, used_part
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
    all later uses mean that one. Only the part that is ever used is copied. Those whose next use is farthest away go
    first. Never moved are tensors with an explicit address, those whose part is not all written by then, and sums in
    PSUM that matmuls add to afterwards. A loop that uses a tensor needs it all the time. What a load brought from HBM,
    and nothing has written to since, there or in SBUF, is not copied anywhere: it is loaded from there again. The
    kernel computes the same bytes.

    Where nothing is left to move, more stays live than fits, and allocation says so. Returns a finding for each line
    whose tensors wait elsewhere, and one for each whose tensors are loaded again; that which moves most comes first.
    """
    findings: list[Finding] = []
    for number, away in ((1, MemoryRegion.sbuf), (0, MemoryRegion.private_hbm)):
        live = liveness(program)
        needs = demands(program, live, target)[0][number]
        gaps = _chosen(program, needs, target, live.positions, int(needs.memory.limit * share))
        if gaps:
            sources = _sources(program, [gap for gap, _ in gaps]) if away is MemoryRegion.private_hbm else {}
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


def _chosen(program: Program, needs: Demand, target: Target, positions: int, limit: int) -> list[tuple[Gap, Part]]:
    """The gaps to use, as many as it takes or as there are, each with what is copied."""
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
    chosen: list[tuple[Gap, Part]] = []
    begun = 0
    for position in worst:
        while begun < len(gaps) and gaps[begun].start <= position:
            buffer = gaps[begun].tensor.buffer
            heapq.heappush(waiting, (-gaps[begun].end, -size(buffer), buffer.id, begun))
            begun += 1
        # The first one has the farthest end: if that gap is over, all are.
        while waiting and bytes_live[position] > limit and -waiting[0][0] > position:
            gap = gaps[heapq.heappop(waiting)[-1]]
            part = written.before(gap)
            if part is not None and _possible(gap, part, target):
                chosen.append((gap, part))
                bytes_live[gap.start : gap.end] -= size(gap.tensor.buffer)
    return chosen


class _Written:
    """What is used of tensors, and when it is complete; each of them is looked at once."""

    def __init__(self, accesses: Accesses) -> None:
        self._accesses = accesses
        self._parts: dict[int, tuple[Part, int | None]] = {}

    def before(self, gap: Gap) -> Part | None:
        """The part of a tensor that is used, if every byte of it was certainly written before a gap."""
        tensor = gap.tensor
        if tensor.buffer.id not in self._parts:
            part = used_part(tensor, self._accesses)
            self._parts[tensor.buffer.id] = part, complete_after(tensor, part, self._accesses)
        part, after = self._parts[tensor.buffer.id]
        return part if after is not None and after < gap.start else None


def _possible(gap: Gap, part: Part, target: Target) -> bool:
    """Whether copies keep everything that the tensor is; matmuls add only to what matmuls have written."""
    buffer = gap.tensor.buffer
    if buffer.region is not MemoryRegion.psum:
        return True
    return not gap.adds_later and part.row_bytes // _copied_as(buffer, part).itemsize <= target.psum.max_free_elements


def _name(gap: Gap) -> tuple[int, int]:
    return gap.tensor.buffer.id, gap.number


def _sources(program: Program, gaps: Iterable[Gap]) -> dict[tuple[int, int], Issued]:
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
        self._region = away
        self._last_id = max(buffer.id for buffer in (*program.inputs, *program.body.all_buffers()))
        self._edits: dict[int, Edit] = {}
        self.moves: list[Move] = []

    def apply(self, gaps: Sequence[tuple[Gap, Part]]) -> Program:
        by_tensor: dict[int, tuple[list[Gap], Part]] = {}
        for gap, part in gaps:
            by_tensor.setdefault(gap.tensor.buffer.id, ([], part))[0].append(gap)
        for own, part in by_tensor.values():
            self._tensor(sorted(own, key=lambda gap: gap.number), part)
        return rewritten(self._program, self._edits)

    def _tensor(self, gaps: list[Gap], part: Part) -> None:
        """Copy out behind each gap's first end, unless the copy is still good, and in before the other end."""
        tensor = gaps[0].tensor
        edit = self._edits.setdefault(id(tensor.block), Edit())
        away: Buffer | None = None
        current, since = tensor.buffer, 0
        for number, gap in enumerate(gaps):
            before, after = tensor.uses[gap.number], tensor.uses[gap.number + 1]
            load = self._sources.get(_name(gap))
            stale = away is None or any(use.change.writes for use in tensor.uses[since : gap.number + 1])
            saved = part.nbytes if load is None and stale else 0
            loaded = part.nbytes if load is None else tensor.buffer.nbytes
            self.moves.append(Move(tensor.buffer, before.location, after.location, load, saved, loaded))
            if load is None and stale:
                if away is None:
                    away = self._away(tensor.buffer, part)
                    edit.buffers.append(away)
                edit.after.setdefault(before.item, []).append(self._copy(away, current, part))
            back = self._buffer(tensor.buffer, f"back{number}")
            edit.buffers.append(back)
            if load is not None:
                again = renamed(load, {tensor.buffer.id: back})
            else:
                assert away is not None, "it was copied there"
                again = self._copy(back, away, part)
            edit.before.setdefault(after.item, []).append(again)
            edit.renames.setdefault(after.item, {})[tensor.buffer.id] = back
            current, since = back, gap.number + 1

    def _buffer(self, like: Buffer, suffix: str, **other: Any) -> Buffer:
        """One that is like another one but for its role and the attributes that are given."""
        self._last_id += 1
        given = {"role": "temporary", **other}
        return replace(like, id=self._last_id, name=f"{like.name}.{suffix}", **given)

    def _away(self, like: Buffer, part: Part) -> Buffer:
        """Where a part waits."""
        role = "spilled" if self._region is MemoryRegion.private_hbm else "temporary"
        whole = part == Part(0, like.partitions, 0, like.row_bytes)
        shape = like.shape if whole else (part.after - part.first, part.row_bytes // like.dtype.itemsize)
        return self._buffer(like, "away", region=self._region, shape=shape, role=role)

    def _copy(self, dst: Buffer, src: Buffer, part: Part) -> Issued:
        on_chip = dst.on_chip and src.on_chip
        instruction: Instruction[Any] = nisa.tensor_copy if on_chip else nisa.dma_copy
        kind = _copied_as(dst, part) if on_chip else dst.dtype
        views = {"dst": _rows(dst, kind, part), "src": _rows(src, kind, part)}
        return _issued(instruction, self._target, src.location, **views)


def _copied_as(buffer: Buffer, part: Part) -> DType:
    """What an engine copies the bits as: a PSUM row of narrow elements may be too long for one instruction."""
    narrow = buffer.dtype.itemsize < uint32.itemsize and not (part.low % uint32.itemsize or part.high % uint32.itemsize)
    return uint32 if narrow and not buffer.row_bytes % uint32.itemsize else buffer.dtype


def _rows(buffer: Buffer, dtype: DType, part: Part) -> View:
    """A part of a buffer, or all of one that holds a part, as ``(partitions, elements)``.

    In HBM the first dimension counts as the partition.
    """
    rows, columns = part.after - part.first, part.row_bytes // dtype.itemsize
    if buffer.nbytes == part.nbytes:
        return View(buffer, dtype, (rows, columns), (columns, 1), 0)
    row = buffer.row_bytes // dtype.itemsize
    return View(buffer, dtype, (rows, columns), (row, 1), part.first * row + part.low // dtype.itemsize)


def _issued(instruction: Instruction[Any], target: Target, location: Location, **given: View) -> Issued:
    """An instruction with the defaults of its signature."""
    parameters = inspect.signature(instruction).parameters
    values = [given[name] if name in given else parameters[name].default for name in instruction.operands]
    arguments = instruction.arguments._make(values)
    return Issued(instruction, arguments, location, instruction.engine_for(arguments, target))
