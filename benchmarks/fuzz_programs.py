"""Random legal kernels: eager, compiled and under hostile orders of their queues; all have to give the same bytes.

Prints a table with what was run and what went wrong. Results are appended to a file as they come, one line of JSON for
each kernel, and a run that was interrupted goes on where it was. ``--only N`` repeats the kernel with that number.
Usage: ``python benchmarks/fuzz_programs.py [--count N] [--seed N] [--jobs N] [--policies N] [--json FILE]``. Exit
status 1 if anything went wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.fuzz.checks import outcome
from tests.fuzz.programs import case

SEEDS = 1_000_000
"""Kernels of one seed; number n of seed s is ``case(s * SEEDS + n)``."""


def judge(policies: int, number: int) -> dict[str, Any]:
    """Run one kernel."""
    return asdict(outcome(case(number), policies))


def main() -> None:
    """Run all kernels that have no result yet, and print the sums."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--policies", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", type=int, help="number of one kernel")
    options = parser.parse_args()
    first = options.seed * SEEDS
    wanted = range(first, first + options.count) if options.only is None else range(options.only, options.only + 1)
    known = _known(options.json)
    results = [known[number] for number in wanted if number in known]
    todo = [number for number in wanted if number not in known]
    started = time.perf_counter()
    for result in _run(partial(judge, options.policies), todo, options.jobs):
        results.append(result)
        if options.json:
            with options.json.open("a", encoding="utf-8") as file:
                file.write(json.dumps(result) + "\n")
        for fault in result["faults"]:
            print(f"kernel {result['seed']}: {fault}", flush=True)
        if len(results) % 100 == 0:
            print(f"{len(results)} of {len(wanted)} after {time.perf_counter() - started:.0f} s", flush=True)
    show(results)
    sys.exit(any(result["faults"] for result in results))


def show(results: Iterable[dict[str, Any]]) -> None:
    """The table."""
    sums: Counter[str] = Counter()
    for result in results:
        sums["kernels"] += 1
        sums["instructions"] += result["instructions"]
        sums["kernels with loops"] += result["loops"] > 0
        sums["kernels on two cores"] += result["cores"] == 2
        sums["hostile runs"] += result["policies"]
        for kind in ("difference", "race", "crash"):
            sums[f"kernels with a {kind}"] += any(fault.startswith(kind) for fault in result["faults"])
    for name, count in sums.items():
        print(f"{name:28} {count:9}")


def _known(path: Path | None) -> dict[int, dict[str, Any]]:
    if path is None or not path.exists():
        return {}
    lines = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    return {result["seed"]: result for result in lines}


def _run(work: Any, numbers: list[int], jobs: int) -> Iterator[dict[str, Any]]:
    if jobs == 1:
        yield from map(work, numbers)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(work, numbers, chunksize=8)


if __name__ == "__main__":
    main()
