"""The operators that instructions take as arguments, and how a public function such as ``nl.add`` names one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from nki.core.errors import ArgumentError
from nki.core.shown import shown


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator of the ALUs, of the activation unit, or of both.

    Attributes:
        name: as in ``nl.<name>``.
        alu: class of the ALU operator, or None if no ALU has it.
        arity: operands of the ALU operator.
        activation: True if the Scalar engine's activation unit has it.
        reduces: True if it can reduce (tensor_reduce and the like).
        identity: neutral element of the reduction, as a float.
        commutes: True if swapping the operands changes nothing.
    """

    name: str
    alu: Literal["arithmetic", "compare", "logical", "bitvec"] | None = None
    arity: int = 2
    activation: bool = False
    reduces: bool = False
    identity: float | None = None
    commutes: bool = False

    @property
    def is_bitvec(self) -> bool:
        """True for operators on bit patterns, which never cast."""
        return self.alu == "bitvec"

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"nl.{self.name}"


_ATTRIBUTE = "__nki_operator__"
_PUBLIC: dict[str, Operator] = {}
"""Operators by their public name, filled by their declarations when a module is imported."""

_ARITHMETIC = "nl.add"
_DIVIDE = (
    "no engine divides: pass nl.multiply, and as the operand 1 / number, "
    "or the tile that nisa.reciprocal(dst=tile, data=divisor) writes"
)
_MEANT = {
    "max": "pass nl.maximum",
    "amax": "pass nl.maximum",
    "min": "pass nl.minimum",
    "amin": "pass nl.minimum",
    "sum": "pass nl.add",
    "sub": "pass nl.subtract",
    "mul": "pass nl.multiply",
    "prod": "pass nl.multiply",
    "pow": "pass nl.power",
    "div": _DIVIDE,
    "divide": _DIVIDE,
    "truediv": _DIVIDE,
    "true_divide": _DIVIDE,
}
"""What to write for names of Python, NumPy and nki.language that name no operator."""


def names_operator(operator: Operator) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: the function may be passed where an instruction expects an operator (``op=nl.add``)."""

    def mark(function: Callable[..., Any]) -> Callable[..., Any]:
        setattr(function, _ATTRIBUTE, operator)
        _PUBLIC[operator.name] = operator
        return function

    return mark


def operator_of(value: Any, role: str, example: str = _ARITHMETIC) -> Operator:
    """The operator that `value` names; `role` is the argument's name and `example` one that fits, for the message."""
    if isinstance(value, Operator):
        return value
    operator = getattr(value, _ATTRIBUTE, None)
    if isinstance(operator, Operator):
        return operator
    name = value.rpartition(".")[2] if isinstance(value, str) else getattr(value, "__name__", "")
    raise ArgumentError(
        "operand.operator",
        f"{role} is {shown(value)}, which is not an operator",
        rule="an operator is one that an engine computes, such as nl.add, passed without calling it",
        fix=_remedy(name, example),
    )


def public_operator(name: str) -> Operator:
    """The operator ``nl.<name>``, which there is."""
    return _PUBLIC[name]


def _remedy(name: str, example: str) -> str:
    """The operator that was meant, if it can be told: the activation unit has others than the ALUs."""
    known = _PUBLIC.get(name)
    if known is not None and (known.alu is not None if example == _ARITHMETIC else known.activation):
        return f"pass nl.{name}"
    general = f"pass for example {example}"
    return _MEANT.get(name, general) if example == _ARITHMETIC else general
