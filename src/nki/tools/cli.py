"""The entry point: the list of commands, each of which is loaded only when it is used."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import MappingProxyType

import click

from nki.tools.suggestions.unknown_commands import Misuse, misused
from nki.tools.suggestions.words_of_other_tools import meant_command
from nki.version import version

# name -> (module, what `nki --help` says); the module's `command` is the click command
COMMANDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "demo": ("nki.tools.demo", "Check, compile and run flash attention, and compare it with a reference."),
        "run": ("nki.tools.run.command", "Run a kernel on arrays."),
        "check": ("nki.tools.check.command", "Trace a kernel and check it for a target; all findings at once."),
        "profile": ("nki.tools.profile", "Show what runs when on the target, what waits for what, and advice."),
        "tune": ("nki.tools.tune", "Choose the fastest configuration of a kernel by the timing model."),
        "explorer": ("nki.tools.explorer", "Show a profile in the browser, or write it as one HTML file."),
        "ir": ("nki.tools.compile.ir", "Show the IR of a kernel."),
        "compile": ("nki.tools.compile.command", "Compile a kernel to any stage, or to a file."),
        "cc": ("nki.tools.compile.cc", "Compile a model to a file."),
        "opt": ("nki.tools.compile.opt", "Run passes of the compiler on a file of IR."),
        "disasm": ("nki.tools.compile.disasm", "Show what each queue of a compiled kernel does."),
        "inspect": ("nki.tools.inspect", "Show what is in a compiled file."),
        "compare": (
            "nki.tools.compare.command",
            "Compare a kernel with a reference, or with itself under other settings.",
        ),
        "grade": ("nki.tools.grade.command", "Judge a kernel of somebody else: rules, values, time, and a score."),
        "migrate": ("nki.tools.migrate.command", "Rewrite old kernels in today's language, and prove it."),
        "explain": ("nki.tools.explain", "Explain a code of an error or of advice, or list them all."),
        "ls": ("nki.tools.ls", "Show the simulated devices."),
        "calibrate": ("nki.tools.calibrate", "Fit the times of collectives to measured ones."),
        "targets": ("nki.tools.targets", "Show hardware data and where it comes from."),
        "cache": ("nki.tools.cache", "Show or clear the compiled kernels on disk."),
        "rules": ("nki.tools.rules", "Print the rule book of a target."),
    }
)


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports the module of the one that is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import it; None if there is none of that name."""
        if cmd_name not in COMMANDS:
            return None
        found: click.Command = importlib.import_module(COMMANDS[cmd_name][0]).command
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Click's own, with the nearest command where there is none of that name."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            meant = meant_command(args, COMMANDS)
            problem = f"No such command {args[0]!r}." + (f" Did you mean 'nki {meant}'?" if meant else "")
            misused(Misuse(problem, ctx), args)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in the help, without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


def _print_version(ctx: click.Context, parameter: click.Parameter, asked: bool) -> None:
    # Only when asked: in a checkout the version takes a call of git.
    if asked:
        click.echo(f"nki {version()}")
        ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
def main() -> None:
    """Check, compile and run Trainium (NKI) kernels on any machine.

    \b
    KERNEL is FILE::NAME, or FILE if it defines one kernel. Arguments are given by name:
      nki check kernels.py::softmax --arg x=200x1000:float32 --target trn2
    """


if __name__ == "__main__":
    main()
