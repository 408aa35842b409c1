"""What an instruction does, as an expression graph: its body runs once with symbols in place of values."""

from __future__ import annotations

from typing import Any

from nki.core.dtypes import float32
from nki.core.register import VirtualRegister
from nki.native.trace.expression import COLUMN, FREE, I32, IN_ORDER, MASK, ROW, SCALAR, Node, NotTraceable, reachable
from nki.native.trace.form import OperandSlot, Store, Trace
from nki.native.trace.memory import Operands
from nki.spec.engine import engine as Engine
from nki.spec.program import Issued
from nki.target.model import Target

__all__ = ["NotTraceable", "OperandSlot", "Store", "Trace", "trace"]

_NUMPY_STEPS = {"multiply_add": 7, "scaled": 6}
"""How many operations of NumPy take as long as one of these, where it is not one."""


def trace(issued: Issued, target: Target) -> Trace:
    """Run the body of an instruction on symbols.

    Raises:
        NotTraceable: it does something that row kernels do not.
    """
    symbols = _Symbols(issued, target)
    issued.instruction.execute(issued.arguments, symbols)
    return symbols.finished()


class _Symbols(Operands):
    """The array namespace; what is missing here cannot be traced."""

    core = 0

    def __init__(self, issued: Issued, target: Target) -> None:
        super().__init__(issued)
        self.engine: Engine = issued.engine
        self.target = target
        self._bad: list[Node] = []
        self._clobbers = False
        self._registers: dict[str, Node] = {}

    def __getattr__(self, name: str) -> Any:
        raise NotTraceable(name)

    # --- registers of the engine

    def _register(self, path: str, mode: str) -> int:
        self._slots.append(OperandSlot(path, None, mode, float32, False))
        return len(self._slots) - 1

    def _held(self, path: str) -> Node:
        if path not in self._registers:
            raw = self.graph.leaf("load", self._register(path, "read"), I32, COLUMN, dtype=float32)
            self._registers[path] = self.decoded(raw)
        return self._registers[path]

    def read_accumulator(self, partitions: int) -> Node:
        return self._held("accumulator")

    def accumulator_defined(self, partitions: int) -> Node:
        return self._held("defined")

    def write_accumulator(self, values: Any) -> None:
        if self._clobbers or any(store.domain < 0 and self._slots[store.slot].view is None for store in self._stores):
            raise NotTraceable("two changes of the registers")
        value = self.real(values)
        for path, number in (("accumulator", value), ("defined", self.constant(1.0))):
            self._registers[path] = number
            bits = self.node("bitcast", (number,), I32, None, float32)
            self._stores.append(Store(self._register(path, "write"), bits, -1))

    def clobber_accumulator(self) -> None:
        self._clobbers = True
        for path in ("accumulator", "defined"):
            self._register(path, "write")
        self._registers = {"defined": self.constant(0.0)}

    def read_register(self, register: VirtualRegister | int) -> int:
        if isinstance(register, int):
            return register
        raise NotTraceable("register")

    # --- checks

    def warn_outside(self, values: Any, low: float, high: float, code: str, message: str, fix: str) -> None:
        zero = self.mask("not_equal", values, self.constant(0.0))
        outside = self.node(
            "or",
            (self.mask("less", values, self.constant(low)), self.mask("greater", values, self.constant(high))),
            MASK,
        )
        self._refuse(self.node("and", (zero, outside), MASK))

    def check(self, condition: Any, code: str, message: str, fix: str) -> None:
        if condition.op == "constant":
            if condition.attribute == 0:
                raise NotTraceable("undefined registers")
            return
        self._refuse(self.mask("equal", condition, self.constant(0.0)))

    def _refuse(self, mask: Node) -> None:
        # What is checked before anything is written goes through one partition after the other, and no groups.
        if any(node.op == "reduce" and (node.attribute == IN_ORDER or self._groups > 1) for node in reachable([mask])):
            raise NotTraceable("a check of sums in order")
        self._bad.append(self.graph.reduction("logical_or", mask) if mask.rank == ROW else mask)

    # --- the result

    def finished(self) -> Trace:
        if not self._stores and not self._clobbers:
            raise NotTraceable("nothing is stored")
        domains, groups = [-1], -1
        if self._groups > 1:
            self.immediates.append(self._groups)
            groups = len(self.immediates) - 1
        for count in self._counts[1:]:
            self.immediates.append(count)
            domains.append(len(self.immediates) - 1)
        effects = [f"{s.slot}<{s.value.number}@{s.domain}" for s in self._stores]
        slots = [f"{s.mode}{s.dtype.name}{'r' if s.row else 'c'}" for s in self._slots]
        bad = [str(node.number) for node in self._bad]
        text = "\n".join([*self.graph.text, *slots, *effects, *bad, f"{self._clobbers} {domains} {groups}"])
        return Trace(
            signature=text,
            slots=tuple(self._slots),
            immediates=tuple(self.immediates),
            partitions=self._partitions,
            count=self._counts[0] if self._counts else 1,
            streaming=groups < 0,
            operations=sum([_steps(node) for node in self.graph.nodes]) + len(self._slots),
            nodes=tuple(self.graph.nodes),
            stores=tuple(self._stores),
            bad=tuple(self._bad),
            clobbers=self._clobbers,
            domains=tuple(domains),
            groups=groups,
        )


def _steps(node: Node) -> int:
    """Operations of NumPy that a node stands for."""
    return 0 if node.op in FREE or node.rank == SCALAR else _NUMPY_STEPS.get(node.op, 1)
