"""How long it takes to import the package, and from process start to the first result of a small kernel.

Prints wall seconds as minimum, median and maximum over fresh processes. Bounds that the project aims for: 0.3 s for the
import, 1.5 s for the first result. Run it on a quiet machine: ``python benchmarks/startup.py [RUNS]``.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

KERNEL = """
import sys
sys.path.insert(0, "examples")
import nki, numpy as np, tensor_add
a = np.ones((256, 1024), np.float32)
run = {run}
assert (run(a, a) == 2).all()
"""
CASES = {
    "import numpy": "import numpy",
    "import nki": "import nki",
    "first result, compiled": KERNEL.format(run="tensor_add.tensor_add"),
    "first result, eager": KERNEL.format(run="nki.simulate(tensor_add.tensor_add)"),
}


def seconds(code: str) -> float:
    """Wall time of one fresh process."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - start


def main() -> None:
    """Measure every case."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    print(f"{runs} fresh processes each; seconds       min  median     max")
    for name, code in CASES.items():
        taken = [seconds(code) for _ in range(runs)]
        print(f"{name:38} {min(taken):6.2f}  {statistics.median(taken):6.2f}  {max(taken):6.2f}")


if __name__ == "__main__":
    main()
