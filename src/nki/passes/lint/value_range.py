"""Which numbers a traced program certainly computes: integers that float32 rounds, exponentials and indices too large.

Intervals come from constants: iota, memset, constant tensors, registers, loops with constant bounds. What comes from
arguments is unknown, and what is unknown is not reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nki.core.dtypes import int32, uint32
from nki.core.register import VirtualRegister
from nki.core.source import Location
from nki.core.tensor import FreeIndirection, MemoryRegion, ScalarOffset, VectorOffset, View
from nki.passes.analysis.loop_views import written_registers
from nki.passes.analysis.memory_usage import place_of
from nki.passes.lint.control_flow import ControlFlow
from nki.passes.lint.interval import Interval, combined, constant, of_values, progression
from nki.spec.engine import engine as Engine
from nki.spec.engine import oob_mode
from nki.spec.program import Block, ForLoop, Issued, Program, WhileLoop
from nki.spec.rule import Finding
from nki.target.model import Target

EXP_LIMIT = 88.72284
"""The natural logarithm of the largest float32."""

_SHARED = "nki/api/nki.api.shared.rst"


def value_findings(program: Program, target: Target) -> list[Finding]:
    """What is certainly out of range, in the order of the program.

    ``lint.integer-precision``, ``lint.exp-overflow`` and ``access.repeated-rows`` are warnings;
    ``access.dynamic-out-of-bounds`` is an error, as it ends a run.
    """
    ranges = _Ranges(target)
    ranges.block(program.body, certain=True)
    return ranges.found


@dataclass(slots=True)
class _Ranges(ControlFlow):
    """What is known at a point of the program.

    Attributes:
        tensors: for a buffer the views that hold a known interval; a write elsewhere in the buffer forgets them.
        registers: by id.
        origin: where the value of a register comes from.
    """

    target: Target
    found: list[Finding] = field(default_factory=list)
    tensors: dict[int, dict[View, Interval]] = field(default_factory=dict)
    registers: dict[int, Interval] = field(default_factory=dict)
    origin: dict[int, Location] = field(default_factory=dict)

    def loop(self, loop: ForLoop | WhileLoop, trips: int | None, certain: bool) -> None:
        """Follow the body of a loop once, with the counter as the interval of all trips."""
        if trips == 0:
            return
        self._forget(loop.body)  # what a trip changes is another value in the next one
        if isinstance(loop, ForLoop):
            self.origin[loop.index.id] = loop.location
            if isinstance(loop.lower, int) and trips is not None:
                self.registers[loop.index.id] = progression(loop.lower, ((loop.step, trips),))
            else:
                self.registers.pop(loop.index.id, None)
        self.block(loop.body, certain=certain)
        self._forget(loop.body)

    def _forget(self, body: Block) -> None:
        for issued in body.walk():
            for name, view in issued.views():
                if issued.instruction.operands[name].writes:
                    self.tensors.pop(view.buffer.id, None)
            for register in written_registers(issued):
                self.registers.pop(register.id, None)

    def instruction(self, issued: Issued, certain: bool) -> None:
        """Report what it certainly does wrong, and follow its result."""
        if certain:
            self.found += self._bounds(issued)
            self.found += self._precision(issued)
            self.found += self._exponentials(issued)
            self.found += self._repeats(issued)
        if "fence" in issued.instruction.effects(issued.arguments):
            self.tensors.clear()
        transfer = _TRANSFER.get(issued.instruction.name)
        result = None if transfer is None else transfer(self, issued)
        for name, view in issued.views():
            if issued.instruction.operands[name].writes:
                self._write(view, result if name == "dst" else None)
        for register in written_registers(issued):
            self.origin[register.id] = issued.location
            if result is None or not result.fits:
                self.registers.pop(register.id, None)
            else:
                self.registers[register.id] = result

    def _write(self, view: View, interval: Interval | None) -> None:
        buffer = view.buffer
        others = buffer.address is not None or buffer.region is MemoryRegion.shared_hbm  # may write to it as well
        known = {} if interval is None or view.dynamic is not None or others else _held(view, interval)
        self.tensors[view.buffer.id] = known

    def of(self, value: Any) -> Interval | None:
        """The interval of a number, a register or a tensor; None if it is not known."""
        match value:
            case View():
                data = value.buffer.data
                if data is not None and value.dynamic is None and value.size * value.dtype.itemsize == len(data):
                    return of_values(np.frombuffer(data, value.dtype.numpy))
                return self.tensors.get(value.buffer.id, {}).get(value)
            case VirtualRegister():
                return self.registers.get(value.id)
            case int() | float():
                return constant(value)
        return None

    def _bounds(self, issued: Issued) -> Iterator[Finding]:
        """Dynamic views that reach beyond their tensor in some trip."""
        if "oob_mode" in issued.instruction.operands and issued.arguments.oob_mode is oob_mode.skip:
            return
        for name, view in issued.views():
            if view.dynamic is None:
                continue
            index = self.of(view.dynamic.indices)
            if index is None or not index.reached or not _all_count(view):
                continue
            for value in (index.low, index.high):
                reach = _outside(view, int(value))
                if reach is not None:
                    yield self._outside_finding(issued, name, view, int(value), reach)
                    break

    def _outside_finding(
        self, issued: Issued, name: str, view: View, value: int, reach: tuple[int, int, int]
    ) -> Finding:
        index = view.dynamic.indices if view.dynamic is not None else None
        origin = self.origin.get(index.id) if isinstance(index, VirtualRegister) else None
        comes = "" if origin is None else f", which comes from {place_of(origin)}"
        low, high, total = reach
        return Finding(
            "access.dynamic-out-of-bounds",
            "error",
            f"{name} of {issued.instruction.label}: index {value}{comes}, reaches elements {low} to {high} of "
            f"{view.buffer.name}",
            f"{_part(view)} of {view.buffer.name} has {total} elements ({place_of(view.buffer.location)})",
            "nki/api/nki.language, Tensor indexing",
            "shorten the loop, or make the tensor larger",
            issued.location,
            {"index": value, "low": low, "high": high, "elements": total},
        )

    def _repeats(self, issued: Issued) -> Iterator[Finding]:
        """Scatters all of whose rows have one index."""
        for view in issued.written():
            if not isinstance(view.dynamic, VectorOffset) or view.shape[0] == 1:
                continue
            index = self.of(view.dynamic.indices)
            if index is None or index.low != index.high:
                continue
            yield Finding(
                "access.repeated-rows",
                "warning",
                f"{issued.instruction.label} writes {view.shape[0]} rows to row {int(index.low)} of {view.buffer.name}",
                "the rows of one scatter differ, because its writes have no order among each other",
                "",
                "give each row an index of its own, for example by nisa.iota with channel_multiplier=1",
                issued.location,
                {"row": index.low, "rows": view.shape[0]},
            )

    def _precision(self, issued: Issued) -> Iterator[Finding]:
        """32-bit integers that pass through float32 and come out as other numbers."""
        arguments = issued.arguments
        if issued.instruction.name not in _FLOAT_ALU or _is_exact(issued):
            return
        operands = [(n, v) for n, v in issued.views() if n in ("data", "data1", "data2")]
        for name, view in operands:
            interval = self.of(view)
            if view.dtype in (int32, uint32) and interval is not None and interval.rounds:
                yield _rounding(issued, f"{name} holds", interval)
                return
        transfer = _TRANSFER.get(issued.instruction.name)
        result = None if transfer is None or arguments.dst.dtype not in (int32, uint32) else transfer(self, issued)
        if result is not None and result.rounds:
            yield _rounding(issued, "the result has", result)

    def _exponentials(self, issued: Issued) -> Iterator[Finding]:
        if issued.instruction.name not in _ACTIVATES or issued.arguments.op.name != "exp":
            return
        a = issued.arguments
        argument = combined("multiply", self.of(a.data), self.of(a.scale))
        if a.bias is not None:
            argument = combined("add", argument, self.of(a.bias))
        if argument is None or not argument.surely_above(EXP_LIMIT):
            return
        yield Finding(
            "lint.exp-overflow",
            "warning",
            f"{issued.instruction.label} takes the exponential of up to {argument.high:g}, which is infinite",
            f"exp of more than {EXP_LIMIT:.2f} exceeds float32",
            _SHARED,
            "subtract the maximum first: pass its negative as bias",
            issued.location,
            {"low": argument.low, "high": argument.high},
        )


def _rounding(issued: Issued, what: str, interval: Interval) -> Finding:
    return Finding(
        "lint.integer-precision",
        "warning",
        f"{issued.instruction.label} computes in float32, and {what} integers from {int(interval.low)} to "
        f"{int(interval.high)}",
        f"float32 holds integers up to {interval.unit << 24} in steps of {interval.unit}",
        f"{_SHARED}, Supported Math Operators",
        "use nisa.tensor_tensor on int32 tensors in SBUF, which GpSimd computes exactly, or bitvec operators",
        issued.location,
        {"low": interval.low, "high": interval.high},
    )


def _part(view: View) -> str:
    """What an index moves in: a free offset stays in the tensor's part of the partition."""
    dynamic = view.dynamic
    return "a row" if view.on_chip and isinstance(dynamic, ScalarOffset) and dynamic.scale % view.row else "all"


