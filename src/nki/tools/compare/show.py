"""What ``nki compare`` prints: a table, and the first difference with its line, operands and values."""

from __future__ import annotations

import linecache
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from rich.table import Table

from nki.core.source import Location
from nki.ir.print import instruction_text
from nki.spec.program import Issued
from nki.tools.compare.against import Setup
from nki.tools.compare.measure import Difference, doubles, plain
from nki.tools.compare.reference import Comparison
from nki.tools.compare.rows import Row, figure, subscript
from nki.tools.compare.runs import Diverged, Operands, Parted, Runs
from nki.tools.compare.sides import First, instruction_json
from nki.tools.output import echo, show_finding, stdout

_ORIGINS = 8
_HEADINGS = ("", "name", "shape", "dtype", "max abs", "max rel", "rel L2", "beyond", "tolerance", "verdict")


def show_comparison(comparison: Comparison, reference: str) -> None:
    """Everything about a kernel and its reference."""
    report = comparison.report
    for finding in report.findings:
        show_finding(finding)
    _table(f"{report.kernel} against {reference}", comparison.rows, report.cores)
    if comparison.first is not None:
        _show_first(comparison, comparison.first)
    left_out = sum(not row.counts for row in comparison.rows)
    taps = f", {left_out} tap{'s' if left_out > 1 else ''} not compared" if left_out else ""
    echo(f"{'equal within the tolerance' if comparison.equal else 'DIFFERS'}{taps} ({report.provenance()})")


def show_runs(kernel: str, runs: Runs, first: Setup, second: Setup) -> None:
    """Everything about two runs."""
    _table(f"{kernel}: {second} against {first}", runs.rows, 1)
    if runs.diverged is not None:
        _show_diverged(runs, runs.diverged, first, second)
    if runs.parted is not None:
        _show_parted(runs.parted, first, second)
    verdict = "equal within the tolerance" if runs.equal else "DIFFERS"
    echo(f"{verdict}; instructions that wrote the same: {runs.steps}{' (then only outputs)' * bool(runs.parted)}")


def diverged_json(diverged: Diverged) -> dict[str, Any]:
    """The first difference for programs."""
    difference = diverged.difference
    return {
        "number": diverged.number,
        "core": diverged.second.core,
        **instruction_json(diverged.second.issued),
        "operand": diverged.operand,
        "difference": difference.to_json(),
        "inputs": [
            {"name": name, "max_abs": plain(apart), "first": plain(one), "second": plain(other)}
            for name, apart, one, other in _inputs(diverged)
        ],
    }


def parted_json(parted: Parted) -> dict[str, Any]:
    """Where the programs differ, for programs."""
    sides = {"first": parted.first, "second": parted.second}
    return {
        "number": parted.number,
        **{name: None if issued is None else instruction_json(issued) for name, issued in sides.items()},
    }


def _table(title: str, rows: Sequence[Row], cores: int) -> None:
    table = Table(title=title, title_justify="left")
    for heading in _HEADINGS:
        table.add_column(heading)
    for row in rows:
        name = f"{row.name} (core {row.core})" if cores > 1 and row.kind == "tap" else row.name
        shape = " x ".join(str(size) for size in row.shape)
        table.add_row(row.kind, name, shape, row.dtype, *_figures(row.difference), row.verdict)
    stdout().print(table)


def _figures(difference: Difference | None) -> tuple[str, ...]:
    if difference is None:
        return ("-",) * 5
    errors = (difference.max_abs, difference.max_rel, difference.rel_l2)
    beyond = f"{difference.beyond} of {difference.elements}"
    return (*("-" if error is None else f"{error:.3g}" for error in errors), beyond, str(difference.tolerance))


