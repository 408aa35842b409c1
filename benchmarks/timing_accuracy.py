"""How far the timing model is from published measurements: every point, predicted and measured.

The kernels are those of `benchmarks.timing_cases`, compiled and timed here. Prints the points with their errors, the
errors with coefficients fitted without the kernel of the point (as scripts/fit_timing.py recorded them), means for each
class, utilisations, points that were never fitted, and whether published sequences of optimisations are in order.
``--write`` records the comparison for `nki targets --accuracy`. ``--only PATTERN`` prints the points whose names match
(``--only 'caps_*'``), which takes seconds, and records nothing. With ``--documents`` (a checkout of the public
documentation) the Mamba kernels are also run as their tutorial prints them. Usage:
``python benchmarks/timing_accuracy.py [--quick] [--json] [--write] [--documents PATH]``.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.timing_cases.catalogue import HOLDOUTS, READINGS, UTILISATIONS, Reading, of_kernel
from benchmarks.timing_cases.runs import Case, Run, compiled
from benchmarks.timing_cases.shapes import cases, holdout_cases

from nki.target.accuracy import FOLDER, Accuracy, EngineShare, Point, Unfitted, bound_by, mean
from nki.target.load import load_target

TIE = 0.02
"""Measured times that differ by less count as equal in a sequence."""


class Comparison:
    """Compiles and times each case once."""

    def __init__(self, quick: bool) -> None:
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


def in_order(steps: Sequence[str], measured: Mapping[str, float], predicted: Mapping[str, float]) -> bool:
    """Whether no step that was measured as clearly faster than an earlier one is predicted to be slower."""
    return all(
        predicted[b] <= predicted[a]
        for at, a in enumerate(steps)
        for b in steps[at + 1 :]
        if measured[b] < measured[a] * (1 - TIE)
    )


def compare(quick: bool) -> Accuracy:
    """All points."""
    listed = tomllib.loads((FOLDER / "points.toml").read_text(encoding="utf-8"))
    without = tomllib.loads((FOLDER / "left_out.toml").read_text(encoding="utf-8"))
    work = Comparison(quick)
    points = [_point(work, item, without[item["id"]]) for item in listed["point"]]
    shares = [
        EngineShare(item["id"], item["target"], item["engine"], item["measured"], work.read(UTILISATIONS[item["id"]]))
        for item in listed["utilisation"]
    ]
    unfitted = []
    for item in listed["holdout"]:
        reading, measured = HOLDOUTS.get(item["id"]), item["measured"]
        found = work.read(reading or of_kernel(item["id"]), item.get("launch", 0))
        error = 100 * (found / measured - 1)
        unfitted.append(Unfitted(item["id"], item["target"], measured, found, item["unit"], error))
    measured = {point.id: point.measured for point in (*points, *unfitted)}
    predicted = {point.id: point.predicted for point in (*points, *unfitted)}
    rankings = [(tuple(item["steps"]), in_order(item["steps"], measured, predicted)) for item in listed["ranking"]]
    excluded = tuple((item["id"], item["reason"]) for item in listed["excluded"])
    return Accuracy(tuple(points), tuple(shares), tuple(unfitted), tuple(rankings), excluded, without["coefficients"])


def print_only(pattern: str, quick: bool) -> None:
    """Some points, each as soon as it is known; the listed errors are relative."""
    listed = tomllib.loads((FOLDER / "points.toml").read_text(encoding="utf-8"))
    work, errors = Comparison(quick), list[float]()
    readings = {**READINGS, **HOLDOUTS}
    for item in (*listed["point"], *listed["holdout"]):
        name, measured = item["id"], item["measured"]
        if fnmatchcase(name, pattern):
            reading = readings.get(name) or of_kernel(name)
            found = work.read(reading, item.get("launch", 0))
            errors.append(100 * (found / measured - 1))
            numbers = f"{found:13,.1f} {measured:13,.1f}  {item['unit']:6} {errors[-1]:+6.1f}%"
            print(f"{name:28} {work.bound(item['class'], reading.case):8} {numbers}", flush=True)
    print(f"{len(errors)} points, mean error {mean(errors):.1f} %")


def _point(work: Comparison, item: dict[str, Any], left_out: float) -> Point:
    reading, measured = READINGS[item["id"]], float(item["measured"])
    found = work.read(reading, item.get("launch", 0))
    return Point(
        id=item["id"],
        target=item["target"],
        kernel=item["kernel"],
        kind=item["class"],
        bound=work.bound(item["class"], reading.case),
        measured=measured,
        predicted=found,
        unit=item["unit"],
        error=100 * (found / measured - 1),
        left_out=left_out,
        source=item["source"],
        note=item.get("note", ""),
    )


def text(found: Accuracy) -> str:
    """The comparison as a table."""
    lines = [
        f"{'point':28} {'class':8} {'bound':7} {'predicted':>13} {'measured':>13}  {'':6} {'error':>7} {'left out':>8}"
    ]
    for p in found.points:
        lines.append(
            f"{p.id:28} {p.kind:8} {p.bound:7} {p.predicted:13,.1f} {p.measured:13,.1f}  {p.unit:6} "
            f"{p.error:+6.1f}% {p.left_out:+7.1f}%"
        )
    lines += ["", "never fitted"]
    lines += [
        f"{u.id:28} {'':16} {u.predicted:13,.1f} {u.measured:13,.1f}  {u.unit:6} {u.error:+6.1f}%"
        for u in found.unfitted
    ]
    lines += ["", "active time of engines, %"]
    lines += [f"{s.id:28} {s.engine:8} {'':7} {s.predicted:13.1f} {s.measured:13.1f}" for s in found.shares]
    lines += ["", "sequences of steps, slower first"]
    lines += [f"{'right' if right else 'WRONG'}: {' > '.join(steps)}" for steps, right in found.rankings]
    lines += ["", json.dumps(found.summary, indent=1)]
    return "\n".join(lines)


def record(found: Accuracy) -> str:
    """The comparison as TOML, with numbers rounded so that equal models write equal files."""
    lines = ["# Written by benchmarks/timing_accuracy.py --write.", f"coefficients = {found.coefficients}", ""]
    for table, rows in (
        ("point", map(asdict, found.points)),
        ("utilisation", map(asdict, found.shares)),
        ("unfitted", map(asdict, found.unfitted)),
        ("ranking", ({"steps": list(steps), "right": right} for steps, right in found.rankings)),
    ):
        for row in rows:
            lines += [f"[[{table}]]", *(f"{key} = {_value(value)}" for key, value in row.items()), ""]
    return "\n".join(lines)


def _value(value: Any) -> str:
    if isinstance(value, float):
        return repr(round(value, 2 if abs(value) >= 1.0 else 4))
    return json.dumps(value)


# --- kernels as their tutorial prints them

LISTED = {"mamba_v1_4k": "mamba_v1", "mamba_v2_4k": "mamba_v2", "mamba_v3_1024": "mamba_v3"}


def printed(documents: Path) -> list[tuple[str, float]]:
    """Device times of the listings of the Mamba tutorial as the compiler makes them, in ns; never fitted."""
    path = documents / "nki" / "examples" / "fused_mamba" / "mamba_nki_kernels.py"
    if not path.exists():
        return []
    spec = importlib.util.spec_from_file_location("mamba_listing", path)
    if spec is None or spec.loader is None:
        return []
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    rows = []
    for point, name in LISTED.items():
        columns = 1024 if point.endswith("1024") else 512
        shapes = (1, 1024, columns), (1, 1024, columns), (1024, 16), (1, 16, columns), (1, 16, columns)
        case = Case(getattr(module, name).func, "trn1", tuple((shape, np.float32) for shape in shapes), times=4.0)
        rows.append((f"{point} as printed", Run(compiled(case), load_target("trn1"), 4.0).device_ns))
    return rows


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="take parts of the large kernels, which are uniform")
    parser.add_argument("--only", metavar="PATTERN", help="print the points whose names match, and nothing else")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--write", action="store_true", help="record the comparison")
    parser.add_argument("--documents", type=Path, help="a checkout of the public documentation")
    options = parser.parse_args()
    if options.only:
        print_only(options.only, options.quick)
        return
    found = compare(options.quick)
    listed = printed(options.documents) if options.documents else []
    if options.json:
        print(json.dumps({**asdict(found), "summary": found.summary, "printed": listed}, indent=1))
    else:
        print(text(found))
        for name, ns in listed:
            print(f"{name:36} {ns:13,.1f} ns")
        if not listed:
            print("listings of the tutorial: skipped, no checkout of the documentation")
    if options.write:
        (FOLDER / "accuracy.toml").write_text(record(found), encoding="utf-8")


if __name__ == "__main__":
    main()
