"""Bytes to streams: the inverse of `encode`, for files that nobody vouches for."""

from __future__ import annotations

from collections.abc import Mapping

from nki.asm import layout as at
from nki.asm.encode import encode
from nki.asm.errors import damaged
from nki.asm.reader import Reader
from nki.asm.streams import (
    Await,
    Begin,
    BufferEntry,
    Command,
    End,
    Entry,
    Pass,
    Register,
    RegisterEntry,
    Stream,
    Streams,
)
from nki.core.source import Frame, Location


def decode(parts: Mapping[str, bytes], own: bool = False) -> Streams:
    """The streams; ``decode(encode(streams)) == streams``, and ``encode(decode(parts)) == parts``.

    Whether a program has these streams is `raise_`'s question. `own` parts are known to come from `encode`, so that
    the last of that need not be checked.

    Raises:
        ArtifactError: "asm.encoding" for damage, "asm.version" for a file of another version.
    """
    streams = _Decoder(parts).run()
    if not own and encode(streams) != dict(parts):
        raise damaged("asm.encoding", f"{streams.name}: other bytes mean the same", "each program has one encoding")
    return streams


class _Decoder:
    """Reads the tables, then the streams that they announce."""

    def __init__(self, parts: Mapping[str, bytes]) -> None:
        self._parts = parts
        self._tables = self._open(at.TABLES, at.KIND_TABLES)

    def _open(self, name: str, kind: int) -> Reader:
        if name not in self._parts:
            raise damaged("asm.encoding", f"part {name!r} is missing"[:200], "the tables announce all parts")
        return Reader(name, self._parts[name], kind)

    def run(self) -> Streams:
        tables = self._tables
        tables.strings = self._strings()
        string = tables.string
        name, target, core, cores, location, scheduled = tables.take(at.PROGRAM)
        passed = tuple(string(number) for number in tables.numbers())
        queues = [string(number) for number in tables.numbers()]
        locations = self._locations()
        registers = tuple(RegisterEntry(i, bool(f)) for i, f in [tables.take(at.REGISTER) for _ in self._count()])
        buffers = self._buffers()
        outputs = tuple(tables.access() for _ in self._count())
        edges, fences = (tuple((a, b) for a, b in [tables.take(at.PAIR) for _ in self._count()]) for _ in range(2))
        tables.finish()
        return Streams(
            name=string(name),
            target=string(target),
            core=core,
            cores=cores,
            location=location,
            scheduled=bool(scheduled),
            locations=locations,
            registers=registers,
            buffers=buffers,
            outputs=outputs,
            edges=edges,
            fences=fences,
            passed=passed,
            streams=tuple(Stream(queue, self._stream(queue)) for queue in queues),
        )

    def _count(self) -> range:
        return range(self._tables.count())

    def _strings(self) -> list[str]:
        try:
            return [self._tables.raw(*self._tables.take(at.COUNT)).decode("utf-8") for _ in self._count()]
        except UnicodeDecodeError as error:
            raise self._tables.error(f"a string: {error.reason}", "strings are UTF-8") from None

    def _locations(self) -> tuple[Location, ...]:
        tables = self._tables
        frames = []
        for _ in self._count():
            file, function, *place = tables.take(at.FRAME)
            frames.append(Frame(tables.string(file), tables.string(function), *place))
        found = []
        for _ in self._count():
            numbers = tables.numbers()
            if max(numbers, default=0) >= len(frames) and numbers:
                raise tables.error(f"frame {max(numbers)}", f"there are {len(frames)}")
            found.append(Location(tuple([frames[number] for number in numbers])))
        return tuple(found)

    def _buffers(self) -> tuple[BufferEntry, ...]:
        tables = self._tables
        heads = []
        for _ in self._count():
            head = tables.take(at.BUFFER)
            heads.append((head, tuple([size for _ in range(head[8]) for size in tables.take(at.SIZE)])))
        constants = (
            Reader(at.CONSTANTS, self._parts[at.CONSTANTS], at.KIND_CONSTANTS) if at.CONSTANTS in self._parts else None
        )
        found = tuple(self._buffer(head, shape, constants) for head, shape in heads)
        if constants is not None:
            constants.finish()
        return found

    def _buffer(self, head: tuple[int, ...], shape: tuple[int, ...], constants: Reader | None) -> BufferEntry:
        number, name, region, dtype, role, scope, location, flags, _, partition, byte, size = head
        string = self._tables.string
        data = None
        if flags & at.HAS_DATA:
            data = constants.raw(size) if constants is not None else b""
        return BufferEntry(
            id=number,
            name=string(name),
            region=string(region),
            shape=shape,
            dtype=string(dtype),
            role=string(role),
            scope=scope,
            address=(partition, byte) if flags & at.HAS_ADDRESS else None,
            explicit=bool(flags & at.IS_EXPLICIT),
            location=location,
            data=data,
        )

    def _stream(self, queue: str) -> tuple[Entry, ...]:
        reader = self._open(queue, at.KIND_STREAM)
        reader.share(self._tables)
        found = tuple([_entry(reader) for _ in range(reader.count())])
        reader.finish()
        return found


def _entry(reader: Reader) -> Entry:
    match reader.peek():
        case at.TAG_COMMAND:
            return _command(reader)
        case at.TAG_BEGIN:
            return _begin(reader)
        case at.TAG_END:
            return End(reader.take(at.MARK)[3])
        case at.TAG_PASS:
            return Pass(reader.take(at.MARK)[3])
    raise reader.error(f"record with tag {reader.peek()}", "a record is an instruction or belongs to a loop")


def _command(reader: Reader) -> Command:
    start = reader.position
    _, signals, engine, operands, size, position, location, opcode, waits, _ = reader.take(at.COMMAND)
    if engine >= len(at.ENGINES):
        raise reader.error(f"engine {engine}", f"engines are below {len(at.ENGINES)}")
    awaits = tuple([Await(semaphore, count) for semaphore, _, count in [reader.take(at.AWAIT) for _ in range(waits)]])
    values = reader.operands(operands)
    if reader.position - start != size:
        raise reader.error(f"an instruction of {reader.position - start} bytes", f"it says that it has {size}")
    return Command(position, reader.string(opcode), at.ENGINES[engine], values, awaits, bool(signals), location)


def _begin(reader: Reader) -> Begin:
    _, flags, _, loop, position, location, register, lower, upper, step = reader.take(at.BEGIN)
    bounds: tuple[int | Register, int | Register] | None = None
    if flags & at.COUNTED:
        bounds = (
            Register(lower) if flags & at.LOWER_REGISTER else lower,
            Register(upper) if flags & at.UPPER_REGISTER else upper,
        )
    return Begin(loop, position, Register(register), bounds, step, bool(flags & at.SCHEDULED), location)
