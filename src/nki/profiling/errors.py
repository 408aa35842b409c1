"""The errors of profiles that cannot be written or read."""

from __future__ import annotations

import re
from pathlib import Path

from nki.core.errors import ArtifactError, UsageError
from nki.core.source import UNKNOWN

CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f]")
"""Characters that no name and no source line needs, and that a terminal may obey."""


def refused(code: str, message: str) -> ArtifactError:
    """The error for a folder that is not what it should be; a terminal obeys nothing that it repeats."""
    fixes = {
        "profile.version": "profile the kernel again, or read the folder with the version that wrote it",
        "profile.size": "profile a smaller part of the program",
    }
    return ArtifactError(
        code,
        CONTROL.sub("\N{REPLACEMENT CHARACTER}", message).encode("utf-8", "replace").decode(),
        rule="a profile is what docs/profile.md describes",
        fix=fixes.get(code, "profile the kernel again; do not use a folder of unknown origin"),
        location=UNKNOWN,
    )


def unwritable(path: Path, problem: OSError) -> UsageError:
    """The error for a file that cannot be written."""
    return UsageError(
        "profile.write",
        f"{path} cannot be written: {problem.strerror or problem}",
        fix="name a folder that you may write to",
        location=UNKNOWN,
    )
