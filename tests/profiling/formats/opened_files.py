"""Which files Python opens to read a profile, in a process of its own: an audit hook stays until its process ends."""

from __future__ import annotations

import json
import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from nki.core.errors import ArtifactError
from nki.profiling.record import Profile
from tests.profiling.formats.test_folder import DAMAGE, EXTREME

_CODE = frozenset({".py", ".pyc", ".so"})
_opened: list[Path] = []


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and isinstance(arguments[0], str | os.PathLike):
        _opened.append(Path(arguments[0]))


def opened_for(folder: Path) -> tuple[int, list[str]]:
    """How many files are opened until a folder is read or refused; those neither in it nor part of Python's modules."""
    _opened.clear()
    with suppress(ArtifactError):
        Profile.load(folder)
    seen = list(_opened)
    return len(seen), [str(path) for path in seen if path.parent != folder and path.suffix not in _CODE]


def main(written: Path, scratch: Path) -> None:
    """Print what is opened for every change of a profile."""
    sys.addaudithook(_note)
    changes = {what: damage for what, (_, damage) in DAMAGE.items()} | EXTREME
    found = {}
    for number, (what, change) in enumerate(changes.items()):
        folder = Path(shutil.copytree(written, scratch / str(number)))
        change(folder)
        found[what] = opened_for(folder)
    print(json.dumps(found))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
