"""How far the timing model is from published measurements: every point, predicted and measured.

The kernels are those of `benchmarks.timing_cases`, compiled and timed here. Prints the points with their errors, the
errors with coefficients fitted without the kernel, the source or the class of the point (as scripts/fit_timing.py
recorded them), means, utilisations, points that were never fitted, whether published sequences of optimisations are in
order, and how well settings of one kernel are ranked. ``--write`` records the comparison for `nki targets --accuracy`
and writes the table of docs/timing.md. ``--only PATTERN`` prints the points whose names match (``--only 'caps_*'``),
which takes seconds, and records nothing. With ``--documents`` (a checkout of the public documentation) the Mamba
kernels are also run as their tutorial prints them; else the record keeps what it has of them. Usage:
``python benchmarks/timing_accuracy.py [--only PATTERN] [--quick] [--json] [--write] [--documents PATH]``.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.timing_cases.comparison import compare, print_some, printed
from benchmarks.timing_cases.digest import digest
from benchmarks.timing_cases.recording import DOCUMENT, document, record, text

from nki.target.accuracy import FOLDER, recorded


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", metavar="PATTERN", help="print the points whose names match, and nothing else")
    parser.add_argument("--quick", action="store_true", help="take parts of the large kernels, which are uniform")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--write", action="store_true", help="record the comparison")
    parser.add_argument("--documents", type=Path, help="a checkout of the public documentation")
    options = parser.parse_args()
    if options.write and (options.quick or options.only):
        parser.error("a record is of all points and of whole kernels: leave --quick and --only out")
    if options.only:
        print_some(options.only, options.quick)
        return
    found = compare(options.quick, printed(options.documents) if options.documents else recorded().listings)
    print(json.dumps({**asdict(found), "summary": found.summary}, indent=1) if options.json else text(found))
    if options.write:
        (FOLDER / "accuracy.toml").write_text(record(found, digest()), encoding="utf-8")
        recorded.cache_clear()  # the page has the rounded numbers of the record
        DOCUMENT.write_text(document(recorded(), DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
