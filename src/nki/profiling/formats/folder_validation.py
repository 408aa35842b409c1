"""Whether what a folder says can be a profile: kinds, ranges, references, times that do not run backwards."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from nki.core.errors import ArtifactError
from nki.profiling.about import About
from nki.profiling.errors import CONTROL, refused
from nki.profiling.evidence import Expected
from nki.profiling.schema import DEPENDENCES, FORMAT, PATHS, TABLES, VERSION, WAITS
from nki.profiling.table import Table

MOST_TEXT = 100_000
"""Characters of a text in a table."""

MOST_NUMBER = 1e30
"""The largest number in profile.json, whose whole numbers JSON does not limit."""

MOST_NS = 1e15
"""The latest time in a table, eleven days: writers of other formats count ns in 64 bits."""

MOST_COUNT = 2**53
"""The largest whole number in a table: larger ones are no longer exact in a browser."""

_MOST_NAMES = 1000
"""Names in an object of profile.json that has a number for each name."""

_UNIT = re.compile(r"tensor|vector|scalar|gpsimd|sync")
_QUEUE = re.compile(rf"{_UNIT.pattern}|dma(0|[1-9][0-9]{{0,5}})")

_TOTALS = (
    "makespan_ns",
    "instructions",
    "flops",
    "matmul_flops",
    "transpose_flops",
    "hbm_read_bytes",
    "hbm_write_bytes",
    "dma_bytes",
    "transfers",
    "sbuf_peak_bytes",
    "psum_peak_bytes",
    "hbm_peak_bytes",
)
_HARDWARE = (
    "sbuf_bytes_per_partition",
    "psum_bytes_per_partition",
    "dma_bytes_per_ns",
    "psum_banks",
    "partitions",
    "hbm_bytes_per_ns",
    "dma_engines",
    "pe_rows",
    "pe_columns",
    "base_ghz",
)
_OF_ENGINES = {"ghz": ("tensor", "vector", "scalar", "gpsimd"), "lanes": ("vector", "scalar", "gpsimd")}
_MOST_CORES = 1024


# --- profile.json


def about_of(data: Any) -> About:
    """``profile.json`` as an object. Raises ArtifactError."""
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise refused("profile.folder", "profile.json is not that of a profile")
    if data.get("version") != VERSION or isinstance(data["version"], bool):
        raise refused(
            "profile.version", f"profile.json has version {str(data.get('version'))[:40]}, this reads {VERSION}"
        )
    about = About(
        kernel=_text(data, "kernel"),
        target=_text(data, "target"),
        validated=_get(data, "validated", bool),
        generator=_text(data, "generator"),
        cores=_get(data, "cores", int),
        makespan_ns=_number(data, "makespan_ns"),
        launch_ns=_number(data, "launch_ns"),
        totals=_get(data, "totals", list),
        hardware=_get(data, "hardware", dict),
        advice=_get(data, "advice", list),
        accuracy=_get(data, "accuracy", dict),
        imitate=_text(data, "imitate"),
        kept_loads=_get(data, "kept_loads", list),
        is_simulation=_get(data, "is_simulation", bool),
    )
    _check_accuracy(about.accuracy)
    if not 1 <= about.cores <= _MOST_CORES or len(about.totals) != about.cores:
        raise _wrong(f"{about.cores} cores with {len(about.totals)} totals")
    for totals in about.totals:
        _check_totals(totals)
    _check_hardware(about.hardware)
    for advice in about.advice:
        _check_advice(advice)
    for load in about.kept_loads:
        _check_kept(load)
    return about


def _check_accuracy(accuracy: dict[str, Any]) -> None:
    if accuracy.keys() != {each.name for each in fields(Expected)}:
        raise _wrong("accuracy has other names")
    for name in ("share", "points", *(("percent",) if accuracy["percent"] is not None else ())):
        _number(accuracy, name)
    for name in ("kind", "text"):
        _text(accuracy, name)


def _check_kept(load: Any) -> None:
    if not isinstance(load, dict):
        raise _wrong("a kept load is no object")
    for name in ("source", "location", "earlier"):
        _text(load, name)
    for name in ("loads", "bytes"):
        _number(load, name)


def _check_hardware(hardware: dict[str, Any]) -> None:
    _text(hardware, "title")
    for name in _HARDWARE:
        _number(hardware, name, least=1e-12)
    for name, engines in _OF_ENGINES.items():
        for engine in engines:
            _number(_get(hardware, name, dict), engine)
    _number(_numbers(hardware, "peak_tflops"), "bfloat16", least=1e-12)


def _check_totals(totals: Any) -> None:
    if not isinstance(totals, dict):
        raise _wrong("totals are no objects")
    for name in _TOTALS:
        _number(totals, name)
    _text(totals, "bound_by")
    for name in ("units", "bounds"):
        _numbers(totals, name)
    if not all(type(number) is int for number in _get(totals, "assumed_loops", list)):
        raise _wrong("assumed_loops")


def _check_advice(advice: Any) -> None:
    if not isinstance(advice, dict):
        raise _wrong("advice is no object")
    for name in ("rule", "engine", "message", "fix"):
        _text(advice, name)
    for name in ("saving_ns", "share", "expected_ns"):
        _number(advice, name)
    _get(advice, "within_error", bool)
    for name in ("instructions", "sources"):
        if not all(type(number) is int for number in _get(advice, name, list)):
            raise _wrong(f"advice: {name}")


def _wrong(what: str) -> ArtifactError:
    return refused("profile.values", f"profile.json: {what}")


def _get(data: Mapping[str, Any], name: str, kind: type) -> Any:
    value = data.get(name)
    if type(value) is not kind:
        raise _wrong(f"{name[:40]} is no {kind.__name__}")
    return value


def _text(data: Mapping[str, Any], name: str) -> str:
    value: str = _get(data, name, str)
    if len(value) > MOST_TEXT:
        raise _wrong(f"{name} has {len(value)} characters")
    if CONTROL.search(value) or any("\ud800" <= letter <= "\udfff" for letter in value):
        raise _wrong(f"{name} has characters that no text has")
    return value


def _numbers(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    """An object with a number for each name."""
    found: dict[str, Any] = _get(data, name, dict)
    if len(found) > _MOST_NAMES:
        raise _wrong(f"{name} has {len(found)} names")
    for key in found:
        _text({"a name": key}, "a name")
        _number(found, key)
    return found


def _number(data: Mapping[str, Any], name: str, least: float = 0.0) -> float:
    value = data.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or abs(value) > MOST_NUMBER or not value >= least:
        raise _wrong(f"{name[:40]} is no number from {least:g} on")
    return value


# --- tables


def check_tables(about: About, tables: Mapping[str, Table]) -> None:
    """Raise ArtifactError "profile.values" for the first table with a value that cannot be."""
    counts = {name: len(tables[name]) for name in ("instructions", "sources", "modules")}
    counts["kernels"] = int(tables["kernels"]["kernel"].max(initial=-1)) + 1
    for table in tables.values():
        _check_columns(table, about.cores, counts)
    _check_order(tables, counts["instructions"])
    _check_kernels(tables["kernels"], counts["kernels"])
    _check_numbers(about, counts["instructions"], counts["sources"])


def _check_columns(table: Table, cores: int, counts: Mapping[str, int]) -> None:
    """Each column by itself, and those that ascend from left to right."""
    _check_kinds(table)
    if "core" in table.columns:
        _within(table, "core", 0, cores)
    for column, most in _REFERENCES.get(table.name, {}).items():
        _within(table, column, -1, counts[most])
    for earlier, later in _ASCENDING.get(table.name, ()):
        _require(table, np.all(table[earlier] <= table[later]), f"{earlier} is after {later}")
    for column, allowed in _ALLOWED.get(table.name, {}).items():
        strange = set(table[column]) - allowed.keys()
        _require(table, not strange, f"{column} is {sorted(strange)[:3]}"[:200])
    for column, pattern in _PATTERNS.get(table.name, {}).items():
        odd = sorted(text for text in set(table[column]) if not pattern.fullmatch(text))
        _require(table, not odd, f"{column} is {odd[:3]}"[:200])


def _check_order(tables: Mapping[str, Table], instructions: int) -> None:
    """Numbers of rows, and rows that lie in others."""
    for name in ("instructions", "sources", "modules"):
        _require(
            tables[name], np.array_equal(tables[name]["id"], np.arange(len(tables[name]))), "ids are no row numbers"
        )
    _require(
        tables["sources"], np.all(tables["sources"]["parent"] < tables["sources"]["id"]), "a line that calls itself"
    )
    _require(
        tables["modules"], np.all(tables["modules"]["parent"] < tables["modules"]["id"]), "a module that calls itself"
    )
    loading = tables["instructions"]["table_ns"] <= tables["instructions"]["start_ns"] + 0.5
    _require(tables["instructions"], np.all(loading), "table_ns began before the start")
    loops = tables["loops"]
    _require(loops, np.all(loops["parent"] < loops["loop"]), "a loop in itself")
    _within(loops, "parent", -1, max(instructions, 1))
    _within(loops, "after", 0, instructions + 1)
    for column in ("producer", "consumer"):
        _within(tables["edges"], column, 0, instructions)


def _check_kernels(kernels: Table, count: int) -> None:
    """Kernels are numbered without gaps, and the shares of each add up to all of it."""
    _require(kernels, np.all(kernels["kernel"] >= 0), "a kernel without a number")
    _require(kernels, len(np.unique(kernels["kernel"])) == count, "numbers of kernels have gaps")
    for column in ("share", "read_share", "write_share"):
        sums = np.bincount(kernels["kernel"], kernels[column], count)
        _require(kernels, np.allclose(sums, 1.0, atol=1e-9), f"{column} of a kernel is not 1 in sum")


def _check_numbers(about: About, instructions: int, sources: int) -> None:
    """What the advice is about."""
    for advice in about.advice:
        if not all(0 <= number < instructions for number in advice["instructions"]):
            raise _wrong("advice about instructions that are not there")
        if not all(0 <= number < sources for number in advice["sources"]):
            raise _wrong("advice about lines that are not there")


_REFERENCES: Mapping[str, Mapping[str, str]] = {
    "instructions": {"wait_for": "instructions", "source": "sources", "kernel": "kernels"},
    "kernels": {"module": "modules"},
    "modules": {"parent": "modules"},
    "dma": {"instruction": "instructions"},
    "path": {"instruction": "instructions"},
    "memory": {"source": "sources"},
    "sources": {"parent": "sources"},
}
_ASCENDING: Mapping[str, tuple[tuple[str, str], ...]] = {
    "instructions": (("start_ns", "move_ns"), ("move_ns", "end_ns"), ("end_ns", "visible_ns")),
    "dma": (("trigger_ns", "issued_ns"), ("issued_ns", "start_ns"), ("start_ns", "end_ns")),
    "memory": (("first_ns", "last_ns"),),
    "path": (("start_ns", "end_ns"),),
    "loops": (("first", "after"),),
}
_ALLOWED: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "instructions": {"wait_kind": {"": "", **WAITS}},
    "memory": {"region": dict.fromkeys(("sbuf", "psum", "private_hbm", "shared_hbm"), "")},
    "time": {"category": {**dict.fromkeys(("busy", "idle", "barrier"), ""), **WAITS}},
    "edges": {"kind": DEPENDENCES},
    "path": {"kind": PATHS},
}
_PATTERNS: Mapping[str, Mapping[str, re.Pattern[str]]] = {
    "instructions": {"engine": re.compile(rf"{_UNIT.pattern}|dma"), "queue": _QUEUE},
    "dma": {"trigger": re.compile(rf"({_UNIT.pattern})?"), "queue": _QUEUE},
    "time": {"track": re.compile(rf"{_QUEUE.pattern}|dma")},
}
_SIGNED = frozenset({"gap_ns"})


def _check_kinds(table: Table) -> None:
    for column in TABLES[table.name]:
        values = table[column.name]
        if column.kind == "text":
            longest = max(map(len, values), default=0)
            _require(table, longest <= MOST_TEXT, f"a {column.name} has {longest} characters")
            control = any(map(CONTROL.search, set(values)))
            _require(table, not control, f"a {column.name} has control characters")
        elif column.kind == "int":
            within = bool(np.all((values >= -1) & (values <= MOST_COUNT)))
            _require(table, within, f"{column.name} is outside -1..{MOST_COUNT}")
        elif column.kind == "float":
            _require(table, bool(np.all(np.isfinite(values))), f"{column.name} is not finite")
            most = MOST_NS if column.unit == "ns" else MOST_NUMBER
            _require(table, bool(np.all(np.abs(values) <= most)), f"{column.name} is more than {most:g}")
            if column.name not in _SIGNED:
                _require(table, bool(np.all(values >= 0.0)), f"{column.name} is negative")


def _within(table: Table, column: str, least: int, after: int) -> None:
    values = table[column]
    _require(table, bool(np.all((values >= least) & (values < after))), f"{column} is outside {least}..{after - 1}")


def _require(table: Table, holds: Any, otherwise: str) -> None:
    if not holds:
        raise refused("profile.values", f"{table.name}.parquet: {otherwise}")
