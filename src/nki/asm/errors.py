"""The error for streams that are not what this toolchain writes."""

from __future__ import annotations

from nki.core.errors import ArtifactError
from nki.core.source import UNKNOWN, Location


def damaged(code: str, message: str, rule: str, where: Location = UNKNOWN) -> ArtifactError:
    """Damage, or a file of another version; codes begin with ``asm.``."""
    return ArtifactError(code, message, rule=rule, fix="compile the kernel again", location=where)
