"""Runs one instruction by NumPy and by its row kernel on the same bytes, and compares all bytes afterwards."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from nki.core.tensor import View
from nki.native.call_context import CallContext, address_of
from nki.native.emit.function import emit
from nki.native.objects.jit import in_process
from nki.native.operand_layout import HEADER, SLOT, Place, start_of
from nki.native.primitives.module import HELPERS, module_text
from nki.native.records.templates import column_slot, row_slot
from nki.native.trace.symbolic_execution import NotTraceable, Trace, trace
from nki.sim.machine import Machine
from nki.spec.program import Issued
from tests.support import environment

Buffers = dict[int, np.ndarray]
_KERNEL = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
_GUARD = 192
"""Bytes behind each partition that no kernel may touch."""
_compiled: dict[str, Any] = {}
_helpers: dict[int, int] = {}


def helpers() -> Mapping[int, int]:
    """Addresses of the row helpers, by word of the context."""
    if not _helpers:
        addresses = in_process(module_text())
        _helpers.update({word: addresses[name] for word, name in HELPERS.items()})
    return _helpers


def kernel_of(traced: Trace) -> Any:
    """The compiled kernel of a trace."""
    name = "row_" + hashlib.sha256(traced.signature.encode()).hexdigest()[:24]
    if name not in _compiled:
        _compiled[name] = _KERNEL(in_process(emit(traced, name))[name])
    return _compiled[name]


class Copies:
    """Copies of the bytes of buffers, with a guard behind each partition, and of the registers of one engine."""

    def __init__(self, machine: Machine, buffers: Mapping[int, np.ndarray]) -> None:
        self.guarded: Buffers = {}
        for number, data in buffers.items():
            copy = np.full((data.shape[0], data.shape[1] + _GUARD), 0xA5, np.uint8)
            copy[:, : data.shape[1]] = data
            self.guarded[number] = copy
        self.registers = {
            "accumulator": _registers(machine._accumulators, machine),
            "defined": _registers(machine._accumulated, machine),
        }

    def place(self, view: View | None, path: str, base: int, context: CallContext) -> Place:
        """Where an operand lies."""
        array = self.registers[path] if view is None else self.guarded[view.buffer.id]
        context.base(base, address_of(array))
        return Place(base, 0, 4 if view is None else array.shape[1])


def _registers(all_engines: Mapping[Any, np.ndarray], machine: Machine) -> np.ndarray:
    found = all_engines.get(machine.engine)
    return np.zeros((128, 1), np.float32) if found is None else found.copy()


def native(traced: Trace, copies: Copies, first: int = 0, last: int | None = None) -> int:
    """Run the kernel of a trace on copies; what it returns."""
    return prepared(traced, copies)(first, traced.partitions if last is None else last)


def prepared(traced: Trace, copies: Copies) -> Callable[[int, int], int]:
    """The kernel of a trace on copies, as a function of the first and the last partition."""
    context = CallContext(helpers(), len(traced.slots))
    words = [0] * HEADER
    words[2], words[3] = traced.partitions, traced.count
    for number, item in enumerate(traced.slots):
        place = copies.place(item.view, item.path, number, context)
        found, patch = column_slot(4, 0) if item.view is None else row_slot(item.view, 0)
        found[0], found[1] = place.base, 0 if item.view is None else start_of(item.view, place)[0]
        for word, multiple in patch.pitches:
            found[word] = multiple * place.pitch
        assert len(found) == SLOT
        words += found
    words += traced.immediates
    words[1] = len(words)
    record, kernel = np.array(words, np.int64), kernel_of(traced)

    def call(first: int, last: int) -> int:
        assert copies.guarded or copies.registers, "they are kept as long as something can be written to them"
        return int(kernel(address_of(record), context.address, first, last))

    return call


def buffers_of(machine: Machine, issued: Issued) -> Buffers:
    """The bytes of all operands, copied."""
    found: Buffers = {}
    for _, view in issued.views():
        storage = machine.memory.storage(view)
        storage.settle()
        array = storage.array
        assert array is not None
        found[view.buffer.id] = np.array(array).reshape(view.buffer.partitions, -1)
    return found


def agree(machine: Machine, issued: Issued, traced: Trace, copies: Copies, status: int, warned: bool) -> None:
    """The kernel left the same bytes as the machine; or it refused, where the machine warned, and left all alone."""
    assert status == int(warned), f"{issued.instruction.name}: status {status}, warned {warned}"
    if warned:
        return
    for number, expected in buffers_of(machine, issued).items():
        got = copies.guarded[number]
        assert (got[:, expected.shape[1] :] == 0xA5).all(), f"{issued.instruction.name} wrote behind its partition"
        same = got[:, : expected.shape[1]] == expected
        assert same.all(), f"{issued.instruction.name}: {(~same).sum()} bytes differ\n{traced.nodes}"
    for name, attribute in (("accumulator", machine._accumulators), ("defined", machine._accumulated)):
        wanted = attribute.get(machine.engine)
        if wanted is not None:
            assert copies.registers[name].tobytes() == wanted.tobytes(), f"{issued.instruction.name}: {name}"


@contextmanager
def compared(refusals: dict[str, set[str]], counts: dict[str, int]) -> Iterator[None]:
    """Inside, every instruction that a machine runs is executed natively as well, and compared."""
    original = Machine.run

    def run(machine: Machine, issued: Issued) -> None:
        machine.engine = issued.engine
        try:
            traced = trace(issued, machine.target)
        except NotTraceable as refusal:
            refusals.setdefault(issued.instruction.name, set()).add(str(refusal))
            original(machine, issued)
            return
        if any(machine.memory.storage(view).shadow is not None for _, view in issued.views()):
            original(machine, issued)
            return
        copies = Copies(machine, buffers_of(machine, issued))
        before, machine._warned = machine._warned, set()
        original(machine, issued)
        warned = any(not code.startswith("memory.") for code, _ in machine._warned)
        machine._warned |= before
        agree(machine, issued, traced, copies, native(traced, copies), warned)
        counts[issued.instruction.name] = counts.get(issued.instruction.name, 0) + 1

    with pytest.MonkeyPatch.context() as patch, environment(NKI_NATIVE="0"):
        patch.setattr(Machine, "run", run)
        yield
