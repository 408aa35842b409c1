"""What timing costs: at compile time, at run time, and alone, in CPU time on unrolled tiles of several sizes.

Compile time: the timeline beside the passes that choose addresses and order with it, per instruction. Run time: calls
of a compiled kernel before and after its profile was made, which must not differ: a call times nothing. Alone:
instructions per second from compiled programs to a makespan, and to a whole profile; with a device loop, of the
instructions that run. Usage: ``python benchmarks/timing_cost.py [--sizes N,N,...] [--runs N] [--json]``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.timeline_speed import COLUMNS, INNER, PER_TILE
from benchmarks.timeline_speed import kernel as tiles_kernel

import nki
import nki.isa as nisa
import nki.language as nl
from nki.compiler import CompileConfig
from nki.driver.launch import Launch, trace_only
from nki.options import Options
from nki.passes.context import Context
from nki.passes.pipeline import compile_programs
from nki.profiling.build import profile_programs
from nki.target.load import load_target
from nki.timing.cores import timelines

TARGET = load_target("trn2")
LOOP_TRIPS = 1_000_000


def looped(a: Any, trips: int) -> Any:
    """A device loop of four instructions."""
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a)
    for _ in nl.dynamic_range(trips):
        nisa.activation(dst=tile, op=nl.exp, data=tile)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=0.5)
        nisa.activation(dst=tile, op=nl.tanh, data=tile)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=0.5)
    nisa.dma_copy(dst=out, src=tile)
    return out


def seconds(work: Callable[[], object], runs: int) -> list[float]:
    """CPU time of each run."""
    found = []
    for _ in range(runs):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return found


def compiled_cost(size: int, runs: int) -> dict[str, float]:
    """Unrolled tiles: us per instruction of all passes and of the timeline, and the speed of timing alone."""
    tiles = size // PER_TILE
    arrays = np.zeros((INNER, INNER), nl.bfloat16), np.zeros((INNER, tiles * COLUMNS), nl.bfloat16)
    source = trace_only(Launch(tiles_kernel), (*arrays, tiles), {}, TARGET, Options())[0].program
    count = sum(1 for _ in source.body.walk())
    programs: list[Any] = []

    def passes() -> None:
        programs[:] = compile_programs([source], Context(TARGET, Options(), CompileConfig())).programs

    whole = min(seconds(passes, max(1, runs // 2)))
    line = min(seconds(lambda: timelines(programs, TARGET), runs))
    profile = min(seconds(lambda: profile_programs(programs, TARGET), max(1, runs // 2)))
    return {
        "instructions": count,
        "passes us per instruction": whole / count * 1e6,
        "timeline us per instruction": line / count * 1e6,
        "timeline share of passes %": 100 * line / whole,
        "timing only instructions/s": count / line,
        "whole profile instructions/s": count / profile,
    }


def loop_cost(runs: int) -> dict[str, float]:
    """A device loop whose trips are copies after a few."""
    source = trace_only(Launch(looped), (np.zeros((128, 512), np.float32), LOOP_TRIPS), {}, TARGET, Options())[
        0
    ].program
    programs = compile_programs([source], Context(TARGET, Options(), CompileConfig())).programs
    line = min(seconds(lambda: timelines(programs, TARGET), runs))
    return {"executed instructions": 4.0 * LOOP_TRIPS + 2, "timeline ms": line * 1e3}


def call_cost(runs: int) -> dict[str, float]:
    """Calls of a compiled kernel in us: median and least, before and after a profile of it was made."""
    kernel = nki.jit(tiles_kernel)
    arrays = np.zeros((INNER, INNER), nl.bfloat16), np.zeros((INNER, 4 * COLUMNS), nl.bfloat16)
    for _ in range(5):
        kernel(*arrays, 4)
    before = seconds(lambda: kernel(*arrays, 4), 20 * runs)
    assert kernel.profile is not None
    after = seconds(lambda: kernel(*arrays, 4), 20 * runs)
    return {
        "call us before": statistics.median(before) * 1e6,
        "call us after": statistics.median(after) * 1e6,
        "least us before": min(before) * 1e6,
        "least us after": min(after) * 1e6,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--sizes", default="1000,10000")
    parser.add_argument("--json", action="store_true", help="print JSON instead of lines")
    options = parser.parse_args()
    sizes = [compiled_cost(int(size), options.runs) for size in options.sizes.split(",")]
    found = {"compile": sizes, "loop": loop_cost(options.runs), "run": call_cost(options.runs)}
    if options.json:
        print(json.dumps(found, indent=1))
        return
    for rows in (*sizes, found["loop"], found["run"]):
        print("; ".join(f"{name} {value:,.1f}" for name, value in dict(rows).items()))


if __name__ == "__main__":
    main()
