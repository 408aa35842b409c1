"""Whether two programs are the same: everything but the identity of buffers and registers."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from nki.core.register import VirtualRegister
from nki.core.tensor import Buffer
from nki.spec.program import Block, ForLoop, Issued, Program, WhileLoop


def same_program(a: Program, b: Program) -> bool:
    """Equal in all that `differences` looks at."""
    return not differences(a, b)


def differences(a: Program, b: Program) -> list[str]:
    """Where two programs differ, one line each; empty if they are the same.

    Compares names, targets, inputs, outputs, allocations, loops, and of every instruction its arguments (floats bit for
    bit, with their types), views, engine and location. Buffers and registers must correspond one to one.
    """
    return _Comparison().programs(a, b)


class _Comparison:
    """Remembers which buffer stands for which."""

    def __init__(self) -> None:
        self._partner: dict[int, Any] = {}
        self._taken: dict[int, Any] = {}
        self._found: list[str] = []
        self._placements: tuple[dict[int, tuple[int, int]], dict[int, tuple[int, int]]] = ({}, {})

    def programs(self, a: Program, b: Program) -> list[str]:
        for name in ("name", "target", "core", "cores", "location", "edges", "fences", "passed"):
            self._equal(name, getattr(a, name), getattr(b, name))
        self._each("inputs", a.inputs, b.inputs)
        self._equal("placed", a.placement is not None, b.placement is not None)
        self._placements = (a.placement or {}, b.placement or {})
        self._block("body", a.body, b.body)
        self._each("outputs", a.outputs, b.outputs)
        return self._found

    def _block(self, path: str, a: Block, b: Block) -> None:
        self._each(f"{path}.buffers", a.buffers, b.buffers)
        if len(a.items) != len(b.items):
            self._found.append(f"{path}: {len(a.items)} and {len(b.items)} items")
        for mine, other in zip(a.buffers, b.buffers, strict=False):
            self._equal(f"{path}.placement", self._placements[0].get(mine.id), self._placements[1].get(other.id))
        self._equal(f"{path}.sync", a.sync, b.sync)
        for number, (x, y) in enumerate(zip(a.items, b.items, strict=False)):
            where = f"{path}[{number}]"
            if type(x) is not type(y):
                self._found.append(f"{where}: {type(x).__name__} and {type(y).__name__}")
            elif isinstance(x, Issued):
                self._issued(where, x, y)  # type: ignore[arg-type]
            else:
                self._loop(where, x, y)

    def _issued(self, path: str, a: Issued, b: Issued) -> None:
        if a.instruction is not b.instruction:
            self._found.append(f"{path}: {a.instruction.name} and {b.instruction.name}")
            return
        self._equal(f"{path}.engine", a.engine, b.engine)
        self._equal(f"{path}.location", a.location, b.location)
        for name, x, y in zip(a.instruction.operands, a.arguments, b.arguments, strict=True):
            self._equal(f"{path} {a.instruction.name}.{name}", x, y)

    def _loop(self, path: str, a: Any, b: Any) -> None:
        names = ("lower", "upper", "step", "index") if isinstance(a, ForLoop) else ("condition",)
        for name in (*names, "location"):
            self._equal(f"{path}.{name}", getattr(a, name), getattr(b, name))
        assert isinstance(a, ForLoop | WhileLoop)
        self._block(f"{path}.body", a.body, b.body)

    def _each(self, path: str, a: Sequence[Any], b: Sequence[Any]) -> None:
        if len(a) != len(b):
            self._found.append(f"{path}: {len(a)} and {len(b)}")
        for number, (x, y) in enumerate(zip(a, b, strict=False)):
            self._equal(f"{path}[{number}]", x, y)

    def _equal(self, path: str, a: Any, b: Any) -> None:
        if not self._same(a, b):
            self._found.append(f"{path}: {a!r} and {b!r}")

    def _same(self, a: Any, b: Any) -> bool:
        if type(a) is not type(b):
            return False
        if isinstance(a, float):
            return struct.pack("<d", a) == struct.pack("<d", b)
        if isinstance(a, Buffer):
            return self._partners(a, b, _buffer_fields)
        if isinstance(a, VirtualRegister):
            return self._partners(a, b, lambda register: (register.id, register.frozen))
        if isinstance(a, tuple):
            return len(a) == len(b) and all(self._same(x, y) for x, y in zip(a, b, strict=True))
        return bool(a == b)

    def _partners(self, a: Any, b: Any, fields: Any) -> bool:
        """Always the same pair, and equal."""
        if self._partner.setdefault(id(a), b) is not b or self._taken.setdefault(id(b), a) is not a:
            return False
        return bool(fields(a) == fields(b))


def _buffer_fields(buffer: Buffer) -> tuple[Any, ...]:
    return (
        buffer.id,
        buffer.name,
        buffer.region,
        buffer.shape,
        buffer.dtype,
        buffer.address,
        buffer.role,
        buffer.location,
        buffer.data,
    )
