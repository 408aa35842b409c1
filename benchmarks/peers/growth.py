"""Whether time and memory grow with the number of instructions and no faster: 10^3 to 10^6, each in its own process.

The program is unrolled: rounds of a load, a sum, an exponential and a store on 128 x 16 tiles. us of CPU time per
instruction for the first call (trace, compile, run) and for warm ones (the second call compiles native code and is left
out), and the peak of the process. "marginal" is what each instruction adds to a warm call beyond those of the size
before: a call has a fixed part as well, which weighs on the smallest size. The largest size takes minutes. Usage:
``python benchmarks/peers/growth.py [--sizes N,N,...] [--calls N] [--json FILE]``.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
from benchmarks.peers.measure import quartiles, samples

import nki
import nki.isa as nisa
import nki.language as nl

ROWS, COLUMNS = 128, 16
PER_ROUND = 4


@nki.jit
def rounds(a: Any, count: int) -> Any:
    """`count` rounds of `PER_ROUND` instructions, each on tiles of its own."""
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    for i in range(count):
        here = slice(i % 8 * COLUMNS, (i % 8 + 1) * COLUMNS)
        x, y = (nl.ndarray((ROWS, COLUMNS), a.dtype, buffer=nl.sbuf) for _ in range(2))
        nisa.dma_copy(dst=x, src=a[:, here])
        nisa.tensor_tensor(dst=y, data1=x, data2=x, op=nl.add)
        nisa.activation(dst=x, op=nl.exp, data=y)
        nisa.dma_copy(dst=out[:, here], src=x)
    return out


def measured(size: int, calls: int) -> dict[str, Any]:
    """One size, in this process."""
    a = np.random.default_rng(0).uniform(-1, 1, (ROWS, 8 * COLUMNS)).astype(np.float32)
    count = max(8, size // PER_ROUND)
    start = time.process_time()
    result = rounds(a, count)
    first = time.process_time() - start
    again = quartiles(samples(lambda: rounds(a, count), warm=2, least=calls, most=300, seconds=1.0)["cpu"])
    if np.abs(result - np.exp(2 * a)).max() > 1e-5:
        raise SystemExit("a wrong result")
    instructions = count * PER_ROUND
    return {
        "instructions": instructions,
        "first_us": first / instructions * 1e6,
        "next_us": [seconds / instructions * 1e6 for seconds in again],
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def marginal(found: dict[str, Any], before: dict[str, Any] | None) -> float:
    """us that each instruction adds to a warm call, from the size before to this one."""
    if before is None:
        return float(found["next_us"][1])
    times = [each["next_us"][1] * each["instructions"] for each in (before, found)]
    return float((times[1] - times[0]) / (found["instructions"] - before["instructions"]))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="1000,10000,100000,1000000")
    parser.add_argument("--calls", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--size", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.size:
        print("RESULT " + json.dumps(measured(options.size, options.calls)))
        return
    print(
        f"{'instructions':>12}{'first us each':>15}{'warm us each':>14}{'quartiles':>18}"
        f"{'marginal':>10}{'peak MiB':>10}"
    )
    results: list[dict[str, Any]] = []
    for size in options.sizes.split(","):
        command = [sys.executable, __file__, "--size", size, "--calls", str(options.calls)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        line = next((line for line in done.stdout.splitlines() if line.startswith("RESULT ")), None)
        if line is None:
            sys.exit(f"{size} instructions failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
        found = json.loads(line.removeprefix("RESULT "))
        found["marginal_us"] = marginal(found, results[-1] if results else None)
        results.append(found)
        low, median, high = found["next_us"]
        between = f"{low:.2f} - {high:.2f}"
        print(
            f"{found['instructions']:12}{found['first_us']:15.1f}{median:14.2f}{between:>18}"
            f"{found['marginal_us']:10.2f}{found['peak_mib']:10.0f}",
            flush=True,
        )
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
