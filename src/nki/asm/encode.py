"""Streams to bytes: one part for the tables, one for the constants, one for each queue."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from nki.asm import layout as at
from nki.asm.errors import damaged
from nki.asm.streams import (
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

Parts = dict[str, bytes]
"""By name: "tables", "constants" if there are any, and the names of the queues."""

_NAMED = {"text": at.TEXT, "operator": at.OPERATOR, "enum": at.ENUM}
_I32 = range(-(1 << 31), 1 << 31)
_I64 = range(-(1 << 63), 1 << 63)


def encode(streams: Streams) -> Parts:
    """The binary form; equal streams have equal bytes.

    Raises:
        ArtifactError: "asm.range" for a number that does not fit its field.
    """
    strings: dict[str, int] = {}
    try:
        parts = {stream.queue: _stream(stream, strings) for stream in streams.streams}
        tables = _Tables(streams, strings).part()
    except (struct.error, OverflowError, UnicodeEncodeError) as error:
        raise damaged("asm.range", f"{error}", "numbers fit their fields, and strings are UTF-8") from None
    constants = b"".join(buffer.data for buffer in streams.buffers if buffer.data is not None)
    named = {at.TABLES: tables, **({at.CONSTANTS: _part(at.KIND_CONSTANTS, constants)} if constants else {})}
    return {**named, **parts}


def _part(kind: int, body: bytes) -> bytes:
    return at.PREFIX.pack(at.MAGIC, at.VERSION, kind, at.PREFIX.size + len(body)) + body


def _stream(stream: Stream, strings: dict[str, int]) -> bytes:
    writer = _Encoder(strings)
    for entry in stream.entries:
        writer.entry(entry)
    return _part(at.KIND_STREAM, at.COUNT.pack(len(stream.entries)) + bytes(writer.out))


class _Encoder:
    """Appends records; a string becomes its number in the table."""

    def __init__(self, strings: dict[str, int]) -> None:
        self.out = bytearray()
        self._strings = strings
        self._known: dict[Access, bytes] = {}

    def string(self, text: str) -> int:
        return self._strings.setdefault(text, len(self._strings))

    def entry(self, entry: Entry) -> None:
        if isinstance(entry, Command):
            self._command(entry)
        elif isinstance(entry, Begin):
            self._begin(entry)
        else:
            tag = at.TAG_END if isinstance(entry, End) else at.TAG_PASS
            self.out += at.MARK.pack(tag, 0, 0, entry.loop)

    def _command(self, command: Command) -> None:
        start = len(self.out)
        opcode = self.string(command.opcode)
        self.out += bytes(at.COMMAND.size)
        for wait in command.waits:
            self.out += at.AWAIT.pack(wait.semaphore, 0, wait.count)
        for operand in command.operands:
            self.operand(operand)
        at.COMMAND.pack_into(
            self.out,
            start,
            at.TAG_COMMAND,
            command.signals,
            at.ENGINES.index(command.engine) if command.engine in at.ENGINES else 255,
            len(command.operands),
            len(self.out) - start,
            command.position,
            command.location,
            opcode,
            len(command.waits),
            0,
        )

    def _begin(self, begin: Begin) -> None:
        lower, upper = begin.bounds or (0, 0)
        flags = at.SCHEDULED * begin.scheduled | at.COUNTED * (begin.bounds is not None)
        flags |= at.LOWER_REGISTER * isinstance(lower, Register) | at.UPPER_REGISTER * isinstance(upper, Register)
        numbers = [bound.number if isinstance(bound, Register) else bound for bound in (lower, upper)]
        self.out += at.BEGIN.pack(
            at.TAG_BEGIN,
            flags,
            0,
            begin.loop,
            begin.position,
            begin.location,
            begin.register.number,
            *numbers,
            begin.step,
        )

    def operand(self, operand: Operand) -> None:
        match operand:
            case Access():
                self.access(operand)
            case Immediate():
                self._immediate(operand)
            case Register(number):
                self.out.append(at.REGISTER_OPERAND)
                self.out += at.COUNT.pack(number)
            case Group(members):
                self.out.append(at.GROUP)
                self.out += at.SHORT.pack(len(members))
                for member in members:
                    self.operand(member)

    def _immediate(self, immediate: Immediate) -> None:
        value = immediate.value
        match immediate.kind:
            case "none" | "default":
                self.out.append(at.NONE if immediate.kind == "none" else at.DEFAULT)
            case "bool":
                self.out.append(at.TRUE if value else at.FALSE)
            case "int":
                self._integer(int(value))
            case "float":
                self.out.append(at.FLOAT)
                self.out += at.BITS.pack(value)
            case kind:
                self.out.append(_NAMED[kind])
                self.out += at.COUNT.pack(self.string(str(value)))

    def _integer(self, value: int) -> None:
        if value in _I64:
            self.out.append(at.INT)
            self.out += at.INTEGER.pack(value)
            return
        digits = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
        if len(digits) > at.MAX_INT_BYTES:
            raise OverflowError(f"an integer of {len(digits)} bytes")
        self.out.append(at.BIG_INT)
        self.out += at.SHORT.pack(len(digits)) + digits

    def access(self, access: Access) -> None:
        """Narrow if all numbers fit 32 bits."""
        known = self._known.get(access)
        if known is not None:
            self.out += known
            return
        start, indirect = len(self.out), access.indirect
        pairs = [(access.partition, access.byte), *access.pattern]
        wide = not all(number in _I32 for pair in pairs for number in pair)
        kind = 0 if indirect is None else at.INDIRECTIONS.index(indirect.kind)
        tag = at.WIDE_ACCESS if wide else at.ACCESS
        self.out += at.ACCESS_HEAD.pack(tag, len(access.pattern), kind, 0, self.string(access.dtype), access.buffer)
        pack = (at.WIDE if wide else at.NARROW).pack
        for pair in pairs:
            self.out += pack(*pair)
        if indirect is not None:
            self.out += at.INTEGER.pack(indirect.scale)
            self.operand(indirect.index)
        self._known[access] = bytes(self.out[start:])


class _Tables:
    """All but the streams; strings are written last and stand first, since everything else numbers them."""

    def __init__(self, streams: Streams, strings: dict[str, int]) -> None:
        self._streams = streams
        self._strings = strings
        self._writer = _Encoder(strings)
        self._out = self._writer.out
        self._frames: dict[object, int] = {}

    def part(self) -> bytes:
        streams, out = self._streams, self._out
        string = self._writer.string
        out += at.PROGRAM.pack(
            string(streams.name),
            string(streams.target),
            streams.core,
            streams.cores,
            streams.location,
            streams.scheduled,
        )
        self._numbers([string(name) for name in streams.passed])
        self._numbers([string(stream.queue) for stream in streams.streams])
        self._locations()
        out += at.COUNT.pack(len(streams.registers))
        for register in streams.registers:
            out += at.REGISTER.pack(register.id, register.frozen)
        out += at.COUNT.pack(len(streams.buffers))
        for buffer in streams.buffers:
            self._buffer(buffer)
        out += at.COUNT.pack(len(streams.outputs))
        for access in streams.outputs:
            self._writer.access(access)
        for pairs in (streams.edges, streams.fences):
            out += at.COUNT.pack(len(pairs))
            for pair in pairs:
                out += at.PAIR.pack(*pair)
        return _part(at.KIND_TABLES, self._table_of_strings() + bytes(out))

    def _locations(self) -> None:
        frames = list(dict.fromkeys(frame for location in self._streams.locations for frame in location.frames))
        numbers = {frame: number for number, frame in enumerate(frames)}
        string = self._writer.string
        self._out += at.COUNT.pack(len(frames))
        for f in frames:
            place = (f.line, f.column, f.end_line, f.end_column)
            self._out += at.FRAME.pack(string(f.file), string(f.function), *place)
        self._out += at.COUNT.pack(len(self._streams.locations))
        for location in self._streams.locations:
            self._numbers([numbers[frame] for frame in location.frames])

    def _buffer(self, buffer: BufferEntry) -> None:
        string = self._writer.string
        flags = at.HAS_ADDRESS * (buffer.address is not None) | at.IS_EXPLICIT * buffer.explicit
        flags |= at.HAS_DATA * (buffer.data is not None)
        names = [string(name) for name in (buffer.name, buffer.region, buffer.dtype, buffer.role)]
        self._out += at.BUFFER.pack(
            buffer.id,
            *names,
            buffer.scope,
            buffer.location,
            flags,
            len(buffer.shape),
            *(buffer.address or (0, 0)),
            len(buffer.data or b""),
        )
        for size in buffer.shape:
            self._out += at.SIZE.pack(size)

    def _numbers(self, numbers: Sequence[int]) -> None:
        self._out += at.COUNT.pack(len(numbers)) + struct.pack(f"<{len(numbers)}I", *numbers)

    def _table_of_strings(self) -> bytes:
        texts = [text.encode("utf-8") for text in self._strings]
        return at.COUNT.pack(len(texts)) + b"".join(at.COUNT.pack(len(text)) + text for text in texts)
