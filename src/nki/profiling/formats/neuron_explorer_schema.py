"""The schema of the Neuron Explorer: for each table its columns with types and units, as its document lists them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple


class ExplorerColumn(NamedTuple):
    """A column of a table.

    Attributes:
        name: of the column.
        kind: "int32", "int64", "float" (of 32 bits), "double", "string" or "boolean".
        unit: as the document spells it, for example "nanoseconds"; "" if it names none.
        required: whether it is always present.
    """

    name: str
    kind: str
    unit: str
    required: bool

    @property
    def described(self) -> str:
        """Type and unit in words."""
        return f"{self.kind} in {self.unit}" if self.unit else self.kind


class ExplorerSchema(NamedTuple):
    """All that is known of the schema.

    Attributes:
        version: of the schema, MAJOR.MINOR.PATCH.
        tables: columns by table, those tables that are written or read.
        others: names of all other tables.
    """

    version: str
    tables: Mapping[str, tuple[ExplorerColumn, ...]]
    others: frozenset[str]

    def column(self, table: str, name: str) -> ExplorerColumn:
        """One column."""
        return next(column for column in self.tables[table] if column.name == name)


@cache  # a file of the package, which does not change
def explorer_schema() -> ExplorerSchema:
    """The schema that this package writes and reads."""
    data = tomllib.loads((Path(__file__).parent / "neuron_explorer.toml").read_text(encoding="utf-8"))
    version, others = data.pop("version"), frozenset(data.pop("others"))
    tables = {table: tuple(_column(name, text) for name, text in columns.items()) for table, columns in data.items()}
    return ExplorerSchema(version, tables, others)


def _column(name: str, text: str) -> ExplorerColumn:
    kind, _, unit = text.partition(" ")
    return ExplorerColumn(name, kind.removesuffix("!"), unit, kind.endswith("!"))
