"""Damages artifacts at random and loads them; every one must be refused with an error that says why, or be valid.

Prints how many were refused with which code, and how many were accepted. Each case runs in a process that may die,
which counts as a crash, and is reported with its number, so that ``--first N --count 1`` repeats it. Usage:
``python benchmarks/fuzz_artifacts.py [--count N] [--first N] [--seed N]``. Exit status 1 if anything crashed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.store.artifact.cases import originals
from tests.store.artifact.damage import DAMAGES, outcome


def work(seed: int, first: int, after: int) -> None:
    """Run cases; a line is printed before each, so that the last one tells who died."""
    packed = originals()
    for number in range(first, after):
        random = Random(f"{seed}/{number}")
        damage, original = DAMAGES[number % len(DAMAGES)], random.choice(packed)
        print(f"case {number} {damage.__name__}", flush=True)
        try:
            data = damage(original, random)
            began = time.perf_counter()
            code = outcome(data, original)
            print(f"done {code} {time.perf_counter() - began:.3f}", flush=True)
        except Exception:  # noqa: BLE001 - that is what is looked for
            traceback.print_exc()
            print("done crash 0", flush=True)


def main() -> None:
    """Run all cases in processes of their own, and print the sums."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    after = options.first + options.count
    if options.worker:
        warnings.simplefilter("ignore")
        work(options.seed, options.first, after)
        return
    started, sums, kinds = time.perf_counter(), Counter[str](), Counter[tuple[str, str]]()
    crashes = run(options.seed, options.first, after, sums, kinds)
    print(f"{sum(sums.values())} cases in {time.perf_counter() - started:.0f} s")
    for code, count in sorted(sums.items()):
        by = ", ".join(f"{kind} {n}" for (kind, found), n in sorted(kinds.items()) if found == code)
        print(f"  {code:24} {count:6}   {by}")
    print(f"crashes: {len(crashes)} {crashes[:20]}")
    sys.exit(bool(crashes))


def run(seed: int, first: int, after: int, sums: Counter[str], kinds: Counter[tuple[str, str]]) -> list[int]:
    """The numbers of the cases that crashed; a new process goes on after one that died."""
    crashes, slowest = [], 0.0
    while first < after:
        words = [sys.executable, __file__, "--worker", f"--seed={seed}", f"--first={first}", f"--count={after - first}"]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        kind, done = "", True
        for line in process.stdout:
            word, _, rest = line.rstrip("\n").partition(" ")
            if word == "case":
                number, _, kind = rest.partition(" ")
                first, done = int(number) + 1, False
            elif word == "done":
                code, _, seconds = rest.rpartition(" ")
                done, slowest = True, max(slowest, float(seconds))
                sums[code] += 1
                kinds[kind, code] += 1
                crashes += [first - 1] if code == "crash" else []
        status = process.wait()
        if not done:
            sums["process died"] += 1
            crashes.append(first - 1)
        elif status:
            sys.exit(f"the worker ended with status {status} before its first case")
    print(f"slowest load: {slowest:.3f} s")
    return crashes


if __name__ == "__main__":
    main()
