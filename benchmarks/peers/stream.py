"""How fast a long mixed stream of instructions runs: unrolled code on 128 x 512 tiles, as compiled programs are.

One round is: load bf16, copy to f32, add f32, multiply bf16, exp, bf16 matmul, copy out of PSUM, store. The stream has
as many rounds as give the number of instructions. Streams of one kind each say what a kind costs. CPU time of the
thread per instruction: median and quartiles of the calls after the first; the first call is tracing and compiling.
Usage: ``python benchmarks/peers/stream.py [--instructions N] [--kinds] [--calls N] [--json FILE]``.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
from benchmarks.peers.measure import quartiles, samples

import nki
import nki.isa as nisa
import nki.language as nl

ROWS, COLUMNS = 128, 512
RING = 4
"""Tiles of each kind that the rounds take in turn."""

Step = Callable[[], None]


class Tiles:
    """Tiles that the stream works on."""

    def __init__(self, a: Any, weights: Any, out: Any) -> None:
        self.a, self.out = a, out
        self.low = [nl.ndarray((ROWS, COLUMNS), nl.bfloat16, buffer=nl.sbuf) for _ in range(RING)]
        self.high = [nl.ndarray((ROWS, COLUMNS), nl.float32, buffer=nl.sbuf) for _ in range(RING)]
        self.product = [nl.ndarray((ROWS, COLUMNS), nl.float32, buffer=nl.psum) for _ in range(RING)]
        self.weights = nl.ndarray((ROWS, ROWS), nl.bfloat16, buffer=nl.sbuf)
        nisa.dma_copy(dst=self.weights, src=weights)
        for i in range(RING):
            nisa.dma_copy(dst=self.low[i], src=a)
            nisa.tensor_copy(dst=self.high[i], src=self.low[i])
            nisa.nc_matmul(dst=self.product[i], stationary=self.weights, moving=self.low[i], accumulate=False)


def steps(t: Tiles, i: int) -> dict[str, Step]:
    """The instructions of round i, by kind."""
    here, there = i % RING, (i + 1) % RING
    low, high, product = t.low[here], t.high[here], t.product[here]
    return {
        "load": lambda: nisa.dma_copy(dst=low, src=t.a),
        "copy to f32": lambda: nisa.tensor_copy(dst=high, src=low),
        "add f32": lambda: nisa.tensor_tensor(dst=high, data1=high, data2=t.high[there], op=nl.add),
        "multiply bf16": lambda: nisa.tensor_tensor(dst=low, data1=low, data2=t.low[there], op=nl.multiply),
        "exp": lambda: nisa.activation(dst=low, op=nl.exp, data=low, scale=-1.0),
        "matmul bf16": lambda: nisa.nc_matmul(dst=product, stationary=t.weights, moving=low, accumulate=False),
        "copy from PSUM": lambda: nisa.tensor_copy(dst=low, src=product),
        "store": lambda: nisa.dma_copy(dst=t.out, src=low),
    }


@nki.jit
def stream(a: Any, weights: Any, count: int, kind: str) -> Any:
    """`count` instructions after the set-up, of one kind or, with "", of all."""
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    tiles = Tiles(a, weights, out)
    for step in islice(_endless(tiles, kind), count):
        step()
    nisa.dma_copy(dst=out, src=tiles.low[0])
    return out


def _endless(tiles: Tiles, kind: str) -> Iterator[Step]:
    i = 0
    while True:
        for name, step in steps(tiles, i).items():
            if kind in ("", name):
                yield step
        i += 1


KINDS = ("load", "copy to f32", "add f32", "multiply bf16", "exp", "matmul bf16", "copy from PSUM", "store")


def measured(count: int, kind: str, calls: int) -> dict[str, Any]:
    """us per instruction of the first call, and quartiles of the next ones."""
    draw = np.random.default_rng(0)
    a = draw.uniform(0.1, 1, (ROWS, COLUMNS)).astype(nl.bfloat16.numpy)
    weights = (np.eye(ROWS) * 0.5).astype(nl.bfloat16.numpy)
    start = time.thread_time()
    first = stream(a, weights, count, kind)
    taken = time.thread_time() - start
    again = samples(lambda: stream(a, weights, count, kind), warm=0, least=calls, most=calls, seconds=0)
    if stream(a, weights, count, kind).tobytes() != first.tobytes():
        raise SystemExit("the same stream has another result")
    low, median, high = (seconds / count * 1e6 for seconds in quartiles(again["thread"]))
    return {"kind": kind or "mixed", "instructions": count, "first": taken / count * 1e6, "us": [low, median, high]}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instructions", type=int, default=50_000)
    parser.add_argument("--kinds", action="store_true", help="also streams of a single kind, a tenth as long")
    parser.add_argument("--calls", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    plan = [(options.instructions, "")]
    if options.kinds:
        plan += [(max(1, options.instructions // 10), kind) for kind in KINDS]
    results = []
    print(
        f"{'us per instruction':20}{'count':>8}{'first call':>12}{'next calls':>12}{'quartiles':>20}{'per second':>14}"
    )
    for count, kind in plan:
        found = measured(count, kind, options.calls)
        results.append(found)
        low, median, high = found["us"]
        between = f"{low:.2f} - {high:.2f}"
        print(f"{found['kind']:20}{count:8}{found['first']:12.1f}{median:12.2f}{between:>20}{1e6 / median:14,.0f}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
