"""Tables as CSV files: one for each table, with a header, numbers in full precision."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

from nki.profiling.errors import unwritable
from nki.profiling.table import Table

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def write_csv(tables: Mapping[str, Table], folder: Path) -> None:
    """Write ``NAME.csv`` for every table.

    A text that a spreadsheet would take for a formula gets an apostrophe in front: names and source lines are the
    user's.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, table in tables.items():
            with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file)
                writer.writerow(table.columns)
                writer.writerows(zip(*[_cells(values) for values in table.columns.values()], strict=True))
    except OSError as problem:
        raise unwritable(folder, problem) from problem


def _cells(values: object) -> list[object]:
    if isinstance(values, list):
        return ["'" + text if text.startswith(_FORMULA) else text for text in values]
    found: list[object] = values.tolist()  # type: ignore[attr-defined]
    return found
