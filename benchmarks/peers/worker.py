"""One row of one case in a process of its own: ``worker.py ROW CASE VARIANT STARTED SECONDS REFERENCE [MODE]``.

Prints one line of JSON. STARTED is the monotonic clock when the process was started, REFERENCE a file with the result
in float32; mode "first" stops after the first call, mode "write" writes that file instead of comparing with it.
"""

from __future__ import annotations

import gc
import importlib
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
from benchmarks.peers.cases import CASES, Case, inputs
from benchmarks.peers.measure import samples

MODULES = {
    "torch": "rival_torch", "standin": "standin", "triton": "rival_triton", "pallas": "rival_pallas", "ours": "ours",
}  # fmt: skip
_SLOW = frozenset({"triton", "pallas"})


def main() -> None:
    """Measure and print."""
    row, name, variant, started, seconds, reference, *mode = sys.argv[1:]
    case = CASES[name]
    before = time.perf_counter(), time.process_time()
    arrays = inputs(case)
    spent = time.perf_counter() - before[0], time.process_time() - before[1]
    module = importlib.import_module(f"benchmarks.peers.{MODULES[row]}")
    call, back = module.build(case, arrays, variant)
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    result = call()
    found: dict[str, Any] = {
        "first_wall": time.perf_counter() - wall,
        "first_cpu": time.process_time() - cpu,
        "start_wall": time.monotonic() - float(started) - spent[0],
        "start_cpu": time.process_time() - spent[1],
    }
    if mode == ["write"]:
        np.save(reference, back(result))
    elif mode != ["first"]:
        slow = row in _SLOW
        found |= samples(call, warm=1 if slow else 10, least=3 if slow else 5, most=200, seconds=float(seconds))
        found["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        found["error"] = error(back(call()), reference, case)
        found["facts"] = module.build.facts() if hasattr(module.build, "facts") else {}
    print("RESULT " + json.dumps(found))


def error(result: np.ndarray, reference: str, case: Case) -> float:
    """Largest difference over the largest value; inf for a result that is not finite or has another shape."""
    wanted = np.load(reference)
    if result.shape != wanted.shape or not np.isfinite(result).all():
        return float("inf")
    return float(np.abs(result - wanted).max() / np.abs(wanted).max())


if __name__ == "__main__":
    main()
