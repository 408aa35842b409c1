"""Fit the coefficients of the timing model to the points of target/calibration, and once more without some of them.

Least squares on the logarithm of predicted over measured, and a weak pull to what documents say of a coefficient, which
is all that is left of one when the only points that show it are left out. Prints coefficients, and errors with all
points and without the kernel, the source and the class of each point. ``--write`` writes target/calibration/trn*.toml,
and those errors to target/calibration/left_out.toml; then `benchmarks/timing_accuracy.py --write` records the
comparison. Usage: ``python scripts/fit_timing.py [--write] [--rounds N]``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.timing_cases.comparison import WITHOUT
from benchmarks.timing_cases.digest import digest
from benchmarks.timing_cases.fitting import TARGETS, Free, Model, fitted, left_out, mean

from nki.core.errors import NkiError
from nki.target.accuracy import FOLDER
from nki.target.names import TIMING

BOTH = ("trn1", "trn2")
KEYS = ("kernel", "group", "class")
"""The fields of a point that the cross-validations go by."""
UNITS = {"cycles": "cycles", "bytes_per_ns": "bytes per ns", "ns": "ns"}


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
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    model = Model(FREE, {name: {key: row["value"] for key, row in rows.items()} for name, rows in GIVEN.items()})
    fit = fitted(model, options.rounds)
    without = {name: left_out(model, fit, itemgetter(key)) for name, key in zip(WITHOUT, KEYS, strict=True)}
    for free, value in zip(FREE, fit.values, strict=True):
        print(f"{free.name:28} {'+'.join(free.targets):10} {value:10.4g}   prior {free.prior:g}")
    for at, point in enumerate(model.points):
        others = " ".join(f"{100 * np.expm1(errors[at]):7.1f}" for errors in without.values())
        print(f"{point['id']:30} {100 * np.expm1(fit.errors[at]):7.1f} {others}")
    print(f"{len(FREE) + 1} coefficients, {len(model.points)} points, mean error {mean(fit.errors):.2f} %")
    for name, errors in without.items():
        print(f"without the {name} {mean(errors):.2f} %")
    if options.write:
        values = zip(FREE, map(float, fit.values), strict=True)
        told = {(target, free.name): value for free, value in values for target in free.targets}
        for name in TARGETS:
            (FOLDER / f"{name}.toml").write_text(calibration(name, told), encoding="utf-8")
        names = [point["id"] for point in model.points]
        (FOLDER / "left_out.toml").write_text(crossed(names, without), encoding="utf-8")


def crossed(names: Sequence[str], without: Mapping[str, np.ndarray]) -> str:
    """TOML of the cross-validations, which belongs to the files that were written before."""
    lines = [
        "# Written by scripts/fit_timing.py: errors in percent with coefficients that were fitted without all points",
        "# of the kernel, of the source or of the class of the point.",
        f"coefficients = {len(FREE) + 1}",
        f'digest = "{digest()}"',
    ]
    for table, errors in without.items():
        rows = [f"{name} = {100 * np.expm1(error):.3f}" for name, error in zip(names, errors, strict=True)]
        lines += ["", f"[{table}]", *rows]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    try:
        main()
    except NkiError as error:
        sys.exit(str(error))
