"""Which program of the grid runs."""

from __future__ import annotations

from math import prod
from typing import Any

from nki.beta1.tracing.session import current


def program_id(axis: int) -> int:
    """The id of the running program along an axis of the grid; 0 without a grid."""
    program = current("nl.program_id").program
    return program[axis] if program else 0


def num_programs(axes: Any = None) -> int:
    """How many programs there are, along all axes or those given."""
    sizes = [axis.size for axis in current("nl.num_programs").grid]
    if axes is None:
        return prod(sizes)
    wanted = axes if isinstance(axes, list | tuple) else (axes,)
    return prod(sizes[axis] if sizes else 1 for axis in wanted)


def program_ndim() -> int:
    """Axes of the grid; 0 without one."""
    return len(current("nl.program_ndim").grid)
