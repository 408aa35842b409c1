"""Grids of programs: ``kernel[4, 2]`` runs programs one after another, ``nl.nc(2)`` on two cores at once."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from nki.beta1.errors import refused


@dataclass(frozen=True, slots=True)
class GridAxis:
    """One dimension of a grid.

    Attributes:
        serial: programs that each core runs one after another.
        cores: cores that run it.
        cores_outer: whether neighbouring ids are on one core; else they are on neighbouring cores.
    """

    serial: int = 1
    cores: int = 1
    cores_outer: bool = False

    @property
    def size(self) -> int:
        return self.serial * self.cores

    def program(self, serial: int, core: int) -> int:
        """The id of a program."""
        return core * self.serial + serial if self.cores_outer else serial * self.cores + core

    def __mul__(self, other: Any) -> GridAxis:
        return spmd_dim(self, other)

    def __rmul__(self, other: Any) -> GridAxis:
        return spmd_dim(other, self)


def nc(number: Any) -> GridAxis:
    """A dimension of a grid that is spread over so many cores of the chip."""
    return GridAxis(cores=_positive(number, "nl.nc"))


def spmd_dim(*parts: Any) -> GridAxis:
    """A dimension of a grid made of several, the last one fastest; one of them may be ``nl.nc(n)``."""
    axes = [part if isinstance(part, GridAxis) else GridAxis(serial=_positive(part, "nl.spmd_dim")) for part in parts]
    made = axes[0]
    for axis in axes[1:]:
        if made.cores > 1 and axis.cores > 1:
            raise refused("grid", "a dimension of a grid has two nl.nc", "write one nl.nc for each dimension")
        if axis.cores > 1 and made.serial > 1 and axis.serial > 1:
            raise refused("grid", "nl.nc is in the middle of a dimension", "put nl.nc first, or last")
        outer = made.cores > 1 if made.cores * axis.cores > 1 else False
        made = GridAxis(made.serial * axis.serial, made.cores * axis.cores, outer)
    return made


def grid_of(given: Any, kernel: str) -> tuple[GridAxis, ...]:
    """The axes of what stands in ``kernel[...]``. Raises Beta1Error."""
    parts = given if isinstance(given, tuple | list) else (given,)
    return tuple([part if isinstance(part, GridAxis) else GridAxis(serial=_positive(part, kernel)) for part in parts])


def as_numbers(grid: tuple[GridAxis, ...]) -> tuple[tuple[int, int, bool], ...]:
    """The axes as Python's own tuples, which PyTorch's Dynamo takes for constants; see `from_numbers`."""
    return tuple([(axis.serial, axis.cores, axis.cores_outer) for axis in grid])


def from_numbers(numbers: tuple[tuple[int, int, bool], ...]) -> tuple[GridAxis, ...]:
    """The axes that `as_numbers` was given."""
    return tuple([GridAxis(*each) for each in numbers])


def cores_of(grid: tuple[GridAxis, ...]) -> int:
    """How many cores a grid runs on."""
    cores = 1
    for axis in grid:
        cores *= axis.cores
    return cores


def programs_of(grid: tuple[GridAxis, ...], core: int) -> Iterator[tuple[int, ...]]:
    """The programs of one core in their order, the last axis fastest."""
    places = []
    for axis in reversed(grid):
        core, place = divmod(core, axis.cores)
        places.append(place)
    places.reverse()
    for serials in itertools.product(*(range(axis.serial) for axis in grid)):
        yield tuple(axis.program(serial, place) for axis, serial, place in zip(grid, serials, places, strict=True))


def _positive(value: Any, what: str) -> int:
    try:
        number = 0 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = 0
    if number < 1:
        raise refused(
            "grid", f"{what} got {value!r}", "a dimension of a grid is a positive int, nl.nc(n) or nl.spmd_dim(...)"
        )
    return number
