"""What the front end is given is what the profile says; read here by other means than the page's."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nki.explorer.payload import ColumnWriter, _column, payload
from nki.explorer.shown import from_folders
from nki.profiling.schema import TABLES, Column

SIZES = {"i1": "b", "i2": "h", "i4": "i", "f8": "d"}


def numbers(data: bytes, meta: dict[str, Any], rows: int) -> list[float]:
    values = list(struct.unpack_from(f"<{rows}{SIZES[meta['type']]}", data, meta["at"]))
    if meta.get("delta"):
        total, sums = 0, []
        for value in values:
            total += value
            sums.append(total)
        return sums
    return values


def unpack(block: bytes) -> tuple[dict[str, Any], dict[str, dict[str, list[Any]]]]:
    """The header, and columns by table."""
    data = zlib.decompress(block)
    (length,) = struct.unpack_from("<I", data)
    assert (4 + length) % 8 == 0, "columns must start where typed arrays can"
    header = json.loads(data[4 : 4 + length])
    tables: dict[str, dict[str, list[Any]]] = {}
    for name, table in header["tables"].items():
        columns: dict[str, list[Any]] = {}
        whole: dict[str, list[float]] = {}
        for meta in table["columns"]:
            values = numbers(data[4 + length :], meta, table["rows"])
            if "base" in meta:
                values = [a + b for a, b in zip(values, whole[meta["base"]], strict=True)]
            whole[meta["name"]] = values
            if "values" in meta:
                columns[meta["name"]] = [meta["values"][int(code)] for code in values]
            else:
                columns[meta["name"]] = [value / meta.get("scale", 1) for value in values]
        tables[name] = columns
    return header, tables


def test_every_column_of_every_table(folder: Path) -> None:
    (shown,) = from_folders([folder])
    header, tables = unpack(shown.block())
    assert header["document"] == json.loads((folder / "profile.json").read_text())
    assert header["label"] == folder.name
    assert tables.keys() == TABLES.keys()
    for name, columns in tables.items():
        expected = pq.read_table(folder / f"{name}.parquet")
        assert sorted(columns) == sorted(expected.column_names)
        for column in expected.column_names:
            wanted = expected[column].to_pylist()
            if wanted and isinstance(wanted[0], str):
                assert columns[column] == wanted, (name, column)
            else:
                np.testing.assert_allclose(columns[column], wanted, rtol=1e-15, atol=6e-4, err_msg=f"{name}.{column}")


def test_times_cost_few_bytes(folder: Path) -> None:
    """The point of the block: a million instructions must fit a file that is sent around."""
    (shown,) = from_folders([folder])
    assert len(shown.block()) < 100 * len(shown.profile["instructions"])


def packed(column: Column, values: Any) -> list[Any]:
    writer = ColumnWriter()
    meta = _column(column, values, writer)
    found = numbers(writer.data(), meta, len(values))
    return [value / meta.get("scale", 1) for value in found]


@given(st.lists(st.integers(-(2**53) + 1, 2**53 - 1), max_size=20))
def test_integers_are_exact(values: list[int]) -> None:
    # differences of such values may have 54 bits; then the values themselves are stored
    assert packed(Column("n", "int", "", ""), np.array(values, np.int64)) == values


@given(st.lists(st.floats(0, 1e13), max_size=20))
def test_times_are_exact_to_a_picosecond(values: list[float]) -> None:
    found = packed(Column("t_ns", "float", "ns", ""), np.array(values, np.float64))
    np.testing.assert_allclose(found, values, rtol=1e-15, atol=5.01e-4)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=20))
def test_other_floats_are_exact(values: list[float]) -> None:
    assert packed(Column("value", "float", "", ""), np.array(values, np.float64)) == values


@pytest.mark.parametrize("huge", [1e20, 1.7e308])
def test_times_beyond_all_reason_are_kept(huge: float) -> None:
    assert packed(Column("t_ns", "float", "ns", ""), np.array([0.0, huge])) == [0.0, huge]


def test_huge_times_of_a_whole_profile(folder: Path) -> None:
    (shown,) = from_folders([folder])
    tables = dict(shown.profile.tables)
    columns = dict(tables["instructions"].columns)
    for name in ("start_ns", "move_ns", "end_ns", "visible_ns"):
        columns[name] = columns[name] + 1e18
    tables["instructions"] = type(tables["instructions"])("instructions", columns)
    _, found = unpack(payload(shown.profile.about.to_json(), tables, "x"))
    np.testing.assert_allclose(found["instructions"]["end_ns"], columns["end_ns"], rtol=1e-15)
    np.testing.assert_allclose(found["instructions"]["turn_ns"], columns["turn_ns"], atol=6e-4)
