"""Streams as textual assembly; docs/assembly.md has the grammar."""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Iterator
from pathlib import PurePath

import nki.collectives
import nki.isa  # noqa: F401 - both declare the instructions
from nki.asm.errors import damaged
from nki.asm.layout import VERSION
from nki.asm.streams import (
    NONE,
    Access,
    Begin,
    BufferEntry,
    Command,
    End,
    Entry,
    Group,
    Immediate,
    Operand,
    Register,
    Stream,
    Streams,
)
from nki.core.source import Frame
from nki.spec.instruction import REGISTRY


def to_text(streams: Streams, *, comments: bool = True) -> str:
    """The assembly; ``parse(to_text(streams)) == streams``. Comments name the user's lines.

    Raises:
        ArtifactError: "asm.value" for an instruction that does not exist.
    """
    return _Printer(streams, comments).text()


def stream_lines(streams: Streams, stream: Stream) -> list[str]:
    """What one queue does, a line for each entry, with comments."""
    return list(_Printer(streams, True).stream(stream))


def entry_text(streams: Streams, entry: Entry) -> str:
    """One entry, without comment."""
    return _Printer(streams, False).entry(entry)


class _Printer:
    """Writes lines; looks up what numbers stand for."""

    def __init__(self, streams: Streams, comments: bool) -> None:
        self._streams = streams
        self._comments = comments

    def text(self) -> str:
        return "\n".join([*self._head(), *self._tables(), *self._all_streams()]) + "\n"

    def _head(self) -> Iterator[str]:
        s = self._streams
        yield f"assembly {VERSION}"
        scheduled = " scheduled" if s.scheduled else ""
        yield f"kernel {_quoted(s.name)} target {_quoted(s.target)} core {s.core} of {s.cores}{scheduled} @{s.location}"
        yield from (f"pass {_quoted(name)}" for name in s.passed)
        yield from (f"edge {first} {second}" for first, second in s.edges)
        yield from (f"fence {first} {after}" for first, after in s.fences)

    def _tables(self) -> Iterator[str]:
        s = self._streams
        frames = {f: n for n, f in enumerate(dict.fromkeys(f for place in s.locations for f in place.frames))}
        yield from (f"frame {number} {_frame(frame)}" for frame, number in frames.items())
        for number, location in enumerate(s.locations):
            yield " ".join([f"location @{number}", *(str(frames[frame]) for frame in location.frames)])
        for number, register in enumerate(s.registers):
            yield f"register %{number} {register.id}" + (" frozen" if register.frozen else "")
        for buffer, symbol in zip(s.buffers, s.symbols, strict=True):
            yield f"buffer ${symbol} {_buffer(buffer)}"
        yield from (f"output {self._access(access)}" for access in s.outputs)

    def _all_streams(self) -> Iterator[str]:
        for stream in self._streams.streams:
            yield f"queue {stream.queue}"
            yield from self.stream(stream)

    def stream(self, stream: Stream) -> Iterator[str]:
        """One line for each entry."""
        depth = 1
        for entry in stream.entries:
            depth -= isinstance(entry, End)
            yield "  " * depth + self.entry(entry)
            depth += isinstance(entry, Begin)

    def entry(self, entry: Entry) -> str:
        """One line."""
        if isinstance(entry, Command):
            return f"{entry.position} {self._command(entry)} @{entry.location}{self._comment(entry.location)}"
        if isinstance(entry, Begin):
            return f"{entry.position} {self._begin(entry)} @{entry.location}{self._comment(entry.location)}"
        return f"end {entry.loop}" if isinstance(entry, End) else f"pass {entry.loop}"

    def _comment(self, number: int) -> str:
        frame = self._streams.locations[number].frame
        if not self._comments or frame is None:
            return ""
        name = PurePath(frame.file).name.encode("ascii", "replace").decode()
        return f"  # {name}:{frame.line}" if name.isprintable() else ""

    def _begin(self, begin: Begin) -> str:
        scheduled = " scheduled" if begin.scheduled else ""
        register = self._operand(begin.register)
        if begin.bounds is None:
            return f"loop {begin.loop} while {register}{scheduled}"
        lower, upper = (self._operand(b) if isinstance(b, Register) else str(b) for b in begin.bounds)
        return f"loop {begin.loop} for {register} from {lower} to {upper} step {begin.step}{scheduled}"

    def _command(self, command: Command) -> str:
        """Operands that are None are left out."""
        instruction = REGISTRY.get(command.opcode)
        if instruction is None or len(instruction.operands) != len(command.operands):
            raise damaged("asm.value", f"opcode {command.opcode!r}"[:200], "an opcode names an instruction")
        words = [f"{command.opcode} on {command.engine}"]
        words += [
            f"{name}={self._operand(operand)}"
            for name, operand in zip(instruction.operands, command.operands, strict=True)
            if operand != NONE
        ]
        if command.waits:
            words.append("wait")
            words += [f"{wait.queue}:{wait.count}" for wait in command.waits]
        return " ".join([*words, *(["signal"] if command.signals else [])])

    def _operand(self, operand: Operand) -> str:
        match operand:
            case Access():
                return self._access(operand)
            case Register(number):
                return f"%{number}"
            case Group(members):
                return f"[{' '.join(self._operand(member) for member in members)}]"
            case Immediate():
                return _immediate(operand)

    def _access(self, access: Access) -> str:
        region = self._streams.buffers[access.buffer].region
        start = f"p{access.partition}" if region in ("sbuf", "psum") or access.partition else ""
        words = [f"{start}+{access.byte}", access.dtype, *(f"{count}:{stride}" for stride, count in access.pattern)]
        if access.indirect is not None:
            index = self._operand(access.indirect.index)
            words += [access.indirect.kind, str(access.indirect.scale), index]
        return f"${self._streams.symbols[access.buffer]}({' '.join(words)})"


def _buffer(buffer: BufferEntry) -> str:
    shape = " ".join(str(size) for size in buffer.shape)
    words = [str(buffer.id), _quoted(buffer.name), buffer.region, buffer.dtype, f"[{shape}]", buffer.role]
    words.append(f"in {buffer.scope}")
    if buffer.address is not None:
        words.append(f"{'fixed' if buffer.explicit else 'placed'} {buffer.address[0]}:{buffer.address[1]}")
    if buffer.data is not None:
        words.append(f"data {_quoted(base64.b64encode(buffer.data).decode())}")
    return " ".join([*words, f"@{buffer.location}"])


def _frame(frame: Frame) -> str:
    place = f"{frame.line}:{frame.column} {frame.end_line}:{frame.end_column}"
    return f"{_quoted(frame.function)} {_quoted(frame.file)} {place}"


def _immediate(immediate: Immediate) -> str:
    value = immediate.value
    match immediate.kind:
        case "bool":
            return "true" if value else "false"
        case "int":
            return str(value)
        case "float":
            return float_text(int(value))
        case "text":
            return _quoted(str(value))
        case "operator":
            return f"nl.{value}"
        case "enum":
            return f".{value}"
    return immediate.kind


def float_text(bits: int) -> str:
    """The shortest number that reads back to these bits; of a NaN the bits themselves."""
    (value,) = struct.unpack("<d", bits.to_bytes(8, "little"))
    return f"nan:{bits:016x}" if math.isnan(value) else repr(value)


def _quoted(text: str) -> str:
    return json.dumps(text)
