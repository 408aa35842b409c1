"""A rule for the log: a commit that says that it only moves or renames leaves the record as it is."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

_MOVES = re.compile(r"(move|rename)\b", re.IGNORECASE)


def offending(root: Path, record: str) -> list[str]:
    """Commits whose subject begins with "Move" or "Rename" and that change the record, as "hash subject".

    A directory that is no repository of its own, as an unpacked archive of the sources, has no log, and so no such
    commit. In a shallow clone the oldest commits are not judged: it does not hold what they changed.

    Args:
        root: of the checkout.
        record: the file's path from there.
    """
    if not (root / ".git").exists():
        return []
    log = _git(root, "log", "--format=%H%x09%s", "--", record)
    shallow = _git(root, "rev-parse", "--is-shallow-repository").strip() == "true"
    found = []
    for line in log.splitlines():
        commit, subject = line.split("\t", 1)
        if _MOVES.match(subject) and (not shallow or _has_parents(root, commit)):
            found.append(f"{commit[:9]} {subject}")
    return found


def _has_parents(root: Path, commit: str) -> bool:
    """Whether the repository holds the parent of a commit."""
    return len(_git(root, "rev-list", "--parents", "--max-count=1", commit).split()) > 1


def _git(root: Path, *arguments: str) -> str:
    # Both directories are named, so that GIT_DIR of a surrounding hook cannot make this read another repository.
    place = (f"--git-dir={root / '.git'}", f"--work-tree={root}")
    return subprocess.run(("git", *place, *arguments), capture_output=True, text=True, check=True, cwd=root).stdout
