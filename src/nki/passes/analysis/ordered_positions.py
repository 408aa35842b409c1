"""Positions whose order the kernel chose itself."""

from __future__ import annotations

from nki.spec.program import Program


def ordered_positions(program: Program, positions: int) -> bytearray:
    """For every position whether the kernel says something about its order."""
    marks = bytearray(positions)
    for pair in program.edges:
        for position in pair:
            marks[position] = 1
    for first, after in program.fences:
        marks[first:after] = b"\1" * (after - first)
    return marks
