"""The attributes of one operation, read strictly: a missing one and one too many are errors of the file."""

from __future__ import annotations

from nki.core.errors import IRError
from nki.core.source import Location
from nki.ir.mlir import Attribute, Operation


class Attributes:
    """Attributes by name, and which of them were looked at.

    Attributes:
        where: location of the operation.
        count: how many there are.
    """

    __slots__ = ("_map", "_used", "count", "where")

    def __init__(self, operation: Operation, where: Location) -> None:
        self._map = operation.attributes
        self.count = len(self._map)
        self._used = 0
        self.where = where

    def __getitem__(self, name: str) -> Attribute:
        attribute = self._map.get(name)
        if attribute is None:
            raise refused("ir.attribute", f"attribute {name} is missing", "it is not optional", self.where)
        self._used += 1
        return attribute

    def __contains__(self, name: str) -> bool:
        return name in self._map

    def check_all_used(self) -> None:
        """Refuse what nobody asked for; each attribute is read once."""
        if self._used != self.count:
            names = ", ".join(self._map.keys())
            raise refused("ir.attribute", f"attributes {names}", "every attribute has a meaning", self.where)


def refused(code: str, message: str, rule: str, where: Location) -> IRError:
    """The error for a module that is not what this toolchain writes."""
    return IRError(code, message, rule=rule, fix="compile the kernel again, or correct the file", location=where)