def _all_count(view: View) -> bool:
    """Whether every index of a dynamic view is used, so that the largest one is as well."""
    match view.dynamic:
        case VectorOffset(indices, _):
            return indices.size == view.shape[0]
        case FreeIndirection(indices, elements):
            return indices.size >= elements
    return True


def _outside(view: View, value: int) -> tuple[int, int, int] | None:
    """First and last element that a view with an index reaches, and how many there are, if it reaches outside."""
    total = view.buffer.nbytes // view.dtype.itemsize
    match view.dynamic:
        case FreeIndirection():
            at = view.free_offset + value
            return None if 0 <= at < view.row and value >= 0 else (at, at, view.row)
        case VectorOffset(_, scale):
            start, inner = view.offset + value * scale, 1
        case ScalarOffset(_, scale) if view.on_chip and scale % view.row:
            start, total, inner = view.free_offset + value * scale, view.row, 1
        case ScalarOffset(_, scale):
            start, inner = view.offset + value * scale, 0
        case _:
            raise AssertionError("asked for dynamic views only")
    steps = [(size - 1) * stride for size, stride in zip(view.shape[inner:], view.strides[inner:], strict=True)]
    low, high = start + sum(min(0, step) for step in steps), start + sum(max(0, step) for step in steps)
    return None if low >= 0 and high < total else (low, high, total)


