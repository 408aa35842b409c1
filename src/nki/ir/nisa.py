"""Dialect `nisa`: one operation per declared instruction, derived from the declaration, as IRDL."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any, Literal

from nki.ir.irdl import (
    ANY,
    ARRAY,
    BOOLEAN,
    FLOAT,
    INTEGER,
    INTEGERS,
    ITEM,
    REGISTER,
    STRING,
    UNIT,
    VIEW,
    Constraint,
    ValueSlot,
    dialect,
    operation,
    strings,
)
from nki.spec.engine import engine as Engine
from nki.spec.instruction import Instruction
from nki.spec.operand import Operand

Form = Literal["operand", "either", "operands", "attribute"]

ENGINE = "on"
"""Attribute with the engine that runs the instruction; ``engine`` is the argument, which may leave the choice open."""

QUEUE, WAITS, SIGNALS = "nki.queue", "nki.waits", "nki.signals"
"""Attributes of a scheduled instruction: its queue, ``"dma0:3,vector:1"``, and whether its completion is a signal."""

SEGMENTS = "operandSegmentSizes"
"""MLIR's name for the sizes of operand groups."""

_FORMS: dict[str, Form] = {"tensor": "operand", "register": "operand", "tensors": "operands", "channels": "operands"}

NUMBER_KINDS = frozenset({"int", "number", "numbers", "column", "tensor_or_number", "register_or_int"})
"""Kinds whose strings are numbers beyond 64 bits."""

_CONSTRAINTS: dict[str, Constraint] = {
    "operator": STRING,
    "flag": BOOLEAN,
    "int": INTEGER + STRING,
    "number": INTEGER + FLOAT + STRING,
    "ints": INTEGERS,
    "numbers": INTEGERS + ARRAY,
    "pattern": INTEGERS + ARRAY,
    "text": STRING,
}


@dataclass(frozen=True, slots=True)
class Field:
    """One argument of an instruction in its operation.

    Attributes:
        form: "operand" an SSA operand; "either" an operand, or an attribute of the same name if it is a number;
            "operands" several; "attribute" an attribute.
        kind: of the declared operand.
        nullable: None is legal, and is written as absence.
        default: of the declaration, or `inspect.Parameter.empty`; written as a unit attribute if it is of another kind.
        choices: the enumeration of kind "enum".
        flexible: whether the number of SSA operands varies.
    """

    name: str
    form: Form
    kind: str
    nullable: bool
    default: Any
    choices: type[Enum] | None
    flexible: bool


@dataclass(frozen=True, slots=True)
class OpSpec:
    """How an instruction is written as an operation.

    Attributes:
        fields: in the order of the signature, which is the order of the operands too.
        operand_fields: those that have SSA operands.
        sizes: operands of each of them, if that never varies.
        segmented: whether the operation carries the sizes of its operand groups, because more than one varies.
    """

    instruction: Instruction[Any]
    name: str
    fields: tuple[Field, ...]
    operand_fields: tuple[Field, ...]
    sizes: tuple[int, ...] | None
    segmented: bool


@cache
def op_spec(instruction: Instruction[Any]) -> OpSpec:
    """Derived once from the declaration."""
    assert not {ENGINE, SEGMENTS} & instruction.operands.keys(), f"{instruction.name}: an argument name is taken"
    parameters = instruction.__signature__.parameters
    fields = tuple(
        _field(name, operand, parameters[name].default, name in instruction.nullable)
        for name, operand in instruction.operands.items()
    )
    operand_fields = tuple(field for field in fields if field.form != "attribute")
    flexible = sum(field.flexible for field in fields)
    sizes = None if flexible else (1,) * len(operand_fields)
    return OpSpec(instruction, f"nisa.{instruction.name}", fields, operand_fields, sizes, flexible > 1)


def _field(name: str, operand: Operand, default: Any, nullable: bool) -> Field:
    either: Form = "either" if operand.is_tensor or operand.kind.startswith("register") else "attribute"
    form = _FORMS.get(operand.kind, either)
    flexible = form in ("either", "operands") or (form == "operand" and nullable)
    return Field(name, form, operand.kind, nullable, default, operand.choices, flexible)


def nisa_irdl(instructions: Iterable[Instruction[Any]]) -> str:
    """The dialect as IRDL text."""
    return dialect("nisa", [_operation(op_spec(instruction)) for instruction in instructions])


def _operation(spec: OpSpec) -> str:
    attributes = {ENGINE: strings(member.name for member in Engine)}
    for field in spec.fields:
        if field.form == "attribute" and not field.nullable:
            attributes[field.name] = _constraint(field)
    return operation(spec.instruction.name, operands=[_slot(f) for f in spec.operand_fields], attributes=attributes)


def _slot(field: Field) -> ValueSlot:
    kind = REGISTER if field.kind.startswith("register") else VIEW
    if field.form == "operands":
        return ValueSlot(field.name, ITEM, "variadic ")
    return ValueSlot(field.name, kind, "optional " if field.flexible else "")


def _constraint(field: Field) -> Constraint:
    """A unit attribute may stand for any default."""
    known = strings(field.choices.__members__) if field.choices is not None else _CONSTRAINTS.get(field.kind, ANY)
    return known if field.default is inspect.Parameter.empty else known + UNIT
