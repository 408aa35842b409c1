"""What can be known before a program runs: that everything it reads was written, and what its matmuls add to.

The notes of the NumPy machine (`nki.sim.written`, `nki.sim.psum`) are kept for a run without values. A buffer whose
reads are all proven needs no notes at run time; one that is in doubt stays with the NumPy machine, which warns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from nki.core.tensor import MemoryRegion, View, whole
from nki.native.records.forms import Form, Native, ViewSource
from nki.native.records.moves import Product
from nki.sim.memory import LiveStorage, Memory, placed_memory
from nki.sim.psum import BY_MATMUL, BY_OTHERS, UNWRITTEN, common_state, set_state
from nki.sim.window import UNKNOWN_STATE
from nki.sim.written import is_written, mark_written
from nki.spec.engine import engine as Engine
from nki.spec.engine import oob_mode
from nki.spec.program import Block, ForLoop, Issued, Program, WhileLoop, trips_of
from nki.target.model import Target

FormOf = Callable[[Issued], Form | None]


class Proven(NamedTuple):
    """What is known about a program.

    Attributes:
        doubtful: ids of buffers of which something may be read before it was written.
        adds: by position in ``program.body.walk()``: whether a matmul adds to what is in PSUM.
        complete: ids of buffers of which every byte is written when the program ends.
    """

    doubtful: frozenset[int]
    adds: dict[int, bool]
    complete: frozenset[int]


def prove(program: Program, target: Target, forms: FormOf) -> Proven:
    """Follow a program whose buffers have places."""
    walk = _InitializationAnalysis(target, forms, placed_memory(program, target))
    walk.block(program.body)
    explicit = frozenset(buffer.id for buffer in program.body.all_buffers() if buffer.address is not None)
    complete = frozenset(key for key, storage in walk.notes.items() if _whole_written(storage))
    return Proven(_spread(walk.doubtful, explicit, walk.products), walk.adds, complete - walk.perhaps)


def _spread(
    doubtful: set[int], explicit: frozenset[int], products: Sequence[tuple[int, frozenset[int]]]
) -> frozenset[int]:
    """Doubt in all that it reaches: tensors with explicit addresses share their notes, and a product that NumPy
    executes, because an operand is in doubt, asks who wrote its destination before."""
    found = frozenset(doubtful)
    while True:
        more = found | {dst for dst, touched in products if touched & found}
        if more & explicit:
            more |= explicit
        if more == found:
            return found
        found = more


class _InitializationAnalysis:
    """Notes of a run.

    Attributes:
        unsure: PSUM buffers of which it is not known who wrote them last.
        perhaps: buffers that were written by a loop which may not have run.
        products: of matmuls, the destination and all buffers that they touch.
    """

    def __init__(self, target: Target, forms: FormOf, memory: Memory) -> None:
        self._target = target
        self._forms = forms
        self._memory = memory
        self._position = 0
        self.notes: dict[int, LiveStorage] = {}
        self.doubtful: set[int] = set()
        self.adds: dict[int, bool] = {}
        self.unsure: set[int] = set()
        self.perhaps: set[int] = set()
        self.products: list[tuple[int, frozenset[int]]] = []

    def block(self, block: Block) -> None:
        for buffer in block.buffers:
            storage = self._memory.allocate(buffer)
            storage.overlaid = True  # nobody looks at the bytes, so that there is no need of poison
            self.notes[buffer.id] = storage
        for item in block.items:
            if isinstance(item, Issued):
                self._instruction(item)
                self._position += 1
            else:
                self._loop(item)

    def _instruction(self, issued: Issued) -> None:
        form = self._forms(issued)
        native = None if form is None else form.native
        sources = _operands(issued, self._target) if native is None else _sources(native, issued)
        for view, writes, _ in sources:
            if not writes:
                self._read(view)
        if form is None or form.native is None:
            if "accumulate" in issued.instruction.operands:
                self.doubtful |= {view.buffer.id for view, writes, _ in sources if writes}
        elif isinstance(form.native.move, Product):
            self._product(sources[0][0], form.native.move.mode)
            self.products.append((sources[0][0].buffer.id, frozenset(view.buffer.id for view, _, _ in sources)))
        for view, writes, certain in sources:
            if writes:
                self._write(view, issued.engine, certain)

    def _read(self, view: View) -> None:
        if view.dynamic is not None:
            self._read_dynamic(view)
            return
        storage = self.notes.get(view.buffer.id)
        if storage is None or view.buffer.id in self.doubtful:
            return
        if view.buffer.id in self.perhaps or not is_written(storage, view, storage.window(view)):
            self.doubtful.add(view.buffer.id)

    def _read_dynamic(self, view: View) -> None:
        assert view.dynamic is not None, "asked by the caller"
        if isinstance(view.dynamic.indices, View):
            self._read(view.dynamic.indices)
        storage = self.notes.get(view.buffer.id)
        if storage is not None and not _whole_written(storage):
            self.doubtful.add(view.buffer.id)

    def _write(self, view: View, engine: Engine, certain: bool) -> None:
        if view.dynamic is not None and isinstance(view.dynamic.indices, View):
            self._read(view.dynamic.indices)
        storage = self.notes.get(view.buffer.id)
        if storage is None:
            return
        psum = view.buffer.region is MemoryRegion.psum
        if view.dynamic is not None or not certain:
            if psum:
                self.unsure.add(view.buffer.id)
            return
        window = storage.window(view)
        mark_written(storage, view, window)
        if psum:
            set_state(storage, view, window, BY_MATMUL if engine is Engine.tensor else BY_OTHERS)
            if window.covers:
                self.unsure.discard(view.buffer.id)

    def _product(self, view: View, mode: bool | None) -> None:
        """Find out whether a matmul adds; the buffer is in doubt if elements differ or a warning is due."""
        storage = self.notes.get(view.buffer.id)
        if mode is False:
            self.adds[self._position] = False
            return
        if storage is None or view.buffer.id in self.unsure:
            self.doubtful.add(view.buffer.id)
            return
        window = storage.window(view)
        state = common_state(storage, view, window)
        foreign = state == BY_OTHERS and not self._target.pe.accumulate_over_foreign_psum
        if state == UNKNOWN_STATE or (mode and state == UNWRITTEN) or foreign:
            self.doubtful.add(view.buffer.id)
            return
        adds = state != UNWRITTEN
        if adds and not is_written(storage, view, window):
            self.doubtful.add(view.buffer.id)
        self.adds[self._position] = adds

    def _loop(self, loop: ForLoop | WhileLoop) -> None:
        """One trip stands for all: what is written before the loop stays written."""
        touched = [each for issued in loop.body.walk() for each in _operands(issued, self._target)]
        written = {view.buffer.id for view, writes, _ in touched if writes}
        psum = {key for key in written if key in self.notes and self.notes[key].buffer.region is MemoryRegion.psum}
        before = {key for key in written if key in self.notes and _whole_written(self.notes[key])}
        outside = set(self.notes)
        # In the body an earlier trip may have been the last one to write; behind it, the loop may not have run. So both
        # times, because the body itself may make sure of a tensor.
        self.unsure |= psum
        self.block(loop.body)
        self.unsure |= psum
        if not trips_of(loop):
            self.perhaps |= (written & outside) - before


def _sources(native: Native, issued: Issued) -> list[tuple[View, bool, bool]]:
    """The operands as the body sees them: view, whether it is written, and whether all of it is."""
    return [(s.of(issued.arguments), s.writes, True) for s in native.sources if isinstance(s, ViewSource)]


def _operands(issued: Issued, target: Target) -> list[tuple[View, bool, bool]]:
    """The operands as they are declared, or their parts; one that is read and written comes twice.

    Where a transfer skips rows that are out of bounds, its destination may keep some.
    """
    found = []
    skips = oob_mode.skip in issued.arguments
    for name, view in issued.views():
        operand = issued.instruction.operands[name]
        for part in (view,) if operand.parts is None else operand.parts(issued.arguments, target):
            if operand.reads:
                found.append((part, False, False))
            if operand.writes:
                found.append((part, True, not operand.partial and not skips))
    return found


def _whole_written(storage: LiveStorage) -> bool:
    if storage.written is None and (not storage.fresh or storage.pieces is None):
        return not storage.fresh
    view = whole(storage.buffer)
    return is_written(storage, view, storage.window(view))
