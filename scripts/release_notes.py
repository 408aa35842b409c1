"""Prints what CHANGELOG.md says of a version: the notes of a release. Fails if it says nothing.

usage: python scripts/release_notes.py vX.Y.Z
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

CHANGELOG = Path(__file__).resolve().parents[1] / "CHANGELOG.md"


def notes(text: str, version: str) -> str:
    """The section of a version without its heading.

    Raises:
        ValueError: there is none, or it is empty.
    """
    parts = re.split(r"^## \[([^\]]+)\].*\n", text, flags=re.MULTILINE)
    found = dict(zip(parts[1::2], parts[2::2], strict=True)).get(version, "").strip()
    if not found:
        raise ValueError(f"CHANGELOG.md has no section [{version}]: rename [Unreleased] to it before the tag")
    return found + "\n"


if __name__ == "__main__":
    try:
        print(notes(CHANGELOG.read_text(encoding="utf-8"), sys.argv[1].removeprefix("v")), end="")
    except ValueError as error:
        sys.exit(str(error))
