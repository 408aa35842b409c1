"""Reading the tables of a measured profile: each used column is checked by name and type, and nothing is trusted."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from nki.core.errors import ArtifactError
from nki.profiling.formats.neuron_explorer_schema import ExplorerColumn, explorer_schema
from nki.profiling.formats.regular_files import open_regular
from nki.profiling.measured.refusals import refused

MOST_FILE = 4 << 30
MOST_BYTES = 8 << 30
MOST_ROWS = 5_000_000
MOST_TEXT = 1 << 16
"""Limits of the reader: bytes of a file, decoded bytes and rows of a table, bytes of a text."""

Columns = Mapping[str, list[Any]]
"""Values by column; None where a column that is not required has none."""

_TYPES: Mapping[str, tuple[str, ...]] = {
    "int64": ("int64",),
    "int32": ("int32",),
    "float": ("float", "double"),
    "double": ("double",),
    "string": ("string", "large_string", "dictionary<values=string, indices=int32, ordered=0>"),
    "boolean": ("bool",),
}
"""Types of Parquet for those of the schema; a number may be wider than the document says."""
_FILE = re.compile(r"([A-Za-z]+)(?:_([0-9]{1,6}))?\.parquet")
_DAMAGE = (pa.ArrowException, OSError, MemoryError, ValueError, LookupError, OverflowError)


def files_of(folder: Path) -> dict[str, list[Path]]:
    """The files of each table: one, or several that are numbered from 0.

    Raises:
        ArtifactError: it is no folder (``measured.folder``), a table is none of the schema, or a part of one is missing
            (``measured.table``).
    """
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError as problem:
        raise refused("measured.folder", f"{folder} cannot be read: {problem.strerror or problem}") from problem
    found: dict[str, dict[int, Path]] = {}
    for name in names:
        if (match := _FILE.fullmatch(name)) is not None:
            found.setdefault(match[1], {})[-1 if match[2] is None else int(match[2])] = folder / name
    if not found:
        raise refused("measured.folder", f"{folder} has no Parquet table")
    for table, parts in found.items():
        if sorted(parts) not in ([-1], list(range(len(parts)))):
            have = ", ".join(parts[number].name for number in sorted(parts))[:200]
            raise refused("measured.table", f"table {table} is in {have}, which is no whole sequence", table=table)
    return {table: [parts[number] for number in sorted(parts)] for table, parts in found.items()}


def read_table(table: str, files: Sequence[Path], used: Sequence[str], *, exact: bool) -> dict[str, list[Any]]:
    """The used columns of a table.

    Args:
        table: name of the table.
        files: that hold it.
        used: columns that are needed, required ones and others.
        exact: whether the table may have no other columns than the schema.

    Raises:
        ArtifactError: the table is damaged (``measured.damaged``) or too large (``measured.size``), a column is missing
            or unknown (``measured.column``), has another type (``measured.type``), or no value where the schema
            requires one (``measured.rows``).
    """
    read: dict[str, list[Any]] = {name: [] for name in used}
    for file in files:
        for part in _parts(table, file, used, exact, len(next(iter(read.values())))):
            for name in used:
                read[name] += part[name]
    return read


def _parts(table: str, path: Path, used: Sequence[str], exact: bool, before: int) -> Iterator[dict[str, list[Any]]]:
    """The columns of a file, some rows at a time."""
    try:
        file = open_regular(path, MOST_FILE)
    except OSError as problem:
        message = f"{path} cannot be read: {problem.strerror or problem}"
        if problem.errno == errno.EFBIG:
            raise refused("measured.size", message, table=table) from problem
        raise refused("measured.folder", message, table=table) from problem
    with file, _damaged(table, path):
        source = pq.ParquetFile(file, memory_map=False, pre_buffer=False)
        _check_sizes(table, path, source.metadata, before)
        _check_schema(table, source.schema_arrow, used, exact)
        decoded = 0
        for batch in source.iter_batches(1 << 16, columns=list(used), use_threads=False):
            decoded += batch.nbytes
            if decoded > MOST_BYTES:
                raise refused("measured.size", f"{path.name} unpacks to more than {MOST_BYTES} bytes", table=table)
            yield {name: _values(table, name, batch) for name in used}


@contextmanager
def _damaged(table: str, path: Path) -> Iterator[None]:
    """Whatever fails while a file is decoded says that the file is damaged."""
    try:
        yield
    except ArtifactError:
        raise
    except _DAMAGE as problem:
        why = " ".join(str(problem).split())[:200]
        raise refused("measured.damaged", f"{path.name} is damaged: {why}", table=table) from problem


def _check_sizes(table: str, path: Path, metadata: Any, before: int) -> None:
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    rows, size = metadata.num_rows, sum(group.total_byte_size for group in groups)
    if before + rows > MOST_ROWS or size > MOST_BYTES or any(group.total_byte_size < 0 for group in groups):
        message = (
            f"{path.name} has {rows} rows and unpacks to {size} bytes; at most {MOST_ROWS} and {MOST_BYTES} are read"
        )
        raise refused("measured.size", message, table=table)
    if sum(group.num_rows for group in groups) != rows:
        raise refused(
            "measured.damaged", f"{path.name} is damaged: its groups have other rows than it says", table=table
        )


def _check_schema(table: str, found: pa.Schema, used: Sequence[str], exact: bool) -> None:
    declared = {column.name: column for column in explorer_schema().tables[table]}
    for column in declared.values():
        if column.name not in found.names and (column.required or column.name in used):
            raise _column(table, column.name, "missing", f"it belongs there as {column.described}")
    for name in found.names:
        if found.names.count(name) > 1:
            raise _column(table, name, f"there {found.names.count(name)} times", "a name is there once")
        if name not in declared:
            if exact:
                raise _column(table, name, f"{found.field(name).type}", "it has no column of this name")
            continue
        kind = str(found.field(name).type)
        if kind not in _TYPES[declared[name].kind]:
            raise wrong_type(table, declared[name], kind)


def _column(table: str, name: str, found: str, says: str) -> ArtifactError:
    schema = explorer_schema().version
    message = f"column {name[:80]} of table {table} is {found}; the schema ({schema}) says: {says}"
    return refused("measured.column", message, table=table, column=name[:80])


def wrong_type(table: str, column: ExplorerColumn, found: str) -> ArtifactError:
    """The error for a column of another type."""
    message = (
        f"column {column.name} of table {table} is {found[:80]}; "
        f"the schema ({explorer_schema().version}) says: {column.described}"
    )
    return refused("measured.type", message, table=table, column=column.name, found=found[:80], schema=column.kind)


def _values(table: str, name: str, batch: Any) -> list[Any]:
    column = explorer_schema().column(table, name)
    array = batch.column(name)
    if column.required and array.null_count:
        message = f"column {name} of table {table} has no value in {array.null_count} rows; the schema requires one"
        raise refused("measured.rows", message, table=table, column=name)
    values: list[Any] = array.to_pylist()
    if column.kind == "string":
        longest = max((len(value) for value in values if value is not None), default=0)
        if longest > MOST_TEXT:
            message = f"column {name} of table {table} has a text of {longest} characters, at most {MOST_TEXT} are read"
            raise refused("measured.size", message, table=table, column=name)
    return values
