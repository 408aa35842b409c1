"""``nki calibrate``: coefficients of collectives, fitted to measured times, as a target."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from nki.core.errors import UsageError
from nki.core.least_squares import Coefficient
from nki.driver.prepare import chosen_target
from nki.store.files import write_whole
from nki.target.model import Target
from nki.target.names import COLLECTIVE
from nki.target.own import base_of, leaf_text, own_file, read_own
from nki.tools.options import options_of
from nki.tools.output import Command, echo, stdout, write_json
from nki.tools.request import JSON, TARGET, usage_error
from nki.topology import instance_of, load_instance
from nki.topology.fit import CollectiveFit, Run, fit
from nki.topology.times import OPERATIONS
from nki.version import version

_FORM = '{"collective": "all_reduce", "ranks": 32, "bytes": 65536, "us": 41.5}'
_KEYS = frozenset({"collective", "ranks", "bytes", "us"})
_MOST_RANKS = 1 << 20


@click.command("calibrate", cls=Command, short_help="Fit the times of collectives to measured ones.")
@click.argument("runs", metavar="RUNS.json", type=click.Path(path_type=Path))
@TARGET
@click.option("--instance", metavar="NAME", help="Where it was measured; by default the target's own instance.")
@click.option("--out", "-o", type=click.Path(path_type=Path), metavar="OUT.toml", help="Write a target of its own.")
@JSON
def command(runs: Path, target: str | None, instance: str | None, out: Path | None, as_json: bool) -> None:
    """Compare times of collectives with the model, and fit its coefficients to them.

    RUNS.json is a list of what was measured: collective, ranks, bytes and us of each. OUT.toml is a target.
    """
    if out is not None and out.suffix != ".toml":
        fix = f"write {out.with_suffix('.toml').name}: --target knows such a file by its ending"
        raise usage_error("calibrate.out", f"--out {out} is no .toml file", fix)
    chosen = chosen_target(options_of(target).target)
    where = load_instance(instance) if instance else instance_of(chosen)
    found = fit(_read(runs), where, chosen)
    if out is not None:
        _write(out, found, runs.name, chosen)
    if as_json:
        write_json(_json(found, where.name))
    else:
        _show(found, where.name, out)


def _read(path: Path) -> list[Run]:
    """What was measured. Raises UsageError "calibrate.runs"."""
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise _refused(f"{path} cannot be read: {problem.strerror}") from problem
    except ValueError as problem:
        raise _refused(f"{path} is no JSON: {problem}") from problem
    if not isinstance(given, list) or not given:
        raise _refused(f"{path} is no list of runs")
    return [_run(each, f"run {number} of {path.name}") for number, each in enumerate(given)]


def _run(given: Any, where: str) -> Run:
    if not isinstance(given, dict) or given.keys() != _KEYS:
        raise _refused(f"{where} is {json.dumps(given)[:200]}")
    if given["collective"] not in OPERATIONS:
        raise _refused(f"{where} has the collective {given['collective']!r}, which is none of {', '.join(OPERATIONS)}")
    ranks, nbytes, us = (given[key] for key in ("ranks", "bytes", "us"))
    for key, value in (("ranks", ranks), ("bytes", nbytes), ("us", us)):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 < value < math.inf:
            raise _refused(f"{where} has {key} {value!r}")
    if not isinstance(ranks, int) or not 2 <= ranks <= _MOST_RANKS:
        raise _refused(f"{where} has {ranks!r} ranks")
    return Run(given["collective"], float(nbytes), (tuple(range(ranks)),), us * 1e3)


def _refused(problem: str) -> UsageError:
    fix = f"write a list of runs among the first ranks of an instance, such as [{_FORM}]"
    return usage_error("calibrate.runs", problem, fix)


def _write(out: Path, found: CollectiveFit, runs: str, target: Target) -> None:
    """A target of the same generation; what a file that is calibrated again states beside it stays."""
    own = read_own(target.name) if own_file(target.name) else None
    fitted = {each.name: _leaf(each, runs) for each in found.coefficients if each.fitted}
    timing: Mapping[str, Any] = {} if own is None else own.coefficients
    collective = {**({} if own is None else own.collective), **fitted}
    lines = [
        f"# Coefficients of collectives on {base_of(target.name)}, fitted to {_plain(runs)}.",
        f"# Written by nki {version()}; docs/timing.md says how it is used.",
        "",
        f"base = {json.dumps(base_of(target.name))}",
        *(leaf_text(name, leaf) for name, leaf in timing.items()),
        "",
        "[collective]",
        *(leaf_text(name, leaf) for name, leaf in collective.items()),
    ]
    try:
        write_whole(out.resolve(), ("\n".join(lines) + "\n").encode())
    except OSError as problem:
        fix = "name a file in a folder that can be written"
        raise usage_error("calibrate.out", f"{out} cannot be written: {problem.strerror}", fix) from problem


def _leaf(each: Coefficient, runs: str) -> dict[str, Any]:
    return {
        "value": float(f"{each.value:.6g}"),
        "unit": "ns" if each.name.endswith("_ns") else "ratio",
        "fitted": f"to {_plain(runs)}: {each.observations} runs, +-{each.error:.1%}",
        "meaning": COLLECTIVE[each.name],
    }


def _plain(text: str) -> str:
    """A name in a comment."""
    return "".join(letter for letter in text if letter.isprintable())[:200]


def _json(found: CollectiveFit, instance: str) -> dict[str, Any]:
    rows = zip(found.runs, found.before, found.after, strict=True)
    return {
        "instance": instance,
        "runs": [
            {
                "collective": run.operation,
                "ranks": len(run.lists[0]),
                "bytes": run.nbytes,
                "us": run.ns / 1e3,
                "model_us": before / 1e3,
                "fitted_us": after / 1e3,
            }
            for run, before, after in rows
        ],
        "coefficients": [
            {**each._asdict(), "error": each.error if math.isfinite(each.error) else None}
            for each in found.coefficients
        ],
    }


def _show(found: CollectiveFit, instance: str, out: Path | None) -> None:
    """Runs beside the model, and the coefficients."""
    table = Table(title=f"collectives on {instance}", title_justify="left")
    for heading in ("collective", "ranks", "bytes", "measured us", "model us", "error", "fitted us", "error"):
        table.add_column(heading, justify="left" if heading == "collective" else "right")
    for run, before, after in zip(found.runs, found.before, found.after, strict=True):
        times = (f"{run.ns / 1e3:,.1f}", *_beside(before, run.ns), *_beside(after, run.ns))
        table.add_row(run.operation, str(len(run.lists[0])), f"{run.nbytes:,.0f}", *times)
    stdout().print(table)
    echo(f"mean error {_mean(found.before, found.runs):.1%}, fitted {_mean(found.after, found.runs):.1%}")
    for each in found.coefficients:
        told = f"{each.before:.4g} -> {each.value:.4g} (+-{each.error:.1%})" if each.fitted else f"left: {each.why}"
        echo(f"{each.name}: {told}")
    if out is not None:
        echo(f"written to {out}: use --target {out}")


def _beside(ns: float, measured: float) -> tuple[str, str]:
    return f"{ns / 1e3:,.1f}", f"{ns / measured - 1:+.0%}"


def _mean(predicted: Sequence[float], runs: Sequence[Run]) -> float:
    return sum(abs(ns / run.ns - 1) for ns, run in zip(predicted, runs, strict=True)) / len(runs)
