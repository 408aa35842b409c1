"""What imitating the device's compiler costs: the benchmark kernels under `NKI_IMITATE=vendor` and under `none`.

For every kernel of `benchmarks.kernels.cases`, and some published ones that repeat their loads: instructions and
makespan on the timing model under both settings, the loads that each left out, and whether both give the same bits on
random arrays. Usage:
``python benchmarks/imitation.py [--only WORD] [--most INSTRUCTIONS] [--markdown]``.
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.kernels.cases import BF16, F32, LOOPS, MIXED, STRAIGHT, Case
from benchmarks.schedule_quality import programs_of
from benchmarks.timing_cases import mamba, public_products

from nki.compiler import CompileConfig
from nki.core.collector import paused_collector
from nki.driver import gate
from nki.driver.call import call
from nki.driver.launch import Launch
from nki.options import IMITATE, Options
from nki.report import Report
from nki.target.load import load_target
from nki.timing.cores import timelines

REPEATED = (
    Case("tiled product", public_products.tiled, (((4096, 256), BF16), ((4096, 2048), BF16))),
    Case("tiled, columns outside", public_products.tiled, (((2048, 256), BF16), ((2048, 2048), BF16)), (True,)),
    Case("staged product", public_products.staged, (((4096, 256), BF16), ((4096, 1024), BF16))),
    Case(
        "mamba",
        mamba.version1,
        (((512, 512), F32), ((512, 512), F32), ((512, 8), F32), ((8, 512), F32), ((8, 512), F32)),
    ),
)
"""Published kernels that load the same tiles again and again."""


@dataclass(frozen=True, slots=True)
class Under:
    """A kernel under one setting; `kept` counts loads that were left out."""

    instructions: int
    ns: float
    kept: int


def arguments(case: Case) -> list[Any]:
    """Random arrays in the place of zeros; whole numbers are small ones."""
    random = np.random.default_rng(0)
    return [
        (
            random.standard_normal(array.shape) if array.dtype.kind not in "iub" else random.integers(0, 8, array.shape)
        ).astype(array.dtype)
        if isinstance(array, np.ndarray)
        else array
        for array in case.arguments()
    ]


def length(case: Case) -> int:
    """Instructions of the first core, as traced."""
    return sum(1 for _ in programs_of(case, load_target(case.target))[0].body.walk())


def under(case: Case, setting: str) -> Under:
    """Compile and time."""
    target, options = load_target(case.target), Options(imitate=setting)
    with paused_collector():
        built = gate.compile_kernel(programs_of(case, target), target, options, CompileConfig())
    count = sum(1 for _ in built.programs[0].body.walk())
    ns = max(line.makespan for line in timelines(built.programs, target))
    return Under(count, ns, sum(load.loads for load in built.kept))


def bits(case: Case, setting: str) -> list[bytes]:
    """What a call returns, and what it leaves in its arguments."""
    given = arguments(case)
    launch = Launch(case.kernel, lnc=case.cores, target=case.target)
    result, report = call(launch, tuple(given), {}, {}, Options(imitate=setting, target=case.target))
    assert isinstance(report, Report) and report.imitate == setting
    found = result if isinstance(result, tuple | list) else [result]
    return [np.asarray(each).tobytes() for each in (*found, *given) if isinstance(each, np.ndarray)]


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="kernels whose label contains this")
    parser.add_argument("--most", type=int, default=3000, help="instructions of the largest kernel that is compared")
    parser.add_argument("--markdown", action="store_true", help="print rows of Markdown")
    asked = parser.parse_args()
    form = "| {:34} | {} | {} | {} | {} | {} | {} |" if asked.markdown else "{:42}{:>6}{:>10}{:>9}{:>9}{:>7}  {}"
    print(form.format("kernel", "instr", "vendor us", "kept", "none us", "ratio", "bits"))
    ratios, different = [], 0
    for case in (*REPEATED, *STRAIGHT, *MIXED, *LOOPS):
        if (
            asked.only not in case.label
            or sum(1 for _ in programs_of(case, load_target(case.target))[0].body.walk()) > asked.most
        ):
            continue
        vendor, none = (under(case, setting) for setting in IMITATE)
        same = bits(case, IMITATE[0]) == bits(case, IMITATE[1])
        different += not same
        ratios.append(none.ns / vendor.ns)
        figures = f"{vendor.ns / 1000:.1f}", f"{vendor.kept}/{none.kept}", f"{none.ns / 1000:.1f}", f"{ratios[-1]:.3f}"
        print(form.format(case.label, vendor.instructions, *figures, "equal" if same else "DIFFERENT"), flush=True)
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else 1.0
    print(f"none / vendor, geometric mean of {len(ratios)}: {mean:.3f}; different results: {different}")


if __name__ == "__main__":
    main()
