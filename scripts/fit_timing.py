"""Fit the coefficients of the timing model to the points of target/calibration, with each kernel left out in turn.

Least squares on the logarithm of predicted over measured, and a weak pull to what documents say of a coefficient, which
is all that is left of one when the only kernel that shows it is left out. Prints coefficients, and errors with all
kernels and without the kernel of each point; ``--write`` writes target/calibration/trn*.toml, and the errors without
each kernel to target/calibration/left_out.toml. Usage: ``python scripts/fit_timing.py [--write] [--rounds N]``.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.timing_cases.catalogue import READINGS
from benchmarks.timing_cases.runs import Run, compiled
from benchmarks.timing_cases.shapes import cases

from nki.core.errors import NkiError
from nki.spec.program import Program
from nki.target.load import load_target
from nki.target.model import Target
from nki.target.names import TIMING

FOLDER = Path(__file__).resolve().parents[1] / "src" / "nki" / "target" / "calibration"
BOTH, ALL = ("trn1", "trn2"), ("trn1", "trn2", "trn3")
SIGMA = 0.05
"""Relative error of a point that counts as one."""
PULL = 0.7
"""Relative distance from the documented value that counts as one."""
UNITS = {"cycles": "cycles", "bytes_per_ns": "bytes per ns", "ns": "ns"}


class Free(NamedTuple):
    """A coefficient that is fitted.

    Attributes:
        name: in the table ``timing``.
        targets: that share it.
        prior: value that documents suggest.
        least, most: bounds.
    """

    name: str
    targets: tuple[str, ...]
    prior: float
    least: float
    most: float


FREE = (
    Free("issue_cycles", ("trn1",), 100, 1, 200),
    Free("issue_cycles", ("trn2",), 80, 1, 200),
    Free("vector_fixed_cycles", BOTH, 160, 50, 300),
    Free("scalar_fixed_cycles", ("trn1",), 160, 50, 500),
    Free("scalar_fixed_cycles", ("trn2",), 350, 50, 500),
    Free("tensor_rate", ("trn1",), 1.0, 0.7, 1.0),
    Free("tensor_fixed_cycles", BOTH, 400, 50, 800),
    Free("load_fixed_cycles", BOTH, 180, 20, 500),
    Free("activation_table_load_ns", BOTH, 1300, 500, 3000),
    Free("dma_trigger_ns", BOTH, 1000, 300, 2000),
    Free("dma_trigger_gpsimd_ns", BOTH, 1000, 300, 2000),
    Free("hwdge_descriptor_ns", ("trn2",), 4.0, 1, 10),
    Free("dma_skew_ns", BOTH, 225, 10, 800),
    Free("dma_signal_ns", BOTH, 15, 1, 200),
    Free("dma_completion_ns", BOTH, 300, 100, 800),
    Free("semaphore_ns", BOTH, 30, 5, 100),
)
"""With the number of control instructions in `benchmarks.timing_cases.catalogue`, all that is fitted."""

GUIDE = "nki/deep-dives/nki-dma-bandwidth-guide.rst"
OVERVIEW = "nki/get-started/about/nki-dma-overview.rst"
OTHER = "figure of Trainium2; that of this target is not published"
LAUNCH = {"value": 22000.0, "source": "nki/img/mamba_v1_profile_zoomed.png"}
"""172.93 us, 150.93 of them the kernel."""
CHIPBOOST = "github.com/yahavb/trainium-agent-labs/projects/03-chipboost/STATUS.md"
"""A line through the times of many repetitions in one program: 10.56 us, and 260.54 us for each."""
OLDER = "figure of Trainium1; that of this target is not published"
GIVEN: dict[str, dict[str, dict[str, Any]]] = {
    "trn1": {
        "launch_ns": LAUNCH,
        "hwdge_descriptor_ns": {"value": 0.0, "source": "nki/deep-dives/nki-dge.rst"},
        "dma_read_bytes_per_ns": {"value": 17.0, "source": GUIDE},
        "dma_write_bytes_per_ns": {"value": 17.0, "source": GUIDE},
    },
    "trn2": {
        "launch_ns": {"value": 10560.0, "source": CHIPBOOST},
        "tensor_rate": {"value": 1.0, "source": "nki/guides/tutorials/kernel-optimization.rst"},
        "dma_read_bytes_per_ns": {"value": 23.0, "source": GUIDE},
        "dma_write_bytes_per_ns": {"value": 27.2, "source": OVERVIEW},
    },
    "trn3": {
        "dma_read_bytes_per_ns": {"value": 33.0, "source": GUIDE},
        "dma_write_bytes_per_ns": {"value": 33.0, "source": GUIDE},
    },
}
"""Coefficients that documents state as they are."""


class Model:
    """The points, and the compiled kernels that reproduce them."""

    def __init__(self) -> None:
        self.points: list[dict[str, Any]] = tomllib.loads((FOLDER / "points.toml").read_text())["point"]
        self.cases = cases()  # whole kernels: parts of those with the most instructions are scheduled otherwise
        self.programs: dict[str, Program] = {}
        self.kernels = sorted({point["kernel"] for point in self.points})
        self.bases = {name: load_target(name) for name in BOTH}

    def program(self, case: str) -> Program:
        """The program of a case, compiled once."""
        if case not in self.programs:
            self.programs[case] = compiled(self.cases[case])
        return self.programs[case]

    def targets(self, values: np.ndarray) -> dict[str, Target]:
        """The targets with these coefficients."""
        made = {}
        for name, base in self.bases.items():
            changed = {free.name: float(v) for free, v in zip(FREE, values, strict=True) if name in free.targets}
            made[name] = replace(base, timing=MappingProxyType({**base.timing, **changed}))
        return made

    def errors(self, values: np.ndarray, kernels: set[str] | None = None) -> np.ndarray:
        """log(predicted / measured) of all points; NaN for those of other kernels than the ones asked for."""
        targets, runs = self.targets(values), dict[str, Run]()

        def run(case: str) -> Run:
            if case not in runs:
                runs[case] = Run(self.program(case), targets[self.cases[case].target], self.cases[case].times)
            return runs[case]

        found = np.full(len(self.points), np.nan)
        for at, point in enumerate(self.points):
            if kernels is None or point["kernel"] in kernels:
                predicted = READINGS[point["id"]].predicted(run, point.get("launch", 0))
                found[at] = np.log(predicted / point["measured"])
        return found

    def slopes(self, values: np.ndarray, errors: np.ndarray) -> np.ndarray:
        """Change of all errors for a relative change of each coefficient."""
        columns = []
        for at in range(len(FREE)):
            moved = values.copy()
            moved[at] *= 0.97
            columns.append((self.errors(moved) - errors) / np.log(0.97))
        return np.stack(columns, axis=1)


PRIOR = np.array([free.prior for free in FREE])


def step(values: np.ndarray, errors: np.ndarray, slopes: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The best coefficients as far as errors change in proportion; outliers count less, bounds hold."""
    weight = np.sqrt(1.0 / (SIGMA**2 * np.sqrt(1.0 + (errors[rows] / (2 * SIGMA)) ** 2)))
    pulled = np.log(PRIOR / values) / PULL
    matrix = np.vstack([slopes[rows] * weight[:, None], np.eye(len(FREE)) / PULL])
    goal = np.concatenate([-errors[rows] * weight, pulled])
    change = np.linalg.lstsq(matrix, goal, rcond=None)[0]
    moved = values * np.exp(np.clip(change, -1.0, 1.0))
    return np.clip(moved, [free.least for free in FREE], [free.most for free in FREE])


