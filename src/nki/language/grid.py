"""The launch grid: which core this is, and how many there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nki.core.errors import ArgumentError
from nki.language.arguments import integer, public
from nki.spec.sink import current_sink


@public
def program_id(axis: int = 0) -> int:
    """Number of this core in the launch grid, from 0; 0 without a grid."""
    _check_axis(axis, "axis", "program_id")
    return current_sink("nl.program_id").core


@public
def num_programs(axes: Any = 0) -> int:
    """Number of cores in the launch grid; 1 without a grid.

    Args:
        axes: 0, or a sequence with it: grids have one axis.
    """
    for axis in axes if isinstance(axes, Sequence) and not isinstance(axes, str) else (axes,):
        _check_axis(axis, "axes", "num_programs")
    return current_sink("nl.num_programs").cores


@public
def program_ndim() -> int:
    """Axes of the launch grid: 1 for ``kernel[n](...)``, 0 for ``kernel(...)``."""
    return int(current_sink("nl.program_ndim").grid)


def _check_axis(axis: Any, name: str, function: str) -> None:
    if integer(axis, name, function) not in (0, -1):
        raise ArgumentError(
            "grid.axis",
            f"nl.{function}: {name} is {axis}",
            rule="a launch grid has one axis, the cores",
            source="nki/get-started/about/lnc.rst",
            fix="use axis 0",
        )