def _held(view: View, interval: Interval) -> dict[View, Interval]:
    """What a tensor holds after a value was stored to its dtype."""
    if view.dtype.is_packed or (view.dtype.is_integer and not interval.unit):
        return {}
    if view.dtype.is_integer and not view.dtype.min <= interval.low <= interval.high <= view.dtype.max:
        return {}
    return {view: interval}


def _is_exact(issued: Issued) -> bool:
    """Whether an instruction computes integers as integers."""
    a = issued.arguments
    if issued.instruction.name != "tensor_tensor":
        return any(op is not None and op.is_bitvec for op in (getattr(a, n) for n in ("op0", "op1") if n in a._fields))
    whole = all(view.dtype in (int32, uint32) for view in (a.dst, a.data1, a.data2))
    return a.op.is_bitvec or (issued.engine is Engine.gpsimd and whole)


def _iota(ranges: _Ranges, issued: Issued) -> Interval | None:
    a = issued.arguments
    if not isinstance(a.offset, int):
        return None
    found = progression(a.offset, (*a.pattern, (a.channel_multiplier, a.dst.shape[0])))
    return found if found.fits else None  # beyond that it wraps


def _tensor_scalar(ranges: _Ranges, issued: Issued) -> Interval | None:
    a = issued.arguments
    value = ranges.of(a.data)
    for op, operand, reverse in ((a.op0, a.operand0, a.reverse0), (a.op1, a.operand1, a.reverse1)):
        if op is not None:
            other = ranges.of(operand)
            value = combined(op.name, other, value) if reverse else combined(op.name, value, other)
    return value


_FLOAT_ALU = frozenset({"tensor_scalar", "tensor_tensor"})
_ACTIVATES = frozenset({"activation", "activation_reduce"})
_TRANSFER: dict[str, Callable[[_Ranges, Issued], Interval | None]] = {
    "iota": _iota,
    "memset": lambda ranges, issued: ranges.of(issued.arguments.value),
    "tensor_copy": lambda ranges, issued: ranges.of(issued.arguments.src),
    "dma_copy": lambda ranges, i: (
        ranges.of(i.arguments.src) if i.arguments.dst.dtype is i.arguments.src.dtype else None
    ),
    "tensor_scalar": _tensor_scalar,
    "tensor_tensor": lambda ranges, i: combined(
        i.arguments.op.name, ranges.of(i.arguments.data1), ranges.of(i.arguments.data2)
    ),
    "register_move": lambda ranges, issued: ranges.of(issued.arguments.src),
    "register_alu": lambda ranges, i: combined(i.arguments.op.name, ranges.of(i.arguments.a), ranges.of(i.arguments.b)),
}
