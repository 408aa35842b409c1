"""Every published point, predicted and measured."""

from __future__ import annotations

import importlib.util
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.timing_cases.catalogue import HOLDOUTS, READINGS, UTILISATIONS, Reading, of_kernel
from benchmarks.timing_cases.runs import Case, Run, compiled
from benchmarks.timing_cases.shapes import cases, holdout_cases

from nki.target.accuracy import FOLDER, Accuracy, EngineShare, Listing, Point, Sweep, Unfitted, bound_by, mean, tau
from nki.target.load import load_target

TIE = 0.02
"""Measured times that differ by less count as equal in a sequence."""
WITHOUT = ("kernel", "source", "class")
"""What the cross-validations leave out: tables of left_out.toml."""


class Comparison:
    """Compiles and times each case once."""

    def __init__(self, quick: bool = False) -> None:
        self.cases = {**cases(quick), **holdout_cases()}
        self.runs: dict[str, Run] = {}

    def run(self, name: str) -> Run:
        """A case in time."""
        if name not in self.runs:
            started, case = time.process_time(), self.cases[name]
            self.runs[name] = Run(compiled(case), load_target(case.target), case.times)
            spent = time.process_time() - started
            if spent > 5:
                print(f"{name}: {len(self.runs[name].items)} instructions, {spent:.0f} s", file=sys.stderr)
        return self.runs[name]

    def read(self, reading: Reading, launches: int = 0) -> float:
        """What the model says of a point, with the launches that are in the measured time."""
        return reading.predicted(self.run, launches)

    def bound(self, kind: str, case: str) -> str:
        """The unit that bounds a point."""
        if kind != "kernel":
            return kind
        line = self.run(case).line
        return bound_by(line.busy, line.makespan)

    def point(self, item: Mapping[str, Any], left_out: Mapping[str, Mapping[str, float]]) -> Point:
        """A point of points.toml; `left_out` has its errors in the cross-validations."""
        name, measured = item["id"], float(item["measured"])
        found = self.read(READINGS[name], item.get("launch", 0))
        kernel, source, kind = (left_out[table][name] for table in WITHOUT)
        return Point(
            id=name,
            target=item["target"],
            kernel=item["kernel"],
            group=item["group"],
            kind=item["class"],
            bound=self.bound(item["class"], READINGS[name].case),
            measured=measured,
            predicted=found,
            unit=item["unit"],
            error=100 * (found / measured - 1),
            left_out=kernel,
            left_out_source=source,
            left_out_class=kind,
            given=item.get("given", ""),
            source=item["source"],
            note=item.get("note", ""),
            reason=item.get("reason", ""),
        )

    def unfitted(self, item: Mapping[str, Any]) -> Unfitted:
        """A point that is never fitted."""
        name, measured = item["id"], float(item["measured"])
        found = self.read(HOLDOUTS.get(name) or of_kernel(name), item.get("launch", 0))
        return Unfitted(name, item["target"], measured, found, item["unit"], 100 * (found / measured - 1))


def listed() -> dict[str, Any]:
    """The tables of points.toml."""
    return tomllib.loads((FOLDER / "points.toml").read_text(encoding="utf-8"))


def left_out() -> dict[str, Any]:
    """The errors in the cross-validations."""
    return tomllib.loads((FOLDER / "left_out.toml").read_text(encoding="utf-8"))


def compare(quick: bool = False, listings: Sequence[Listing] = ()) -> Accuracy:
    """All points."""
    table, without, work = listed(), left_out(), Comparison(quick)
    points = tuple(work.point(item, without) for item in table["point"])
    shares = tuple(
        EngineShare(item["id"], item["target"], item["engine"], item["measured"], work.read(UTILISATIONS[item["id"]]))
        for item in table["utilisation"]
    )
    unfitted = tuple(work.unfitted(item) for item in table["holdout"])
    measured = {point.id: point.measured for point in (*points, *unfitted)}
    predicted = {point.id: point.predicted for point in (*points, *unfitted)}
    return Accuracy(
        points=points,
        shares=shares,
        unfitted=unfitted,
        listings=tuple(listings),
        sweeps=tuple(sweep(item["id"], item["points"], measured, predicted) for item in table["sweep"]),
        rankings=tuple(
            (tuple(item["steps"]), in_order(item["steps"], measured, predicted)) for item in table["ranking"]
        ),
        excluded=tuple((item["id"], item["reason"]) for item in table["excluded"]),
        coefficients=without["coefficients"],
    )


def sweep(name: str, points: Sequence[str], measured: Mapping[str, float], predicted: Mapping[str, float]) -> Sweep:
    """How well the settings of a kernel are ranked, and what the choice of the model costs."""
    chosen = min(points, key=predicted.__getitem__)
    least = min(measured[point] for point in points)
    rank = tau([measured[point] for point in points], [predicted[point] for point in points])
    return Sweep(name, len(points), rank, chosen, 100 * (measured[chosen] / least - 1))


def in_order(steps: Sequence[str], measured: Mapping[str, float], predicted: Mapping[str, float]) -> bool:
    """Whether no step that was measured as clearly faster than an earlier one is predicted to be slower."""
    return all(
        predicted[b] <= predicted[a]
        for at, a in enumerate(steps)
        for b in steps[at + 1 :]
        if measured[b] < measured[a] * (1 - TIE)
    )


def print_some(pattern: str, quick: bool) -> None:
    """The points whose names match, each as soon as it is known."""
    table, readings = listed(), {**READINGS, **HOLDOUTS}
    work, errors = Comparison(quick), list[float]()
    for item in (*table["point"], *table["holdout"]):
        name, measured = item["id"], item["measured"]
        if fnmatchcase(name, pattern):
            reading = readings.get(name) or of_kernel(name)
            found = work.read(reading, item.get("launch", 0))
            errors.append(100 * (found / measured - 1))
            numbers = f"{found:13,.1f} {measured:13,.1f}  {item['unit']:6} {errors[-1]:+6.1f}%"
            print(f"{name:28} {work.bound(item['class'], reading.case):8} {numbers}", flush=True)
    print(f"{len(errors)} points, mean error {mean(errors):.1f} %")


# --- kernels as their tutorial prints them

LISTED = {"mamba_v1_4k": "mamba_v1", "mamba_v2_4k": "mamba_v2", "mamba_v3_1024": "mamba_v3"}


def printed(documents: Path) -> list[Listing]:
    """The listings of the Mamba tutorial, compiled as they are, beside the rebuilt kernels; never fitted."""
    path = documents / "nki" / "examples" / "fused_mamba" / "mamba_nki_kernels.py"
    spec = importlib.util.spec_from_file_location("mamba_listing", path)
    if spec is None or spec.loader is None or not path.exists():
        raise SystemExit(f"no {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    work, measured = Comparison(), {item["id"]: float(item["measured"]) for item in listed()["point"]}
    rows = []
    for point, name in LISTED.items():
        columns = 1024 if point.endswith("1024") else 512
        shapes = (1, 1024, columns), (1, 1024, columns), (1024, 16), (1, 16, columns), (1, 16, columns)
        case = Case(getattr(module, name).func, "trn1", tuple((shape, np.float32) for shape in shapes), times=4.0)
        target = load_target("trn1")
        found = Run(compiled(case), target, 4.0).kernel_ns + target.timing["launch_ns"]
        rows.append(Listing(point, "trn1", measured[point], work.read(READINGS[point], 1), found))
    return rows
