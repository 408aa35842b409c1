"""Textual assembly to streams: the inverse of `to_text`."""

from __future__ import annotations

import base64
import math
import re
import struct
from collections.abc import Callable

import nki.collectives
import nki.isa  # noqa: F401 - both declare the instructions
from nki.asm.layout import INDIRECTIONS, MAX_DEPTH, VERSION
from nki.asm.streams import (
    DEFAULT,
    NONE,
    Access,
    Await,
    Begin,
    BufferEntry,
    Command,
    End,
    Entry,
    Group,
    Immediate,
    Indirect,
    Operand,
    Pass,
    Register,
    RegisterEntry,
    Stream,
    Streams,
    semaphore_of,
)
from nki.core.source import Frame, Location
from nki.spec.instruction import REGISTRY
from nki.testing.assembly_words import Words, lines

_START = re.compile(r"(?:p(-?[0-9]{1,20}))?\+(-?[0-9]{1,20})")
_FLOAT = re.compile(r"-?(?:inf|[0-9]{1,400}(?:\.[0-9]{1,400})?(?:e[+-]?[0-9]{1,3})?)")
_INT = re.compile(r"-?[0-9]{1,700}")
_NAN = re.compile(r"nan:([0-9a-f]{16})")
_WORDS = {"true": Immediate("bool", 1), "false": Immediate("bool", 0), "default": DEFAULT, "none": NONE}


def parse(text: str) -> Streams:
    """The streams; ``parse(to_text(streams)) == streams``. Whether a program has them is the question of `raise_`.

    Raises:
        ArtifactError: "asm.syntax", which names the line.
    """
    parser = _Parser()
    for words in lines(text):
        parser.line(words)
    return parser.streams()


