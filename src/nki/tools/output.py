"""What the commands print, and how they end: results go to stdout, errors and progress to stderr."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import click
from rich.console import Console
from rich.text import Text

from nki.core.errors import NkiError, TargetError, UsageError, VerificationError, render
from nki.core.source import UNKNOWN, Location
from nki.core.visible import visible
from nki.spec.rule import Finding, error_of
from nki.tools.suggestions.unknown_commands import misused, with_what_was_meant

REFUSED = 1
USAGE = 2

_CLICK = str(Path(click.__file__).parent) + "/"
_KERNEL_LOCATION = "nki.kernel-location"
_PLAIN_WIDTH = 200


class Command(click.Command):
    """A command that ends with an error's text, or its JSON, instead of a traceback."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Click's own, with what was probably meant, and as JSON where that is asked for."""
        words = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as problem:
            misused(with_what_was_meant(problem, words, self), words)

    def invoke(self, ctx: click.Context) -> Any:
        """Run it; exit code 2 if it was used wrongly, 1 for all other errors."""
        try:
            return super().invoke(ctx)
        except NkiError as error:
            fail(_placed(error, ctx.meta.get(_KERNEL_LOCATION, UNKNOWN)), as_json=bool(ctx.params.get("as_json")))
        except (RecursionError, MemoryError) as error:
            fail(_too_much(error), as_json=bool(ctx.params.get("as_json")))


def _too_much(error: RecursionError | MemoryError) -> UsageError:
    rule = "a command ends with a result or an error, whatever it is given"
    if isinstance(error, RecursionError):
        what, fix = "the input is nested too deeply", "look for what repeats without end in the input"
        return UsageError("command.recursion", what, rule=rule, fix=fix, location=UNKNOWN)
    what, fix = "the input needs more memory than this machine has", "give it smaller arrays or a smaller model"
    return UsageError("command.memory", what, rule=rule, fix=fix, location=UNKNOWN)


def fail(error: NkiError, *, as_json: bool) -> NoReturn:
    """Show an error and end the command."""
    if as_json:
        write_json({"error": error.to_json()})
    else:
        show_error(render(error))
    raise click.exceptions.Exit(USAGE if isinstance(error, UsageError | TargetError) else REFUSED)


def locate_kernel(location: Location) -> None:
    """Where to point for errors of the call itself, which has no line of its own: at the kernel's definition."""
    click.get_current_context().meta[_KERNEL_LOCATION] = location


def placed(error: NkiError) -> NkiError:
    """The error with the kernel's definition in place of a line of the command-line library."""
    return _placed(error, click.get_current_context().meta.get(_KERNEL_LOCATION, UNKNOWN))


def _placed(error: NkiError, kernel: Location) -> NkiError:
    frame = error.location.frame
    if frame is None or frame.file.startswith(_CLICK):
        error.location = UNKNOWN if isinstance(error, UsageError | TargetError) else kernel
    return error


def show_error(text: str) -> None:
    """Headline in red, the rest as it is."""
    _headline(text, "red")


def show_finding(finding: Finding, more: int = 0) -> None:
    """A finding as an error is shown; `more` counts the further ones of its kind at the same line."""
    lines = render(error_of(finding, VerificationError)).splitlines()[:-1]
    lines[0] = lines[0].replace("error[", f"{finding.severity}[", 1)
    if more:
        lines.append(f"  and {more} more at this line")
    _headline("\n".join(lines), "red" if finding.severity == "error" else "yellow")


def _headline(text: str, colour: str) -> None:
    head, _, rest = text.partition("\n")
    echo(head, fg=colour, bold=True, err=True)
    echo(rest, err=True)


def echo(text: str = "", *, err: bool = False, nl: bool = True, fg: str | None = None, bold: bool = False) -> None:
    """Print a text; names in it may come from files, so that no character of it is obeyed by the terminal."""
    click.secho(visible(text), fg=fg, bold=bold or None, err=err, nl=nl)


class SafeConsole(Console):
    """Prints texts in which no character is obeyed by the terminal but those that this console writes itself.

    It prints to its stream, also where a command is called in a notebook.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(force_jupyter=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """As that of `rich`, which every text goes through."""
        return super().render_str(visible(text), **options)


def write_json(value: Any) -> None:
    """One JSON document to stdout."""
    click.echo(json.dumps(value, indent=2, allow_nan=False))


def stdout() -> Console:
    """Where results go; colours only on a terminal, and no wrapping at 80 columns elsewhere."""
    width = None if sys.stdout.isatty() else _PLAIN_WIDTH
    return SafeConsole(width=width, highlight=False, markup=False, emoji=False)


@contextlib.contextmanager
def working(what: str) -> Iterator[None]:
    """Show on a terminal what takes long; nothing elsewhere."""
    console = SafeConsole(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(what):
        yield


@contextlib.contextmanager
def quiet_stdout(as_json: bool) -> Iterator[None]:
    """While user code runs: with --json its prints go to stderr, so that stdout holds one document."""
    if not as_json:
        yield
        return
    with contextlib.redirect_stdout(sys.stderr):
        yield
