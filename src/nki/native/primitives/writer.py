"""Text of MLIR functions over raw pointers, written operation by operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

POINTER = "!llvm.ptr"
SHARED_CODE = "attributes {llvm.no_inline}"
"""For functions that their module calls from several places."""


class FunctionBuilder:
    """The body of one function; values are names such as ``%v3``, integers are i64 unless said otherwise."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._constants: dict[str, str] = {}
        self._count = 0

    def function(self, name: str, arguments: Sequence[str], result: str = "", attributes: str = "") -> str:
        """The function with what was written so far as its body; arguments are such as ``%dst: !llvm.ptr``."""
        arrow = f" -> {result}" if result else ""
        prelude = [f"  {name} = {operation}" for operation, name in self._constants.items()]
        body = "\n".join([*prelude, *self._lines])
        return f"func.func @{name}({', '.join(arguments)}){arrow} {attributes} {{\n{body}\n}}\n"

    def line(self, text: str) -> None:
        """One operation without a result."""
        self._lines.append("  " + text)

    def value(self, operation: str) -> str:
        """The result of an operation."""
        name = self._fresh()
        self.line(f"{name} = {operation}")
        return name

    def constant(self, value: int | str, kind: str = "i64") -> str:
        """A constant, at the top of the function; of a vector kind with an int: in every lane."""
        shown = f"dense<{value}>" if kind.startswith("vector") else str(value)
        return self._constants.setdefault(f"arith.constant {shown} : {kind}", f"%c{len(self._constants)}")

    def op(self, name: str, left: str, right: str, kind: str = "i64") -> str:
        """A binary operation of the arith dialect."""
        return self.value(f"arith.{name} {left}, {right} : {kind}")

    def add(self, left: str, right: str | int) -> str:
        """Sum."""
        return self.op("addi", left, self._operand(right))

    def sub(self, left: str, right: str | int) -> str:
        """Difference."""
        return self.op("subi", left, self._operand(right))

    def mul(self, left: str, right: str | int) -> str:
        """Product."""
        return self.op("muli", left, self._operand(right))

    def is_(self, relation: str, left: str, right: str | int, kind: str = "i64") -> str:
        """i1: whether left eq / ne / slt / sle / sge / sgt right."""
        return self.value(f"arith.cmpi {relation}, {left}, {self._operand(right)} : {kind}")

    def both(self, left: str, right: str) -> str:
        """i1: left and right."""
        return self.op("andi", left, right, "i1")

    def either(self, left: str, right: str) -> str:
        """i1: left or right."""
        return self.op("ori", left, right, "i1")

    def select(self, condition: str, yes: str | int, no: str | int, kind: str = "i64") -> str:
        """One of two values."""
        return self.value(f"arith.select {condition}, {self._operand(yes)}, {self._operand(no)} : {kind}")

    def at(self, pointer: str, offset: str | int) -> str:
        """The pointer so many bytes on."""
        shown, kinds = (f"[{offset}]", "") if isinstance(offset, int) else (f"[{offset}]", ", i64")
        return self.value(f"llvm.getelementptr {pointer}{shown} : (!llvm.ptr{kinds}) -> !llvm.ptr, i8")

    def load(self, kind: str, pointer: str, align: int = 1) -> str:
        """What lies there."""
        return self.value(f"llvm.load {pointer} {{alignment = {align} : i64}} : !llvm.ptr -> {kind}")

    def store(self, value: str, kind: str, pointer: str, align: int = 1) -> None:
        """Write there."""
        self.line(f"llvm.store {value}, {pointer} {{alignment = {align} : i64}} : {kind}, !llvm.ptr")

    def stream(self, value: str, kind: str, pointer: str, align: int) -> None:
        """Write there past the caches; the pointer must be aligned as said, and that to the size of the value."""
        attributes = f"{{alignment = {align} : i64, nontemporal}}"
        self.line(f"llvm.store {value}, {pointer} {attributes} : {kind}, !llvm.ptr")

    def word(self, words: str, index: int | str, kind: str = "i64") -> str:
        """An int64 (or a pointer) of an array of words."""
        offset = index * 8 if isinstance(index, int) else self.mul(index, 8)
        return self.load(kind, self.at(words, offset), 8)

    def call(self, name: str, arguments: Sequence[str], kinds: Sequence[str]) -> None:
        """Call a function of the module that returns nothing."""
        self.line(f"func.call @{name}({', '.join(arguments)}) : ({', '.join(kinds)}) -> ()")

    def done(self, value: str = "", kind: str = "") -> None:
        """Return."""
        self.line(f"return {value} : {kind}" if value else "return")

    @contextmanager
    def loop(self, start: str | int, end: str | int, step: str | int = 1) -> Iterator[str]:
        """A loop; yields its counter."""
        counter = self._fresh()
        bounds = f"{self._operand(start)} to {self._operand(end)} step {self._operand(step)}"
        self.line(f"scf.for {counter} = {bounds} : i64 {{")
        yield counter
        self.line("}")

    def carry(
        self,
        end: str,
        initial: Sequence[str],
        kind: str,
        body: Callable[[str, Sequence[str]], Sequence[str]],
    ) -> list[str]:
        """A loop from 0 that carries values of one kind from step to step; returns them after the last."""
        counter, result = self._fresh(), self._fresh()
        names = [self._fresh() for _ in initial]
        kinds = ", ".join([kind] * len(names))
        pairs = ", ".join(f"{name} = {value}" for name, value in zip(names, initial, strict=True))
        bounds = f"{self.constant(0)} to {end} step {self.constant(1)}"
        self.line(f"{result}:{len(names)} = scf.for {counter} = {bounds} iter_args({pairs}) -> ({kinds}) : i64 {{")
        self.line(f"scf.yield {', '.join(body(counter, names))} : {kinds}")
        self.line("}")
        return [f"{result}#{i}" for i in range(len(names))]

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        """Only if it holds."""
        self.line(f"scf.if {condition} {{")
        yield
        self.line("}")

    def branch(self, condition: str, yes: Callable[[], None], no: Callable[[], None]) -> None:
        """One or the other."""
        self.line(f"scf.if {condition} {{")
        yes()
        self.line("} else {")
        no()
        self.line("}")

    def _operand(self, value: str | int) -> str:
        return self.constant(value) if isinstance(value, int) else value

    def _fresh(self) -> str:
        self._count += 1
        return f"%v{self._count}"
