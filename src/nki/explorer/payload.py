"""A profile as one compressed block for the front end: a JSON header, then columns as little-endian numbers.

The block is a zlib stream of: uint32 length of the header, the header, padding to 8 bytes, and the columns. Nothing is
lost but what is below a picosecond: columns in ns are whole numbers of ps (unless they are beyond all reason), as
differences where that makes them narrow. Texts are numbers of a list of different texts. `static/decode.js` reads it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from nki.profiling.schema import TABLES, Column
from nki.profiling.table import Table

VERSION = 1
_ALIGN = 8
_PS = 1000.0  # ps in a ns
_EXACT = float(2**53)
_BASES = {"instructions": "start_ns", "dma": "start_ns"}
_POINTS = frozenset({"turn_ns", "move_ns", "end_ns", "visible_ns", "trigger_ns", "issued_ns"})
"""Tables with a column that their other points in time are stored relative to."""


class ColumnWriter:
    """Collects columns; each starts at a multiple of eight bytes."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.size = 0

    def add(self, values: np.ndarray) -> int:
        """Append an array; where it starts."""
        data = values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes()
        start = self.size
        padding = -len(data) % _ALIGN
        self._parts += [data, b"\0" * padding]
        self.size += len(data) + padding
        return start

    def data(self) -> bytes:
        """All columns."""
        return b"".join(self._parts)


def payload(document: Mapping[str, Any], tables: Mapping[str, Table], label: str) -> bytes:
    """The block of a profile from `profile.json`, its tables by name, and what the page calls it."""
    writer = ColumnWriter()
    described = {name: _table(tables[name], writer) for name in TABLES}
    header = {"version": VERSION, "label": label, "document": dict(document), "tables": described}
    text = json.dumps(header, allow_nan=False, separators=(",", ":")).encode()
    return zlib.compress(aligned(text) + writer.data(), 6)


def aligned(text: bytes) -> bytes:
    """A header with its length before it, and padding to where columns begin."""
    text += b" " * (-(4 + len(text)) % _ALIGN)
    return len(text).to_bytes(4, "little") + text


def _table(table: Table, writer: ColumnWriter) -> dict[str, Any]:
    base = _BASES.get(table.name, "")
    columns = []
    for column in TABLES[table.name]:
        values = table[column.name]
        relative = bool(base) and column.name in _POINTS and _fits(values) and _fits(table[base])
        entry: dict[str, Any] = {"name": column.name, "kind": column.kind, "unit": column.unit, "text": column.text}
        if relative:
            differences = np.rint(values * _PS) - np.rint(table[base] * _PS)
            entry |= {"base": base, "scale": _PS} | _integers(differences.astype(np.int64), writer)
        else:
            entry |= _column(column, values, writer)
        columns.append(entry)
    columns.sort(key=lambda entry: "base" in entry)  # a reader has the base before it needs it
    return {"rows": len(table), "columns": columns}


def _column(column: Column, values: Any, writer: ColumnWriter) -> dict[str, Any]:
    if column.kind == "text":
        known: dict[str, int] = {}
        codes = np.fromiter((known.setdefault(text, len(known)) for text in values), np.int64, len(values))
        return {"values": list(known)} | _integers(codes, writer)
    if column.kind == "float" and column.unit == "ns" and _fits(values):
        return {"scale": _PS} | _integers(np.rint(values * _PS).astype(np.int64), writer)
    if column.kind == "float" and not (np.all(np.abs(values) < _EXACT) and np.all(values == np.rint(values))):
        return {"type": "f8", "at": writer.add(values.astype(np.float64))}
    return _integers(np.asarray(values).astype(np.int64), writer)


def _fits(times: np.ndarray) -> bool:
    """Whether times are whole numbers of ps below 2**53."""
    return bool(np.all(np.abs(times) < _EXACT / _PS / 2))


def _integers(values: np.ndarray, writer: ColumnWriter) -> dict[str, Any]:
    """The narrower of the values and their differences."""
    plain = _width(values)
    if np.all(np.abs(values) < _EXACT):
        differences = np.diff(values, prepend=np.int64(0))
        small = _width(differences)
        if np.dtype(small).itemsize < np.dtype(plain).itemsize:
            return {"type": small, "delta": True, "at": writer.add(differences.astype(small))}
    return {"type": plain, "at": writer.add(values.astype(plain))}


def _width(values: np.ndarray) -> str:
    low, high = (int(values.min()), int(values.max())) if values.size else (0, 0)
    for name in ("i1", "i2", "i4"):
        limits = np.iinfo(name)
        if limits.min <= low and high <= limits.max:
            return name
    return "f8"