def _show_first(comparison: Comparison, first: First) -> None:
    row = first.row
    echo(f"\nfirst difference: {row.kind} {row.name}, {_largest(row.name, row.difference) or row.verdict}")
    if row.location.frames:
        echo(row.location.excerpt())
    if first.last_equal is not None:
        echo(f"  the last tap before it that is right: {first.last_equal.name} ({first.last_equal.location})")
    if first.writer is None:
        echo("  no instruction wrote this element")
    else:
        echo("written by")
        _show_instruction(comparison, row.core, first.writer)
    rest = [issued for issued in first.origins if issued is not first.writer]
    if rest:
        echo("its values come from, the last one first")
    for issued in rest[:_ORIGINS]:
        echo(f"  {issued.instruction.label} at {issued.location}{_source(issued.location)}")
    if len(rest) > _ORIGINS:
        echo(f"  and {len(rest) - _ORIGINS} more")
    echo("")


def _show_instruction(comparison: Comparison | Runs, core: int, issued: Issued) -> None:
    report = comparison.report if isinstance(comparison, Comparison) else comparison.reports[1]
    echo(issued.location.excerpt())
    chain = issued.location.chain()
    if chain:
        echo(chain)
    echo(f"  {instruction_text(report.programs[core], issued)}")


def _show_diverged(runs: Runs, diverged: Diverged, first: Setup, second: Setup) -> None:
    issued, difference = diverged.second.issued, diverged.difference
    core = f" of core {diverged.second.core}" if runs.reports[1].cores > 1 else ""
    echo(
        f"\nfirst difference: instruction {diverged.number}{core}, {issued.instruction.label}, "
        f"{_largest(diverged.operand, difference, str(second), str(first))}"
    )
    _show_instruction(runs, diverged.second.core, issued)
    echo("  inputs there" if _inputs(diverged) else "  it reads no tensor")
    for name, apart, one, other in _inputs(diverged):
        same = "equal in both runs" if apart == 0 else f"the runs differ by up to {figure(apart)}"
        values = "" if one is None else f" = {figure(one)}" if one == other else f" = {figure(one)} and {figure(other)}"
        echo(f"    {name}{values} ({same})")
    echo("")


def _show_parted(parted: Parted, first: Setup, second: Setup) -> None:
    echo(f"\nthe runs execute different instructions after {parted.number}; from there only outputs are compared")
    for setup, issued in ((first, parted.first), (second, parted.second)):
        what = "has ended" if issued is None else f"{issued.instruction.label} at {issued.location}"
        echo(f"  {setup}: {what}")
    echo("")


def _largest(
    name: str, difference: Difference | None, found: str = "the kernel", expected: str = "the reference"
) -> str:
    if difference is None:
        return ""
    return (
        f"largest at {subscript(name, difference.index)}: {figure(difference.found)} ({found}) instead of "
        f"{figure(difference.expected)} ({expected})"
    )


def _inputs(diverged: Diverged) -> list[tuple[str, float, float | None, float | None]]:
    """Name with index, largest difference between the runs, and the value in both where there is one place for it."""
    return list(_paired(diverged.first.before, diverged.second.before, diverged.difference.index))


def _paired(
    first: Operands, second: Operands, index: tuple[int, ...]
) -> Iterator[tuple[str, float, float | None, float | None]]:
    for (name, _, one), (_, _, other) in zip(first, second, strict=True):
        left, right = doubles(one), doubles(other)
        place = _place(left.shape, index)
        with np.errstate(all="ignore"):
            apart = np.where((left == right) | (np.isnan(left) & np.isnan(right)), 0.0, np.abs(left - right))
        largest = float(np.where(np.isnan(apart), np.inf, apart).max())
        if place is None:
            yield name, largest, None, None
        else:
            yield subscript(name, place), largest, float(left[place]), float(right[place])


def _place(shape: tuple[int, ...], index: tuple[int, ...]) -> tuple[int, ...] | None:
    """Where an input is read for an element of the result: at the same place, or at that of a dimension of size 1."""
    if len(shape) != len(index) or any(size != 1 and at >= size for size, at in zip(shape, index, strict=True)):
        return None
    return tuple(0 if size == 1 else at for size, at in zip(shape, index, strict=True))


def _source(location: Location) -> str:
    frame = location.frame
    text = linecache.getline(frame.file, frame.line).strip() if frame is not None else ""
    return f": {text}" if text else ""