def fitted(model: Model, rounds: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Coefficients, errors and their slopes."""
    values = np.array([model.bases[free.targets[0]].timing[free.name] for free in FREE])
    everything = np.ones(len(model.points), bool)
    errors = model.errors(values)
    slopes = model.slopes(values, errors)
    for _ in range(rounds):
        values = step(values, errors, slopes, everything)
        errors = model.errors(values)
        slopes = model.slopes(values, errors)
        print(f"mean error {mean(errors):.2f} %", file=sys.stderr)
    return values, errors, slopes


def left_out(model: Model, values: np.ndarray, errors: np.ndarray, slopes: np.ndarray) -> np.ndarray:
    """The errors of every point with coefficients that were fitted without its kernel."""
    found = np.full(len(model.points), np.nan)
    for kernel in model.kernels:
        own = np.array([point["kernel"] == kernel for point in model.points])
        without = values
        for _ in range(3):  # the slopes are those of the whole fit; the errors of the others follow them
            there = errors + slopes @ np.log(without / values)
            without = step(without, there, slopes, ~own)
        found[own] = model.errors(without, {kernel})[own]
    return found


def mean(errors: np.ndarray) -> float:
    """Mean absolute error in percent."""
    return float(100 * np.mean(np.abs(np.expm1(errors))))


def unit(name: str) -> str:
    """Unit of a coefficient, from its name."""
    return next((text for ending, text in UNITS.items() if name.endswith(ending)), "ratio")


def calibration(target: str, values: Mapping[tuple[str, str], float]) -> str:
    """TOML of the coefficients of a target."""
    told = {free.name for free in FREE}.union(*GIVEN.values())
    lines = ["# Written by scripts/fit_timing.py from points.toml; docs/timing.md describes the model.", ""]
    for name in sorted(told, key=list(TIMING).index):
        if (given := GIVEN[target].get(name)) is not None:
            value, origin = given["value"], f'source = "{given["source"]}"'
        elif (target, name) in values:
            value, origin = float(f"{values[target, name]:.4g}"), 'fitted = "to the published points in points.toml"'
        else:
            value, origin = _borrowed(name, values)
        lines.append(f'{name} = {{ value = {value}, unit = "{unit(name)}", {origin}, meaning = "{TIMING[name]}" }}')
    return "\n".join(lines) + "\n"


def _borrowed(name: str, values: Mapping[tuple[str, str], float]) -> tuple[float, str]:
    """The coefficient of the next older target that has it."""
    if (found := values.get(("trn2", name))) is not None:
        return float(f"{found:.4g}"), f'estimate = "{OTHER}"'
    older = "trn2" if name in GIVEN["trn2"] else "trn1"
    return GIVEN[older][name]["value"], f'estimate = "{OTHER if older == "trn2" else OLDER}"'


def main() -> None:
    """Fit and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the calibration of all targets")
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    model = Model()
    values, errors, slopes = fitted(model, options.rounds)
    without = left_out(model, values, errors, slopes)
    for free, value in zip(FREE, values, strict=True):
        print(f"{free.name:28} {'+'.join(free.targets):10} {value:10.4g}   prior {free.prior:g}")
    for point, inside, outside in zip(model.points, errors, without, strict=True):
        print(f"{point['id']:30} {100 * np.expm1(inside):7.1f} {100 * np.expm1(outside):7.1f}")
    print(f"mean error {mean(errors):.2f} %, without the kernel {mean(without):.2f} %")
    print(f"{len(FREE) + 1} coefficients, {len(model.points)} points")
    if options.write:
        told = {(target, free.name): float(v) for free, v in zip(FREE, values, strict=True) for target in free.targets}
        for name in ALL:
            (FOLDER / f"{name}.toml").write_text(calibration(name, told), encoding="utf-8")
        rows = [f"{point['id']} = {100 * np.expm1(e):.3f}" for point, e in zip(model.points, without, strict=True)]
        text = (
            "# Written by scripts/fit_timing.py: errors in percent if the kernel of the point is left out of the fit.\n"
        )
        text += f"coefficients = {len(FREE) + 1}\n\n"
        (FOLDER / "left_out.toml").write_text(text + "\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except NkiError as error:
        sys.exit(str(error))
