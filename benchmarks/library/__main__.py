"""Errors, predicted times and shares of the roofline of the library's kernels.

usage: python -m benchmarks.library [--kernel NAME] [--case TEXT] [--official CHECKOUT]
                                    [--run] [--write] [--stale] [--json FILE]

CHECKOUT is a checkout of the published library (its branch 2.29_release compiles here), whose kernels are asked for the
same calls. --run measures errors too, which executes the kernels. --write does as well, and keeps the figures of whole
kernels, with a timeline each, in benchmarks/library/results, which the pages of docs/library are made of;
--stale leaves out kernels whose figures are of their source, their cases and the timing model as they are.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from benchmarks.library.case import Case
from benchmarks.library.cases import all_cases
from benchmarks.library.measure import Measured, measured
from benchmarks.library.record import is_current, keep


def main() -> None:
    """Read the command line, and print a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernel", default="", help="only this kernel")
    parser.add_argument("--case", default="", help="only cases with this in their name")
    parser.add_argument("--official", default="", help="a checkout of the published library")
    parser.add_argument("--run", action="store_true", help="measure errors too")
    parser.add_argument("--write", action="store_true", help="measure errors, and keep what was found")
    parser.add_argument("--stale", action="store_true", help="only kernels that have changed since they were measured")
    parser.add_argument("--json", default="", help="a file that the figures go to")
    args = parser.parse_args()
    if args.official:
        sys.path[:0] = [str(Path(args.official, "src"))]
    if args.write and args.case:
        parser.error("--write keeps all cases of a kernel: leave --case out")
    rows: dict[str, list[tuple[Case, Measured]]] = {}
    kernels: dict[str, list[Case]] = {}
    for case in all_cases():
        kernels.setdefault(case.kernel, []).append(case)
    print(f"{'case':64} {'time us':>10} {'bound':>7} {'roofline':>8} {'official':>10} {'ratio':>6} {'error':>9}")
    for name, cases in kernels.items():
        if args.kernel not in ("", name) or (args.stale and is_current(name, cases)):
            continue
        mine = [case for case in cases if args.case in case.key]
        rows[name] = [(case, told(case, args.official, args.run or args.write)) for case in mine]
        if args.write:
            keep(name, rows[name])
    if args.json:
        Path(args.json).write_text(json.dumps([row.to_json() for each in rows.values() for _, row in each], indent=1))


def told(case: Case, official: str, run: bool) -> Measured:
    """A case, measured and printed."""
    row = measured(case, official, run)
    assert row.ns is not None
    theirs = "" if row.official_ns is None else f"{row.official_ns / 1e3:10.1f}"
    ratio = "" if row.official_ns is None else f"{row.ns / row.official_ns:6.2f}"
    error = "" if row.error is None else f"{row.error:9.1e}"
    share = "" if row.roofline is None else f"{row.roofline:8.0%}"
    time = f"{row.ns / 1e3:10.1f} {row.bound_by:>7} {share:>8}"
    print(f"{row.key:64} {time} {theirs:>10} {ratio:>6} {error:>9} {row.note}")
    sys.stdout.flush()
    return row


if __name__ == "__main__":
    main()
