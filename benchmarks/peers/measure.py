"""Times of repeated calls, and what else the machine did meanwhile."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_STAT = Path("/proc/stat")


PATIENCE = 10.0
"""Seconds after which two samples are enough."""


def samples(call: Callable[[], Any], *, warm: int, least: int, most: int, seconds: float) -> dict[str, list[float]]:
    """Seconds of each call after `warm` others: wall, CPU of the process, CPU of the calling thread.

    At least `least` calls (two of slow ones), then more until `seconds` are over or there are `most`.
    """
    found: dict[str, list[float]] = {"wall": [], "cpu": [], "thread": []}
    for _ in range(warm):
        call()
    start = time.perf_counter()

    def enough(count: int) -> bool:
        spent = time.perf_counter() - start
        return count >= most or (count >= least and spent > seconds) or (count >= 2 and spent > PATIENCE)

    while not enough(len(found["wall"])):
        cpu, thread, wall = time.process_time(), time.thread_time(), time.perf_counter()
        call()
        found["wall"].append(time.perf_counter() - wall)
        found["thread"].append(time.thread_time() - thread)
        found["cpu"].append(time.process_time() - cpu)
    return found


def quartiles(values: list[float]) -> tuple[float, float, float]:
    """Lower quartile, median, upper quartile; the extremes if there are only a few values."""
    if len(values) < 4:
        return min(values), statistics.median(values), max(values)
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def busy_seconds() -> float | None:
    """Seconds that all processors of the machine have been busy; None where the system does not say."""
    if not _STAT.exists():
        return None
    fields = [int(field) for field in _STAT.read_text().partition("\n")[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def children_seconds() -> float:
    """CPU seconds of this process and of its children that ended."""
    return sum(os.times()[:4])


def limit_threads(environment: dict[str, str], threads: int) -> dict[str, str]:
    """An environment in which libraries use so many threads."""
    limited = dict(environment)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NKI_THREADS"):
        limited[name] = str(threads)
    if threads == 1:
        limited["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    return limited
