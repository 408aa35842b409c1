"""One model: compiled, run, compared with the framework on the CPU, and measured."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np

from nki.core.errors import NkiError
from nki.graph.executable import Executable

MOST, LONGEST = 30, 1.5
"""A function is run so often, or for so many seconds, but three times at least."""

ENGINES = ("tensor", "vector", "scalar", "gpsimd", "dma")


def measured(ours: Callable[[], Any], theirs: Callable[[], Any], made: Callable[[], Executable]) -> dict[str, Any]:
    """The row of one model, or why it was refused. Seconds are those of the processor.

    Args:
        ours: runs the compiled model and returns arrays; the first call compiles.
        theirs: the framework's result.
        made: the executable, once it was compiled.
    """
    before = fresh_peak()
    try:
        began = process_time()
        found = ours()
        first = process_time() - began
    except NkiError as error:
        return {"refused": f"[{error.code}] {error.message} ({error.location})"}
    compiling = fresh_peak() - before
    run = best(ours)
    executable = made()
    executed = executable.executed
    wanted, eager = theirs(), best(theirs)
    return {
        "error": difference(found, wanted),
        "compile_s": first - run,
        "run_s": run,
        "framework_s": eager,
        "ratio": run / eager,
        "compile_peak_bytes": compiling,
        "native": executed.native,
        "interpreted": executed.interpreted,
        "reasons": dict(executed.reasons),
        **described(executable),
    }


def described(executable: Executable) -> dict[str, Any]:
    """What is known without running: the compiler's report, and the timing model's figures."""
    report, about = executable.report, executable.profile().about
    total, bandwidth = about.totals[0], about.hardware["hbm_bytes_per_ns"]
    moved = total["hbm_read_bytes"] + total["hbm_write_bytes"]
    return {
        "instructions": report.instructions,
        "kernels": [report.kernels_before, report.kernels_after],
        "hbm_bytes": [report.bytes_before, report.bytes_after],
        "temporary_bytes": [report.temporary_bytes_before, report.temporary_bytes],
        "device_memory_bytes": report.argument_bytes
        + report.constant_bytes
        + report.output_bytes
        + report.temporary_bytes,
        "replaced": [each.pattern for each in report.replaced],
        "linked_kernels": report.kernels.get("call", 0),
        "device_ms": about.makespan_ns / 1e6,
        "engine_use": {name: total["units"][name] / about.makespan_ns for name in ENGINES},
        "hbm_use": moved / (about.makespan_ns * bandwidth),
        "bound_by": total["bound_by"],
    }


def best(function: Callable[[], Any]) -> float:
    """The fewest seconds of the processor that a call took."""
    times: list[float] = []
    until = perf_counter() + LONGEST
    while len(times) < 3 or (len(times) < MOST and perf_counter() < until):
        began = process_time()
        function()
        times.append(process_time() - began)
    return min(times)


def fresh_peak() -> int:
    """The largest resident memory of the process since the last call, in bytes; 0 where the system does not say."""
    gc.collect()
    status, clear = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    if not status.exists():
        return 0
    found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
    clear.write_text("5")  # proc(5): the peak begins anew
    return int(found[1]) * 1024 if found else 0


def difference(found: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> float:
    """The largest difference, relative to the largest number of its tensor."""
    worst = 0.0
    for one, two in zip(found, wanted, strict=True):
        one, two = np.asarray(one, np.float64), np.asarray(two, np.float64)
        scale = np.abs(two).max(initial=0.0) or 1.0
        gap = np.abs(one - two).max(initial=0.0) / scale
        worst = float(gap) if not gap <= worst else worst  # NaN stays
    return worst
