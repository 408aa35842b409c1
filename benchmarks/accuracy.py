"""How exact the functions and the casts are: errors against float64 references, over all exponents of float32.

Prints a table of the elementary functions, one of the activation unit, and one of the casts of every pair of dtypes.
Usage: ``python benchmarks/accuracy.py [--points N] [--only NAME] [--json OUT] [--write]``; N is the number of mantissas
of each exponent, a power of 2 up to 2**23, which is all; there are eight times as many around 1. ``--write`` writes
docs/accuracy.md. Exit status 1 if a bound of tests/elementary/references.py is broken, or a cast differs from integer
arithmetic in a way that is not known.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.core import cast_reference
from tests.elementary.functions import ACTIVATION_FUNCTIONS, ELEMENTARY_FUNCTIONS, power_errors
from tests.elementary.references import ACTIVATION, ELEMENTARY, Reference, Worst, sweep, worst
from tests.oracles.casts import cast

from nki.core import dtypes
from nki.core.dtypes import DType

OUTPUT = Path(__file__).resolve().parent.parent / "docs" / "accuracy.md"
_DEFAULT_POINTS = 1 << 14
_SPECIAL = np.array([math.inf, -math.inf, 0.0, -0.0, math.nan], np.float32)


@dataclass(frozen=True, slots=True)
class Row:
    """One function.

    Attributes:
        name, group: of the function.
        count: arguments.
        ulps, at: largest error of a normal result, and the argument.
        bound: that the tests hold it to.
        subnormal: largest error of a subnormal result, in units of 2**-149.
        wrong: results that are NaN or infinite and should not be, or the other way round.
        special: results for inf, -inf, 0, -0 and NaN.
    """

    name: str
    group: str
    count: int
    ulps: float
    at: float
    bound: float
    subnormal: float
    wrong: int
    special: tuple[str, ...]

    @property
    def good(self) -> bool:
        """Whether the bounds hold."""
        return self.ulps <= self.bound and not self.wrong


@dataclass(frozen=True, slots=True)
class Cast:
    """All casts of one pair of dtypes."""

    source: str
    destination: str
    count: int
    mismatches: int


def measured(points: int, only: str | None) -> Iterator[Row]:
    """The functions, one by one."""
    groups: tuple[tuple[str, dict[str, Reference], dict[str, Callable[[Any], Any]]], ...] = (
        ("elementary", ELEMENTARY, ELEMENTARY_FUNCTIONS),
        ("activation", ACTIVATION, ACTIVATION_FUNCTIONS),
    )
    for group, references, functions in groups:
        for name, reference in references.items():
            if only in (None, name):
                errors = worst(reference, functions[name], sweep(points, reference.low, reference.high))
                good = errors.subnormal <= reference.subnormal
                yield _row(name, group, errors, reference.bound if good else 0.0, _special(reference, functions[name]))
    if only in (None, "power"):
        yield _row("power", "elementary", power_errors(points * 64), 1.0, ())


def _row(name: str, group: str, errors: Worst, bound: float, special: tuple[str, ...]) -> Row:
    at, subnormal = errors.at, round(errors.subnormal, 2)
    return Row(name, group, errors.count, round(errors.ulps, 2), at, bound, subnormal, errors.wrong, special)


def _special(reference: Reference, function: Callable[[Any], Any]) -> tuple[str, ...]:
    with np.errstate(all="ignore"):
        results = np.asarray(function(_SPECIAL))
    shown = []
    for argument, value in zip(_SPECIAL, results, strict=True):
        outside = argument < reference.low or argument > reference.high
        shown.append("" if outside else f"{value:.4g}")
    return tuple(shown)


def casts(count: int) -> Iterator[Cast]:
    """Every pair of dtypes of the device that are not packed."""
    plain = [d for d in vars(dtypes).values() if isinstance(d, DType) and d.device and not d.is_packed]
    for source in plain:
        for destination in plain:
            total = wrong = 0
            for storage in cast_reference.samples(source, count):
                exact = cast_reference.decoded(storage, source)
                values = exact if source is destination else cast_reference.rounded(exact, dtypes.float32)
                result = cast(storage, source, destination)
                if source is destination:
                    wrong += int(storage.tobytes() != result.tobytes())
                else:
                    wrong += cast_reference.mismatches(values, result, destination)
                total += storage.size
            yield Cast(source.name, destination.name, total, wrong)


def function_table(rows: list[Row], group: str) -> str:
    """As Markdown, which is readable on a terminal too."""
    lines = [
        "| function | error (ulps) | at | bound | subnormal results | f(inf) | f(-inf) | f(0) | f(-0) | f(nan) |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in (r for r in rows if r.group == group):
        special = " | ".join(row.special or ("C99",) * len(_SPECIAL))
        lines.append(
            f"| `{row.name}` | {row.ulps:.2f} | {row.at:.9g} | {row.bound:g} | {row.subnormal:.2f} | {special} |"
        )
    return "\n".join(lines)


def cast_table(pairs: list[Cast]) -> str:
    """Mismatches; a row for each source."""
    names = list(dict.fromkeys(pair.source for pair in pairs))
    wrong = {(pair.source, pair.destination): pair.mismatches for pair in pairs}
    tried = {pair.source: pair.count for pair in pairs}
    lines = ["| from \\ to | values | " + " | ".join(names) + " |", "|---" * (len(names) + 2) + "|"]
    for name in names:
        lines.append(f"| {name} | {tried[name]} | " + " | ".join(str(wrong[name, other]) for other in names) + " |")
    return "\n".join(lines)


def document(rows: list[Row], pairs: list[Cast], points: int) -> str:
    """docs/accuracy.md."""
    return f"""# How exact the numbers are

