"""A kernel's values beside those of its reference: which belong together, and where the first difference is from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nki.core.dtypes import DType, from_numpy
from nki.core.tensor import View
from nki.spec.program import Issued
from nki.tools.compare.history import History, Tapped, origins, writer
from nki.tools.compare.rows import Allow, Row, compared

Arrays = list[tuple[str, np.ndarray]]


@dataclass(frozen=True, slots=True)
class First:
    """The first row that differs, and where its values come from.

    Attributes:
        row: the output or tap.
        last_equal: the last tap before it that is right, if there is one.
        writer: the instruction that wrote the element with the largest difference; None if nothing wrote it.
        origins: instructions that its values may come from, the last one first.
    """

    row: Row
    last_equal: Row | None
    writer: Issued | None
    origins: list[Issued]

    def to_json(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "row": self.row.to_json(),
            "last_equal": None if self.last_equal is None else self.last_equal.name,
            "written_by": None if self.writer is None else instruction_json(self.writer),
            "origins": [instruction_json(issued) for issued in self.origins],
        }


def instruction_json(issued: Issued) -> dict[str, Any]:
    """An instruction and its lines."""
    return {
        "instruction": issued.instruction.label,
        "engine": issued.engine.name,
        "location": issued.location.to_json(),
    }


def tap_rows(taps: Sequence[Tapped], expected: Arrays, allow: Allow) -> list[Row]:
    """One row for each tap of the kernel; the n-th tap of a name belongs to the reference's n-th."""
    theirs = dict(_numbered(expected))
    names = Counter(name for name, _ in theirs)
    rows = []
    for key, tapped in _numbered([(tapped.name, tapped) for tapped in taps]):
        name, dtype = _shown(key, names[key[0]]), tapped.view.dtype
        row = Row(
            kind="tap",
            name=name,
            core=tapped.core,
            shape=tapped.view.shape,
            dtype=dtype.name,
            difference=None,
            location=tapped.location,
        )
        if key in theirs:
            rows.append(_filled(row, tapped.values, dtype, theirs[key], allow))
        elif names[key[0]]:
            rows.append(replace(row, problem="DIFFERS: the reference has fewer"))
        else:
            rows.append(replace(row, problem="not compared: only in the kernel", counts=False))
    return rows


def left_over(taps: Sequence[Tapped], expected: Arrays) -> list[Row]:
    """One row for each tap that only the reference made."""
    ours = Counter(tapped.name for tapped in taps)
    rows = []
    for (name, at), array in _numbered(expected):
        if at >= ours[name]:
            problem = "DIFFERS: the kernel has fewer" if ours[name] else "not compared: only in the reference"
            shown = _shown((name, at), ours[name])
            row = Row(
                kind="tap",
                name=shown,
                core=0,
                shape=array.shape,
                dtype=str(array.dtype),
                difference=None,
                problem=problem,
                counts=ours[name] > 0,
            )
            rows.append(row)
    return rows


def output_rows(outputs: Sequence[tuple[str, np.ndarray, np.ndarray]], allow: Allow) -> list[Row]:
    """One row for each ``(name, found, expected)``."""
    rows = []
    for name, found, expected in outputs:
        dtype = from_numpy(found.dtype)
        row = Row(kind="output", name=name, core=0, shape=found.shape, dtype=dtype.name, difference=None)
        rows.append(_filled(row, found, dtype, expected, allow))
    return rows


def first_difference(
    history: History, tapped: Sequence[Row], results: Sequence[Row], views: Sequence[View]
) -> First | None:
    """The first tap that differs, else the first output; None if all pass.

    `tapped` and `results` are in the order of the taps in `history` and of `views`.
    """
    taps = history.taps()
    passed = [tap for tap, row in zip(taps, tapped, strict=True) if row.passed]
    for tap, row in zip(taps, tapped, strict=True):
        if row.failed:
            equal = [each for each in tapped[: tapped.index(row)] if each.passed and each.core == row.core]
            return _from(row, equal, history.before_tap(tap), tap.view, passed)
    for view, row in zip(views, results, strict=True):
        if row.failed:
            items = history.cores.get(0, [])
            return _from(row, [each for each in tapped if each.passed and each.core == 0], items, view, passed)
    return None


def _from(row: Row, equal: Sequence[Row], items: list[Issued | Tapped], view: View, passed: Sequence[Tapped]) -> First:
    where = row.difference.index if row.difference is not None else ()
    index = where if len(where) == view.ndim and not view.dtype.is_packed else (0,) * view.ndim
    return First(row, equal[-1] if equal else None, writer(items, view, index), origins(items, view, passed))


def _filled(row: Row, found: np.ndarray, dtype: DType, expected: np.ndarray, allow: Allow) -> Row:
    outcome = compared(found, dtype, expected, allow)
    return replace(row, problem=outcome) if isinstance(outcome, str) else replace(row, difference=outcome)


def _numbered(named: Sequence[tuple[str, Any]]) -> Iterator[tuple[tuple[str, int], Any]]:
    """``((name, how often it came before), value)``."""
    seen: Counter[str] = Counter()
    for name, value in named:
        yield (name, seen[name]), value
        seen[name] += 1


def _shown(key: tuple[str, int], others: int) -> str:
    return f"{key[0]} #{key[1] + 1}" if key[1] or others > 1 else key[0]
