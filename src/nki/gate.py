"""The one way from the driver to IR, passes and native code: loaded when a kernel is compiled, not before."""

from __future__ import annotations

from collections.abc import Sequence

from nki.spec.program import Program
from nki.target.model import Target


def through_ir(
    programs: Sequence[Program], target: Target, disabled_rules: frozenset[str] = frozenset()
) -> tuple[list[Program], str]:
    """Build IR, verify it, and read the programs back; returns them with a hash of the IR.

    The hash depends on the instructions and not on where the source file lies: equal kernels have equal hashes in every
    process.
    """
    from nki.ir.build import build
    from nki.ir.text import fingerprint
    from nki.ir.verify import verify

    module = build(programs)
    return verify(module, target, disabled_rules), fingerprint(module)
