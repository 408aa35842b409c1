"""Arguments that are no tensors and no registers, as attributes and back, exactly.

| value | attribute |
|---|---|
| operator, enumeration member | string: the name |
| bool, int, float | ``true``, ``5 : i64``, ``0.5 : f64``; an int beyond 64 bits is a string of digits |
| string | string |
| dtype | type: ``bf16`` |
| tuple of ints | ``array<i64: 1, 2>`` |
| other tuple | ``[...]`` of these |

A default that is none of these, or is a string where a string means a name or digits, is a unit attribute: what the
declaration says. None is written as absence.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from inspect import Parameter
from typing import Any

from nki.core.dtypes import DType
from nki.core.errors import IRError
from nki.core.source import UNKNOWN
from nki.ir.mlir import (
    ArrayAttr,
    Attribute,
    BoolAttr,
    DenseI64ArrayAttr,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    StringAttr,
    Type,
    TypeAttr,
    UnitAttr,
)
from nki.ir.nisa import NUMBER_KINDS, Field
from nki.ir.operators import operator_named
from nki.ir.types import SPELLING, dtype_of
from nki.spec.operator import Operator

_I64_MIN, _I64_MAX = -(1 << 63), (1 << 63) - 1

# What a value of a kind may be; a kind that is not listed may be anything that can be written.
_TYPES: dict[str, tuple[type, ...]] = {
    "operator": (Operator,),
    "flag": (bool,),
    "int": (int,),
    "text": (str,),
    "ints": (tuple,),
    "numbers": (tuple,),
    "pattern": (tuple,),
    "register_or_int": (int,),
    **dict.fromkeys(("number", "column", "tensor_or_number"), (bool, int, float)),
}


class ValueWriter:
    """Values to attributes in the context that is entered."""

    def __init__(self) -> None:
        self._i64 = IntegerType.get_signless(64)
        self._strings: dict[str, Attribute] = {}
        self._writers: dict[type, Callable[[Any], Attribute | None]] = {
            bool: BoolAttr.get,
            int: self._int,
            float: FloatAttr.get_f64,
            str: self.text,
            tuple: self._tuple,
            Operator: self._operator,
            DType: lambda value: TypeAttr.get(Type.parse(SPELLING[value])),
        }

    def write(self, value: Any, field: Field) -> Attribute:
        """The attribute for a value that is not None.

        Raises:
            IRError: "ir.value" if the value is neither of the declared kind nor the default.
        """
        attribute = self._attribute(value) if _fits(value, field) else None
        if attribute is not None:
            return attribute
        if value is field.default:
            return UnitAttr.get()
        raise IRError(
            "ir.value",
            f"{field.name} is {value!r}",
            rule=f"an argument of kind {field.kind} is written as such",
            fix="pass a value of the declared kind",
            location=UNKNOWN,
        )

    def text(self, value: str) -> Attribute:
        """A string, made once."""
        made = self._strings.get(value)
        if made is None:
            made = self._strings[value] = StringAttr.get(value)
        return made

    def boolean(self, value: bool) -> Attribute:
        """``true`` or ``false``."""
        return BoolAttr.get(value)

    def integer(self, value: int) -> Attribute:
        """A number that fits 64 bits."""
        return IntegerAttr.get(self._i64, value)

    def integers(self, values: tuple[int, ...]) -> Attribute:
        """Numbers that fit 64 bits."""
        return DenseI64ArrayAttr.get(values)

    def _attribute(self, value: Any) -> Attribute | None:
        """None if there is no attribute for it."""
        writer = self._writers.get(type(value))
        if writer is not None:
            return writer(value)
        return self.text(value.name) if isinstance(value, Enum) else None

    def _int(self, value: int) -> Attribute:
        return self.integer(value) if _I64_MIN <= value <= _I64_MAX else self.text(str(value))

    def _operator(self, value: Operator) -> Attribute | None:
        return self.text(value.name) if operator_named(value.name) == value else None

    def _tuple(self, value: tuple[Any, ...]) -> Attribute | None:
        if all(type(item) is int and _I64_MIN <= item <= _I64_MAX for item in value):
            return DenseI64ArrayAttr.get(value)
        if any(type(item) not in _MEMBERS for item in value):
            return None
        members = [self._attribute(item) for item in value]
        return None if any(member is None for member in members) else ArrayAttr.get(members)


_MEMBERS = frozenset({bool, int, float, tuple, DType})
"""What the members of a tuple are; a string among them is a number beyond 64 bits."""


def read_value(attribute: Attribute, field: Field) -> Any:
    """The argument that an attribute says.

    Raises:
        IRError: "ir.value" if it is not of the declared kind.
    """
    if isinstance(attribute, UnitAttr) and field.default is not Parameter.empty:
        return field.default
    if isinstance(attribute, StringAttr):
        value = _named(attribute, field)
    else:
        value = _plain(attribute)
    if not _fits(value, field):
        raise _mismatch(attribute, f"of kind {field.kind}")
    return value


def integer(attribute: Attribute) -> int:
    """An integer attribute; raises IRError for anything else."""
    if isinstance(attribute, IntegerAttr) and not isinstance(attribute, BoolAttr):
        return attribute.value
    raise _mismatch(attribute, "an integer")


def flag(attribute: Attribute) -> bool:
    """``true`` or ``false``; raises IRError for anything else."""
    if isinstance(attribute, BoolAttr):
        return attribute.value
    raise _mismatch(attribute, "true or false")


def text(attribute: Attribute) -> str:
    """A string attribute; raises IRError for anything else."""
    if isinstance(attribute, StringAttr):
        return attribute.value
    raise _mismatch(attribute, "a string")


def integers(attribute: Attribute) -> tuple[int, ...]:
    """``array<i64: ...>``; raises IRError for anything else."""
    if isinstance(attribute, DenseI64ArrayAttr):
        return tuple(attribute)
    raise _mismatch(attribute, "array<i64: ...>")


def _fits(value: Any, field: Field) -> bool:
    if field.choices is not None:
        return type(value) is field.choices
    allowed = _TYPES.get(field.kind)
    return allowed is None or type(value) in allowed


def _named(attribute: StringAttr, field: Field) -> Any:
    """A string names an operator or a member, or holds digits; of any other kind it is itself."""
    value = attribute.value
    if field.kind == "operator":
        return operator_named(value)
    if field.choices is not None:
        return field.choices.__members__.get(value)
    return _digits(attribute) if field.kind in NUMBER_KINDS else value


def _plain(attribute: Attribute) -> Any:
    match attribute:
        case BoolAttr() | IntegerAttr() | FloatAttr():
            return attribute.value
        case DenseI64ArrayAttr():
            return tuple(attribute)
        case ArrayAttr():
            return tuple(_digits(item) if isinstance(item, StringAttr) else _plain(item) for item in attribute)
        case TypeAttr():
            return dtype_of(attribute.value)
    raise _mismatch(attribute, "a number, a tuple or a dtype")


def _digits(attribute: StringAttr) -> int:
    try:
        return int(attribute.value)
    except ValueError:
        raise _mismatch(attribute, "a number") from None


def _mismatch(attribute: Attribute, expected: str) -> IRError:
    """The reader of the operation adds where it is."""
    rule = f"it is {expected}"
    return IRError("ir.value", f"attribute {attribute}", rule=rule, fix="correct the attribute", location=UNKNOWN)
