"""Findings at the user's files: where they point to, and what to do about a file that was not copied."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from nki.core.source import UNKNOWN, Location
from nki.spec.rule import Finding
from nki.tools.grade.process.files import Files

_MISSING = re.compile(r"No module named '(\w+)'")


def hinted(finding: Finding, files: Files, hidden: Sequence[Path]) -> Finding:
    """For a module that lies beside the user's file and was not copied: how to have it copied, if it may be."""
    found = _MISSING.search(finding.message) if finding.code in ("kernel.import", "kernel.exception") else None
    beside = None if found is None else files.path.with_name(f"{found[1]}.py")
    if beside is None or not beside.is_file() or beside in hidden:
        return finding
    return replace(finding, fix=f"add --file {beside}, so that the candidate gets it")


def placed(finding: Finding, files: Files) -> Finding:
    """At the user's file instead of its copy, and at no other file: a candidate does not choose lines to be shown."""
    own = {str(files.root / place) for place in files.contents}
    frames = [replace(frame, file=_user_file(frame.file, files.root)) for frame in finding.location.frames]
    kept = tuple(frame for frame in frames if frame.file in own)
    return replace(finding, location=Location(kept) if kept else UNKNOWN)


def _user_file(file: str, root: Path) -> str:
    before, mark, inside = file.partition("/candidate/")
    return str(root / inside) if mark and "/nki-grade-" in before else file
