"""Random graphs of PyTorch and JAX on the device, against bounds that every correct implementation keeps.

Graphs are drawn until the time is used up; target, cores and front end are drawn for each. Results are appended to a
file as they come, one line of JSON for each graph, and a run that was interrupted goes on where it was. A fault is made
smaller and printed as a program. ``--only N`` repeats the graph with that number. Usage: ``python -m
benchmarks.fuzz_graphs [--seconds N] [--seed N ...] [--count N] [--json FILE] [--no-shrink]``. Exit status 1 if a result
was wrong, or an exception came that is no coded error.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.graph.differential.draw import SEEDS, graph
from tests.graph.differential.judge import outcome
from tests.graph.differential.shrink import shrunk
from tests.graph.differential.snippet import snippet
from tests.graph.differential.tally import Tally, record

_EVERY = 50
"""Graphs between two lines of progress."""


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600, help="processor time, without that of shrinking")
    parser.add_argument("--seed", type=int, nargs="+", default=[1], help="graphs are taken from each in turn")
    parser.add_argument("--count", type=int, help="graphs at the most")
    parser.add_argument("--json", type=Path, help="where results are appended, and looked up")
    parser.add_argument("--only", type=int, help="number of one graph")
    parser.add_argument("--no-shrink", action="store_true", help="print the number of a fault only")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    known = _known(given.json)
    tally = Tally()
    used = 0.0
    for number in [given.only] if given.only is not None else _numbers(given.seed):
        if used > given.seconds or tally.graphs == given.count:
            break
        result, seconds = (known[number], 0.0) if number in known else _judged(number, given)
        used += seconds
        tally.add(result)
        if tally.graphs % _EVERY == 0:
            print(f"{tally.lines()[0]} after {used:.0f} s", flush=True)
    print("\n".join(tally.lines()), f"\n{used:.0f} s of processor time", sep="")
    return int(tally.faults > 0)


def _numbers(seeds: list[int]) -> Iterator[int]:
    number = 0
    while True:
        yield from (seed * SEEDS + number for seed in seeds)
        number += 1


def _judged(number: int, given: argparse.Namespace) -> tuple[dict[str, Any], float]:
    """A result, and the seconds that it took."""
    began = time.process_time()
    drawn = graph(number)
    found = outcome(drawn)
    seconds = time.process_time() - began
    result = record(drawn, found)
    if given.json:
        with given.json.open("a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")
    if found.fault:
        print(f"\ngraph {number} ({drawn.front}, {drawn.target}): {found.status} {found.kind} {found.why}", flush=True)
        print(f"the framework: {found.beside or 'within the bounds'}")
        if not given.no_shrink:
            small = shrunk(drawn, found)
            print(f"\n{snippet(small)}\n# {outcome(small).why}", flush=True)
    return result, seconds


def _known(path: Path | None) -> dict[int, dict[str, Any]]:
    if path is None or not path.exists():
        return {}
    lines = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    return {result["graph"]: result for result in lines}


if __name__ == "__main__":
    sys.exit(main())