class _Parser:
    """Takes one line after the other."""

    def __init__(self) -> None:
        self._words = Words("", 0)
        self._kernel: tuple[str, str, int, int, bool, int] | None = None
        self._passed: list[str] = []
        self._pairs: dict[str, list[tuple[int, int]]] = {"edge": [], "fence": []}
        self._frames: list[Frame] = []
        self._locations: list[Location] = []
        self._registers: list[RegisterEntry] = []
        self._buffers: dict[str, BufferEntry] = {}
        self._numbers: dict[str, int] = {}
        self._outputs: list[Access] = []
        self._streams: list[tuple[str, list[Entry]]] = []
        self._readers: dict[str, Callable[[Words], None]] = {
            "kernel": self._read_kernel,
            "pass": self._read_pass,
            "edge": lambda words: self._pair("edge", words),
            "fence": lambda words: self._pair("fence", words),
            "frame": self._read_frame,
            "location": self._read_location,
            "register": self._read_register,
            "buffer": self._read_buffer,
            "output": lambda words: self._outputs.append(self._access(words, MAX_DEPTH)),
            "queue": lambda words: self._streams.append((words.word(), [])),
            "end": lambda words: self._add(words, End(words.integer())),
            "assembly": self._read_version,
        }

    def line(self, words: Words) -> None:
        self._words = words
        if words.number == 1:
            words.expect("assembly")
            self._read_version(words)
        elif (reader := self._readers.get(words.peek())) is not None:
            words.word()
            reader(words)
        else:
            self._read_entry(words)
        words.finish()

    def streams(self) -> Streams:
        if self._kernel is None:
            raise self._words.error("there is no kernel")
        name, target, core, cores, scheduled, location = self._kernel
        made = Streams(
            name=name,
            target=target,
            core=core,
            cores=cores,
            location=location,
            scheduled=scheduled,
            locations=tuple(self._locations),
            registers=tuple(self._registers),
            buffers=tuple(self._buffers.values()),
            outputs=tuple(self._outputs),
            edges=tuple(self._pairs["edge"]),
            fences=tuple(self._pairs["fence"]),
            passed=tuple(self._passed),
            streams=tuple(Stream(queue, tuple(entries)) for queue, entries in self._streams),
        )
        if made.symbols != tuple(self._buffers):
            raise self._words.error(f"symbols are {' '.join(made.symbols)}, in this order"[:300])
        return made

    def _read_version(self, words: Words) -> None:
        if words.number != 1 or words.integer() != VERSION:
            raise words.error(f"the first line is `assembly {VERSION}`")

    def _read_kernel(self, words: Words) -> None:
        name = words.text()
        target = words.after("target").text()
        core = words.after("core").integer()
        cores = words.after("of").integer()
        if self._kernel is not None:
            raise words.error("a second kernel")
        self._kernel = name, target, core, cores, words.take("scheduled"), words.sigil("@")

    def _read_pass(self, words: Words) -> None:
        """A pass of the compiler, or a loop that a queue passes by."""
        if self._streams:
            self._add(words, Pass(words.integer()))
        else:
            self._passed.append(words.text())

    def _pair(self, name: str, words: Words) -> None:
        self._pairs[name].append((words.integer(), words.integer()))

    def _read_frame(self, words: Words) -> None:
        words.counted(len(self._frames), words.integer())
        function, file = words.text(), words.text()
        self._frames.append(Frame(file, function, *words.pair(), *words.pair()))

    def _read_location(self, words: Words) -> None:
        words.counted(len(self._locations), words.sigil("@"))
        numbers = []
        while words.more():
            numbers.append(words.integer())
        if not all(0 <= number < len(self._frames) for number in numbers):
            raise words.error(f"there are {len(self._frames)} frames")
        self._locations.append(Location(tuple([self._frames[number] for number in numbers])))

    def _read_register(self, words: Words) -> None:
        words.counted(len(self._registers), words.sigil("%"))
        self._registers.append(RegisterEntry(words.integer(), words.take("frozen")))

    def _read_buffer(self, words: Words) -> None:
        symbol = words.word()
        number, name, region, dtype = words.integer(), words.text(), words.word(), words.word()
        words.expect("[")
        shape = []
        while not words.take("]"):
            shape.append(words.integer())
        role, scope = words.word(), words.after("in").integer()
        explicit = words.take("fixed")
        address = words.pair() if explicit or words.take("placed") else None
        data = _data(words) if words.take("data") else None
        if not symbol.startswith("$") or symbol[1:] in self._buffers:
            raise words.error(f"symbol {symbol}")
        self._numbers[symbol] = len(self._buffers)
        self._buffers[symbol[1:]] = BufferEntry(
            id=number,
            name=name,
            region=region,
            shape=tuple(shape),
            dtype=dtype,
            role=role,
            scope=scope,
            address=address,
            explicit=explicit,
            location=words.sigil("@"),
            data=data,
        )

    def _add(self, words: Words, entry: Entry) -> None:
        if not self._streams:
            raise words.error("an entry comes after its queue")
        self._streams[-1][1].append(entry)

    def _read_entry(self, words: Words) -> None:
        position, opcode = words.integer(), words.word()
        self._add(words, self._begin(words, position) if opcode == "loop" else self._command(words, position, opcode))

    def _begin(self, words: Words, position: int) -> Begin:
        loop = words.integer()
        bounds, step = None, 0
        counted = words.take("for")
        if not counted:
            words.expect("while")
        register = Register(words.sigil("%"))
        if counted:
            bounds = self._bound(words.after("from")), self._bound(words.after("to"))
            step = words.after("step").integer()
        return Begin(loop, position, register, bounds, step, words.take("scheduled"), words.sigil("@"))

    def _bound(self, words: Words) -> int | Register:
        return Register(words.sigil("%")) if words.peek().startswith("%") else words.integer()

    def _command(self, words: Words, position: int, opcode: str) -> Command:
        instruction = REGISTRY.get(opcode)
        if instruction is None:
            raise words.error(f"there is no instruction {opcode}"[:200])
        engine = words.after("on").word()
        given: dict[str, Operand] = {}
        while words.peek() in instruction.operands and words.peek() not in given and words.is_before("="):
            name = words.word()
            words.expect("=")
            given[name] = self._operand(words, MAX_DEPTH)
        waits = []
        if words.take("wait"):
            while ":" in words.peek():
                waits.append(_wait(words))
        operands = tuple([given.get(name, NONE) for name in instruction.operands])
        return Command(position, opcode, engine, operands, tuple(waits), words.take("signal"), words.sigil("@"))

    def _operand(self, words: Words, depth: int) -> Operand:
        head = words.peek()
        if not depth:
            raise words.error("operands nest too deeply")
        if head.startswith("$"):
            return self._access(words, depth)
        if head.startswith('"'):
            return Immediate("text", words.text())
        if head.startswith("%"):
            return Register(words.sigil("%"))
        if words.take("["):
            members = []
            while not words.take("]"):
                members.append(self._operand(words, depth - 1))
            return Group(tuple(members))
        return _immediate(words)

    def _access(self, words: Words, depth: int) -> Access:
        symbol = words.word()
        if symbol not in self._numbers:
            raise words.error(f"there is no buffer {symbol}"[:200])
        words.expect("(")
        match = _START.fullmatch(words.word())
        if match is None:
            raise words.error("an access starts like p0+64, in HBM like +64")
        dtype, pattern, indirect = words.word(), [], None
        while ":" in words.peek():
            count, stride = words.pair()
            pattern.append((stride, count))
        if words.peek() in INDIRECTIONS[1:]:
            kind, scale, index = words.word(), words.integer(), self._operand(words, depth - 1)
            if not isinstance(index, Access | Register):
                raise words.error("an index is a register or a tensor")
            indirect = Indirect(kind, index, scale)
        words.expect(")")
        return Access(self._numbers[symbol], int(match[1] or 0), int(match[2]), dtype, tuple(pattern), indirect)


def _wait(words: Words) -> Await:
    queue, _, count = words.word().partition(":")
    semaphore = semaphore_of(queue)
    if semaphore is None or not _INT.fullmatch(count):
        raise words.error(f"a wait is QUEUE:COUNT, not {queue}:{count}"[:200])
    return Await(semaphore, int(count))


def _immediate(words: Words) -> Immediate:
    word = words.word()
    if word in _WORDS:
        return _WORDS[word]
    if word.startswith("nl."):
        return Immediate("operator", word[3:])
    if word.startswith("."):
        return Immediate("enum", word[1:])
    if _INT.fullmatch(word):
        return Immediate("int", int(word))
    if _FLOAT.fullmatch(word) and (word.endswith("inf") or math.isfinite(float(word))):
        return Immediate("float", int.from_bytes(struct.pack("<d", float(word)), "little"))
    if (bits := _NAN.fullmatch(word)) is not None:
        return Immediate("float", int(bits[1], 16))
    raise words.error(f"{word} is no operand"[:200])


def _data(words: Words) -> bytes:
    try:
        return base64.b64decode(words.text(), validate=True)
    except ValueError:
        raise words.error("data is base64") from None
