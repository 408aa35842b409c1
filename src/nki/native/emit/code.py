"""Text of an MLIR function, line by line: names, types and constants."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

LANES = 16
"""Elements of a vector; LLVM splits them on machines with shorter ones."""

_BITS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64}


def type_of(kind: str, width: int) -> str:
    """``f32``, or ``vector<16xf32>`` where `width` is 16; 0 stands for a single value."""
    return kind if width == 0 else f"vector<{width}x{kind}>"


def bytes_of(kind: str) -> int:
    """Bytes of a value of a type such as f32 or i16."""
    return int(kind[1:]) // 8


class Code:
    """Lines of a function body; constants stand before all others."""

    def __init__(self) -> None:
        self.head: list[str] = []
        self.lines: list[str] = []
        self._names = 0
        self._constants: dict[tuple[int, str, int], str] = {}
        self._indent = "    "

    def name(self) -> str:
        """A name that no other value has."""
        self._names += 1
        return f"%v{self._names}"

    def do(self, text: str) -> None:
        """A line without a result."""
        self.lines.append(self._indent + text)

    def let(self, text: str) -> str:
        """A line with a result; its name."""
        name = self.name()
        self.lines.append(f"{self._indent}{name} = {text}")
        return name

    @contextmanager
    def block(self, opening: str, closing: str = "}") -> Iterator[None]:
        """Lines between braces."""
        self.do(opening)
        self._indent += "  "
        yield
        self._indent = self._indent[:-2]
        self.do(closing)

    def otherwise(self) -> None:
        """Between both branches of a block."""
        self.lines.append(self._indent[:-2] + "} else {")

    @contextmanager
    def accumulated(
        self, start: str, end: str, step: int, kind: str, initial: str, name: str
    ) -> Iterator[tuple[str, str, Callable[[str], None]]]:
        """A loop that carries one value: gives its counter, the value, what takes the next; `name` is the last one."""
        index, value = self.name(), self.name()
        head = f"scf.for {index} = {start} to {end} step {self.number(step)} iter_args({value} = {initial})"
        with self.block(f"{name} = {head} -> ({kind}) : i64 {{"):
            yield index, value, lambda result: self.do(f"scf.yield {result} : {kind}")

    def constant(self, bits: int, kind: str, width: int) -> str:
        """A value with these bits in every lane."""
        key = (bits, kind, width)
        if key not in self._constants:
            if kind == "i1":
                text = "true" if bits else "false"
            elif kind in _BITS:
                size = _BITS[kind]
                text = str((bits + (1 << (size - 1))) % (1 << size) - (1 << (size - 1)))
            else:
                text = f"0x{bits:0{8 if kind == 'f32' else 16}X}"
            name = self._constants[key] = self.name()
            literal = f"dense<{text}>" if width else text
            typed = "" if kind == "i1" and not width else f" : {type_of(kind, width)}"
            self.head.append(f"    {name} = arith.constant {literal}{typed}")
        return self._constants[key]

    def number(self, value: int) -> str:
        """An i64."""
        return self.constant(value, "i64", 0)

    def binary(self, op: str, a: str, b: str, kind: str, width: int) -> str:
        """``op a, b``: both operands and the result have one type."""
        return self.let(f"{op} {a}, {b} : {type_of(kind, width)}")

    def cast(self, op: str, a: str, source: str, result: str, width: int) -> str:
        """``op a : source to result``."""
        return self.let(f"{op} {a} : {type_of(source, width)} to {type_of(result, width)}")

    def compare(self, predicate: str, a: str, b: str, kind: str, width: int) -> str:
        """A mask."""
        op = "arith.cmpf" if kind.startswith("f") else "arith.cmpi"
        return self.let(f"{op} {predicate}, {a}, {b} : {type_of(kind, width)}")

    def select(self, mask: str, a: str, b: str, kind: str, width: int) -> str:
        """`a` where the mask is true, else `b`."""
        typed = f"{type_of('i1', width)}, {type_of(kind, width)}" if width else kind
        return self.let(f"arith.select {mask}, {a}, {b} : {typed}")

    def splat(self, a: str, kind: str, width: int) -> str:
        """A single value in every lane."""
        return self.let(f"vector.broadcast {a} : {kind} to {type_of(kind, width)}") if width else a

    def add(self, a: str, b: str) -> str:
        """Sum of two i64."""
        return self.binary("arith.addi", a, b, "i64", 0)

    def multiply(self, a: str, b: str) -> str:
        """Product of two i64."""
        return self.binary("arith.muli", a, b, "i64", 0)

    def pointer(self, address: str) -> str:
        """An i64 as a pointer."""
        return self.let(f"llvm.inttoptr {address} : i64 to !llvm.ptr")

    def word(self, base: str, index: int) -> str:
        """The i64 at a place of an array of them."""
        place = self.let(f"llvm.getelementptr {base}[{index}] : (!llvm.ptr) -> !llvm.ptr, i64")
        return self.let(f"llvm.load {place} : !llvm.ptr -> i64")

    def at(self, base: str, offset: str) -> str:
        """The pointer `offset` bytes behind another."""
        return self.let(f"llvm.getelementptr {base}[{offset}] : (!llvm.ptr, i64) -> !llvm.ptr, i8")
