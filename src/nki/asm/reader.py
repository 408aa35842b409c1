"""Reads records from a part, and refuses to read past its end."""

from __future__ import annotations

import struct
from struct import Struct
from typing import Any

from nki.asm import layout as at
from nki.asm.errors import damaged
from nki.asm.streams import DEFAULT, NONE, Access, Group, Immediate, Indirect, Operand, Register
from nki.core.errors import ArtifactError

_IMMEDIATES: dict[int, Immediate] = {
    at.NONE: NONE,
    at.DEFAULT: DEFAULT,
    at.FALSE: Immediate("bool", 0),
    at.TRUE: Immediate("bool", 1),
}


class Reader:
    """A position in a part."""

    def __init__(self, name: str, data: bytes, kind: int) -> None:
        self._name = name
        self._data = data
        self._at = 0
        self.strings: list[str] = []
        if len(data) < at.PREFIX.size:
            raise self.error(f"{len(data)} bytes", "a part has a prefix")
        magic, version, found, size = self.take(at.PREFIX)
        if magic != at.MAGIC or found != kind or size != len(data):
            raise self.error(f"prefix {magic!r} {found} {size} of {len(data)} bytes", "it says what follows")
        if version != at.VERSION:
            raise damaged("asm.version", f"{name} has version {version}", f"this toolchain reads version {at.VERSION}")

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
        """That many bytes."""
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
        match tag:
            case at.INT:
                return Immediate("int", *self.take(at.INTEGER))
            case at.BIG_INT:
                return Immediate("int", self._big())
            case at.FLOAT:
                return Immediate("float", *self.take(at.BITS))
            case at.TEXT:
                return Immediate("text", self.string(*self.take(at.COUNT)))
            case at.OPERATOR:
                return Immediate("operator", self.string(*self.take(at.COUNT)))
            case at.ENUM:
                return Immediate("enum", self.string(*self.take(at.COUNT)))
            case at.REGISTER_OPERAND:
                return Register(*self.take(at.COUNT))
            case at.GROUP:
                return Group(tuple([self.operand(depth - 1) for _ in range(*self.take(at.SHORT))]))
        raise self.error(f"operand with tag {tag}", f"tags are below {at.GROUP + 1}")

    def _big(self) -> int:
        (size,) = self.take(at.SHORT)
        if size > at.MAX_INT_BYTES:
            raise self.error(f"an integer of {size} bytes", f"it has at most {at.MAX_INT_BYTES}")
        return int.from_bytes(self.raw(size), "little", signed=True)

    def access(self, depth: int = at.MAX_DEPTH) -> Access:
        """An access."""
        tag, rank, kind, _, dtype, buffer = self.take(at.ACCESS_HEAD)
        if tag not in (at.ACCESS, at.WIDE_ACCESS) or kind >= len(at.INDIRECTIONS):
            raise self.error(f"access with tag {tag}, indirection {kind}", "an access is static or one of three kinds")
        layout = at.WIDE if tag == at.WIDE_ACCESS else at.NARROW
        (partition, byte), *pairs = [self.take(layout) for _ in range(rank + 1)]
        indirect = None
        if kind:
            (scale,) = self.take(at.INTEGER)
            index = self.operand(depth - 1)
            if not isinstance(index, Access | Register):
                raise self.error(f"index {index!r}"[:200], "an index is a register or a tensor")
            indirect = Indirect(at.INDIRECTIONS[kind], index, scale)
        return Access(buffer, partition, byte, self.string(dtype), tuple([(a, b) for a, b in pairs]), indirect)