Written by `python benchmarks/accuracy.py --write`; do not edit.

Functions that IEEE 754 does not define are written once, over operations that it does define, in `nki.elementary`;
every executor evaluates the same operations and gives the same bits. What hardware gives differs within the errors of
its own approximations, which the documents do not state.

Errors are measured against float64 references (tests/elementary/references.py) on {points} mantissas of each exponent
of float32, both signs, and eight times as many from 2**-12 to 2**8. An ulp is the distance of float32 numbers at the
exact result; where it is subnormal, the error is listed apart, in units of 2**-149. Derivatives next to their zeros
count ulps of their summands; `gelu_apprx_tanh`, `gelu_apprx_sigmoid` and their derivatives add what an ulp of the inner
argument makes of the result. The tests hold every function to its bound. No result is NaN or infinite where it should
not be.

## Elementary functions

`decay` is `exp(-t)`, `log1p_unit` the logarithm of 1 + a for 0 <= a <= 1, `normal_tail` the part of the normal
distribution beyond t; `power` is measured with results of all exponents.
`sin` is measured up to 2**17; up to 2**21 it is within 8 ulps, and NaN beyond: `nl.sin` reduces its argument before.

{function_table(rows, "elementary")}

## Functions of the activation unit

`sin` counts from -pi to pi, `prelu` with a slope of 0.25.

{function_table(rows, "activation")}

## Casts

Results that differ from integer arithmetic (tests/core/cast_reference.py), by value, sign of zero and being NaN: all
values of types of up to 16 bits; of others all exponents or magnitudes with random tails, ties among them.

{cast_table(pairs)}
"""


def main() -> int:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--points", type=int, default=_DEFAULT_POINTS)
    parser.add_argument("--only")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args()
    if chosen.points & (chosen.points - 1) or not 1 <= chosen.points <= 1 << 23:
        parser.error("--points takes a power of 2 up to 8388608")
    if chosen.write and chosen.only:
        parser.error("--write measures everything; leave --only out")
    rows = list(measured(chosen.points, chosen.only))
    pairs = list(casts(200)) if chosen.only in (None, "casts") else []
    for group in ("elementary", "activation"):
        print(function_table(rows, group), end="\n\n")
    print(cast_table(pairs))
    if chosen.json:
        chosen.json.write_text(
            json.dumps({"functions": [*map(asdict, rows)], "casts": [*map(asdict, pairs)]}, indent=1)
        )
    if chosen.write:
        OUTPUT.write_text(document(rows, pairs, chosen.points), encoding="utf-8")
    broken = [r.name for r in rows if not r.good] + [f"{p.source} to {p.destination}" for p in pairs if p.mismatches]
    print("broken: " + ", ".join(broken) if broken else "all bounds hold")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
