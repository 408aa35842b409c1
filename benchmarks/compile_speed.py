"""How long compiling takes per instruction: trace, every pass, and IR, for unrolled kernels of several sizes.

CPU time, median of the runs, and the peak memory of the process up to then; sizes grow, so that a peak belongs to its
size. The goal is 150 us for all passes together, at every size. Usage:
``python benchmarks/compile_speed.py [--kernel tiles|matmul] [--sizes N,N,...] [--runs N] [--json]``.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.kernels.products import matmul
from benchmarks.timeline_speed import COLUMNS, INNER, PER_TILE
from benchmarks.timeline_speed import kernel as tiles_kernel

import nki.language as nl
from nki.core.collector import paused_collector
from nki.driver.launch import Launch, trace_only
from nki.ir.build import build
from nki.ir.read import read
from nki.ir.verify import verify
from nki.options import Options
from nki.passes.context import Context, PassResult
from nki.passes.pipeline import PIPELINE
from nki.target.load import load_target
from nki.target.model import Target

Times = dict[str, float]
GOAL = 150.0
"""us per instruction for all passes."""


def tiles(size: int) -> tuple[Callable[..., Any], list[Any]]:
    """Tiles that are loaded, multiplied, activated, added and stored, independent of each other."""
    count = size // PER_TILE
    arrays = [np.zeros((INNER, INNER), nl.bfloat16), np.zeros((INNER, count * COLUMNS), nl.bfloat16)]
    return tiles_kernel, [*arrays, count]


def products(size: int) -> tuple[Callable[..., Any], list[Any]]:
    """A tiled matrix product with K = 1024: ten instructions for a tile of the output, and eight loads for a row."""
    width = 4096
    rows = max(1, size // (width // COLUMNS * 10 + 8))
    return matmul, [np.zeros((1024, rows * 128), nl.bfloat16), np.zeros((1024, width), nl.bfloat16)]


KERNELS = {"tiles": tiles, "matmul": products}


def once(kernel: Callable[..., Any], arguments: list[Any], target: Target) -> tuple[Times, int]:
    """Seconds of every step of one compilation, and the instructions at the end."""
    found: Times = {}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        start = time.process_time()
        result = work()
        found[name] = time.process_time() - start
        return result

    with paused_collector():
        traced = timed("trace", lambda: trace_only(Launch(kernel), tuple(arguments), {}, target, Options()))
        result = PassResult(traced[0].program)
        context = Context(target)
        for item in PIPELINE:
            result = timed(item.name, lambda item=item, before=result: item.step(before, context))
        program = result.program
        module = timed("IR build", lambda: build([program]))
        timed("IR read", lambda: read(module))
        timed("IR verify", lambda: verify(module, target))
    return found, sum(1 for _ in program.body.walk())


def measured(kernel: Callable[..., Any], arguments: list[Any], target: Target, runs: int) -> dict[str, Any]:
    """Median us per instruction of every step, sums of them, and peak memory."""
    results = [once(kernel, arguments, target) for _ in range(runs)]
    count = results[0][1]
    steps = {name: statistics.median(times[name] for times, _ in results) / count * 1e6 for name in results[0][0]}
    return {
        "instructions": count,
        "steps": steps,
        "passes": sum(steps[item.name] for item in PIPELINE),
        "total": sum(ns for name, ns in steps.items() if name != "IR read"),  # verifying reads as well
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def table(results: list[dict[str, Any]]) -> str:
    """Steps down, sizes across."""
    lines = [f"{'us per instruction':24}" + "".join(f"{r['instructions']:>10}" for r in results)]
    lines += [f"{name:24}" + "".join(f"{r['steps'][name]:>10.2f}" for r in results) for name in results[0]["steps"]]
    lines.append(f"{f'all passes (goal {GOAL:.0f})':24}" + "".join(f"{r['passes']:>10.2f}" for r in results))
    lines.append(f"{'all':24}" + "".join(f"{r['total']:>10.2f}" for r in results))
    lines.append(f"{'peak memory, MiB':24}" + "".join(f"{r['peak_mib']:>10.0f}" for r in results))
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernel", choices=list(KERNELS), default="tiles")
    parser.add_argument("--sizes", default="1000,10000,100000")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--target", default="trn2")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    target = load_target(options.target)
    sizes = sorted(int(size) for size in options.sizes.split(","))
    results = [measured(*KERNELS[options.kernel](size), target, options.runs) for size in sizes]
    print(json.dumps(results, indent=1) if options.json else table(results))


if __name__ == "__main__":
    main()
