"""What a call of a compiled kernel costs beside the work: microseconds for each call and for each instruction.

Kernels of 10 to 10,000 tiny instructions on 128 x 1 tiles are called again and again; a line through their times gives
the fixed part and the slope. `--stages` prints where the fixed part goes, from the stages that `nki.driver.call` names,
for a kernel with three array arguments, in CPU time of the thread. Usage:
``python benchmarks/peers/overhead.py [--json FILE] [--sizes N,N,...] [--stages]``.
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

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
from benchmarks.peers.measure import quartiles, samples

import nki
import nki.driver.call as driver
import nki.isa as nisa
import nki.language as nl

ROWS = 128
STAGES = ("prepare", "compiled", "check_writable", "run_compiled", "write_inputs", "_report_again")
NESTED = frozenset({"run_compiled"})
"""Stages that are the execution itself."""


@nki.jit
def tiny(a: Any, b: Any, c: Any, count: int) -> Any:
    """`count` instructions on one column, between three loads and a store."""
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    tiles = [nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf) for _ in range(3)]
    for tile, source in zip(tiles, (a, b, c), strict=True):
        nisa.dma_copy(dst=tile, src=source)
    for i in range(count - 4):
        nisa.tensor_tensor(dst=tiles[i % 2], data1=tiles[i % 2], data2=tiles[2], op=nl.add)
    nisa.dma_copy(dst=out, src=tiles[0])
    return out


def arguments(count: int) -> list[Any]:
    """Three columns and the number of instructions."""
    return [*(np.full((ROWS, 1), value, np.float32) for value in (1.0, 2.0, 0.0)), count]


def calls(sizes: list[int], seconds: float) -> dict[int, tuple[float, float, float]]:
    """Quartiles of the thread's CPU seconds of a call, by number of instructions."""
    found = {}
    for size in sizes:
        given = arguments(size)
        result = tiny(*given)
        if not (result == 1).all():
            raise SystemExit(f"a wrong result: {result[0, 0]}")
        taken = samples(lambda given=given: tiny(*given), warm=3, least=5, most=2000, seconds=seconds)
        found[size] = quartiles(taken["thread"])
    return found


def line(points: dict[int, float]) -> tuple[float, float]:
    """Fixed part and slope, by least squares of the relative errors."""
    sizes, times = np.array(list(points)), np.array(list(points.values()))
    (fixed, slope), *_ = np.linalg.lstsq(np.stack([1 / times, sizes / times], 1), np.ones(len(sizes)), rcond=None)
    return float(fixed), float(slope)


class Clock:
    """Counts the seconds in functions of the driver."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}

    def watched(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with its time counted."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                self.spent[name] = self.spent.get(name, 0.0) + time.thread_time() - start

        return timed


def stages(count: int, repeats: int) -> dict[str, float]:
    """Median us of the stages of a call; "total" is a call that nobody watches, "rest" what no stage accounts for."""
    given = arguments(count)
    originals = {name: function for name, function in vars(driver).items() if name in STAGES}
    rounds: list[dict[str, float]] = []
    totals: list[float] = []
    for _ in range(repeats):
        totals += samples(lambda: tiny(*given), warm=1, least=1, most=1, seconds=0)["thread"]
        clock = Clock()
        idle = clock.watched("", lambda: None)
        try:
            for name, function in originals.items():
                setattr(driver, name, clock.watched(name, function))
            tiny(*given)
            idle()
        finally:
            for name, function in originals.items():
                setattr(driver, name, function)
        rounds.append(clock.spent)
    watching = statistics.median(each[""] for each in rounds)
    found = {
        name: max(0.0, statistics.median(each.get(name, 0.0) for each in rounds) - watching) * 1e6
        for name in STAGES
        if name in originals
    }
    total = statistics.median(totals) * 1e6
    execution = sum(found.get(name, 0.0) for name in NESTED)
    return found | {"rest": total - sum(found.values()), "total": total, "without execution": total - execution}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--sizes", default="10,30,100,300,1000,3000,10000")
    parser.add_argument("--seconds", type=float, default=1.0, help="of repeating for each size")
    parser.add_argument("--stages", action="store_true")
    options = parser.parse_args()
    data: dict[str, Any] = {}
    if options.stages:
        data["stages"] = stages(10, 300)
        print("us per call of 10 instructions\n" + "\n".join(f"{k:20}{v:10.1f}" for k, v in data["stages"].items()))
    sizes = [int(size) for size in options.sizes.split(",") if size]
    if sizes:
        found = calls(sizes, options.seconds)
        fixed, slope = line({size: median for size, (_, median, _) in found.items()})
        data |= {"calls": found, "fixed_us": fixed * 1e6, "instruction_us": slope * 1e6}
        print(f"{'instructions':>12}{'us per call':>14}{'quartiles':>24}{'us each':>10}")
        for size, (low, median, high) in found.items():
            between = f"{low * 1e6:.1f} - {high * 1e6:.1f}"
            print(f"{size:12}{median * 1e6:14.1f}{between:>24}{median * 1e6 / size:10.3f}")
        print(f"{fixed * 1e6:.1f} us for a call and {slope * 1e6:.3f} us for each instruction")
    if options.json:
        options.json.write_text(json.dumps(data, indent=1))


if __name__ == "__main__":
    main()
