"""How fast kernels run here, next to what one would use otherwise; every row of every case in a process of its own.

Rows: this package (eager; the second and later calls of a compiled kernel), PyTorch eager, a stand-in for a plain NumPy
simulator, Triton's interpreter, Pallas' interpreter of TPU kernels. Everything is measured in one run, and everything
is compared with PyTorch in float32. Two tables: products in the defined order ("exact") and the fastest mode there is
("fast"); cases without products are measured once and stand in both. Times are CPU time with one thread, wall time
with more; ratios are of medians, with the range that the quartiles allow. Packages that are not installed are left out
with a note. Usage:
``python benchmarks/peers/run.py [--json FILE] [--cases NAME,...] [--only ROW,...] [--threads 1|2] [--seconds S]``.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.peers.cases import CASES, Case
from benchmarks.peers.measure import busy_seconds, children_seconds, limit_threads, quartiles
from benchmarks.peers.ours import fast_matmul
from benchmarks.peers.tables import report

WORKER = Path(__file__).with_name("worker.py")
RIVALS = {"torch": ("torch",), "standin": (), "triton": ("triton", "torch"), "pallas": ("jax",)}
"""Rows that are not ours, and the packages that they need."""

OURS = ("eager", "compiled")
TIMEOUT = 600.0


@dataclass(frozen=True, slots=True)
class Runner:
    """Starts workers.

    Attributes:
        threads: that each may use.
        seconds: of repeating, at most, for each.
        directory: for references, and for caches of compiled kernels.
    """

    threads: int
    seconds: float
    directory: Path

    def __call__(
        self, row: str, case: Case, variant: str = "", mode: str = "", threads: int = 0, **variables: str
    ) -> dict[str, Any]:
        """What the worker found, with the load by others; or why it failed."""
        environment = limit_threads(dict(os.environ), threads or self.threads) | variables
        reference = str(self.directory / f"{case.name}.npy")
        before, own, clock = busy_seconds(), children_seconds(), time.monotonic()
        command = [sys.executable, str(WORKER), row, case.name, variant, repr(time.monotonic()), str(self.seconds)]
        try:
            done = subprocess.run(
                [*command, reference, *([mode] if mode else [])],
                env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return {"failed": f"took more than {TIMEOUT:.0f} s"}
        line = next((line for line in done.stdout.splitlines() if line.startswith("RESULT ")), None)
        if line is None:
            return {"failed": (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1][:300]}
        found: dict[str, Any] = json.loads(line.removeprefix("RESULT "))
        after = busy_seconds()
        if before is not None and after is not None:
            foreign = after - before - (children_seconds() - own)
            found["foreign_cores"] = max(0.0, foreign) / (time.monotonic() - clock)
        if found.get("error", 0.0) > case.tolerance:
            found["failed"] = f"error {found['error']:.1e} is above {case.tolerance:.1e}"
        return found


def has_products(case: Case) -> bool:
    """Whether NKI_MATMUL makes a difference."""
    return case.kernel in ("matmul", "attention")


def ours(run: Runner, case: Case, modes: dict[str, str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Eager and compiled, in each mode of products."""
    for label, matmul in modes.items():
        for variant in OURS:
            cache = str(run.directory / f"cache-{case.name}-{variant}-{label}")
            variables = {"NKI_MATMUL": matmul, "NKI_CACHE_DIR": cache, "XDG_CACHE_HOME": cache}
            first = run("ours", case, variant, "first", **variables)
            found = run("ours", case, variant, **variables)
            found["fresh_first_wall"], found["fresh_first_cpu"] = first.get("first_wall"), first.get("first_cpu")
            if run.threads > 1 and variant == "compiled":
                found["one_thread"] = run("ours", case, variant, threads=1, **variables)
            yield f"{variant} {label}", found
        if not has_products(case):
            return


def measured(run: Runner, cases: list[Case], rows: list[str], modes: dict[str, str]) -> dict[str, dict[str, Any]]:
    """By case and row."""
    results: dict[str, dict[str, Any]] = {}
    for case in cases:
        reference = run("torch", case, "float32", "write")
        if "failed" in reference:
            sys.exit(f"results are compared with PyTorch, which fails: {reference['failed']}")
        found = results[case.name] = {}
        for row in rows:
            for name, result in ours(run, case, modes) if row == "ours" else [(row, run(row, case))]:
                found[name] = result
                print(f"{case.name:16}{name:16}{_brief(result)}", file=sys.stderr, flush=True)
        for variant in OURS:
            if f"{variant} exact" in found and f"{variant} fast" not in found and not has_products(case):
                found[f"{variant} fast"] = found[f"{variant} exact"]
    return results


def _brief(result: dict[str, Any]) -> str:
    if "failed" in result:
        return result["failed"]
    foreign = result.get("foreign_cores")
    load = "" if foreign is None else f", {foreign:.2f} cores busy with other things"
    low, median, high = (seconds * 1e3 for seconds in quartiles(result["cpu"]))
    return f"{median:10.2f} ms of CPU ({low:.2f} - {high:.2f}), {len(result['wall'])} calls{load}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="file for everything that was measured")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--only", default=",".join(["ours", *RIVALS]), help="rows: ours, " + ", ".join(RIVALS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.6, help="of repeating for each row of a case")
    parser.add_argument("--modes", default="exact,fast", help="exact or fast; exact,fast is both")
    arguments = parser.parse_args()
    every = {"exact": "ordered", "fast": fast_matmul()}
    for option, known in (("cases", CASES), ("only", ["ours", *RIVALS]), ("modes", every)):
        for name in set(getattr(arguments, option).split(",")).difference(known):
            parser.error(f"--{option} knows no {name!r}, only {', '.join(known)}")
    cases = [CASES[name] for name in arguments.cases.split(",")]
    rows = []
    notes = []
    for row in arguments.only.split(","):
        missing = [name for name in RIVALS.get(row, ()) if importlib.util.find_spec(name) is None]
        if missing:
            notes.append(f"{row} is left out: {missing[0]} is not installed")
        else:
            rows.append(row)
    modes = {label: every[label] for label in arguments.modes.split(",")}
    with tempfile.TemporaryDirectory() as directory:
        run = Runner(arguments.threads, arguments.seconds, Path(directory))
        results = measured(run, cases, rows, modes)
    data = {"threads": arguments.threads, "modes": modes, "notes": notes, "cases": results}
    print(report(data))
    if arguments.json:
        arguments.json.write_text(json.dumps(data, indent=1))


if __name__ == "__main__":
    main()
