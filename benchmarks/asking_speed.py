"""How long it takes to ask for the time of a new configuration of a known kernel: trace, passes and timeline.

CPU time, the best of several runs, each of which asks for another configuration. With ``--against DIR``, another
checkout of this repository, both answer in turns, each in a process of its own, so that both see the same machine; the
ratio is what the other one takes over what this one takes, the median of the runs. A checkout without `nki.predict` is
asked as its tuner asks: "passes" are all of `compile_programs`, "timeline" is that of the compiled programs, and "call"
is a whole question, which includes the IR there.
Usage: ``python benchmarks/asking_speed.py [--against DIR] [--kernels NAME,...] [--sizes N,N,...] [--runs N]``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
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
from examples.flash_attention import flash_attention

import nki
import nki.language as nl
import nki.passes.pipeline
from nki.compiler import CompileConfig
from nki.core.collector import paused_collector
from nki.driver.compile import compiled
from nki.driver.launch import Launch, trace_only
from nki.driver.prepare import prepare
from nki.options import Options
from nki.passes.context import Context
from nki.target.load import load_target
from nki.timing.cores import timelines

ROOT = Path(__file__).resolve().parents[1]
Times = dict[str, float]
PARTS = ("trace", "passes", "timeline", "total", "call")
TARGET = "trn2"
BF16 = nl.bfloat16


def tiles(size: int, run: int) -> tuple[Callable[..., Any], list[Any]]:
    """Independent tiles: loaded, multiplied, activated, added and stored."""
    count = size // PER_TILE + run
    return tiles_kernel, [np.zeros((INNER, INNER), BF16), np.zeros((INNER, count * COLUMNS), BF16), count]


def products(size: int, run: int) -> tuple[Callable[..., Any], list[Any]]:
    """A tiled product with K = 1024 or more: instructions for tiles of 128 x 512, and the loads of their operands."""
    depth, columns = 1024 + 128 * run, 4 if size < 1000 else 8
    rows = max(1, round(size / (10 * columns + 8)))
    return matmul, [np.zeros((depth, rows * 128), BF16), np.zeros((depth, columns * 512), BF16)]


def attention(size: int, run: int) -> tuple[Callable[..., Any], list[Any]]:
    """Causal flash attention, whose instructions grow with the square of the positions."""
    positions = {200: 512, 2000: 2048}.get(size, 6144) + 512 * run
    return flash_attention.func, [
        np.zeros(shape, BF16) for shape in ((128, positions), (128, positions), (positions, 128))
    ]


KERNELS = {"tiles": tiles, "products": products, "attention": attention}


def timed(found: Times, name: str, work: Callable[[], Any]) -> Any:
    """The result of some work, whose seconds are noted."""
    start = time.process_time()
    result = work()
    found[name] = time.process_time() - start
    return result


def asked(kernel: Callable[..., Any], arguments: list[Any]) -> tuple[Times, int, float]:
    """Seconds of each part of one question, the instructions of the trace, and the answer in ns."""
    found: Times = {}
    target = load_target(TARGET)
    with paused_collector():
        programs = [
            each.program
            for each in timed(
                found,
                "trace",
                lambda: trace_only(Launch(kernel), tuple(arguments), {}, target, Options(), collect=False),
            )
        ]
        context = Context(target, Options(), CompileConfig())
        if hasattr(nki, "predict"):
            (core,) = timed(found, "passes", lambda: nki.passes.pipeline.time_programs(programs, context))
            found["timeline"], ns = 0.0, core.spent.ns
        else:
            made = timed(found, "passes", lambda: nki.passes.pipeline.compile_programs(programs, context).programs)
            (line,) = timed(found, "timeline", lambda: timelines(made, target))
            ns = line.makespan
    found["total"] = sum(found.values())
    return found, sum(1 for _ in programs[0].body.walk()), ns


def called(kernel: Callable[..., Any], arguments: list[Any]) -> tuple[float, float]:
    """Seconds of a whole question as a tuner puts it, and the answer in ns."""
    start = time.process_time()
    if hasattr(nki, "predict"):
        ns = nki.predict(kernel, target=TARGET)(*arguments).ns
    else:
        launch = nki.jit(kernel).launch()
        prepared = prepare(launch, tuple(arguments), {}, None, "compiled", target=TARGET, cache={})
        ns = timelines(compiled(prepared).programs, load_target(TARGET))[0].makespan
    return time.process_time() - start, ns


def serve() -> None:
    """Answer requests of the process that started this one, a line each."""
    for line in sys.stdin:
        name, size, run = json.loads(line)
        kernel, arguments = KERNELS[name](size, run)
        found, count, ns = asked(kernel, arguments)
        found["call"], again = called(kernel, arguments)
        assert ns == again
        sys.stdout.write(json.dumps([found, count, ns]) + "\n")
        sys.stdout.flush()


class Checkout:
    """A process in which the package of a checkout answers."""

    def __init__(self, root: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(root / "src"), "NKI_CACHE": "0"},
        )

    def ask(self, name: str, size: int, run: int) -> tuple[Times, int, float]:
        """See `asked`."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([name, size, run]) + "\n")
        self._process.stdin.flush()
        times, count, ns = json.loads(self._process.stdout.readline())
        return times, count, ns


def row(name: str, size: int, runs: int, checkouts: list[Checkout]) -> str:
    """One kernel and size: us per instruction of this checkout, and the ratio of each part."""
    ratios: dict[str, list[float]] = {part: [] for part in PARTS}
    least: Times = dict.fromkeys(PARTS, float("inf"))
    count = 0
    for checkout in checkouts:  # the kernel is known before its configurations are asked for
        checkout.ask(name, size, runs)
    for run in range(runs):
        answers = [checkout.ask(name, size, run) for checkout in checkouts]
        count = answers[0][1]
        for part in PARTS:
            least[part] = min(least[part], answers[0][0][part] / count * 1e6)
        if len(checkouts) > 1:
            this, other = answers
            for part in PARTS:
                if this[0][part] and other[0][part]:
                    ratios[part].append(other[0][part] / this[0][part])
    shown = " ".join(
        f"{part} {least[part]:.1f}" + (f" ({statistics.median(ratios[part]):.2f}x)" if ratios[part] else "")
        for part in PARTS
    )
    return f"{name:10} {count:>6} instructions, us for each: {shown}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--kernels", default=",".join(KERNELS))
    parser.add_argument("--sizes", default="200,2000,20000")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    checkouts = [Checkout(root) for root in (ROOT, options.against) if root is not None]
    for name in options.kernels.split(","):
        for size in map(int, options.sizes.split(",")):
            sys.stdout.write(row(name, size, options.runs, checkouts) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
