"""The options of a command: the one place where the command line reads the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace

import click

from nki.options import IMITATE, Options, from_environment

_IMITATE = "nki.imitate"


def _note(context: click.Context, option: click.Parameter, value: str | None) -> None:
    """Keep what --imitate says with the command, for `options_of`."""
    context.meta[_IMITATE] = value


IMITATE_OPTION = click.option(
    "--imitate",
    type=click.Choice(IMITATE),
    callback=_note,
    expose_value=False,
    help="Compile as the device's compiler does, or for the least time; overrides NKI_IMITATE.",
)
"""For commands that compile; `options_of` knows of it."""


_GRID = "nki.grid"


def _read_grid(context: click.Context, option: click.Parameter, value: str | None) -> None:
    """Keep what --grid says with the command, for `said_grid`."""
    axes = [] if value is None else value.split(",")
    if not all(re.fullmatch(r"(nc)?[1-9][0-9]*", axis) for axis in axes):
        raise click.BadParameter(f"{value!r} is no grid; write numbers, and nc2 for two cores: 4,2 or 8,nc2")
    context.meta[_GRID] = tuple(axis if axis.startswith("nc") else int(axis) for axis in axes)


GRID_OPTION = click.option(
    "--grid",
    metavar="4,nc2",
    callback=_read_grid,
    expose_value=False,
    help="Grid of a kernel of the first NKI, as kernel[4, nl.nc(2)] in Python.",
)
"""For commands that launch a kernel; `said_grid` knows of it."""


def said_grid() -> tuple[int | str, ...]:
    """What --grid says to the command that runs: programs, and "nc2" for two cores; empty if it says nothing."""
    context = click.get_current_context(silent=True)
    return () if context is None else context.meta.get(_GRID, ())


def options_of(target: str | None = None, variables: Mapping[str, str] | None = None) -> Options:
    """What the environment asks for, with what the command line says in its place.

    Commands hand options on; they change nothing of their process.

    Args:
        target: name of a target; None for that of the environment.
        variables: switches that count as if they were in the environment.

    Raises:
        UsageError: a variable has a value that makes no sense ("option.value").
    """
    found = from_environment({**os.environ, **variables} if variables else None)
    imitate = said_to_imitate()
    if imitate is not None and "NKI_IMITATE" not in (variables or ()):
        found = replace(found, imitate=imitate)
    return found if target is None else replace(found, target=target)


def said_to_imitate() -> str | None:
    """What --imitate says to the command that runs; None if it says nothing."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(_IMITATE)
