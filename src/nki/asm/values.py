"""Arguments that are no tensors, as immediates and back, exactly."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import Enum
from functools import cache
from inspect import Parameter
from types import MappingProxyType
from typing import Any

from nki.asm.errors import damaged
from nki.asm.streams import DEFAULT, NONE, Group, Immediate, Operand
from nki.core.errors import IRError
from nki.isa import alu, functions
from nki.spec.instruction import Instruction
from nki.spec.operand import Operand as Declared
from nki.spec.operator import Operator

_NUMBERS = frozenset({"bool", "int", "float"})
_TUPLES = frozenset({"ints", "numbers", "pattern", "ranks", "rank_pairs"})

# What an immediate may be in an operand of a kind; a kind that is not listed takes none.
_KINDS: dict[str, frozenset[str]] = {
    "operator": frozenset({"operator"}),
    "enum": frozenset({"enum"}),
    "flag": frozenset({"bool"}),
    "int": frozenset({"int"}),
    "text": frozenset({"text"}),
    "register_or_int": frozenset({"int"}),
    **dict.fromkeys(("number", "column", "tensor_or_number"), _NUMBERS),
}
_MEMBERS = {"numbers": _NUMBERS}
_MAX_DEPTH = 4


@cache  # the declarations do not change
def operators() -> MappingProxyType[str, Operator]:
    """Every operator of the ALUs and of the activation unit by name."""
    found = [value for module in (alu, functions) for value in vars(module).values() if isinstance(value, Operator)]
    return MappingProxyType({operator.name: operator for operator in found})


def immediate(value: Any, instruction: Instruction[Any], name: str) -> Operand:
    """The operand for an argument without tensors and registers.

    Raises:
        IRError: "asm.value" if assembly has no form for it.
    """
    declared = instruction.operands[name]
    made = _immediate(value) if value is not None else NONE
    if made is not None and (made is NONE or _fits(made, declared)):
        return made
    if value is instruction.__signature__.parameters[name].default:
        return DEFAULT
    raise IRError(
        "asm.value",
        f"{instruction.label}: {name} is {value!r}"[:300],
        rule=f"an argument of kind {declared.kind} is written as such",
        fix="pass a value of the declared kind",
    )


def value_of(operand: Immediate | Group, instruction: Instruction[Any], name: str) -> Any:
    """The argument that an operand stands for.

    Raises:
        ArtifactError: "asm.value" if the instruction cannot have it.
    """
    if operand == NONE:
        if name not in instruction.nullable:
            raise damaged("asm.value", f"{instruction.label}: {name} is missing", "an argument that is needed is given")
        return None
    if operand == DEFAULT:
        default = instruction.__signature__.parameters[name].default
        if default is Parameter.empty:
            raise damaged("asm.value", f"{instruction.label}: {name} has no default", "a default is declared")
        return default
    declared = instruction.operands[name]
    if not _fits(operand, declared):
        raise damaged(
            "asm.value", f"{instruction.label}: {name} is {operand!r}"[:300], f"it is of kind {declared.kind}"
        )
    return _value(operand, declared)


def _immediate(value: Any) -> Immediate | Group | None:
    """None if there is no form for it."""
    match value:
        case bool():
            return Immediate("bool", int(value))
        case Enum():
            return Immediate("enum", value.name)
        case int():
            return Immediate("int", value)
        case float():
            return Immediate("float", int.from_bytes(struct.pack("<d", value), "little"))
        case str():
            return Immediate("text", value)
        case Operator():
            return Immediate("operator", value.name) if operators().get(value.name) == value else None
        case tuple():
            members = [_immediate(item) for item in value]
            return None if None in members else Group(tuple(member for member in members if member is not None))
    return None


def _fits(operand: Operand, declared: Declared) -> bool:
    if isinstance(operand, Group):
        allowed = _MEMBERS.get(declared.kind, frozenset({"int"}))
        return declared.kind in _TUPLES and all(kind in allowed for kind in _leaves(operand, _MAX_DEPTH))
    if not isinstance(operand, Immediate) or operand.kind not in _KINDS.get(declared.kind, ()):
        return False
    match operand.kind:
        case "operator":
            return operand.value in operators()
        case "enum":
            return declared.choices is not None and operand.value in declared.choices.__members__
    return True


def _leaves(group: Group, depth: int) -> Iterator[str]:
    """Kinds of the members, also of groups in it; "" for what may not be there."""
    for member in group.members:
        if isinstance(member, Immediate):
            yield member.kind
        elif isinstance(member, Group) and depth:
            yield from _leaves(member, depth - 1)
        else:
            yield ""


def _value(operand: Operand, declared: Declared) -> Any:
    if isinstance(operand, Group):
        return tuple(_value(member, declared) for member in operand.members)
    assert isinstance(operand, Immediate), "it was checked to fit"
    value = operand.value
    match operand.kind:
        case "bool":
            return bool(value)
        case "float":
            return struct.unpack("<d", int(value).to_bytes(8, "little"))[0]
        case "operator":
            return operators()[str(value)]
        case "enum":
            assert declared.choices is not None, "it was checked to fit"
            return declared.choices[str(value)]
    return value
