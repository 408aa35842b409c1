"""How fast native code evaluates the functions of the activation unit, and NumPy the same.

Prints, for 128 rows of 512 float32 values, the least CPU time of the calling thread in nanoseconds per 16 elements,
less that of a copy, and with ``--numpy`` what NumPy takes. Values are normal ones up to 1.5, or their magnitudes where
a function needs that.
Usage: ``python benchmarks/native_functions.py [--runs N] [--only NAME ...] [--numpy]``. On a machine that does other
things as well, run the versions that are compared in turns.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.elementary.functions import ACTIVATION_FUNCTIONS
from tests.native.emit.emit_cases import Copies, buffers_of, prepared
from tests.support import environment

import nki
import nki.isa as nisa
import nki.language as nl
from nki.native.trace.symbolic_execution import trace
from nki.sim.machine import Machine
from nki.spec.program import Issued

SHAPE = (128, 512)
_POSITIVE = ("log", "sqrt", "rsqrt")
_LIMIT = np.float32(1.5)
"""Of magnitudes: the unit's arctangent is valid to pi / 2."""
_BATCH = 20
_PER = SHAPE[0] * SHAPE[1] / 16
_MISSING = {"sign", "abs", "square", "relu", "prelu"}
"""Single operations, which are not measured."""


def kernels(names: list[str]) -> dict[str, Callable[[], object]]:
    """Calls of the native functions, by name."""
    made: dict[str, Callable[[], object]] = {}
    plain = Machine.run

    def run(machine: Machine, issued: Issued) -> None:
        machine.engine = issued.engine
        if issued.instruction.name == "activation":
            traced = trace(issued, machine.target)
            call = prepared(traced, Copies(machine, buffers_of(machine, issued)))
            made[str(issued.arguments.op)] = partial(call, 0, SHAPE[0])
        plain(machine, issued)

    def kernel(array: Any, positive: Any) -> Any:
        out = nl.ndarray(SHAPE, nl.float32, buffer=nl.shared_hbm)
        tiles = [nl.ndarray(SHAPE, nl.float32, buffer=nl.sbuf) for _ in range(3)]
        nisa.dma_copy(dst=tiles[0], src=array)
        nisa.dma_copy(dst=tiles[1], src=positive)
        for name in names:
            nisa.activation(tiles[2], getattr(nl, name), tiles[name in _POSITIVE])
        nisa.dma_copy(dst=out, src=tiles[2])
        return out

    with pytest.MonkeyPatch.context() as patch, environment(NKI_NATIVE="0"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setattr(Machine, "run", run)
        nki.simulate(nki.jit(kernel))(*inputs())
    return made


def inputs() -> tuple[np.ndarray, np.ndarray]:
    """Normal values, and their magnitudes."""
    array = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32).clip(-_LIMIT, _LIMIT)
    return array, np.abs(array) + np.float32(0.01)


def least(call: Callable[[], object], runs: int) -> float:
    """Nanoseconds of a call for each 16 elements."""
    best = float("inf")
    for _ in range(runs):
        started = time.thread_time_ns()
        for _ in range(_BATCH):
            call()
        best = min(best, (time.thread_time_ns() - started) / _BATCH)
    return best / _PER


def numpy_time(name: str, runs: int) -> float:
    """The same of NumPy."""
    values = inputs()[name in _POSITIVE]
    with np.errstate(all="ignore"):
        return least(lambda: ACTIVATION_FUNCTIONS[name](values), max(1, runs // _BATCH))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--numpy", action="store_true")
    chosen = parser.parse_args()
    names = [name for name in ACTIVATION_FUNCTIONS if name not in _MISSING and hasattr(nl, name)]
    if chosen.only:
        names = ["copy", *[name for name in names if name in chosen.only]]
    made = kernels(names)
    copy = least(made["copy"], chosen.runs)
    print(f"{'copy':<24}{copy:8.2f}")
    for name in names[1:]:
        numpy = f"{numpy_time(name, chosen.runs):10.1f}" if chosen.numpy else ""
        print(f"{name:<24}{least(made[name], chosen.runs) - copy:8.2f}{numpy}")


if __name__ == "__main__":
    main()
