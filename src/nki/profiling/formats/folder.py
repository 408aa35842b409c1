"""A profile as a folder of JSON and Parquet: written at once, read with distrust.

The reader opens regular files of known names in the folder, follows no link, checks sizes before it allocates, and
executes nothing.
"""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from nki.core.errors import ArtifactError
from nki.core.source import UNKNOWN
from nki.profiling.errors import refused, unwritable
from nki.profiling.formats.folder_validation import about_of, check_tables
from nki.profiling.formats.regular_files import open_regular
from nki.profiling.record import Profile
from nki.profiling.schema import TABLES
from nki.profiling.table import DTYPES, Table, Values

ABOUT = "profile.json"
MOST_ABOUT = 16 << 20
MOST_FILE = 1 << 30
MOST_BYTES = 4 << 30
MOST_ROWS = 20_000_000
MOST_TEXT = 1 << 16
"""Limits of the reader: bytes of ``profile.json``, of a file, decoded bytes and rows of a table, bytes of a text."""
_BATCH = 1 << 16

_TYPES = {"int": pa.int64(), "float": pa.float64(), "text": pa.string(), "bool": pa.bool_()}


def save(profile: Profile, folder: Path) -> None:
    """Write a folder; ``profile.json`` comes last, so that an interrupted write leaves no profile."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ABOUT).unlink(missing_ok=True)
        for name, table in profile.tables.items():
            write_parquet(arrow(table), folder / f"{name}.parquet")
        text = json.dumps(profile.about.to_json(), indent=2, allow_nan=False)
        (folder / ABOUT).write_text(text + "\n", encoding="utf-8")
    except OSError as problem:
        raise unwritable(folder, problem) from problem


def write_parquet(table: pa.Table, path: Path) -> None:
    """Replace a file; a link of that name is removed and not followed."""
    path.unlink(missing_ok=True)
    pq.write_table(table, path, compression="zstd")


def arrow(table: Table) -> pa.Table:
    """A table with the types of the schema."""
    fields = [pa.field(column.name, _TYPES[column.kind], nullable=False) for column in TABLES[table.name]]
    return pa.table([pa.array(table[f.name], f.type) for f in fields], schema=pa.schema(fields))


def load(folder: Path) -> Profile:
    """Read a folder; see `nki.profiling.record.Profile.load`."""
    with _opened(folder, ABOUT, MOST_ABOUT) as file:
        about = about_of(_json(file.read(MOST_ABOUT + 1)))
    tables = {name: _table(folder, name) for name in TABLES}
    check_tables(about, tables)
    return Profile(about, tables)


def _opened(folder: Path, name: str, most: int) -> BinaryIO:
    """A regular file of the folder, not larger than it may be."""
    try:
        return open_regular(folder / name, most)
    except OSError as problem:
        if problem.errno == errno.EFBIG:
            raise refused("profile.size", f"{name}: {problem.strerror}") from problem
        raise _not_there(folder, name, problem.strerror or str(problem)) from problem


def _not_there(folder: Path, name: str, why: str) -> ArtifactError:
    return ArtifactError(
        "profile.folder",
        f"{folder / name} cannot be read: {why}",
        rule="a profile is a folder with profile.json and its tables, as docs/profile.md lists them",
        fix="write it with nki profile ... --out DIR",
        location=UNKNOWN,
    )


def _json(data: bytes) -> Any:
    try:
        return json.loads(data.decode("utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError) as problem:
        raise refused("profile.folder", f"{ABOUT} is no JSON: {type(problem).__name__}") from problem


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _table(folder: Path, name: str) -> Table:
    with _opened(folder, f"{name}.parquet", MOST_FILE) as file:
        try:
            source = pq.ParquetFile(file, memory_map=False, pre_buffer=False)
            _check_sizes(name, source.metadata)
            _check_schema(name, source.schema_arrow)
            file.seek(0)
            columns = _columns(name, file)
        except ArtifactError:
            raise
        except (pa.ArrowException, OSError, MemoryError, ValueError, LookupError, OverflowError) as problem:
            raise refused("profile.folder", f"{name}.parquet is damaged: {str(problem)[:200]}") from problem
    return Table(name, columns)


def _check_sizes(name: str, metadata: Any) -> None:
    if metadata.num_rows > MOST_ROWS:
        raise refused("profile.size", f"{name}.parquet has {metadata.num_rows} rows, at most {MOST_ROWS} are read")
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    total = sum(group.total_byte_size for group in groups)
    if total > MOST_BYTES or any(group.total_byte_size < 0 for group in groups):
        raise refused("profile.size", f"{name}.parquet unpacks to {total} bytes, at most {MOST_BYTES} are read")
    if sum(group.num_rows for group in groups) != metadata.num_rows:
        raise refused("profile.folder", f"{name}.parquet is damaged: its groups have other rows than it says")


def _check_schema(name: str, schema: pa.Schema) -> None:
    wanted = [(column.name, str(_TYPES[column.kind])) for column in TABLES[name]]
    found = [(field.name, str(field.type)) for field in schema]
    if found != wanted:
        wrong = next((f"{b} where {a} belongs" for a, b in zip(wanted, found, strict=False) if a != b), "")
        raise refused(
            "profile.table",
            f"{name}.parquet has {len(found)} columns of {len(wanted)}; {wrong or 'some are missing'}"[:300],
        )


def _columns(name: str, file: BinaryIO) -> dict[str, Values]:
    """All columns, read in parts that are counted as they come: a small file may say the same long text many times."""
    texts = [column.name for column in TABLES[name] if column.kind == "text"]
    source = pq.ParquetFile(file, memory_map=False, pre_buffer=False, read_dictionary=texts)
    read: dict[str, list[Any]] = {column.name: [] for column in TABLES[name]}
    size = 0
    for batch in source.iter_batches(_BATCH, use_threads=False):
        for column in TABLES[name]:
            values = batch.column(column.name)
            if values.null_count:
                raise refused(
                    "profile.values", f"{name}.parquet: {values.null_count} values of {column.name} are missing"
                )
            size += _decoded_bytes(values)
            if size > MOST_BYTES:
                raise refused("profile.size", f"{name}.parquet unpacks to more than {MOST_BYTES} bytes")
            if column.kind == "text":
                read[column.name] += _texts(name, column.name, values)
            else:
                read[column.name].append(values.to_numpy(zero_copy_only=False))
    return {
        column.name: read[column.name] if column.kind == "text" else _joined(read[column.name], DTYPES[column.kind])
        for column in TABLES[name]
    }


def _joined(parts: list[np.ndarray], dtype: Any) -> np.ndarray:
    return np.concatenate([np.zeros(0, dtype), *parts]).astype(dtype, copy=False)


def _decoded_bytes(values: pa.Array) -> int:
    """Bytes of all values, each counted as often as it is there."""
    if not isinstance(values, pa.DictionaryArray):
        return int(values.nbytes)
    lengths = np.asarray(pc.binary_length(values.dictionary), np.int64)
    longest = int(lengths.max(initial=0))
    if longest > MOST_TEXT:
        raise refused("profile.values", f"a text has {longest} bytes, at most {MOST_TEXT} are read")
    return int(lengths[np.asarray(values.indices)].sum()) if len(lengths) else 0


def _texts(table: str, name: str, values: pa.DictionaryArray) -> list[str]:
    """One text of each kind, however often it is there."""
    try:
        known: list[str] = values.dictionary.to_pylist()
    except (UnicodeDecodeError, pa.ArrowException) as problem:
        raise refused("profile.values", f"{table}.parquet: {name} is no UTF-8") from problem
    return [known[number] for number in np.asarray(values.indices).tolist()]
