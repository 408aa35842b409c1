"""What every command on a kernel is asked for: the kernel, its arguments, the target, the number of cores."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from nki.core.errors import NkiError, UsageError
from nki.core.source import UNKNOWN, of_function
from nki.driver.compile import compiled
from nki.driver.compiled import Cache, Compiled
from nki.driver.launch import Launch
from nki.driver.prepare import chosen_target, prepare
from nki.options import Options
from nki.target.model import Target
from nki.tools.arguments import FORMS, parse_arguments
from nki.tools.kernel_file import is_of_the_first_nki, load_kernel, on_grid
from nki.tools.options import GRID_OPTION, IMITATE_OPTION, options_of, said_grid
from nki.tools.output import Command, locate_kernel, quiet_stdout
from nki.tools.suggestions.command_line_words import on_the_command_line
from nki.tools.user_code import kernel_errors

Function = Callable[..., Any]

TARGET = click.option(
    "--target", metavar="NAME", help="Target, for example trn2, or a .toml file; overrides the environment."
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON to stdout.")

_PARAMETERS = (
    click.argument("kernel", metavar="FILE[::KERNEL]"),
    click.option("--arg", "args", multiple=True, metavar="NAME=VALUE", help=FORMS),
    TARGET,
    click.option("--lnc", type=click.IntRange(1), help="Number of cores, as kernel[N] in Python."),
    GRID_OPTION,
    click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of random arrays."),
    IMITATE_OPTION,
    JSON,
)


@dataclass(frozen=True, slots=True)
class Request:
    """A kernel with its arguments.

    Attributes:
        path: the user's file.
        launch: the function and how to run it.
        kwargs: arguments by name.
        target: what it is meant for.
        options: the environment with the target filled in.
        as_json: whether stdout is for JSON.
    """

    path: Path
    launch: Launch
    kwargs: dict[str, Any]
    target: Target
    options: Options
    as_json: bool

    @contextlib.contextmanager
    def user_code(self) -> Iterator[None]:
        """Around everything that runs the kernel."""
        try:
            with quiet_stdout(self.as_json), kernel_errors(self.launch.name, str(self.path)):
                yield
        except NkiError as error:
            raise on_the_command_line(error, self.kwargs)  # noqa: B904 - it is the same error


def kernel_command(name: str, **settings: Any) -> Callable[[Function], click.Command]:
    """Decorator: a command with the parameters that all kernel-taking commands share."""

    def declare(function: Function) -> click.Command:
        for decorate in reversed(_PARAMETERS):
            function = decorate(function)
        return click.command(name, cls=Command, **settings)(function)

    return declare


def read_request(
    kernel: str, args: tuple[str, ...], target: str | None, lnc: int | None, seed: int, as_json: bool
) -> Request:
    """Import the file, make the arguments, find the target.

    Raises:
        UsageError: anything that was written wrongly on the command line.
    """
    with quiet_stdout(as_json):
        loaded = load_kernel(kernel)
    launch = on_grid(loaded.launch, lnc, said_grid())
    if is_of_the_first_nki(launch):
        click.echo(f"note: {kernel} is for the first NKI; `nki migrate {loaded.path.name}` rewrites it", err=True)
    locate_kernel(of_function(launch.function.__code__))
    options = options_of()  # which the file may have set as well
    found = chosen_target(target or "", options.target, launch.target)
    options = replace(options, target=found.name)
    return Request(loaded.path, launch, parse_arguments(args, seed), found, options, as_json)


def compile_request(request: Request, cache: Cache) -> Compiled:
    """The compiled kernel; `cache` then holds it as a call of the driver looks it up."""
    with request.user_code():
        options = replace(request.options, simulator=False)
        return compiled(prepare(request.launch, (), request.kwargs, options, cache=cache))


def usage_error(code: str, message: str, fix: str) -> UsageError:
    """An error of the command line, which has no line in a file."""
    return UsageError(code, message, fix=fix, location=UNKNOWN)
