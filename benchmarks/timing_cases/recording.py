"""A comparison as text, as the TOML that is recorded, and as the table of docs/timing.md."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nki.target.accuracy import Accuracy

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "timing.md"
BEGIN, END = "| accuracy | |\n|---|---|\n", "\n\n"
"""Around the rows of the table in the document."""


def text(found: Accuracy) -> str:
    """The comparison as a table."""
    lines = [
        f"{'point':28} {'class':8} {'bound':7} {'predicted':>13} {'measured':>13}  {'':6} {'error':>7}   left out:"
        f" kernel  source   class"
    ]
    for p in found.points:
        without = f"{p.left_out:+7.1f}% {p.left_out_source:+6.1f}% {p.left_out_class:+6.1f}%"
        lines.append(
            f"{p.id:28} {p.kind:8} {p.bound:7} {p.predicted:13,.1f} {p.measured:13,.1f}  {p.unit:6} "
            f"{p.error:+6.1f}%           {'given' if p.given else without}"
        )
    lines += ["", "never fitted"]
    lines += [
        f"{u.id:28} {'':16} {u.predicted:13,.1f} {u.measured:13,.1f}  {u.unit:6} {u.error:+6.1f}%"
        for u in found.unfitted
    ]
    lines += ["", "kernels of a tutorial, rebuilt and as printed, over measured"]
    lines += [f"{i.id:28} {i.rebuilt / i.measured:6.2f} {i.printed / i.measured:6.2f}" for i in found.listings]
    lines += ["", "active time of engines, %"]
    lines += [f"{s.id:28} {s.engine:8} {'':7} {s.predicted:13.1f} {s.measured:13.1f}" for s in found.shares]
    lines += ["", "sequences of steps, slower first"]
    lines += [f"{'right' if right else 'WRONG'}: {' > '.join(steps)}" for steps, right in found.rankings]
    lines += [f"{s.id}: tau {s.tau:.3f} of {s.points}, {s.chosen} costs {s.regret:.1f} %" for s in found.sweeps]
    lines += ["", json.dumps(found.summary, indent=1)]
    return "\n".join(lines)


def record(found: Accuracy, digest: str) -> str:
    """The comparison as TOML, with numbers rounded so that equal models write equal files."""
    lines = ["# Written by benchmarks/timing_accuracy.py --write.", f"coefficients = {found.coefficients}"]
    lines += [f'digest = "{digest}"', ""]
    for table, rows in (
        ("point", map(asdict, found.points)),
        ("utilisation", map(asdict, found.shares)),
        ("unfitted", map(asdict, found.unfitted)),
        ("listing", map(asdict, found.listings)),
        ("sweep", map(asdict, found.sweeps)),
        ("ranking", ({"steps": list(steps), "right": right} for steps, right in found.rankings)),
    ):
        for row in rows:
            lines += [f"[[{table}]]", *(f"{key} = {_value(value)}" for key, value in row.items()), ""]
    return "\n".join(lines)


def _value(value: Any) -> str:
    if isinstance(value, float):
        return repr(round(value, 2 if abs(value) >= 1.0 else 4))
    return json.dumps(value, ensure_ascii=False)


def rows(found: Accuracy) -> str:
    """The rows of the table in the document."""
    summary = found.summary
    worst = summary["worst"]
    lines = [
        f"| points that are predicted, fitted coefficients | {summary['points']}, {summary['coefficients']} |",
        f"| points that the model was told, not counted below | {summary['given']} |",
        f"| mean error, all points | {summary['mape']:.1f} % |",
        f"| the kernel of the point left out of the fit | {summary['mape_left_out']:.1f} % |",
        f"| the source of the point left out of the fit | {summary['mape_left_out_source']:.1f} % |",
        f"| the class of the point left out of the fit | {summary['mape_left_out_class']:.1f} % |",
        f"| mean error where one engine bounds | {summary['one_engine']:.1f} % |",
        f"| largest error | {worst['error']:+.1f} % ({worst['id']}) |",
    ]
    for title, name in (("classes", "class"), ("targets", "target"), ("sources", "source"), ("kernels", "kernel")):
        lines += [
            f"| {name} {key} ({_counted(row['points'])}) | {_errors(row)} |" for key, row in summary[title].items()
        ]
    lines += [f"| {item.id}, never fitted | {item.error:+.1f} % |" for item in found.unfitted]
    for item in found.listings:
        rebuilt, printed = item.rebuilt / item.measured, item.printed / item.measured
        lines.append(f"| {item.id}, over the measured time | rebuilt {rebuilt:.2f}, as printed {printed:.2f} |")
    for sweep in found.sweeps:
        lines.append(
            f"| {sweep.id}, {sweep.points} settings | Kendall's tau {sweep.tau:.2f}, regret {sweep.regret:.1f} % |"
        )
    lines += [
        f"| utilisation of engines, {len(found.shares)} figures | within {summary['utilisation']:.1f} points |",
        f"| published sequences of steps in the right order | {summary['rankings_right']} of {summary['rankings']} |",
    ]
    return "\n".join(lines)


def _counted(points: int) -> str:
    return "1 point" if points == 1 else f"{points} points"


def _errors(row: dict[str, Any]) -> str:
    without = " / ".join(
        f"{row[name]:.1f}" for name in ("mape_left_out", "mape_left_out_source", "mape_left_out_class")
    )
    return f"{row['mape']:.1f} %, left out {without} %, worst {row['worst']['error']:+.1f} %"


def document(found: Accuracy, page: str) -> str:
    """The page with the rows of this comparison."""
    begin = page.index(BEGIN) + len(BEGIN)
    return page[:begin] + rows(found) + page[page.index(END, begin) :]
