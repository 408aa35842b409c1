"""Whether the compiler still does what it did: a record of kernels, models and errors, and a comparison with it.

usage: python scripts/replay.py record|check [--json] [--only NAME...]

Of every kernel of benchmarks/kernels, the examples and a dozen models it records digests of the IR, of the instruction
streams of all queues and of the results' bytes, and the makespan on the timing model; of every kernel of tests/rejected
a digest of its errors. Lines and modules of the package do not count, so that code may be moved; names of passes do not
count either. ``record`` writes scripts/replay.json, ``check`` compares with it, prints what differs and ends with 1 if
something does. NAME is a part of a case's name. Two processes share the work, without caches.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

# The code beside this script, whatever is installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from scripts.replaying.all_cases import cases, clean_environment, run
from scripts.replaying.case import ASPECTS, Found
from scripts.replaying.places import ROOT
from scripts.replaying.record import FILE, Difference, differences, load, text_of

import nki

PROCESSES = 2


def main() -> int:
    """Record or check; 1 if something differs or fails."""
    options = _options()
    began = time.perf_counter()
    names = [name for name in cases() if not options.only or any(part in name for part in options.only)]
    if not names:
        raise SystemExit(f"no case has {' or '.join(options.only)} in its name")
    found, failures = replay(names)
    if options.command == "record":
        return _recorded(found, failures, whole=not options.only)
    recorded = {name: each for name, each in load().items() if name in names or not options.only}
    differing = [each for each in differences(recorded, found) if each.case not in failures]
    _print(differing, failures, len(names), time.perf_counter() - began, options.json)
    return int(bool(differing or failures))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("record", "check"))
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="cases whose name contains one of these")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser.parse_args()


def replay(names: Sequence[str]) -> tuple[dict[str, Found], dict[str, str]]:
    """The aspects of cases, and why some of them failed; progress is shown on stderr."""
    if ROOT not in Path(nki.__file__).parents:
        raise SystemExit(f"{nki.__file__} was imported, which is not the package of {ROOT}")
    clean_environment()
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:2])
    found: dict[str, Found] = {}
    failures: dict[str, str] = {}
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with (
        Progress(*columns, console=Console(stderr=True), transient=True) as progress,
        ProcessPoolExecutor(min(PROCESSES, len(names)), get_context("spawn")) as pool,
    ):
        task = progress.add_task("replay", total=len(names))
        work = {pool.submit(run, name): name for name in names}
        for done in as_completed(work):
            name = work[done]
            aspects, failure = done.result()
            if failure:
                failures[name] = failure
            else:
                found[name] = aspects
            progress.update(task, advance=1)
    return found, failures


def _recorded(found: dict[str, Found], failures: dict[str, str], whole: bool) -> int:
    """Write the record, unless a case failed; a part of the cases replaces only those."""
    if failures:
        _print([], failures, len(found) + len(failures), 0.0, False)
        return 1
    FILE.write_text(text_of(found if whole else {**load(), **found}), encoding="utf-8")
    print(f"{len(found)} cases recorded in {FILE.relative_to(ROOT)}")
    return 0


def _print(differing: list[Difference], failures: dict[str, str], count: int, seconds: float, as_json: bool) -> None:
    if as_json:
        rows = [each._asdict() for each in differing]
        print(json.dumps({"cases": count, "differ": rows, "fail": failures, "seconds": round(seconds, 1)}, indent=1))
        return
    if differing:
        Console(width=160, markup=False).print(_table(differing))
    for name, failure in failures.items():
        print(f"{name} fails: {failure}")
    changed = len({each.case for each in differing})
    print(f"{count} cases in {seconds:.0f} s: {changed} differ, {len(failures)} fail")


def _table(differing: list[Difference]) -> Table:
    """A row for each case, a column for each aspect: "differs", or both makespans."""
    table = Table("case", *ASPECTS, box=None)
    cells: dict[str, dict[str, str]] = {}
    for each in differing:
        cells.setdefault(each.case, {})[each.aspect] = _cell(each)
    for case, found in cells.items():
        table.add_row(case, *(found.get(aspect, "") for aspect in ASPECTS))
    return table


def _cell(each: Difference) -> str:
    if not (each.recorded and each.found):
        return "is new" if each.found else "is gone"
    return f"{float(each.recorded):.1f} -> {float(each.found):.1f}" if each.aspect == "makespan" else "differs"


if __name__ == "__main__":
    sys.exit(main())
