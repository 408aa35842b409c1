"""Whether a measured profile counts in the units of the schema: its own table of fields says in which it does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nki.profiling.formats.neuron_explorer_schema import ExplorerColumn, explorer_schema
from nki.profiling.measured.refusals import refused
from nki.profiling.measured.tables import read_table

FIELDS = "SchemaFields"
_USED = ("table_name", "field_name", "field_type", "field_format", "field_unit", "field_required")


def check_units(files: Mapping[str, Sequence[Path]], used: Mapping[str, Sequence[str]], *, exact: bool) -> str:
    """Compare the profile's list of fields with the schema, for all columns that are used.

    Returns:
        What has to be said about the units: "" if the profile lists its fields.

    Raises:
        ArtifactError: a field has another unit (``measured.unit``) or type (``measured.type``), or is not listed
            (``measured.column``).
    """
    if FIELDS not in files:
        return "the profile has no table SchemaFields: units are taken to be those of the schema"
    rows = read_table(FIELDS, files[FIELDS], _USED, exact=exact)
    listed = {
        (table, name): dict(zip(_USED, values, strict=True))
        for table, name, values in zip(
            rows["table_name"], rows["field_name"], zip(*(rows[name] for name in _USED), strict=True), strict=True
        )
    }
    for table, names in used.items():
        if table in files and table != FIELDS:
            for name in names:
                _check(table, explorer_schema().column(table, name), listed.get((table, name)))
    return ""


def _check(table: str, column: ExplorerColumn, row: Mapping[str, Any] | None) -> None:
    version = explorer_schema().version
    where = f"column {column.name} of table {table}"
    if row is None:
        message = f"{where} is not listed in SchemaFields; the schema ({version}) says: {column.described}"
        raise refused("measured.column", message, table=table, column=column.name)
    found = " ".join(str(row[name]) for name in ("field_type", "field_format") if row[name])
    if found.split(" ")[0] != _type(column) or (row["field_format"] and not _fits(row["field_format"], column)):
        message = f"{where} is {found[:80]} by SchemaFields; the schema ({version}) says: {column.described}"
        raise refused("measured.type", message, table=table, column=column.name, found=found[:80], schema=column.kind)
    unit = (row["field_unit"] or "").strip()
    if unit != column.unit:
        says = column.unit or "no unit"
        message = f"{where} is in {unit[:80] or 'no unit'} by SchemaFields; the schema ({version}) says: {says}"
        raise refused("measured.unit", message, table=table, column=column.name, found=unit[:80], schema=column.unit)


def _type(column: ExplorerColumn) -> str:
    if column.kind.startswith("int"):
        return "integer"
    return "number" if column.kind in ("float", "double") else column.kind


def _fits(form: str, column: ExplorerColumn) -> bool:
    return form == column.kind or (column.kind == "float" and form == "double")
