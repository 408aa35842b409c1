"""Reads records from a part, and refuses to read past its end."""

from __future__ import annotations

import struct
from functools import cache
from struct import Struct
from typing import Any

from nki.asm import layout as at
from nki.asm.errors import damaged
from nki.asm.streams import DEFAULT, NONE, Access, Group, Immediate, Indirect, Kind, Operand, Register
from nki.core.errors import ArtifactError

_IMMEDIATES: dict[int, Immediate] = {
    at.NONE: NONE,
    at.DEFAULT: DEFAULT,
    at.FALSE: Immediate("bool", 0),
    at.TRUE: Immediate("bool", 1),
}
_PLAIN: dict[int, tuple[Kind, Struct]] = {
    at.INT: ("int", at.INTEGER),
    at.FLOAT: ("float", at.BITS),
    at.TEXT: ("text", at.COUNT),
    at.OPERATOR: ("operator", at.COUNT),
    at.ENUM: ("enum", at.COUNT),
}
"""Immediates that are one number, or the string with this number."""


class Reader:
    """A position in a part."""

    def __init__(self, name: str, data: bytes, kind: int) -> None:
        self._name = name
        self._data = data
        self._at = 0
        self.strings: list[str] = []
        self._immediates: dict[tuple[int, int], Immediate] = {}
        self._accesses: dict[bytes, Access] = {}
        if len(data) < at.PREFIX.size:
            raise self.error(f"{len(data)} bytes", "a part has a prefix")
        magic, version, found, size = self.take(at.PREFIX)
        if magic != at.MAGIC or found != kind or size != len(data):
            raise self.error(f"prefix {magic!r} {found} {size} of {len(data)} bytes", "it says what follows")
        if version != at.VERSION:
            raise damaged("asm.version", f"{name} has version {version}", f"this toolchain reads version {at.VERSION}")

    def share(self, other: Reader) -> None:
        """Have the strings of another part, and what was made with them."""
        self.strings, self._immediates, self._accesses = other.strings, other._immediates, other._accesses

    def error(self, message: str, rule: str) -> ArtifactError:
        """The error for damage at the current position."""
        return damaged("asm.encoding", f"part {self._name}, byte {self._at}: {message}", rule)

    def take(self, layout: Struct) -> tuple[Any, ...]:
        """The next record."""
        try:
            values = layout.unpack_from(self._data, self._at)
        except struct.error:
            raise self.error("the part ends", "records are complete") from None
        self._at += layout.size
        return values

    def count(self) -> int:
        """A number of records, each of which takes at least a byte."""
        (count,) = self.take(at.COUNT)
        if count > len(self._data) - self._at:
            raise self.error(f"{count} records in {len(self._data) - self._at} bytes", "records are complete")
        return int(count)

    def numbers(self) -> tuple[int, ...]:
        """A count and that many numbers."""
        return self.take(Struct(f"<{self.count()}I"))

    def raw(self, size: int) -> bytes:
        """The next `size` bytes."""
        found = self._data[self._at : self._at + size]
        if len(found) != size:
            raise self.error(f"{size} bytes are to follow", "records are complete")
        self._at += size
        return found

    def string(self, number: int) -> str:
        """A string of the table."""
        if number >= len(self.strings):
            raise self.error(f"string {number}", f"there are {len(self.strings)}")
        return self.strings[number]

    @property
    def position(self) -> int:
        """Bytes that were read."""
        return self._at

    def peek(self) -> int:
        """The next byte, which is the tag of a record."""
        if self._at >= len(self._data):
            raise self.error("the part ends", "records are complete")
        return self._data[self._at]

    def finish(self) -> None:
        """Refuse what follows."""
        if self._at != len(self._data):
            raise self.error(f"{len(self._data) - self._at} bytes follow", "nothing follows the last record")

    def operands(self, count: int) -> tuple[Operand, ...]:
        """The next `count` operands; most are a single byte."""
        found: list[Operand] = []
        for _ in range(count):
            known = _IMMEDIATES.get(self.peek())
            if known is None:
                found.append(self.operand())
            else:
                self._at += 1
                found.append(known)
        return tuple(found)

    def operand(self, depth: int = at.MAX_DEPTH) -> Operand:
        """The next operand, with those in it."""
        tag = self.peek()
        if not depth:
            raise self.error("operands in operands", f"they nest at most {at.MAX_DEPTH} deep")
        if tag in (at.ACCESS, at.WIDE_ACCESS):
            return self.access(depth)
        self._at += 1
        known = _IMMEDIATES.get(tag)
        if known is not None:
            return known
        plain = _PLAIN.get(tag)
        if plain is not None:
            return self._plain(tag, *plain)
        match tag:
            case at.BIG_INT:
                return Immediate("int", self._big())
            case at.REGISTER_OPERAND:
                return Register(*self.take(at.COUNT))
            case at.GROUP:
                return Group(tuple([self.operand(depth - 1) for _ in range(*self.take(at.SHORT))]))
        raise self.error(f"operand with tag {tag}", f"tags are below {at.GROUP + 1}")

    def _plain(self, tag: int, kind: Kind, layout: Struct) -> Immediate:
        """An immediate with one number; the same one where it comes again, as most do."""
        (number,) = self.take(layout)
        found = self._immediates.get((tag, number))
        if found is None:
            value = self.string(number) if layout is at.COUNT else number
            found = self._immediates[tag, number] = Immediate(kind, value)
        return found

    def _big(self) -> int:
        (size,) = self.take(at.SHORT)
        if size > at.MAX_INT_BYTES:
            raise self.error(f"an integer of {size} bytes", f"it has at most {at.MAX_INT_BYTES}")
        return int.from_bytes(self.raw(size), "little", signed=True)

    def access(self, depth: int = at.MAX_DEPTH) -> Access:
        """An access; the same object where a static one comes again."""
        start = self._at
        tag, rank, kind, _, dtype, buffer = self.take(at.ACCESS_HEAD)
        if tag not in (at.ACCESS, at.WIDE_ACCESS) or kind >= len(at.INDIRECTIONS):
            raise self.error(f"access with tag {tag}, indirection {kind}", "an access is static or one of three kinds")
        partition, byte, *pairs = self.take(_numbers(rank, tag == at.WIDE_ACCESS))
        key = self._data[start : self._at]
        known = None if kind else self._accesses.get(key)
        if known is not None:
            return known
        indirect = None
        if kind:
            (scale,) = self.take(at.INTEGER)
            index = self.operand(depth - 1)
            if not isinstance(index, Access | Register):
                raise self.error(f"index {index!r}"[:200], "an index is a register or a tensor")
            indirect = Indirect(at.INDIRECTIONS[kind], index, scale)
        pattern = tuple(zip(pairs[::2], pairs[1::2], strict=True))
        found = Access(buffer, partition, byte, self.string(dtype), pattern, indirect)
        if not kind:
            self._accesses[key] = found
        return found


@cache  # one for each rank of an access, which is a byte
def _numbers(rank: int, wide: bool) -> Struct:
    """Partition and byte of an access, and its pairs."""
    return Struct(f"<{2 * rank + 2}{'q' if wide else 'i'}")
