"""What a random kernel has at a place in its body: tensors that are written, registers, and a source of choices."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

import nki.isa as nisa
import nki.language as nl

TABLES = 4
"""Planes of the inputs and of the output; registers hold numbers below."""


@dataclass
class Scope:
    """Everything that instructions of a body can name; all tensors are written in full.

    Attributes:
        random: of this body; a body that is run again starts with the same one.
        partitions, free: shape of most tiles; `free` is not the smaller one.
        me, cores: which core this is, and of how many.
        x, rows: inputs ``(TABLES, partitions, free)``, and the same planes as rows of one matrix.
        out: ``(cores, TABLES, partitions, free)`` in device memory.
        index: SBUF ``(1, 8)`` int32 with numbers below TABLES.
        tiles, sums, columns, registers: what can be used: tiles in SBUF, in PSUM, ``(partitions, 1)``, and registers.
        fixed: the tiles that have explicit addresses; others share none of their bytes.
        handles: instructions of this level.
        left: how many more steps there may be, nested ones included.
        depth: of loops and ordered regions.
        target: name of the target.
    """

    random: Random
    partitions: int
    free: int
    me: int
    cores: int
    x: Any
    rows: Any
    out: Any
    index: Any
    target: str
    tiles: list[Any] = field(default_factory=list)
    sums: list[Any] = field(default_factory=list)
    columns: list[Any] = field(default_factory=list)
    registers: list[Any] = field(default_factory=list)
    handles: list[Any] = field(default_factory=list)
    left: int = 0
    loops: int = 0
    ordered: bool = False

    def inner(self, seed: int, ordered: bool = False) -> Scope:
        """A body inside this one: it sees everything, and what it makes ends with it."""
        names = ("partitions", "free", "me", "cores", "x", "rows", "out", "index", "target")
        return Scope(
            Random(seed),
            *(getattr(self, name) for name in names),
            list(self.tiles),
            list(self.sums),
            list(self.columns),
            list(self.registers),
            [],
            0,
            self.loops + (not ordered),
            ordered,
        )

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def note(self, handle: Any) -> None:
        """Remember an instruction; sometimes it also has to wait for an earlier one."""
        if self.handles and self.chance(0.05):
            handle.depends_on(self.random.choice(self.handles))
        self.handles.append(handle)

    # --- places

    def tile(self, dtype: Any = None, free: int | None = None, buffer: Any = nl.sbuf) -> Any:
        """A tile that nobody has written; sometimes one of 16 bits."""
        dtype = dtype or self.random.choice([nl.float32, nl.float32, nl.bfloat16])
        return nl.ndarray((self.partitions, free or self.free), dtype, buffer=buffer)

    def column(self) -> Any:
        return nl.ndarray((self.partitions, 1), nl.float32, buffer=nl.sbuf)

    def some(self) -> Any:
        return self.random.choice(self.tiles)

    def source(self) -> Any:
        """A tile in SBUF, or a sum."""
        return self.random.choice(self.sums) if self.sums and self.chance(0.3) else self.some()

    def operand(self) -> Any:
        """A column, or a number."""
        return self.random.choice(self.columns) if self.chance(0.5) else self.random.choice([0.5, -1.0, 0.25, 2])

    def register(self) -> Any:
        return self.random.choice(self.registers)

    def window(self, *tiles: Any, dynamic: bool = False) -> list[Any]:
        """Views of one shape: whole tiles, columns, every second column, or some partitions of them."""
        kind = self.random.randrange(8)
        if kind < 3:
            return list(tiles)
        width = self.random.choice([1, 3, self.free // 2, self.free - 4])
        if kind == 3 and self.partitions == 64:
            first = self.random.choice([0, 32])
            return [tile[first : first + 32] for tile in tiles]
        if kind == 4:
            half = self.free // 2
            return [tile[:, at : at + 2 * half - 1 : 2] for tile in tiles for at in (self.random.randrange(2),)]
        if kind == 5 and dynamic:
            row, width = self.free, self.free - TABLES
            pattern = [[row, self.partitions], [1, width]]
            return [
                tile.ap(pattern, scalar_offset=self.register(), indirect_dim=1)
                if self.chance(0.5)
                else tile[:, 0:width]
                for tile in tiles
            ]
        if kind == 6:  # the same columns, in another order of dimensions
            return [tile.reshape((self.partitions, 4, self.free // 4)) for tile in tiles]
        return [tile[:, at : at + width] for tile in tiles for at in (self.random.randint(0, self.free - width),)]

    def target_and(self, *sources: Any, dynamic: bool = False) -> list[Any]:
        """``[dst, *sources]``: a new tile, or part of one that exists, which is none of the sources unless whole."""
        if self.chance(0.5):
            dst = self.tile()
            self.tiles.append(dst)
            return [dst, *sources]
        dst = self.some()
        if any(source is dst for source in sources):
            return [dst, *sources]
        return self.window(dst, *sources, dynamic=dynamic)

    def compute(self, *views: Any, engines: tuple[Any, ...] = (nisa.engine.vector, nisa.engine.gpsimd)) -> Any:
        """An engine that reaches these views."""
        reach = [e for e in engines if e is not nisa.engine.gpsimd or all(v.buffer is nl.sbuf for v in views)]
        return self.random.choice(reach)
