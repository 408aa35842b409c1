"""The accumulator registers of Vector and Scalar, as the instructions that reduce on the side use them.

Each of the two engines has one float32 register for every lane; lane i serves partition i of the operands. All reducing
instructions of an engine share them. The values that are reduced are the float32 results before they round to the
destination, in the fixed order of `Arrays.reduce`; what the registers held comes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from nki.core.nki_tensor import NkiTensor
from nki.isa.alu import ABS_MAX, ABS_MIN, MAXIMUM, MINIMUM, apply
from nki.spec.arrays import Arrays
from nki.spec.engine import engine as Engine
from nki.spec.engine import reduce_cmd
from nki.spec.operand import Operand, choice, out
from nki.spec.operator import Operator
from nki.spec.rule import Rule
from nki.target.model import Target

_ISA = "nki/api/nki/isa"

Command = Annotated[reduce_cmd, choice(reduce_cmd)]
OptionalOp = Annotated[Any, Operand("operator")]
Result = Annotated["NkiTensor | None", out()]


def command_rule(*commands: reduce_cmd) -> Rule:
    """reduce_cmd is one that the instruction has."""
    names = ", ".join(command.name for command in commands)
    return Rule(
        "reduce-cmd",
        f"reduce_cmd is one of {names}",
        lambda a, t: a.reduce_cmd in commands,
        _ISA,
        f"use nisa.reduce_cmd.{commands[-1].name}",
        lambda a, t: f"reduce_cmd is {a.reduce_cmd.name}",
    )


def operator_rule(operators: Sequence[Operator]) -> Rule:
    """reduce_op, if it is given, is one that the instruction has."""
    names = ", ".join(f"nl.{operator}" for operator in operators)
    return Rule(
        "reduce-op",
        f"reduce_op is one of {names}",
        lambda a, t: a.reduce_op is None or a.reduce_op in operators,
        _ISA,
        f"use nl.{operators[0]}, or nisa.tensor_reduce on the result",
        lambda a, t: f"reduce_op is nl.{a.reduce_op}",
    )


def result_rule(data: str) -> Rule:
    """reduce_res has one element for each partition of the data."""

    def holds(a: Any, t: Target) -> bool:
        view = a.reduce_res
        return view is None or (view.shape[0], view.free_size) == (getattr(a, data).shape[0], 1)

    return Rule(
        "reduce-res",
        f"reduce_res has one element for each partition of {data}",
        holds,
        _ISA,
        f"slice one column of it, on the partitions of {data}: result[0:partitions, 0:1]",
        lambda a, t: (
            f"reduce_res has {a.reduce_res.shape[0]} x {a.reduce_res.free_size} elements, "
            f"{data} has {getattr(a, data).shape[0]} partitions"
        ),
    )


def initial_rules(name: str) -> list[Rule]:
    """The initial value is given if load_reduce needs it; elsewhere nothing reads it."""
    return [
        Rule(
            "reduce-init",
            f"reduce_cmd.load_reduce needs {name}",
            lambda a, t: a.reduce_cmd is not reduce_cmd.load_reduce or getattr(a, name) is not None,
            _ISA,
            f"pass {name}, or nisa.reduce_cmd.reset_reduce",
            lambda a, t: f"reduce_cmd is load_reduce, {name} is missing",
        ),
        Rule(
            "reduce-init-unused",
            f"{name} is read with reduce_cmd.load_reduce only",
            lambda a, t: a.reduce_cmd is reduce_cmd.load_reduce or getattr(a, name) is None,
            _ISA,
            f"omit {name}, or pass reduce_cmd=nisa.reduce_cmd.load_reduce",
            lambda a, t: f"reduce_cmd is {a.reduce_cmd.name}, {name} is given",
            severity="warning",
        ),
    ]


def scalar_registers(a: Any) -> tuple[str, ...]:
    """The effects of an activation: it touches the registers unless it neither reduces nor asks for a result."""
    return () if a.reduce_cmd is reduce_cmd.idle and a.reduce_res is None else ("accumulator",)


def over_elements(x: Arrays, operator: Operator, values: Any) -> Any:
    """``(P, 1)``: the reduction of the last dimension, also by abs_max and abs_min.

    Those two keep the sign of the element they choose; if both signs have the same magnitude, it is the positive one.
    """
    if operator not in (ABS_MAX, ABS_MIN):
        return x.reduce(operator, values)
    magnitudes = x.absolute(values)
    chosen = x.reduce(MAXIMUM if operator == ABS_MAX else MINIMUM, magnitudes)
    signed = x.where(x.compare("equal", magnitudes, chosen), values, x.constant(-float("inf")))
    found = x.reduce(MAXIMUM, signed)
    return x.where(x.compare("equal", x.absolute(found), chosen), found, chosen)


def accumulate(
    x: Arrays, command: reduce_cmd, operator: Operator, values: Any, partitions: int, initial: Any = None
) -> None:
    """Obey a command on the registers of the running engine.

    With ``idle`` the Scalar engine keeps them (activation: "do not modify"), while on Vector their content is undefined
    from here on (exponential: "accumulator state unknown"; select_reduce: "may still be modified").
    """
    assert operator.identity is not None, f"{operator} can reduce"
    if command is reduce_cmd.idle:
        if x.engine is Engine.vector:
            x.clobber_accumulator()
        return
    if command is reduce_cmd.reset:
        x.write_accumulator(x.broadcast(x.constant(operator.identity), partitions, 1))
        return
    reduced = over_elements(x, operator, values)
    if command is reduce_cmd.reduce:
        reduced = apply(x, operator, held(x, partitions), reduced)
    elif command is reduce_cmd.load_reduce:
        reduced = apply(x, operator, initial, reduced)
    x.write_accumulator(reduced)


def held(x: Arrays, partitions: int) -> Any:
    """``(P, 1)`` of the registers of the running engine, with a warning if nothing defined them."""
    x.check(
        x.accumulator_defined(partitions),
        "accumulator.undefined",
        "the accumulator registers are used where no instruction defined them, or after one with reduce_cmd.idle that "
        "may have changed them",
        "begin with reduce_cmd=nisa.reduce_cmd.reset_reduce",
    )
    return x.read_accumulator(partitions)
