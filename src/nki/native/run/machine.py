"""A machine that executes instructions natively where it can, one at a time, on the bytes of the NumPy machine."""

from __future__ import annotations

import itertools
from array import array
from time import thread_time
from typing import Any

import numpy as np

from nki.core.errors import NkiError
from nki.core.tensor import ScalarOffset, View
from nki.native.call_context import ABSOLUTE, CallContext
from nki.native.operand_layout import Place, is_large
from nki.native.records.dispatch import BoundOperand, OperandAction, RecordTemplate, plan_of
from nki.native.records.fill import record
from nki.native.records.forms import Form, Native, Register, ViewSource, form_of
from nki.native.records.move_records import with_mode
from nki.native.records.moves import Product
from nki.native.tiering.compilation_policy import Functions
from nki.ranks.protocol import Communicator
from nki.sim.machine import Machine, Meet
from nki.sim.memory import LiveStorage
from nki.sim.notes import Report
from nki.sim.psum import BY_OTHERS, UNWRITTEN, box_state, common_state, set_box
from nki.sim.window import UNKNOWN_STATE, Window
from nki.sim.written import box_written, is_written, mark_box
from nki.spec.engine import oob_mode
from nki.spec.program import Issued
from nki.spec.signature import Signature

_NUMBERS = itertools.count()
"""Numbers the machines of the process, so that a form tells a second run from a second instruction."""


