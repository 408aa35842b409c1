"""What reading a module remembers: locations, types, arguments, and what values stand for."""

from __future__ import annotations

from typing import Any

from nki.core.source import UNKNOWN, Location
from nki.ir.attributes import refused
from nki.ir.locations import LocationReader
from nki.ir.mlir import Attribute, Type, Value
from nki.ir.nisa import ENGINE, QUEUE, SIGNALS, WAITS, Field, op_spec
from nki.ir.types import Shaped, shaped_of
from nki.ir.values import integers, read_value, text
from nki.spec.engine import engine as Engine
from nki.spec.instruction import REGISTRY
from nki.spec.program import Sync, Wait


class Argument:
    """One field of an instruction, and the values that its attribute had before: a kernel has few different ones."""

    __slots__ = ("field", "is_attribute", "known", "many", "name")

    def __init__(self, field: Field) -> None:
        self.field = field
        self.name = field.name
        self.is_attribute = field.form == "attribute"
        self.many = field.form == "operands"
        self.known: dict[Attribute, Any] = {}

    def read(self, attribute: Attribute) -> Any:
        try:
            return self.known[attribute]
        except KeyError:
            value = self.known[attribute] = read_value(attribute, self.field)
            return value

    def absent(self) -> Any:
        """What absence means; an error if the declaration does not know None."""
        if not self.field.nullable:
            raise refused(
                "ir.attribute",
                f"argument {self.name} is missing",
                "an argument that cannot be None is written",
                UNKNOWN,
            )
        return None


class Tables:
    """What was read before, for the whole module."""

    def __init__(self) -> None:
        self.locations = LocationReader()
        self.specs = {spec.name: spec for spec in map(op_spec, REGISTRY.values())}
        self.arguments = {name: [Argument(field) for field in spec.fields] for name, spec in self.specs.items()}
        self.engines: dict[Attribute, Engine] = {}
        self._syncs: dict[tuple[Any, ...], Sync] = {}
        self._types: dict[Type, Shaped] = {}
        self._strides: dict[Attribute, tuple[int, ...]] = {}

    def strides(self, attribute: Attribute) -> tuple[int, ...]:
        known = self._strides.get(attribute)
        if known is None:
            known = self._strides[attribute] = integers(attribute)
        return known

    def shaped(self, kind: Type) -> Shaped:
        known = self._types.get(kind)
        if known is None:
            known = self._types[kind] = shaped_of(kind)
        return known

    def sync(self, attributes: Any, where: Location) -> tuple[Sync, int]:
        """Queue, waits and signal of a scheduled instruction, and how many attributes hold them."""
        waits, signals = attributes.get(WAITS), attributes.get(SIGNALS)
        key = (attributes[QUEUE], waits, signals is not None)
        known = self._syncs.get(key)
        if known is None:
            pairs = [entry.partition(":") for entry in text(waits).split(",")] if waits is not None else []
            if not all(queue and count.isdecimal() and int(count) > 0 for queue, _, count in pairs):
                raise refused("ir.value", f"{WAITS} = {text(waits)!r}", 'it looks like "dma0:3,vector:1"', where)
            known = self._syncs[key] = Sync(
                text(key[0]), tuple(Wait(queue, int(count)) for queue, _, count in pairs), key[2]
            )
        return known, 1 + (waits is not None) + (signals is not None)

    def engine(self, attribute: Attribute) -> Engine:
        known = self.engines.get(attribute)
        if known is None:
            name = text(attribute)
            if name not in Engine.__members__:
                raise refused("ir.value", f"{ENGINE} = {name!r}", "it is the name of an engine", UNKNOWN)
            known = self.engines[attribute] = Engine[name]
        return known


class Meaning(dict[Value, Any]):
    """What the values of a kernel stand for."""

    def __missing__(self, value: Value) -> Any:
        raise refused(
            "ir.structure",
            f"an operand is no result of an nki operation: {value}",
            "operands come from nki operations",
            UNKNOWN,
        )
