"""Faulty schedules of random kernels: does the compiler refuse them, and do hostile runs show what is wrong?

A mutant is a compiled kernel with one fault: a wait, a signal or a count is wrong, an instruction stands in another
place or queue, or a tensor lies on another one. The oracle says whether the fault matters at all; an equivalent mutant
may be refused all the same, for example if tensors that are live at once share bytes that nobody reads any more. Usage:
``python benchmarks/fuzz_mutants.py [--count N] [--seed N] [--json FILE]``. Exit status 1 if one was missed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.fuzz.judge import Verdict, verdicts


def main() -> None:
    """Judge all mutants, and print the sums."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = []
    for verdict in verdicts(options.seed, options.count):
        found.append(verdict)
        if verdict.result == "missed":
            print(f"{verdict.result}: {verdict}", flush=True)
        if len(found) % 100 == 0:
            print(f"{len(found)} of {options.count}", flush=True)
    if options.json:
        options.json.write_text("".join(json.dumps(asdict(v)) + "\n" for v in found), encoding="utf-8")
    sys.exit(show(found))


def show(found: list[Verdict]) -> bool:
    """Print the table; whether something was missed."""
    kinds = sorted({verdict.kind for verdict in found})
    columns = ("caught", "missed", "equivalent", "refused")
    print(f"{'':14}{'mutants':>9}" + "".join(f"{column:>13}" for column in (*columns, "shown by runs")))
    for kind in (*kinds, "all"):
        own = [verdict for verdict in found if kind in (verdict.kind, "all")]
        sums = Counter(verdict.result for verdict in own)
        numbers = [*(sums[column] for column in columns), sum(bool(verdict.shown) for verdict in own)]
        print(f"{kind:14}{len(own):9}" + "".join(f"{number:13}" for number in numbers))
    wrong = [verdict for verdict in found if verdict.fault or verdict.shown]
    caught = sum(bool(verdict.static) for verdict in wrong)
    print(f"{caught} of {len(wrong)} that matter are refused: {100 * caught / max(1, len(wrong)):.2f} %")
    odd = [verdict for verdict in wrong if not verdict.fault]
    print(f"hostile runs that show what the oracle denies: {len(odd)}")
    return caught < len(wrong) or bool(odd)


if __name__ == "__main__":
    main()
