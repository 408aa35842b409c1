"""The values of a list of pointwise operations on tiles: which are computed, which wait for what follows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from nki.core.dtypes import DType, float32
from nki.core.nki_tensor import NkiTensor
from nki.graph.emit.kit.engines import EngineOps, Form, Number, Splat, is_column, storage
from nki.graph.errors import unsupported
from nki.graph.ir import Op, Value
from nki.isa import alu
from nki.spec.operator import Operator

TRANSPARENT = frozenset({"broadcast_in_dim", "reshape", "broadcast", "optimization_barrier"})
"""Operations that only rename elements: tiles are loaded in the coordinates of the result already."""

_ALIASES = frozenset({*TRANSPARENT, "bitcast_convert", "convert", "abs"})
"""Operations whose result may be the tile of an operand."""


@dataclass(frozen=True, slots=True)
class PendingOp:
    """An arithmetic operation with a number or a float32 column, not issued yet."""

    op: Operator
    operand: Number | NkiTensor
    reverse: bool = False

    @property
    def keeps_values(self) -> bool:
        """Whether it makes values of a dtype of values of it, whatever that is: there is nothing to round."""
        if self.op == alu.MULTIPLY:
            return isinstance(self.operand, int | float) and abs(self.operand) == 1
        return self.op in (alu.ABS, alu.MAXIMUM, alu.MINIMUM)


@dataclass(frozen=True, slots=True)
class Pending:
    """One or two steps that wait for what follows: an instruction may do them on the side, if they are exact.

    Attributes:
        dtype: of the result, to which it is rounded.
    """

    data: NkiTensor
    steps: tuple[PendingOp, ...]
    dtype: DType

    @property
    def is_exact(self) -> bool:
        """Whether the steps give values of the dtype, so that nothing is rounded before what follows."""
        if self.dtype == float32:
            return True
        return storage(self.dtype) == self.data.dtype and all(step.keeps_values for step in self.steps)

    @property
    def shape(self) -> tuple[int, ...]:
        """How large the result is in each dimension."""
        return self.data.shape


class Reducer(Protocol):
    """Computes `reduce` operations on tiles."""

    def sums(self, op: Op) -> bool:
        """Whether it is the sum over all free elements of a partition, which Scalar takes on the side."""

    def reduce(self, evaluation: Evaluation, op: Op) -> list[NkiTensor]:
        """A tile for each result, with sizes of 1 where it is reduced."""


def base_name(op: Op) -> str:
    """The operation's name without the dialect CHLO."""
    return op.name.removeprefix("chlo.")


class Evaluation:
    """One call of `apply`."""

    def __init__(
        self,
        engines: EngineOps,
        values: Mapping[Value, Form],
        keep: Collection[Value],
        shape: tuple[int, ...],
        reduce: Reducer | None,
        rules: Mapping[str, Rule],
    ) -> None:
        self.e = engines
        self.shape = shape
        self.sums: dict[Value, NkiTensor] = {}  # those that came with a function; only for reductions that are sums
        self.summed: set[Value] = set()
        self._reduce = reduce
        self._rules = rules
        self._values: dict[Value, Form | Pending] = dict(values)
        self._keep = set(keep)
        self._uses: Counter[Value] = Counter()
        self._owned: set[Value] = set()
        shapes = [form.shape for form in values.values() if isinstance(form, NkiTensor)]
        self._like = shapes[0] if shapes else shape

    def run(self, ops: Iterable[Op]) -> dict[Value, Form]:
        """Evaluate in order."""
        todo = [op for op in ops if not all(result in self._values for result in op.results)]
        for op in todo:
            self._uses.update(op.operands)
            if op.name == "reduce" and self._reduce is not None and self._reduce.sums(op):
                self.summed.add(op.operands[0])
        for op in todo:
            self._compute(op)
        for value in self._keep:
            self._issued(value)
        return {value: form for value, form in self._values.items() if not isinstance(form, Pending)}

    def _compute(self, op: Op) -> None:
        if op.name == "reduce" and self._reduce is not None:
            self._values.update(zip(op.results, self._reduce.reduce(self, op), strict=True))
            return
        (result,) = op.results
        name = base_name(op)
        if name in TRANSPARENT:
            self._values[result] = self._values[op.operands[0]]
            self._uses[op.operands[0]] += self._uses[result]
            self._owned.discard(op.operands[0])
            return
        rule = self._rules.get(name)
        if rule is None:
            raise unsupported(op, "no instructions are known for it", "express it by other operations of StableHLO")
        made = rule(self, op)
        self._values[result] = made
        if isinstance(made, Pending) and (self._uses[result] != 1 or result in self._keep):
            self.form(result)
        if name not in _ALIASES:
            self._owned.add(result)

    # --- operands

    def form(self, value: Value) -> Form:
        """The value as a tile or number; pending steps are issued, and what was held in float32 is rounded."""
        held = self._issued(value)
        dtype = value.type.dtype
        if isinstance(held, NkiTensor) and held.dtype == float32 and dtype.is_float and dtype != float32:
            held = self._values[value] = self.e.copy(held, dtype)
        return held

    def _issued(self, value: Value) -> Form:
        held = self._values[value]
        if isinstance(held, Pending):
            held = self._values[value] = self.issue(held)
        return held

    def held(self, value: Value) -> Form | Pending:
        """The value as it is present."""
        return self._values[value]

    def tile(self, value: Value) -> NkiTensor:
        """The value as a tile; a number becomes a column."""
        return self.e.tile(self.form(value), storage(value.type.dtype), self._like)

    def pair(self, a: Value, b: Value) -> tuple[NkiTensor, NkiTensor]:
        """Two values as tiles."""
        return self.tile(a), self.tile(b)

    def step_operand(self, value: Value) -> Number | NkiTensor | None:
        """The value as an operand of `tensor_scalar`: a number or a float32 column; None if it is neither."""
        held = self._values[value]
        if isinstance(held, Splat):
            return float(held.value)
        if not is_column(held.data if isinstance(held, Pending) else held):
            return None
        form = self.tile(value)
        return form if form.dtype == float32 else self.e.copy(form, float32)

    def free(self, value: Value) -> NkiTensor | None:
        """The tile of a value that nobody needs afterwards, to be overwritten."""
        form = self._values[value]
        if value in self._owned and self._uses[value] == 1 and value not in self._keep and isinstance(form, NkiTensor):
            return form
        return None

    def issue(self, pending: Pending) -> NkiTensor:
        """What the steps give."""
        first, *rest = pending.steps
        second = rest[0] if rest else PendingOp(alu.BYPASS, 0.0)
        return self.e.scalar(
            pending.data,
            first.op,
            first.operand,
            second.op if rest else None,
            second.operand if rest else None,
            reverse0=first.reverse,
            reverse1=second.reverse,
            dtype=storage(pending.dtype),
        )

    def pend(self, value: Value, step: PendingOp, dtype: DType) -> Form | Pending:
        """A step after what the value is."""
        held = self._values[value]
        if isinstance(held, Pending) and len(held.steps) == 1 and held.is_exact:
            return Pending(held.data, (*held.steps, step), dtype)
        return Pending(self.tile(value), (step,), dtype)


Rule = Callable[[Evaluation, Op], Form | Pending]
"""Computes an operation with one result."""
