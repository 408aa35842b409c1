"""Instructions that one can do: patterns of an instruction and of those that read its result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from nki.core.tensor import View
from nki.isa import alu
from nki.isa.activations import activation
from nki.isa.copy import tensor_copy
from nki.isa.elementwise import tensor_scalar, tensor_tensor
from nki.isa.reduce import tensor_reduce
from nki.isa.scan import scalar_tensor_tensor
from nki.profiling.advice.forms import SUM, Forms, adds_up, made, squares
from nki.profiling.advice.ranking import Evidence, line_of
from nki.profiling.facts.change import MERGED
from nki.profiling.facts.uses import Use, Uses
from nki.spec.engine import engine as Engine
from nki.spec.engine import reduce_cmd
from nki.spec.program import Issued


class Fused(NamedTuple):
    """Instructions that are not needed if others are written in another way.

    Attributes:
        gone: see `Change`.
        instead: what is issued in the place of others, by position.
        text: what to do, with the lines.
    """

    gone: dict[int, int]
    instead: dict[int, Issued]
    text: str


Pattern = Callable[["FusionSearch", int], Fused | None]


class FusionSearch:
    """What patterns look at.

    Attributes:
        items: the instructions, each as the patterns have changed it so far.
        found: by number.
    """

    def __init__(self, evidence: Evidence) -> None:
        self.evidence, self.uses, self.forms = evidence, Uses(evidence.core), Forms(evidence)
        self.items = list(evidence.core.items)
        self.found: dict[int, Fused] = {}
        self._part: dict[int, int] = {}
        self._gone: set[int] = set()

    def look(self, at: int) -> None:
        """Try the patterns on an instruction; what changes the same instruction again is one change with that."""
        for pattern in PATTERNS:
            fused = None if at in self._gone else pattern(self, at)
            if fused is None or not self._gone.isdisjoint(fused.gone.keys() | fused.instead.keys()):
                continue
            for number in {self._part[each] for each in (*fused.gone, *fused.instead) if each in self._part}:
                before = self.found.pop(number)
                text = f"{before.text}; {fused.text}"
                fused = Fused(before.gone | fused.gone, before.instead | fused.instead, text)
            fused = fused._replace(instead={each: to for each, to in fused.instead.items() if each not in fused.gone})
            self.found[at] = fused
            self._part |= dict.fromkeys((*fused.gone, *fused.instead), at)
            self._gone |= fused.gone.keys()
            for each, issued in fused.instead.items():
                self.items[each] = issued

    def only(self, position: int) -> Use | None:
        """Who alone reads the result of an instruction, all of it and as it was written."""
        found = self.uses.of(position)
        if len(found) != 1 or found[0].view != next(iter(self.items[position].written())):
            return None
        return found[0]

    def line(self, position: int) -> int:
        return line_of(self.evidence, position)


def _sum_of_activation(program: FusionSearch, at: int) -> Fused | None:
    """An activation, and a `tensor_reduce` that adds up its result."""
    issued = program.items[at]
    a = issued.arguments
    if issued.instruction is not activation or a.reduce_cmd is not reduce_cmd.idle:
        return None
    for use in program.uses.of(at):
        other = program.items[use.position]
        if adds_up(other) and other.arguments.data == a.dst:
            summed = issued._replace(arguments=a._replace(**_adding(other.arguments.dst)))
            text = (
                f"leave out nisa.tensor_reduce in line {program.line(use.position)}: nisa.activation in line "
                f"{program.line(at)} adds up what it writes with {SUM}"
            )
            return Fused({use.position: at}, {at: summed}, text)
    return None


def _sum_of_squares(program: FusionSearch, at: int) -> Fused | None:
    """A tile times itself, and a `tensor_reduce` that adds it up."""
    issued, use = program.items[at], program.only(at)
    if not squares(issued) or use is None or not adds_up(program.items[use.position]):
        return None
    a, total = issued.arguments, program.items[use.position].arguments.dst
    squared = made(activation, Engine.scalar, issued, dst=a.dst, op=alu.SQUARE, data=a.data1, **_adding(total))
    text = (
        f"in line {program.line(at)} write nisa.activation(op=nl.square, {SUM}) instead of nisa.tensor_tensor, and "
        f"leave out nisa.tensor_reduce in line {program.line(use.position)}"
    )
    return Fused({use.position: at}, {at: squared}, text)


def _adding(total: View) -> dict[str, Any]:
    column = total._replace(shape=(total.shape[0], 1), strides=(total.strides[0], 1))
    return {"reduce_op": alu.ADD, "reduce_res": column, "reduce_cmd": reduce_cmd.reset_reduce}


def _one_step(issued: Issued) -> bool:
    """Whether it is a `tensor_scalar` with one arithmetic operator of two operands."""
    a = issued.arguments
    if issued.instruction is not tensor_scalar or a.op0 is None or a.op1 is not None:
        return False
    return a.op0.alu == "arithmetic" and a.op0.arity == 2 and issued.engine is Engine.vector


def _two_steps(program: FusionSearch, at: int) -> Fused | None:
    """Two `tensor_scalar`s with one operator each."""
    issued, use = program.items[at], program.only(at)
    if not _one_step(issued) or use is None or use.name != "data":
        return None
    other = program.items[use.position]
    if not _one_step(other) or not _there(program, at, use.position):
        return None
    a, b = issued.arguments, other.arguments
    both = other._replace(
        arguments=b._replace(
            data=a.data, op0=a.op0, operand0=a.operand0, reverse0=a.reverse0,
            op1=b.op0, operand1=b.operand0, reverse1=b.reverse0,
        )
    )  # fmt: skip
    text = (
        f"do nl.{a.op0} of line {program.line(at)} in line {program.line(use.position)} as well: nisa.tensor_scalar("
        f"op0=nl.{a.op0}, op1=nl.{b.op0})"
    )
    return Fused({at: MERGED}, {use.position: both}, text)


def _into_tensor_tensor(program: FusionSearch, at: int) -> Fused | None:
    """A `tensor_scalar`, and a `tensor_tensor` of its result with another tile."""
    issued, use = program.items[at], program.only(at)
    if not _one_step(issued) or use is None:
        return None
    other = program.items[use.position]
    if other.instruction is not tensor_tensor or not _there(program, at, use.position):
        return None
    a, b = issued.arguments, other.arguments
    second = b.data2 if use.name == "data1" else b.data1
    if b.op.alu != "arithmetic" or (use.name == "data2" and not b.op.commutes):
        return None
    both = made(
        scalar_tensor_tensor, Engine.vector, other,
        dst=b.dst, data=a.data, op0=a.op0, operand0=a.operand0, reverse0=a.reverse0, op1=b.op, operand1=second,
    )  # fmt: skip
    text = (
        f"do nl.{a.op0} of line {program.line(at)} in line {program.line(use.position)} as well: "
        f"nisa.scalar_tensor_tensor(op0=nl.{a.op0}, op1=nl.{b.op}) instead of nisa.tensor_tensor"
    )
    return Fused({at: MERGED}, {use.position: both}, text)


_SCALED = {("multiply",): "scale", ("add",): "bias", ("subtract",): "bias", ("multiply", "add"): "scale and bias"}


def _into_activation(program: FusionSearch, at: int) -> Fused | None:
    """A `tensor_scalar`, and activations of its result, which have a scale and a bias of their own."""
    issued = program.items[at]
    a = issued.arguments
    if issued.instruction is not tensor_scalar or a.op0 is None or a.reverse0 or a.reverse1:
        return None
    ops = tuple(op.name for op in (a.op0, a.op1) if op is not None)
    uses = program.uses.of(at)
    if ops not in _SCALED or not uses:
        return None
    instead: dict[int, Issued] = {}
    for use in uses:
        other = program.items[use.position]
        b = other.arguments
        if other.instruction is not activation or use.view != a.dst or not _there(program, at, use.position):
            return None
        if use.name != "data" or isinstance(b.scale, View) or b.scale != 1 or b.bias is not None:
            return None
        scale = a.operand0 if ops[0] == "multiply" else 1.0
        bias = a.operand1 if len(ops) == 2 else a.operand0 if ops[0] != "multiply" else None
        column = bias if bias is None or isinstance(bias, View) else _first_column(a.data)
        instead[use.position] = other._replace(arguments=b._replace(data=a.data, scale=scale, bias=column))
    minus = ", with the sign changed" if ops == ("subtract",) else ""
    text = (
        f"leave out nisa.tensor_scalar in line {program.line(at)}: pass its operand{'s' if len(ops) == 2 else ''} to "
        f"nisa.activation in line {_lines(program, uses)} as {_SCALED[ops]}{minus}"
    )
    return Fused({at: MERGED}, instead, text)


def _first_column(view: View) -> View:
    """A column in the place of a number, which some targets take from a tile only."""
    return view._replace(shape=(view.shape[0], 1), strides=(view.strides[0], 1))


_READERS = (activation, tensor_scalar, tensor_tensor, tensor_reduce)


def _without_copy(program: FusionSearch, at: int) -> Fused | None:
    """A copy on chip, and instructions that could read what was copied."""
    issued, uses = program.items[at], program.uses.of(at)
    if issued.instruction is not tensor_copy or not uses:
        return None
    a = issued.arguments
    instead: dict[int, Issued] = {}
    for use in uses:
        other = program.items[use.position]
        if other.instruction not in _READERS or use.view != a.dst or use.name not in ("data", "data1", "data2"):
            return None
        if getattr(other.arguments, use.name) != a.dst:
            return None
        if not _there(program, at, use.position):
            return None
        before = instead.get(use.position, other)
        instead[use.position] = before._replace(arguments=before.arguments._replace(**{use.name: a.src}))
    text = (
        f"leave out nisa.tensor_copy in line {program.line(at)}: line {_lines(program, uses)} can read "
        f"{a.src.buffer.region} itself"
    )
    return Fused({at: MERGED}, instead, text)


def _lines(program: FusionSearch, uses: list[Use]) -> str:
    return " and ".join(str(line) for line in sorted({program.line(use.position) for use in uses}))


def _there(program: FusionSearch, first: int, last: int) -> bool:
    """Whether what an instruction reads is still the same when a later one runs."""
    issued = program.items[first]
    operands = issued.instruction.operands
    return all(program.uses.kept(view, first, last) for name, view in issued.views() if operands[name].reads)


PATTERNS: tuple[Pattern, ...] = (
    _sum_of_squares,
    _sum_of_activation,
    _into_activation,
    _two_steps,
    _into_tensor_tensor,
    _without_copy,
)
