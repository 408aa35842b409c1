"""Sums in PSUM: which instructions may add to what is there."""

from __future__ import annotations

from nki.spec.program import Issued


def adds_to_sum(issued: Issued) -> bool | None:
    """Whether a matmul adds to its destination; None if that depends on what is there. False for all others."""
    if "accumulate" not in issued.instruction.operands:
        return False
    adds: bool | None = issued.arguments.accumulate
    return adds if sums(issued) else bool(adds)


def sums(issued: Issued) -> bool:
    """Whether what an instruction makes can be a part of a sum in PSUM: transposes move bits."""
    operands = issued.instruction.operands
    return "accumulate" in operands and not ("is_transpose" in operands and issued.arguments.is_transpose)
