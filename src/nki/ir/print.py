"""Programs in a form for people, derived from the declarations; it is not parsed back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from enum import Enum
from inspect import Parameter
from pathlib import PurePath
from typing import Any

from nki.core.dtypes import DType
from nki.core.register import VirtualRegister
from nki.core.source import Location
from nki.core.tensor import Buffer, View, contiguous_strides
from nki.ir.nisa import op_spec
from nki.ir.views import DYNAMIC_NAMES
from nki.spec.operator import Operator
from nki.spec.program import Block, ForLoop, Issued, Program, WhileLoop

_INDENT = "  "


def readable(programs: Sequence[Program]) -> str:
    """All programs, one line for each allocation, instruction and loop.

    A tensor is written as a slice of its buffer, or ``name@offset[size:stride, ...]`` in elements if it is no slice.
    Arguments that equal their defaults are left out. Buffers that share a name are told apart by their ids.
    """
    return "\n".join("\n".join(_Printer(program).lines()) + "\n" for program in programs)


def instruction_text(program: Program, issued: Issued) -> str:
    """One instruction of a program in the form of `readable`."""
    return _Printer(program).instruction(issued)


class _Printer:
    """Knows which names of buffers are ambiguous."""

    def __init__(self, program: Program) -> None:
        self._program = program
        buffers = [*program.inputs, *program.body.all_buffers()]
        self._count = Counter(buffer.name for buffer in buffers)

    def lines(self) -> Iterator[str]:
        program = self._program
        yield f"kernel {program.name} for {program.target}, core {program.core} of {program.cores}:"
        for buffer in program.inputs:
            yield _INDENT + self._declaration("input", buffer)
        yield from self._block(program.body, _INDENT)
        yield f"{_INDENT}return {', '.join(self._view(view) for view in program.outputs)}".rstrip()

    def _block(self, block: Block, indent: str) -> Iterator[str]:
        for buffer in block.buffers:
            yield indent + self._declaration("alloc", buffer)
        for item in block.items:
            if isinstance(item, Issued):
                yield indent + self.instruction(item)
            else:
                yield f"{indent}{_loop_header(item)}{_comment(item.location)}"
                yield from self._block(item.body, indent + _INDENT)

    def _declaration(self, word: str, buffer: Buffer) -> str:
        at = "" if buffer.address is None else f" at partition {buffer.address[0]}, byte {buffer.address[1]}"
        role = "" if buffer.role in ("input", "temporary") else f" {buffer.role}"
        shown = f"%{buffer.id} = {word} {buffer.region} {buffer.dtype}{list(buffer.shape)} {buffer.name}{at}{role}"
        return shown + _comment(buffer.location)

    def instruction(self, issued: Issued) -> str:
        spec = op_spec(issued.instruction)
        arguments = [
            f"{field.name}={self._value(value)}"
            for field, value in zip(spec.fields, issued.arguments, strict=True)
            if not _is_default(value, field.default)
        ]
        return " ".join([f"{issued.engine.name:7}", issued.instruction.name, *arguments]) + _comment(issued.location)

    def _value(self, value: Any) -> str:
        match value:
            case View():
                return self._view(value)
            case VirtualRegister():
                return f"r{value.id}"
            case Operator() | Enum():
                return value.name
            case tuple():
                return f"[{', '.join(self._value(item) for item in value)}]"
        return repr(value)

    def _view(self, view: View) -> str:
        name = view.buffer.name if self._count[view.buffer.name] == 1 else f"{view.buffer.name}%{view.buffer.id}"
        slices = _slices(view)
        if slices is not None:
            shown = f"{name}[{', '.join(slices)}]"
        else:
            steps = ", ".join(f"{n}:{stride}" for n, stride in zip(view.shape, view.strides, strict=True))
            shown = f"{name}@{view.offset}[{steps}]"
        if view.dtype is not view.buffer.dtype:
            shown += f" as {view.dtype}"
        if view.dynamic is not None:
            indices, scale = view.dynamic
            shown += f" {DYNAMIC_NAMES[type(view.dynamic)]}({self._value(indices)}, {scale})"
        return shown


def _slices(view: View) -> list[str] | None:
    """``start:stop[:step]`` or an index for each dimension of the buffer; None if the view is no slice."""
    shape = _shape_as(view.buffer, view.dtype)
    if shape is None:
        return None
    slices, rest = [], view.offset
    dims = list(zip(view.shape, view.strides, strict=True))
    for position, (size, unit) in enumerate(zip(shape, contiguous_strides(shape), strict=True)):
        start, rest = divmod(rest, unit)
        must = len(dims) == len(shape) - position
        if not dims or not (must or unit <= dims[0][1] < unit * size):
            slices.append(str(start))
            continue
        n, stride = dims.pop(0)
        step, odd = divmod(stride, unit)
        if odd or step < 1 or start + (n - 1) * step >= size:
            return None
        slices.append(f"{start}:{start + (n - 1) * step + 1}" + (f":{step}" if step > 1 and n > 1 else ""))
    return None if dims or rest else slices


def _shape_as(buffer: Buffer, dtype: DType) -> tuple[int, ...] | None:
    """The shape that the buffer has in elements of a dtype; None if its rows do not hold whole elements."""
    if dtype.itemsize == buffer.dtype.itemsize:
        return buffer.shape
    last, odd = divmod(buffer.shape[-1] * buffer.dtype.itemsize, dtype.itemsize) if buffer.shape else (0, 1)
    return None if odd else (*buffer.shape[:-1], last)


def _loop_header(loop: ForLoop | WhileLoop) -> str:
    if isinstance(loop, WhileLoop):
        return f"while r{loop.condition.id} != 0:"
    lower, upper = (f"r{b.id}" if isinstance(b, VirtualRegister) else str(b) for b in (loop.lower, loop.upper))
    return f"for r{loop.index.id} in range({lower}, {upper}, {loop.step}):"


def _is_default(value: Any, default: Any) -> bool:
    return value is default or (
        default is not Parameter.empty
        and isinstance(value, bool | int | float | str | tuple)
        and type(value) is type(default)
        and repr(value) == repr(default)
    )


def _comment(location: Location) -> str:
    frame = location.frame
    return f"  # {PurePath(frame.file).name}:{frame.line}" if frame else ""
