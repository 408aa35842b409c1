"""How long timing takes per instruction, on synchronized kernels of several sizes, in CPU time.

Each size is an unrolled kernel of tiles that are loaded, multiplied, activated, added and stored, scheduled by the
compiler. Prints a table: microseconds per instruction for costs alone, for the timeline (minimum and median of the
runs) and for the lower bound. Usage:
``python benchmarks/timeline_speed.py [--runs N] [--sizes N,N,...] [--target NAME]``.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import nki.isa as nisa
import nki.language as nl
from nki.driver.launch import Launch, trace_only
from nki.options import Options
from nki.passes import schedule
from nki.passes.analysis.dependences import dependences, segments_of
from nki.passes.context import Context
from nki.spec.program import Program
from nki.target.load import load_target
from nki.target.model import Target
from nki.timing.bound import lower_bound
from nki.timing.cost import cost_of
from nki.timing.timeline import timeline

PER_TILE = 6
INNER, COLUMNS = 128, 512


def kernel(a: Any, b: Any, tiles: int) -> Any:
    """`PER_TILE` instructions for each tile, each on tiles of its own, as an unrolled loop has them."""
    out = nl.ndarray((INNER, tiles * COLUMNS), nl.bfloat16, buffer=nl.shared_hbm)
    weights = nl.ndarray((INNER, INNER), a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=weights, src=a)
    for tile in range(tiles):
        columns = slice(tile * COLUMNS, (tile + 1) * COLUMNS)
        x = nl.ndarray((INNER, COLUMNS), b.dtype, buffer=nl.sbuf)
        y = nl.ndarray((INNER, COLUMNS), b.dtype, buffer=nl.sbuf)
        z = nl.ndarray((INNER, COLUMNS), nl.float32, buffer=nl.psum)
        nisa.dma_copy(dst=x, src=b[:, columns])
        nisa.nc_matmul(dst=z, stationary=weights, moving=x)
        nisa.activation(dst=y, op=nl.exp, data=z)
        nisa.tensor_tensor(dst=y, data1=x, data2=y, op=nl.add)
        nisa.tensor_scalar(dst=x, data=y, op0=nl.multiply, operand0=0.5 + tile)
        nisa.dma_copy(dst=out[:, columns], src=x)
    return out


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--sizes", default="1000,10000,100000")
    parser.add_argument("--target", default="trn2")
    options = parser.parse_args()
    target = load_target(options.target)
    print(f"{'instructions':>12} {'cost_of':>8} {'timeline min':>13} {'median':>8} {'bound':>8}   us per instruction")
    for size in options.sizes.split(","):
        source, scheduled, needs = prepared(int(size) // PER_TILE, target)
        items = list(scheduled.body.walk())
        count = len(items)
        costs = measure(lambda items=items: [cost_of(issued, target) for issued in items], options.runs, count)
        lines = measure(lambda program=scheduled: timeline(program, target), options.runs, count)
        bounds = measure(
            lambda program=source, needs=needs: lower_bound(program, target, needs), min(3, options.runs), count
        )
        print(
            f"{count:>12} {min(costs):>8.2f} {min(lines):>13.2f} {statistics.median(lines):>8.2f} {min(bounds):>8.2f}"
        )


def prepared(tiles: int, target: Target) -> tuple[Program, Program, list[Any]]:
    """The traced program, the scheduled one, and the dependences of its segments."""
    arrays = np.zeros((INNER, INNER), nl.bfloat16), np.zeros((INNER, tiles * COLUMNS), nl.bfloat16)
    source = trace_only(Launch(kernel), (*arrays, tiles), {}, target, Options())[0].program
    needs = [dependences(s.items, source, target, s.edges, s.fences) for s in segments_of(source)]
    return source, schedule.run(source, Context(target)), needs


def measure(work: Callable[[], object], runs: int, count: int) -> list[float]:
    """Microseconds of CPU time per instruction, for every run."""
    found = []
    for _ in range(runs):
        start = time.process_time()
        work()
        found.append((time.process_time() - start) / count * 1e6)
    return found


if __name__ == "__main__":
    main()
