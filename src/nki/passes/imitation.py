"""Imitation: what the compiler does because profiles show that the device's compiler does it, as one table.

The table is `imitation.toml`, and a test holds docs/compiler.md to it. `Options.imitate` chooses the column: "vendor"
for times as the device's compiler would have them, "none" for the shortest program that this one can make. Neither
changes what a kernel computes.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal

_TABLE = Path(__file__).resolve().parent / "imitation.toml"


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table.

    Attributes:
        name: of the field of `Imitation`.
        vendor, none: its value under each setting.
        source: the document that shows it.
        measured: what it shows.
        changes: what depends on the value.
    """

    name: str
    vendor: Any
    none: Any
    source: str
    measured: str
    changes: str


@dataclass(frozen=True, slots=True)
class Imitation:
    """One column of the table, as the passes ask for it.

    Attributes:
        ahead: parts of SBUF that are tried for loads to run ahead in.
        equal_orders: length over the shortest one up to which orders of large programs are equally long.
        merged_room: part of SBUF that may be live where a result waits to be used again.
        merged_lines: whether equal results of "one" line are computed once, or of "all" lines.
        kept_loads: part of SBUF that tiles may take until an equal load is done again; "all" for any.
        spare_banks: banks of PSUM that a row which stays there leaves to others.
    """

    ahead: tuple[float, ...]
    equal_orders: float
    merged_room: float
    merged_lines: Literal["one", "all"]
    kept_loads: float | Literal["all"]
    spare_banks: int


@cache  # the file does not change while the process runs
def rules() -> tuple[Rule, ...]:
    """The table, row by row; each row is a field of `Imitation`, and each field has a row."""
    found = tomllib.loads(_TABLE.read_text(encoding="utf-8"))
    rows: dict[str, dict[str, Any]] = {
        name: {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
        for name, row in found.items()
    }
    return tuple(Rule(field.name, **rows[field.name]) for field in fields(Imitation))


@cache  # two settings
def imitation(setting: str) -> Imitation:
    """The values under a setting of `Options.imitate`, "vendor" or "none"."""
    return Imitation(**{rule.name: getattr(rule, setting) for rule in rules()})
