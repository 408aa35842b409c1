"""A table of a profile: equally long columns, numbers as arrays and texts as lists."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nki.profiling.schema import TABLES, Column

Values = np.ndarray | list[str]

DTYPES: Mapping[str, Any] = {"int": np.int64, "float": np.float64, "bool": np.bool_}


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Rows by column; `columns` has the columns of the schema in their order."""

    name: str
    columns: Mapping[str, Values]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, column: str) -> Any:
        """A column: an array, or a list of texts."""
        return self.columns[column]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Rows as dictionaries of plain Python values."""
        lists = [values if isinstance(values, list) else values.tolist() for values in self.columns.values()]
        for row in zip(*lists, strict=True):
            yield dict(zip(self.columns, row, strict=True))

    def row(self, number: int) -> dict[str, Any]:
        """One row."""
        return {
            name: values[number] if isinstance(values, list) else values[number].item()
            for name, values in self.columns.items()
        }


def from_rows(name: str, rows: Sequence[Sequence[Any]]) -> Table:
    """A table from rows in the order of the schema's columns."""
    declared = TABLES[name]
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(declared)
    return Table(name, {column.name: _values(column, values) for column, values in zip(declared, columns, strict=True)})


def _values(column: Column, values: Sequence[Any] | np.ndarray) -> Values:
    if column.kind == "text":
        return list(values)
    return np.asarray(values, DTYPES[column.kind])
