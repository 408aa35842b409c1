"""A comparison for people: totals, engines, kinds of instructions, and what is on one side alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from nki.core.visible import visible
from nki.profiling.measured.comparison import HOW, Comparison, Sums
from nki.profiling.measured.fit import Fit

_HEADINGS = ("matched", "only predicted", "only measured", "measured", "predicted", "error", "mean |error|")
_GROUPS = 8
"""Groups of instructions without a partner that are shown; the JSON has all."""


def show_comparison(console: Console, comparison: Comparison) -> None:
    """Print all parts."""
    told, capture = comparison.to_json(), comparison.capture
    kernel, name = comparison.profile.about.kernel, capture.name or capture.folder.name
    console.print(Text(visible(f"{kernel}: predicted next to measured ({name})"), style="bold"))
    for note in capture.notes:
        console.print(Text(visible(f"note: {note}")))
    measured, predicted = told["measured_ns"], told["predicted_ns"]
    console.print(f"measured {_us(measured)}, predicted {_us(predicted)}: {_signed(told['error'])}")
    for how, count in told["matched"].items():
        console.print(f"{count:,} matched {HOW[how]}")
    _sums(console, comparison.engines(), "engine")
    _sums(console, comparison.kinds(), "instruction")
    _alone(console, "predicted, not measured", told["predicted_only"])
    _alone(console, "measured, not predicted", told["measured_only"])
    own = Counter[str]()
    for each in told["of_the_device"]:
        own[each["kind"]] += each["count"]
    if own:
        console.print(
            Text(visible("of the device itself: " + ", ".join(f"{n} {kind}" for kind, n in own.most_common())))
        )


def _sums(console: Console, sums: list[Sums], heading: str) -> None:
    grid = Grid(box=None, pad_edge=False, title_justify="left")
    for name in (
        heading,
        "matched",
        "only predicted",
        "only measured",
        "measured",
        "predicted",
        "error",
        "mean |error|",
    ):
        grid.add_column(name, justify="left" if name == heading else "right")
    for each in sums:
        grid.add_row(
            Text(visible(f"{each.engine} {each.kind}".strip())),
            f"{each.matched:,}",
            f"{each.predicted_only:,}",
            f"{each.measured_only:,}",
            _us(each.measured_ns),
            _us(each.predicted_ns),
            _signed(each.error),
            "-" if each.mean_error is None else f"{each.mean_error:.1%}",
        )
    console.print()
    console.print(grid)


def _alone(console: Console, title: str, groups: list[dict[str, Any]]) -> None:
    if not groups:
        return
    console.print()
    console.print(Text(f"{title}: {sum(each['count'] for each in groups):,}", style="bold"))
    for each in groups[:_GROUPS]:
        where = f" at {each['line']}" if each["line"] else ""
        console.print(Text(visible(f"  {each['count']:,} {each['kind']} on {each['engine']}{where}")))
    if len(groups) > _GROUPS:
        console.print(f"  and {len(groups) - _GROUPS} more groups; --json has all")


def _us(ns: float) -> str:
    return f"{ns / 1000:,.2f} µs"


def _signed(error: float | None) -> str:
    return "-" if error is None else f"{error:+.1%}"


def show_fit(console: Console, found: Fit, path: Path) -> None:
    """What was fitted, what was left and why, and how the file is used."""
    fitted = [each for each in found.coefficients if each.fitted]
    console.print()
    seen = f"{len(found.observations):,} kinds of observations"
    console.print(Text(f"{len(fitted)} of {len(found.coefficients)} coefficients fitted to {seen}", style="bold"))
    console.print(f"mean error of an observation: {found.before:.1%} before, {found.after:.1%} after")
    grid = Grid(box=None, pad_edge=False)
    for name in ("coefficient", "before", "fitted", "standard error", "observations"):
        grid.add_column(name, justify="left" if name == "coefficient" else "right")
    for each in fitted:
        grid.add_row(
            each.name, f"{each.before:.5g}", f"{each.value:.5g}", f"{each.error:.1%}", f"{each.observations:,}"
        )
    console.print(grid)
    console.print()
    console.print("left as they were:")
    for each in found.coefficients:
        if not each.fitted:
            console.print(f"  {each.name}: {each.why}")
    console.print(Text(visible(f"written to {path}: use it with --target {path}")))