class NativeMachine(Machine):
    """Executes `Issued` records like `Machine`, with the same results and the same warnings.

    Attributes:
        functions: where compiled functions come from.
        native, interpreted: how many instructions were executed each way.
    """

    def __init__(self, functions: Functions, *args: Any) -> None:
        super().__init__(*args)
        self.functions = functions
        self.native = 0
        self.interpreted = 0
        self._context: CallContext | None = None
        self._kind = (functions, self.matmul_mode)
        self._number = next(_NUMBERS)
        self._waiting: Form | None = None

    def begin(self, report: Report, ranks: Communicator, meet: Meet | None) -> None:
        """Be as a new machine for the next call."""
        self.restart(report)
        self._ranks, self._meet = ranks, meet
        self.native = self.interpreted = 0
        self._number = next(_NUMBERS)

    def run(self, issued: Issued) -> None:
        if self._run_natively(issued):
            self.native += 1
        else:
            self._interpret(issued)

    def run_known(self, issued: Issued, signature: Signature) -> None:
        known: RecordTemplate | Form | None = signature.plans.get(self._kind)
        if type(known) is RecordTemplate and self._execute(known, issued):
            self.native += 1
            return
        waits = type(known) is Form and not self._ready(known, issued)
        if not waits and self._run_natively(issued, signature):
            self.native += 1
        else:
            self._interpret(issued)

    def _interpret(self, issued: Issued) -> None:
        """Have NumPy execute an instruction; how long that took decides when its form is compiled."""
        self.interpreted += 1
        form, self._waiting = self._waiting, None
        if form is None:
            super().run(issued)
            return
        start = thread_time()
        super().run(issued)
        self.functions.spend(form, thread_time() - start)

    def _ready(self, form: Form, issued: Issued) -> bool:
        """Whether the function of a form is there; if only that is missing, notes that NumPy is asked instead."""
        if form.function:
            return True
        if form.native is None:
            return False
        if form.waited is None:
            form.waited = (self._number, self.core, issued.location)
        number, core, location = form.waited
        again = number != self._number and core == self.core and location == issued.location
        if self.functions.ready(form, again=again):
            return True
        self._waiting = form
        return False

    def executed(self) -> tuple[int, int]:
        return self.native, self.interpreted

    def _execute(self, plan: RecordTemplate, issued: Issued) -> bool:
        """Execute an instruction of a known signature; else do nothing."""
        slots, plain, written, registers, apart, words, product = plan
        _, arguments, self._location, self.engine = issued
        words, storage_of = words[:], self.memory.storage
        storages: list[LiveStorage] = []
        for argument, member, at, fixed, step, pitch, writes in plain:
            view = arguments[argument] if member < 0 else arguments[argument][member]
            storage = storage_of(view)
            if storage.pitch != pitch or storage.shadow is not None:
                return False
            unknown = not writes and (storage.fresh or storage.written is not None)
            if unknown and not self._slot_written(slots[len(storages)], storage, arguments):
                return False
            words[at] = storage.address + storage.start + fixed + (view[4] * step if step else 0)
            storages.append(storage)
        for one, other in apart:
            if np.may_share_memory(storages[one].base, storages[other].base):
                return False
        for at, path in registers:
            words[at] = self.register_address(path, self.engine)
        if product is not None:
            adds = self._slot_adds(product, slots[0], storages[0], arguments)
            if adds is None:
                return False
            with_mode(words, adds)
        for position in written:
            slot, storage = slots[position], storages[position]
            if slot.psum or storage.written is not None or storage.fresh:
                self._note_slot(slot, storage, arguments)
        done = self._call(words)
        assert done or product is None, "what PSUM held before a product is noted no more"
        return done

    def _slot_written(self, slot: OperandAction, storage: LiveStorage, arguments: Any) -> bool:
        """Whether the operand of a plan was written, as `is_written`."""
        if slot.box is not None and box_written(storage, slot.box, 0):
            return True
        view = slot.source.of(arguments)
        window = storage.window(view)
        return window.readable or is_written(storage, view, window)

    def _note_slot(self, slot: OperandAction, storage: LiveStorage, arguments: Any) -> None:
        """Note a write of the operand of a plan, as `_note_write`."""
        done = storage.written is None
        if done and storage.fresh:
            if slot.covers:
                storage.fresh, storage.pieces = False, None
            else:
                done = slot.box is not None and mark_box(storage, slot.box, 0)
        if not (done and (not slot.psum or set_box(storage, slot.box, slot.covers, (self._writer(), slot.psum)))):
            view = slot.source.of(arguments)
            self._note_write(storage, view, storage.window(view))

    def _slot_adds(self, move: Product, slot: OperandAction, storage: LiveStorage, arguments: Any) -> bool | None:
        """Whether the product of a plan adds, as `_adds`."""
        if move.mode is False:
            return False
        if slot.box is not None and box_state(storage, slot.box, slot.psum) == UNWRITTEN:
            return None if move.mode else False
        view = slot.source.of(arguments)
        return self._adds(move, storage, view, storage.window(view))

    def _call(self, words: array[int]) -> bool:
        """Have a record executed; whether the function did."""
        if self._context is None:
            self._context = self.functions.context()
        address, count = words.buffer_info()
        return self.functions.run(address, 0, count, self._context.address) == count

    def _run_natively(self, issued: Issued, signature: Signature | None = None) -> bool:
        """Execute an instruction whose operands all lie where they can be used as they are; else do nothing."""
        self.engine, self._location = issued.engine, issued.location
        placed = self._at_static_addresses(issued)
        if placed is None:
            return False
        form = form_of(placed, self.target, self.matmul_mode)
        native = form.native
        if native is None or not self._ready(form, issued):
            if signature is not None:
                signature.plans[self._kind] = form
            return False
        operands = self._operands(native, placed.arguments)
        if operands is None:
            return False
        adds: bool | None = False
        if isinstance(native.move, Product):
            dst = operands[0]
            assert isinstance(dst, BoundOperand), "a product is written to memory"
            adds = self._adds(native.move, dst.storage, dst.view, dst.window)
        views = [operand.view if isinstance(operand, BoundOperand) else None for operand in operands]
        places = [operand.place if isinstance(operand, BoundOperand) else operand for operand in operands]
        words = None if adds is None else record(native, form.function, views, places, adds)
        if words is None:
            return False
        if signature is not None:
            signature.plans[self._kind] = plan_of(native, words, operands, placed.arguments)
        for source, operand in zip(native.sources, operands, strict=True):
            if source.writes and isinstance(operand, BoundOperand):
                self._note_write(operand.storage, operand.view, operand.window)
        done = self._call(array("q", words))
        assert done or not isinstance(native.move, Product), "what PSUM held before a product is noted no more"
        return done

    def _at_static_addresses(self, issued: Issued) -> Issued | None:
        """The instruction with its scalar offsets resolved; None for other dynamic addresses."""
        dynamic = [view.dynamic for _, view in issued.views() if view.dynamic is not None]
        if not dynamic:
            return issued
        if not all(isinstance(item, ScalarOffset) for item in dynamic) or oob_mode.skip in issued.arguments:
            return None
        try:
            return issued._replace(arguments=issued.arguments._make([self._resolved(v) for v in issued.arguments]))
        except NkiError as error:
            if not error.placed:
                error.location = issued.location
            raise

    def _resolved(self, value: Any) -> Any:
        if type(value) is View:
            return self._placed(value) if value.dynamic is not None else value
        if type(value) is tuple:
            return tuple([self._resolved(item) for item in value])
        return value

    def _operands(self, native: Native, arguments: Any) -> list[BoundOperand | Place] | None:
        """Where the operands are; None if something about them is the NumPy machine's business."""
        found: list[BoundOperand | Place] = []
        for source in native.sources:
            if type(source) is Register:
                found.append(Place(ABSOLUTE, self.register_address(source.path, self.engine), 4))
                continue
            operand = self._operand(source, arguments)  # type: ignore[arg-type]
            if operand is None:
                return None
            found.append(operand)
        return found

    def _operand(self, source: ViewSource, arguments: Any) -> BoundOperand | None:
        view = source.of(arguments)
        storage = self.memory.storage(view)
        if storage.shadow is not None:
            return None
        window = storage.window(view)
        if not source.writes and not (window.readable or is_written(storage, view, window)):
            return None
        # Arrays of the host may be parts of one array, so that addresses tell whether they share bytes.
        memory = storage.address if view.buffer.on_chip else 0
        place = Place(ABSOLUTE, storage.address + storage.start, storage.pitch, memory, is_large(view.buffer))
        return BoundOperand(view, storage, window, place)

    def _adds(self, move: Product, storage: LiveStorage, view: View, window: Window) -> bool | None:
        """Whether a matmul adds; None if that differs between elements or needs a warning."""
        if move.mode is False:
            return False
        state = common_state(storage, view, window)
        if state == UNKNOWN_STATE or (state == UNWRITTEN and move.mode):
            return None
        if state == BY_OTHERS and not self.target.pe.accumulate_over_foreign_psum:
            return None
        if state != UNWRITTEN and not is_written(storage, view, window):
            return None
        return state != UNWRITTEN
