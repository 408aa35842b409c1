"""From process start to the first result of a kernel, in fresh processes, next to what others need for the same.

The kernel adds two arrays of 256 x 2048. "no cache": nothing was compiled before; "cache": kernel and native code
are on disk from an earlier process; "eager": instruction by instruction. Minimum, median and maximum of CPU and wall
milliseconds, and the peak of the process. With ``--cases NAME,NAME,...`` kernels of `cases.py` are measured instead,
from the cache, after a process that called them three times; "inputs" is what importing NumPy and making their
arguments takes, which is part of the line below it. Usage:
``python benchmarks/peers/cold.py [--runs N] [--cases NAMES] [--json FILE]``.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.peers.measure import limit_threads

ROOT = Path(__file__).resolve().parents[2]
ARRAYS = "import numpy as np\na = np.ones((256, 2048), np.float32)\n"
OURS = ARRAYS + "import nki\nfrom benchmarks.peers.kernels import vadd\nassert (nki.{call}(vadd)(a, a) == 2).all()"
INPUTS = (
    "import numpy as np\nfrom benchmarks.peers.cases import CASES, inputs, on_chip_layout\n"
    "case = CASES['{case}']\ngiven = on_chip_layout(case, inputs(case))\n"
)
CASE = (
    INPUTS
    + "import nki\nfrom benchmarks.peers.kernels import KERNELS\nkernel = nki.jit(KERNELS[case.kernel])\nkernel(*given)"
)
AGAIN = "\nif 'kernel' in globals():\n    kernel(*given), kernel(*given)"
"""What fills the cache: a kernel's functions are compiled when it is called again."""
PROGRAMS = {
    "python": ("", ""),
    "numpy": ("numpy", ARRAYS + "assert (a + a == 2).all()"),
    "import nki": ("", "import nki"),
    "eager": ("", OURS.format(call="simulate")),
    "compiled, no cache": ("", OURS.format(call="jit")),
    "compiled, cache": ("", OURS.format(call="jit")),
    "stand-in": (
        "",
        ARRAYS + "from benchmarks.peers.standin import Tile, vadd\n"
        "x = Tile(a, 'hbm')\nassert (vadd(x, x).data == 2).all()",
    ),
    "torch": ("torch", "import torch\na = torch.ones(256, 2048)\nassert bool((a + a == 2).all())"),
    "jax": (
        "jax",
        "import jax, jax.numpy as jnp\na = jnp.ones((256, 2048))\nassert (jax.jit(jnp.add)(a, a) == 2).all()",
    ),
}
"""What has to be installed, and the program."""


def programs_of(cases: str) -> dict[str, tuple[str, str]]:
    """What is measured for kernels of `cases.py`."""
    found = {}
    for case in cases.split(","):
        found[f"{case}, inputs"] = ("", INPUTS.format(case=case))
        found[f"{case}, cache"] = ("", CASE.format(case=case))
    return found


def run(code: str, cache: str) -> dict[str, float]:
    """One fresh process."""
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = limit_threads(dict(os.environ), 1) | {
        "PYTHONPATH": paths, "NKI_CACHE_DIR": cache, "XDG_CACHE_HOME": cache, "JAX_PLATFORMS": "cpu",
    }  # fmt: skip
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", code], env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"failed: {code}")
    return {"wall": wall, "cpu": usage.ru_utime + usage.ru_stime, "peak_mib": usage.ru_maxrss / 1024}


def measured(name: str, code: str, runs: int) -> list[dict[str, float]]:
    """Runs of one program after one that is not counted, which compiles Python's modules, as an installation does.

    The cache of kernels is empty in each, or filled by the run before.
    """
    with tempfile.TemporaryDirectory() as directory:
        run(code + AGAIN, directory)
        if name.endswith("cache") and not name.endswith("no cache"):
            return [run(code, directory) for _ in range(runs)]
        return [run(code, str(Path(directory) / str(number))) for number in range(runs)]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--cases", default="")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results: dict[str, Any] = {}
    print(f"{'ms':26}{'CPU min':>10}{'median':>9}{'max':>9}{'wall min':>11}{'median':>9}{'max':>9}{'peak MiB':>11}")
    for name, (package, code) in (programs_of(options.cases) if options.cases else PROGRAMS).items():
        if package and importlib.util.find_spec(package) is None:
            print(f"{name:26}{package} is not installed")
            continue
        found = results[name] = measured(name, code, options.runs)
        cells = ""
        for clock, width in (("cpu", 10), ("wall", 11)):
            times = [each[clock] * 1e3 for each in found]
            cells += f"{min(times):{width}.0f}{statistics.median(times):9.0f}{max(times):9.0f}"
        print(f"{name:26}{cells}{max(each['peak_mib'] for each in found):11.0f}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
