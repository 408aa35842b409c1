"""Command lines that are no commands: what was probably meant, in words and as JSON. Loads no package but `click`."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import NoReturn

import click

from nki.core.errors import UsageError
from nki.core.source import UNKNOWN
from nki.tools.suggestions.nearest_word import nearest
from nki.tools.suggestions.words_of_other_tools import meant_option, meant_words

Misuse = click.UsageError
"""A command line that `click` does not take; the errors of this package have codes."""

_QUOTED = re.compile("'([^']*)'")
_MEANT = re.compile(r"Did you mean '(.*)'\?")
_SURPLUS = "Got unexpected extra argument"


def with_what_was_meant(problem: click.UsageError, words: list[str], command: click.Command) -> click.UsageError:
    """The error with what to write in place of it, where somebody may know."""
    options = [name for parameter in command.params if isinstance(parameter, click.Option) for name in parameter.opts]
    match problem:
        case click.NoSuchOption():
            meant = meant_option(problem.option_name, words, options)
        case click.MissingParameter(param=click.Option() as option) if option.help:
            text = f"{option.metavar or 'a value'}: {option.help}"
            return click.MissingParameter(text, problem.ctx, option, problem.param_hint, problem.param_type)
        case click.BadParameter(param=click.Parameter(type=click.Choice() as choice)):
            written = _QUOTED.match(problem.message)
            meant = nearest(written[1], map(str, choice.choices)) if written else ""
            text = f"{problem.message} Did you mean {meant!r}?" if meant else problem.message
            return click.BadParameter(text, problem.ctx, problem.param, problem.param_hint)
        case _ if problem.message.startswith(_SURPLUS):
            surplus = problem.message.partition("(")[2].rpartition(")")[0].split(" ")
            meant = meant_words(surplus, options)
            if not meant and not any(isinstance(each, click.Argument) for each in command.params):
                return Misuse(f"{problem.message}. The command takes options alone.", problem.ctx)
        case _:
            meant = ""
    text = f"{problem.message.removesuffix('.')}. Did you mean {meant!r}?"
    return Misuse(text, problem.ctx) if meant else problem


def misused(problem: click.UsageError, words: Sequence[str]) -> NoReturn:
    """End a command that was written wrongly; with --json among its words, by a JSON document."""
    if "--json" not in words:
        raise problem
    message = problem.format_message()
    meant = _MEANT.search(message)
    path = "nki" if problem.ctx is None else problem.ctx.command_path.replace("main", "nki", 1)
    fix = f"write {meant[1]}" if meant else f"`{path} --help` shows how it is used"
    error = UsageError("command.usage", message, fix=fix, location=UNKNOWN)
    click.echo(json.dumps({"error": error.to_json()}, indent=2))
    raise click.exceptions.Exit(problem.exit_code)
