"""Small functions as MLIR, calls of their addresses, and a writer of ELF objects that are wrong in one respect."""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass, field

import numpy as np

SCALES = (1.25, -0.7, 3.0e-3)


def scale_add(name: str, scales: tuple[float, ...] = SCALES) -> str:
    """``name(a, b, out, count)``: out = ((a * s0 + b) * s1 + b) ... for float32 rows of any length."""
    constants, whole, rest = [], [], []
    for i, scale in enumerate(scales):
        constants.append(f"  %s{i} = arith.constant dense<{scale!r}> : vector<16xf32>")
        for prefix, lines in (("w", whole), ("r", rest)):
            lines.append(f"    %{prefix}m{i} = arith.mulf %{prefix}{i}, %s{i} : vector<16xf32>")
            lines.append(f"    %{prefix}{i + 1} = arith.addf %{prefix}m{i}, %{prefix}b : vector<16xf32>")
    last = len(scales)
    item = ": (!llvm.ptr, i64) -> !llvm.ptr, f32"
    masked = "{alignment = 4 : i32} : (!llvm.ptr, vector<16xi1>, vector<16xf32>) -> vector<16xf32>"
    return "\n".join(
        [
            f"func.func @{name}(%a: !llvm.ptr, %b: !llvm.ptr, %out: !llvm.ptr, %count: i64) {{",
            *constants,
            "  %zero = arith.constant 0 : i64",
            "  %step = arith.constant 16 : i64",
            "  %left = arith.remsi %count, %step : i64",
            "  %end = arith.subi %count, %left : i64",
            "  %lanes = arith.index_cast %left : i64 to index",
            "  %mask = vector.create_mask %lanes : vector<16xi1>",
            "  %none = llvm.mlir.poison : vector<16xf32>",
            "  scf.for %i = %zero to %end step %step : i64 {",
            *(f"    %{each}i = llvm.getelementptr %{each}[%i] {item}" for each in ("a", "b", "out")),
            "    %w0 = llvm.load %ai {alignment = 4 : i64} : !llvm.ptr -> vector<16xf32>",
            "    %wb = llvm.load %bi {alignment = 4 : i64} : !llvm.ptr -> vector<16xf32>",
            *whole,
            f"    llvm.store %w{last}, %outi {{alignment = 4 : i64}} : vector<16xf32>, !llvm.ptr",
            "  }",
            *(f"    %{each}r = llvm.getelementptr %{each}[%end] {item}" for each in ("a", "b", "out")),
            f"    %r0 = llvm.intr.masked.load %ar, %mask, %none {masked}",
            f"    %rb = llvm.intr.masked.load %br, %mask, %none {masked}",
            *rest,
            f"    llvm.intr.masked.store %r{last}, %outr, %mask {{alignment = 4 : i32}} : vector<16xf32>, "
            "vector<16xi1> into !llvm.ptr",
            "  return",
            "}",
        ]
    )


def check_scale_add(address: int, scales: tuple[float, ...] = SCALES, count: int = 77) -> None:
    """Call the function, and compare with NumPy bit for bit, and the memory behind the row too."""
    rng = np.random.default_rng(count)
    a, b = rng.standard_normal((2, count)).astype(np.float32)
    out = np.full(count + 16, 7, np.float32)
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_int64)(address)
    function(a.ctypes.data, b.ctypes.data, out.ctypes.data, count)
    expected = a
    for scale in scales:
        expected = expected * np.float32(scale) + b
    np.testing.assert_array_equal(out[:count].view(np.int32), expected.view(np.int32))
    assert (out[count:] == 7).all()


def answer(name: str, value: int) -> str:
    """``int64 name()``: a number."""
    return f"func.func @{name}() -> i64 {{\n  %x = arith.constant {value} : i64\n  return %x : i64\n}}"


def call(address: int) -> int:
    """Call a function without arguments."""
    return int(ctypes.CFUNCTYPE(ctypes.c_int64)(address)())


COUNTER = """
llvm.mlir.global internal @count(0 : i64) : i64
func.func @counted() -> i64 {
  %p = llvm.mlir.addressof @count : !llvm.ptr
  %old = llvm.load %p : !llvm.ptr -> i64
  %one = arith.constant 1 : i64
  %new = arith.addi %old, %one : i64
  llvm.store %new, %p : i64, !llvm.ptr
  return %new : i64
}
"""

COPY = """
func.func @copied(%to: !llvm.ptr, %from: !llvm.ptr, %n: i64) {
  "llvm.intr.memcpy"(%to, %from, %n) <{isVolatile = false}> : (!llvm.ptr, !llvm.ptr, i64) -> ()
  return
}
"""


@dataclass
class Part:
    """A section: SHT_ number, SHF_ bits, contents, and what the section table says besides."""

    kind: int
    flags: int
    data: bytes
    align: int = 1
    link: int = 0
    info: int = 0


@dataclass
class Writer:
    """An object of one code section with one function; tests change parts of it before `bytes`.

    Sections: 1 code, 2 symbols, 3 their names, 4 relocations of the code; more may be added.
    """

    code: bytes = bytes(16)
    symbols: list[tuple[str, int, int, int]] = field(default_factory=lambda: [("f", 0x12, 1, 0)])
    relocations: list[tuple[int, int, int, int]] = field(default_factory=list)
    code_flags: int = 6
    relocation_kind: int = 4
    machine: int = 62
    more: list[Part] = field(default_factory=list)

    def bytes(self) -> bytes:
        """Names, kinds and sections of symbols; offset, symbol, kind and addend of relocations."""
        names, table = b"\0", bytes(24)
        for name, info, section, value in self.symbols:
            table += struct.pack("<IBBHQQ", len(names), info, 0, section, value, 0)
            names += name.encode() + b"\0"
        entries = b"".join(
            struct.pack("<QQq", offset, symbol << 32 | kind, addend)
            for offset, symbol, kind, addend in self.relocations
        )
        parts = [
            Part(0, 0, b""),
            Part(1, self.code_flags, self.code, 16),
            Part(2, 0, table, 8, link=3),
            Part(3, 0, names),
            Part(self.relocation_kind, 0, entries, 8, link=2, info=1),
            *self.more,
        ]
        contents, headers = b"", b""
        for part in parts:
            stored = part.data if part.kind != 8 else b""
            place, size = 64 + len(contents), len(part.data)
            headers += struct.pack(
                "<IIQQQQIIQQ", 0, part.kind, part.flags, 0, place, size, part.link, part.info, part.align, 0
            )
            contents += stored
        start = 64 + len(contents)
        ident = b"\x7fELF\2\1\1".ljust(16, b"\0")
        sizes = (64, 0, 0, 64, len(parts), 3)
        header = struct.pack("<16sHHIQQQIHHHHHH", ident, 1, self.machine, 1, 0, 0, start, 0, *sizes)
        return header + contents + headers
