"""IRDL text: how MLIR is told what an operation or a type may be made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

Constraint = tuple[str, ...]
"""Alternatives, each an IRDL constraint."""

STRING = ('irdl.base "#builtin.string"',)
INTEGER = ('irdl.base "#builtin.integer"',)
FLOAT = ('irdl.base "#builtin.float"',)
INTEGERS = ('irdl.base "#builtin.dense_array"',)
ARRAY = ('irdl.base "#builtin.array"',)
BOOLEAN = ("irdl.is true", "irdl.is false")
ANY = ("irdl.any",)
UNIT = ("irdl.is unit",)
TENSOR = ('irdl.base "!builtin.tensor"',)
BUFFER = ("irdl.base @nki::@buffer",)
VIEW = ("irdl.base @nki::@view",)
REGISTER = ("irdl.base @nki::@register",)
ITEM = ("irdl.base @nki::@item",)


class ValueSlot(NamedTuple):
    """A named place for one value, for one or none, or for any number, which must then have equal types."""

    name: str
    constraint: Constraint
    variadicity: Literal["", "optional ", "variadic "] = ""


def strings(values: Iterable[str]) -> Constraint:
    """One of these strings."""
    return tuple(f'irdl.is "{value}"' for value in values)


def dialect(name: str, definitions: Iterable[str]) -> str:
    """A dialect. Operations and types share one name space."""
    return f"irdl.dialect @{name} {{\n{''.join(definitions)}}}\n"


def type_definition(name: str, parameters: Sequence[ValueSlot] = ()) -> str:
    """A type with parameters in this order."""
    body = _DefinitionLines()
    if parameters:
        body.lines.append(f"irdl.parameters({body.slots(parameters)})")
    return body.wrap("type", name)


def operation(
    name: str,
    *,
    operands: Sequence[ValueSlot] = (),
    results: Sequence[ValueSlot] = (),
    attributes: Mapping[str, Constraint] | None = None,
    region: bool = False,
) -> str:
    """An operation. IRDL knows no optional attribute: those are not declared, and any other attribute is allowed."""
    body = _DefinitionLines()
    if operands:
        body.lines.append(f"irdl.operands({body.slots(operands)})")
    if results:
        body.lines.append(f"irdl.results({body.slots(results)})")
    if attributes:
        shown = ", ".join(f'"{key}" = {body.use(constraint)}' for key, constraint in attributes.items())
        body.lines.append(f"irdl.attributes {{{shown}}}")
    if region:
        body.lines += ["%body = irdl.region()", "irdl.regions(body: %body)"]
    return body.wrap("operation", name)


class _DefinitionLines:
    """Lines of a definition.

    Two places that share a constraint must hold the same, so each use is its own.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._count = 0

    def use(self, constraint: Constraint) -> str:
        names = [self._line(text) for text in constraint]
        return names[0] if len(names) == 1 else self._line(f"irdl.any_of({', '.join(names)})")

    def slots(self, slots: Sequence[ValueSlot]) -> str:
        return ", ".join(f"{slot.name}: {slot.variadicity}{self.use(slot.constraint)}" for slot in slots)

    def wrap(self, kind: str, name: str) -> str:
        return f"  irdl.{kind} @{name} {{\n" + "".join(f"    {line}\n" for line in self.lines) + "  }\n"

    def _line(self, text: str) -> str:
        self._count += 1
        self.lines.append(f"%{self._count} = {text}")
        return f"%{self._count}"
