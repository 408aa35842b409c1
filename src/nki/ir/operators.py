"""Operators by name: IR names them, and the instructions' modules define them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import nki.isa
import nki.language as nl
from nki.core.errors import ArgumentError
from nki.spec.operator import Operator, operator_of

_TABLE: dict[str, Operator] = {}
"""Operators by their name in the IR, once they are declared; as many as there are."""


def operator_named(name: str) -> Operator | None:
    """The operator ``nl.<name>``, or one that only instructions use; None if there is none."""
    found = _TABLE.get(name)
    if found is None:
        _TABLE.update(_defined())
        found = _TABLE.get(name)
    return found


def _defined() -> dict[str, Operator]:
    table: dict[str, Operator] = {}
    for operator in _operators():
        other = table.setdefault(operator.name, operator)
        assert other == operator, f"two different operators are named {operator.name}"
    return table


def _operators() -> Iterator[Operator]:
    prefix = nki.isa.__name__ + "."
    for name, module in sorted(sys.modules.items()):
        if name.startswith(prefix):
            for value in vars(module).values():
                yield from _in(value)
    for value in vars(nl).values():
        if callable(value):
            try:
                yield operator_of(value, "")
            except ArgumentError:
                continue


def _in(value: Any) -> Iterator[Operator]:
    """An operator, or those in a table of them."""
    if isinstance(value, Operator):
        yield value
    elif isinstance(value, Mapping):
        yield from (item for pair in value.items() for item in pair if isinstance(item, Operator))
    elif isinstance(value, tuple | list | frozenset | set):
        yield from (item for item in value if isinstance(item, Operator))
