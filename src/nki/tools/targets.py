"""``nki targets``: what is known about each hardware generation, and where every number comes from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import click
from rich.table import Table

from nki.target.accuracy import Accuracy, interval, means, recorded
from nki.target.load import DEFAULT_TARGET, load_target, target_names
from nki.target.model import Provenance, Target
from nki.tools.output import Command, stdout, write_json
from nki.tools.request import JSON


@click.command("targets", cls=Command, short_help="Show hardware data.")
@click.argument("name", required=False)
@click.option("--accuracy", is_flag=True, help="Compare the timing model with published measurements.")
@JSON
def command(name: str | None, accuracy: bool, as_json: bool) -> None:
    """List the targets, or show every number of one with its source document; estimates are marked.

    With --accuracy: every published time beside that of the timing model, as it was recorded for this version.
    """
    if accuracy:
        _accuracy(None if name is None else load_target(name), as_json)
        return
    if name is not None:
        _one(load_target(name), as_json)
        return
    found = [load_target(each) for each in target_names()]
    if as_json:
        write_json([_summary(target) for target in found])
        return
    table = Table()
    for heading in ("target", "aliases", "chip", "SBUF", "PSUM", "cores (LNC)", "bf16", "timing", "estimates"):
        table.add_column(heading)
    for target in found:
        table.add_row(*_row(target))
    stdout().print(table)


def _row(target: Target) -> tuple[str, ...]:
    return (
        target.name + (" (default)" if target.name == DEFAULT_TARGET else ""),
        ", ".join(target.aliases),
        target.title,
        f"{target.partitions} x {target.sbuf.bytes_per_partition // 1024} KiB",
        f"{target.partitions} x {target.psum.bytes_per_partition // 1024} KiB",
        " or ".join(str(count) for count in target.lnc),
        f"{target.peak.tensor_bf16_tflops:g} TFLOPS",
        "validated" if target.validated else "not validated",
        f"{_estimates(target)} of {len(list(target.leaves()))}",
    )


def _estimates(target: Target) -> int:
    return sum(bool(leaf.estimate) for _, leaf in target.leaves())


def _summary(target: Target) -> dict[str, Any]:
    return {
        "name": target.name,
        "title": target.title,
        "aliases": list(target.aliases),
        "default": target.name == DEFAULT_TARGET,
        "timing_validated": target.validated,
        "estimates": _estimates(target),
        "values": len(list(target.leaves())),
    }


def _one(target: Target, as_json: bool) -> None:
    if as_json:
        write_json({**_summary(target), "values": {path: _leaf(leaf) for path, leaf in target.leaves()}})
        return
    table = Table(title=target.title, title_justify="left")
    for heading in ("value", "", "source", "note"):
        table.add_column(heading, overflow="fold")
    for path, leaf in target.leaves():
        table.add_row(path, _value(leaf.value), leaf.source or f"estimate: {leaf.estimate}", leaf.note)
    stdout().print(table)


def _accuracy(only: Target | None, as_json: bool) -> None:
    found = recorded()
    marks = {name: _mark(load_target(name), found) for name in target_names() if only is None or name == only.name}
    if as_json:
        points = [asdict(point) for point in found.points if point.target in marks]
        shares = [asdict(share) for share in found.shares if share.target in marks]
        unfitted = [asdict(item) for item in found.unfitted if item.target in marks]
        rankings = [{"steps": steps, "right": right} for steps, right in found.rankings]
        excluded = [{"id": name, "reason": reason} for name, reason in found.excluded]
        listings = [asdict(item) for item in found.listings if item.target in marks]
        sweeps = [asdict(item) for item in found.sweeps]
        more = {"utilisations": shares, "listings": listings, "sweeps": sweeps, "unfitted": unfitted}
        more |= {"rankings": rankings, "excluded": excluded}
        known = {name: {bound: interval(name, bound) for bound in _BOUNDS} for name in marks}
        intervals = {
            name: {bound: asdict(each) for bound, each in of.items() if each is not None} for name, of in known.items()
        }
        write_json({"targets": marks, "summary": found.summary, "points": points, "intervals": intervals, **more})
        return
    for table in (*_accuracy_tables(found, marks), _intervals(marks)):
        stdout().print(table)
    stdout().print(_MEANING, highlight=False)
    for name, mark in marks.items():
        stdout().print(f"{name}: {mark}", highlight=False)


def _mark(target: Target, found: Accuracy) -> str:
    """How far the timing of a generation has been compared."""
    points = [point for point in found.predicted if point.target == target.name]
    if not points:
        return "estimated: nothing is published for it, and no accuracy is claimed"
    if not target.validated:
        known = ", ".join(f"{point.id} {point.error:+.1f} %" for point in points)
        return f"estimated, and no accuracy is claimed for kernels; what is published of it: {known}"
    kernels = sum(point.kind == "kernel" for point in points)
    told = means(points)
    return (
        f"validated: mean error {told['mape']:.1f} % of {len(points)} points, {kernels} of them kernels; left out of "
        f"the fit with their kernel {told['mape_left_out']:.1f} %, source {told['mape_left_out_source']:.1f} %, "
        f"class {told['mape_left_out_class']:.1f} %"
    )


def _accuracy_tables(found: Accuracy, marks: dict[str, str]) -> list[Table]:
    points = Table(title="published times and the timing model", title_justify="left")
    for heading in ("point", "target", "class", "bound by"):
        points.add_column(heading)
    for heading in ("predicted", "measured", "", "error", "left out"):
        points.add_column(heading, justify="right" if heading else "left")
    for p in found.points:
        if p.target in marks:
            numbers = f"{p.predicted:,.1f}", f"{p.measured:,.1f}", p.unit
            errors = ("given", "") if p.given else (f"{p.error:+.1f} %", f"{p.left_out_source:+.1f} %")
            points.add_row(p.id, p.target, p.kind, p.bound, *numbers, *errors)
    for u in found.unfitted:
        if u.target in marks:
            numbers = f"{u.predicted:,.1f}", f"{u.measured:,.1f}", u.unit
            points.add_row(u.id, u.target, "never fitted", "", *numbers, f"{u.error:+.1f} %", "")
    return [points, _means(found.summary), *_side_by_side(found, marks)]


def _means(summary: dict[str, Any]) -> Table:
    """Mean errors of all points, of classes, and of sources."""
    table = Table(title="mean errors; left out of the fit with the kernel, source, class", title_justify="left")
    for heading in ("of", "points", "all fitted", "kernel", "source", "class", "worst"):
        table.add_column(heading)
    rows = {**summary["classes"], **summary["sources"], "all": summary}
    for name, row in rows.items():
        errors = (row[key] for key in ("mape", "mape_left_out", "mape_left_out_source", "mape_left_out_class"))
        table.add_row(name, str(row["points"]), *(f"{e:.1f} %" for e in errors), f"{row['worst']['error']:+.1f} %")
    return table


def _side_by_side(found: Accuracy, marks: dict[str, str]) -> list[Table]:
    """Kernels as printed beside the rebuilt ones, and how settings of a kernel are ranked."""
    listings = Table(title="kernels of a tutorial, predicted over measured", title_justify="left")
    for heading in ("point", "rebuilt", "as printed"):
        listings.add_column(heading)
    for item in found.listings:
        if item.target in marks:
            listings.add_row(item.id, f"{item.rebuilt / item.measured:.2f}", f"{item.printed / item.measured:.2f}")
    sweeps = Table(title="settings of one kernel", title_justify="left")
    for heading in ("sweep", "settings", "Kendall's tau", "chosen", "regret"):
        sweeps.add_column(heading)
    for sweep in found.sweeps:
        sweeps.add_row(sweep.id, str(sweep.points), f"{sweep.tau:.2f}", sweep.chosen, f"{sweep.regret:.1f} %")
    return [table for table in (listings, sweeps) if table.rows]


_BOUNDS = ("dma", "tensor", "vector", "waits")
"""One of each kind of kernel that errors are known of."""

_MEANING = """\
error: predicted over measured, less 1. left out: the same if the coefficients of the model are fitted without all
points of the source, which is what to expect of a kernel that nobody measured. given: the model was told the figure.
bound by: what works for at least 90 % of the time; waits, if nothing does."""


def _intervals(marks: Iterable[str]) -> Table:
    """How far off predictions for kernels of each kind may be."""
    table = Table(title="how far off nine of ten kernels were, left out", title_justify="left")
    for heading in ("target", "bound by", "within", "points", "which"):
        table.add_column(heading)
    for name in marks:
        for bound in _BOUNDS:
            found = interval(name, bound)
            if found is not None:
                told = {"dma": "transfers", "vector": "vector or scalar"}.get(bound, bound)
                table.add_row(name, told, f"{found.percent:.0f} %", str(found.points), found.kind)
    return table


def _leaf(leaf: Provenance) -> dict[str, Any]:
    parts = {"source": leaf.source, "estimate": leaf.estimate, "note": leaf.note}
    return {"value": leaf.value, **{key: text for key, text in parts.items() if text}}


def _value(value: object) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case tuple():
            return ", ".join(_value(item) if not isinstance(item, tuple) else f"({_value(item)})" for item in value)
    return str(value)
