"""Programs from the readable form of the IR (`nki.ir.print`), for cases that are written by hand.

What the compiler decides stands behind ``;`` as `nki opt --diff` shows it: addresses, queues and waits. Buffers have
names of their own. Constants, edges and ordered regions have no readable form.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from inspect import Parameter
from typing import Any

from nki.core.dtypes import as_dtype
from nki.core.register import VirtualRegister
from nki.core.source import Frame, Location
from nki.core.tensor import Buffer, MemoryRegion, ScalarOffset, View, contiguous_strides
from nki.ir.nisa import Field, op_spec
from nki.ir.operators import operator_named
from nki.spec.engine import engine
from nki.spec.instruction import REGISTRY
from nki.spec.program import Block, ForLoop, Issued, Program, Sync, Wait, WhileLoop

_KERNEL = re.compile(r"kernel (\w+) for (\w+), core (\d+) of (\d+):")
_BUFFER = re.compile(
    r"%(\d+) = (input|alloc) (\w+) (\w+)\[([\d, ]*)\] (\w+)(?: at partition (\d+), byte (\d+))?(?: (\w+))?"
)
_PLACE = re.compile(r"at partition (\d+), byte (\d+)")
_VIEW = re.compile(r"(\w+)(?:@(\d+))?\[([^\]]*)\](?: scalar_offset\(r(\d+), (-?\d+)\))?")
_FOR = re.compile(r"for r(\d+) in range\((\w+), (\w+), (\d+)\):")
_WHILE = re.compile(r"while r(\d+) != 0:")


def read(text: str) -> Program:
    """The program of a text. Raises ValueError for a line that it does not understand."""
    return _Reader([line for line in text.splitlines() if line.strip()]).program()


class _Reader:
    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._at = 1
        self._buffers: dict[str, Buffer] = {}
        self._registers: dict[int, VirtualRegister] = {}
        name, target, core, cores = _match(_KERNEL, lines[0])
        self._program = Program(name, target, int(core), int(cores))

    def program(self) -> Program:
        self._program.body = self._block(1)
        line = self._lines[self._at].strip()
        self._program.outputs = [self._view(shown) for shown in _split(line.removeprefix("return"), ", ")]
        return self._program

    def _block(self, depth: int) -> Block:
        block, syncs = Block(), list[Sync | None]()
        indent = "  " * depth
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if not line.startswith(indent) or line.strip().startswith("return"):
                break
            self._at += 1
            shown, location, mark = _parts(line.strip())
            if shown.startswith("%"):
                self._buffer(shown, location, mark, block)
                continue
            if shown.startswith(("for ", "while ")):
                block.items.append(self._loop(shown, location, depth))
                syncs.append(None)
                continue
            block.items.append(self._instruction(shown, location))
            syncs.append(_sync(mark) if mark else None)
        block.sync = syncs if any(syncs) else None
        return block

    def _buffer(self, shown: str, location: Location, mark: str, block: Block) -> None:
        number, word, region, dtype, shape, name, partition, byte, role = _match(_BUFFER, shown)
        address = None if partition is None else (int(partition), int(byte))
        role = role or ("input" if word == "input" else "temporary")
        sizes = tuple(int(size) for size in shape.split(",") if size)
        buffer = Buffer(int(number), name, MemoryRegion(region), sizes, as_dtype(dtype), address, role, location)
        if name in self._buffers:
            raise ValueError(f"two buffers are called {name}")
        self._buffers[name] = buffer
        (self._program.inputs if word == "input" else block.buffers).append(buffer)
        if mark:
            first, start = _match(_PLACE, mark)
            self._program.placement = {**(self._program.placement or {}), buffer.id: (int(first), int(start))}

    def _loop(self, shown: str, location: Location, depth: int) -> ForLoop | WhileLoop:
        if shown.startswith("while"):
            (condition,) = _match(_WHILE, shown)
            return WhileLoop(self._register(condition), self._block(depth + 1), location)
        index, lower, upper, step = _match(_FOR, shown)
        bounds = [self._register(word[1:]) if word.startswith("r") else int(word) for word in (lower, upper)]
        return ForLoop(*bounds, int(step), self._register(index), self._block(depth + 1), location)

    def _register(self, number: str) -> VirtualRegister:
        return self._registers.setdefault(int(number), VirtualRegister(int(number)))

    def _instruction(self, shown: str, location: Location) -> Issued:
        on, name, *rest = _split(shown, " ")
        instruction = REGISTRY[name]
        given = dict(word.split("=", 1) for word in _joined(rest))
        fields = op_spec(instruction).fields
        values = [self._value(given.pop(each.name), each) if each.name in given else _default(each) for each in fields]
        if given:
            raise ValueError(f"{name} has no {', '.join(given)}")
        return Issued(instruction, instruction.arguments._make(values), location, engine[on])

    def _value(self, shown: str, of: Field) -> Any:
        if shown.startswith("[") and of.form == "operands":
            return tuple(self._view(item) for item in _split(shown[1:-1], ", "))
        if of.kind == "operator":
            found = operator_named(shown)
            if found is None:
                raise ValueError(f"no operator {shown}")
            return found
        if of.choices is not None:
            return of.choices[shown]
        if re.fullmatch(r"r\d+", shown):
            return self._register(shown[1:])
        return self._view(shown) if _VIEW.fullmatch(shown) else ast.literal_eval(shown)

    def _view(self, shown: str) -> View:
        name, offset, inside, register, scale = _match(_VIEW, shown.strip())
        buffer = self._buffers[name]
        dynamic = None if register is None else ScalarOffset(self._register(register), int(scale))
        if offset is not None:
            pairs = [item.split(":") for item in inside.split(", ")]
            shape, strides = (tuple(int(pair[place]) for pair in pairs) for place in (0, 1))
            return View(buffer, buffer.dtype, shape, strides, int(offset), dynamic)
        return _sliced(buffer, inside.split(", "), dynamic)


def _sliced(buffer: Buffer, slices: list[str], dynamic: ScalarOffset | None) -> View:
    offset, shape, strides = 0, list[int](), list[int]()
    for shown, unit in zip(slices, contiguous_strides(buffer.shape), strict=True):
        start, *rest = (int(number) for number in shown.split(":"))
        offset += start * unit
        if rest:
            step = rest[1] if len(rest) > 1 else 1
            shape.append(len(range(start, rest[0], step)))
            strides.append(unit * step)
    return View(buffer, buffer.dtype, tuple(shape), tuple(strides), offset, dynamic)


def _parts(line: str) -> tuple[str, Location, str]:
    """What a line says, its place in the source, and what the compiler decided."""
    line, _, mark = line.partition("  ; ")
    line, _, place = line.partition("  # ")
    if not place:
        return line.strip(), Location(), mark
    file, _, number = place.strip().partition(":")
    return line.strip(), Location((Frame(file, "kernel", int(number)),)), mark


def _sync(mark: str) -> Sync:
    queue, *rest = mark.removeprefix("on ").split(", ")
    waits = [word.removeprefix("after ").split(" of ") for word in rest if word.startswith("after ")]
    return Sync(queue, tuple(Wait(other, int(signals)) for signals, other in waits), "signals" in rest)


def _default(of: Field) -> Any:
    if of.default is not Parameter.empty:
        return of.default
    if of.nullable:
        return None
    raise ValueError(f"{of.name} is missing")


def _split(text: str, by: str) -> list[str]:
    """The parts of a text between separators that are not in brackets."""
    parts, depth = [""], 0
    for piece in re.split(f"({re.escape(by)}|[][()])", text):
        depth += (piece in ("[", "(")) - (piece in ("]", ")"))
        if piece == by and depth == 0:
            parts.append("")
        else:
            parts[-1] += piece
    return [part for part in parts if part.strip()]


def _joined(words: list[str]) -> Iterator[str]:
    """Words of arguments, of which one may have several: ``src=a[0:8, 0:4] scalar_offset(r0, 8)``."""
    held = ""
    for word in words:
        if held and re.match(r"\w+=", word):
            yield held
            held = word
        else:
            held = f"{held} {word}".strip()
    if held:
        yield held


def _match(pattern: re.Pattern[str], text: str) -> tuple[Any, ...]:
    found = pattern.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"not understood: {text}")
    return found.groups()
