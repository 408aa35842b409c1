"""How long IR takes per instruction: trace and verify, build, verify, read, on a kernel of about 10 000 instructions.

Prints minimum, median and maximum CPU time over the runs. Usage:
``python benchmarks/ir_speed.py [--runs N] [--tiles N]``.
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
from nki.driver.gate import through_ir
from nki.driver.launch import Launch, trace_only
from nki.ir.build import build
from nki.ir.read import read
from nki.ir.text import fingerprint, from_bytecode, from_text, to_bytecode, to_text
from nki.ir.verify import verify, verify_structure
from nki.options import Options
from nki.target.load import load_target

ROWS, COLUMNS = 128, 512


def kernel(a: Any, tiles: int) -> Any:
    """Five instructions for each tile, each on a tile of its own, as an unrolled loop has them."""
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    for tile in range(tiles):
        columns = slice(tile * COLUMNS, (tile + 1) * COLUMNS)
        x = nl.ndarray((ROWS, COLUMNS), a.dtype, buffer=nl.sbuf)
        y = nl.ndarray((ROWS, COLUMNS), a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=x, src=a[:, columns])
        nisa.tensor_scalar(dst=y, data=x, op0=nl.multiply, operand0=0.5 + tile, op1=nl.add, operand1=1.0)
        nisa.tensor_tensor(dst=y, data1=x, data2=y, op=nl.add)
        nisa.tensor_copy(dst=x, src=y)
        nisa.dma_copy(dst=out[:, columns], src=x)
    return out


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--tiles", type=int, default=2000)
    options = parser.parse_args()
    target = load_target("trn2")
    array = np.zeros((ROWS, options.tiles * COLUMNS), np.float32)

    def trace() -> Any:
        return [t.program for t in trace_only(Launch(kernel), (array, options.tiles), {}, target, Options())]

    programs = trace()
    module = build(programs)
    text, bytecode = to_text(module), to_bytecode(module)
    steps: list[tuple[str, Callable[[], Any]]] = [
        ("trace and verify", trace),
        ("build", lambda: build(programs)),
        ("verify by MLIR", lambda: verify_structure(module)),
        ("read", lambda: read(module)),
        ("verify (MLIR, read, rules)", lambda: verify(module, target)),
        ("fingerprint", lambda: fingerprint(module)),
        ("gate (all of it)", lambda: through_ir(programs, target)),
        ("write bytecode", lambda: to_bytecode(module)),
        ("read bytecode", lambda: from_bytecode(bytecode)),
        ("write text", lambda: to_text(module)),
        ("read text", lambda: from_text(text)),
    ]
    count = sum(1 for program in programs for _ in program.body.walk())
    print(f"{count} instructions, {len(bytecode)} bytes of bytecode, {len(text)} of text; {options.runs} runs")
    print(f"{'CPU µs per instruction':28}{'min':>8}{'median':>8}{'max':>8}")
    for name, step in steps:
        times = sorted(_measure(step, count) for _ in range(options.runs))
        print(f"{name:28}{times[0]:8.2f}{statistics.median(times):8.2f}{times[-1]:8.2f}")


def _measure(step: Callable[[], Any], count: int) -> float:
    start = time.process_time()
    kept = step()
    elapsed = time.process_time() - start
    del kept
    return elapsed / count * 1e6


if __name__ == "__main__":
    main()
