"""Writes docs/library: a page for each kernel of the library, with pictures if it was measured, and the index.

usage: python scripts/library_pages.py [--check]

`python -m benchmarks.library --write` measures first, and keeps what it finds in benchmarks/library/results. The same
records and the same source give the same pages. --check writes nothing, names the files that differ, and fails if some
do. Run by `make gen`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

# The code beside this script, whatever is installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.library.cases import all_cases
from benchmarks.library.record import record_of
from scripts.library.pictures import roofline_picture, timeline_picture
from scripts.library.text import index, page

from nkilib.catalogue import CATALOGUE

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "library"


def written() -> dict[str, str]:
    """The text of each file, by its name in the folder."""
    cases = {case.key: case for case in all_cases()}
    records = {name: found for name in CATALOGUE if (found := record_of(name)) is not None}
    files = {"README.md": index(records)}
    for name in CATALOGUE:
        record = records.get(name)
        if record is None:
            files[f"{name}.md"] = page(name, None, cases, roofline=False)
            continue
        if unknown := [row["key"] for row in record["cases"] if row["key"] not in cases]:
            raise SystemExit(
                f"no case is called {unknown[0]!r}: run python -m benchmarks.library --kernel {name} --write"
            )
        roofline = roofline_picture(record, cases)
        files[f"{name}.md"] = page(name, record, cases, roofline is not None)
        files[f"pictures/{name}.svg"] = timeline_picture(record)
        if roofline is not None:
            files[f"pictures/{name}.roofline.svg"] = roofline
    return files


def differing(files: dict[str, str]) -> list[str]:
    """Files of the folder that are missing, differ, or belong to no kernel."""
    there = {path.relative_to(FOLDER).as_posix(): path for path in FOLDER.rglob("*") if path.is_file()}
    changed = [name for name, text in files.items() if name not in there or there[name].read_text("utf-8") != text]
    return sorted([*changed, *(name for name in there if name not in files)])


def main() -> None:
    """Write or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only compare")
    args = parser.parse_args()
    files = written()
    changed = differing(files)
    if args.check:
        sys.exit("\n".join(["out of date, run python scripts/library_pages.py:", *changed]) if changed else 0)
    for name in changed:
        path = FOLDER / name
        if name not in files:
            path.unlink()
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[name], encoding="utf-8")


if __name__ == "__main__":
    main()
