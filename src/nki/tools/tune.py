"""``nki tune``: the fastest configuration of a kernel on the target, by the timing model."""

from __future__ import annotations

import ast
import contextlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from nki.compiler import CompileConfig
from nki.core.errors import UsageError
from nki.core.source import UNKNOWN
from nki.kernel import Kernel
from nki.profiling.evidence import evidence
from nki.tools.output import SafeConsole, stdout, write_json
from nki.tools.request import Request, kernel_command, read_request, usage_error
from nki.tools.suggestions.nearest_word import nearest
from nki.tune.autotune import autotune
from nki.tune.config import Config
from nki.tune.executors import FORMS, named_executor
from nki.tune.job import Question
from nki.tune.settings import Settings
from nki.tune.shards import ShardFile, read_shard
from nki.tune.tuned import Candidate, Tuned
from nki.tune.tuned_kernel import TunedKernel

_REASON = 100


@kernel_command("tune", short_help="Choose the fastest configuration of a kernel.")
@click.option("--config", "configs", multiple=True, metavar="NAME=VALUE,...", help="A candidate, instead of its own.")
@click.option("--budget", type=click.IntRange(1), help="How many candidates are timed at most.")
@click.option("--processes", type=click.IntRange(1), help="That time candidates at once; default: as needed.")
@click.option("--timeout", type=click.FloatRange(0, min_open=True), metavar="SECONDS", help="For one configuration.")
@click.option("--executor", metavar="NAME", help=f"Who times candidates: {FORMS}.")
@click.option("--shard", metavar="NUMBER/COUNT", help="Only this share of the candidates; --out keeps what is found.")
@click.option("--out", type=click.Path(path_type=Path), metavar="FOLDER", help="Where --shard writes its file.")
@click.option("--merge", type=click.Path(path_type=Path), metavar="FOLDER", help="Choose by the files of all shards.")
@click.option("--pin", type=click.Path(path_type=Path), metavar="FILE", help="Write the winner to a file.")
def command(  # noqa: PLR0913 - one parameter for each option
    kernel: str,
    args: tuple[str, ...],
    target: str | None,
    lnc: int | None,
    seed: int,
    as_json: bool,
    configs: tuple[str, ...],
    budget: int | None,
    processes: int | None,
    timeout: float | None,
    executor: str | None,
    shard: str | None,
    out: Path | None,
    merge: Path | None,
    pin: Path | None,
) -> None:
    """Time the configurations of a kernel and choose the fastest one that computes the same as its default.

    KERNEL has configurations from @nki.autotune, or they are given here, one --config each: keyword arguments, lnc=N,
    and settings of CompileConfig, such as --config tile=512,lnc=2 --config tile=256,prefetch_auto=True.
    """
    share = None if shard is None else read_shard(shard)
    _check_together(
        {"--shard": shard, "--out": out, "--merge": merge, "--pin": pin, "--executor": executor},
        {"--processes": processes, "--timeout": timeout},
    )
    request = read_request(kernel, args, target, lnc, seed, as_json)
    with contextlib.ExitStack() as stack:
        settings = Settings(budget, None, processes, timeout, _executor(executor, stack))
        tuner = _tuner(request, configs, settings)
        stack.enter_context(request.user_code())
        done = stack.enter_context(_progress(len(tuner.configs), as_json))
        found: Tuned | ShardFile
        if share is not None:
            found = tuner.tune_shard(request.kwargs, share, done, request.options)
        elif merge is not None:
            found = tuner.merge_shards(request.kwargs, merge, done, request.options)
        else:
            found = tuner.tune_watched((), request.kwargs, done, request.options)
    if isinstance(found, ShardFile):
        assert out is not None, "both options go together"
        _show_shard(found, found.write(out), as_json)
        return
    if pin is not None:
        tuner.pin(pin)
    if as_json:
        write_json({**found.to_json(), "validated": request.target.validated})
    else:
        _show(found, request, pin)


def _executor(text: str | None, stack: contextlib.ExitStack) -> Executor | None:
    """The executor of a name, until the command ends."""
    if text is None:
        return None
    return stack.enter_context(named_executor(text, lambda told: click.echo(f"note: {told}", err=True)))


def _check_together(these: Mapping[str, Any], limits: Mapping[str, Any]) -> None:
    """Refuse options that exclude each other, or that are nothing without another one."""
    given = {name for name, value in {**these, **limits}.items() if value is not None}
    for one, other in _EXCLUSIVE:
        if {one, other} <= given:
            raise usage_error("tune.option", f"{one} with {other}", f"leave one of them out: {_EXCLUSIVE[one, other]}")
    if ("--shard" in given) != ("--out" in given):
        raise usage_error("tune.option", "--shard and --out go together", "write --shard 1/4 --out FOLDER")


_EXCLUSIVE = {
    ("--shard", "--merge"): "first all shards run, then their files are put together",
    ("--shard", "--pin"): "a shard chooses nothing; --merge does",
    ("--merge", "--executor"): "the files have the answers",
    ("--executor", "--processes"): "the number belongs to the executor, as in --executor processes:4",
    ("--executor", "--timeout"): "an executor has its own limits",
}


_VALUES = re.compile(r"(\w+)=(-?[\d.]+(?:,-?[\d.]+)+)")
"""NAME=VALUE,VALUE"""


def _tuner(request: Request, configs: tuple[str, ...], settings: Settings) -> TunedKernel:
    """The kernel with its own candidates, or with those of the command line."""
    function = request.launch.function
    own = _own(function)
    if not configs and own is None:
        raise usage_error(
            "tune.kernel",
            f"{request.launch.name} has no configurations",
            "decorate it with @nki.autotune(configs=[...]), or name some: --config tile=256 --config tile=512",
        )
    if own is not None and not configs:
        return own.searched(request.launch.lnc, settings)
    parameters = function.__code__.co_varnames[: function.__code__.co_argcount + function.__code__.co_kwonlyargcount]
    given = [_config(text, parameters, request) for text in configs]
    return autotune(configs=given)(Kernel(request.launch)).searched(None, settings)


def _own(function: Callable[..., Any]) -> TunedKernel | None:
    """The tuned kernel of a function, which its file defines."""
    names = vars(sys.modules[function.__module__]) if function.__module__ in sys.modules else {}
    return next((v for v in names.values() if isinstance(v, TunedKernel) and v.func is function), None)


def _config(text: str, parameters: tuple[str, ...], request: Request) -> Config:
    """One --config."""
    try:
        parsed = ast.parse(f"dict({text})", mode="eval").body
        if not isinstance(parsed, ast.Call) or parsed.args or any(each.arg is None for each in parsed.keywords):
            raise ValueError(text)
        values = {str(each.arg): ast.literal_eval(each.value) for each in parsed.keywords}
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise _wrong(text) from None
    flags = {each.name for each in fields(CompileConfig)} - set(parameters)
    settings = {name: values.pop(name) for name in list(values) if name in flags}
    lnc = values.pop("lnc", None) if "lnc" not in parameters else None
    for name, value in values.items():
        if name not in parameters:
            raise _no_parameter(name, value, parameters, request)
    return Config(values, lnc, CompileConfig(**settings) if settings else None)


def _no_parameter(name: str, value: Any, parameters: tuple[str, ...], request: Request) -> UsageError:
    free = [each for each in parameters if each not in request.kwargs]
    flags = [each.name for each in fields(CompileConfig)]
    meant = nearest(name, [*free, *flags, "lnc"], 0.5) or (free[0] if len(free) == 1 else "")
    return UsageError(
        "tune.config",
        f"--config {name}={value!r}: {request.launch.name} has no parameter {name!r}",
        rule=f"what can be set is {', '.join(parameters)}, lnc, and the settings of CompileConfig",
        fix=f"write --config {meant}={value!r}" if meant else "name one of them: --config NAME=LITERAL",
        location=UNKNOWN,
    )


def _wrong(text: str) -> UsageError:
    return usage_error("tune.option", f"--config {text!r}", f"write {_meant(text)}")


def _meant(text: str) -> str:
    """Several values of one parameter are several configurations; a dict has other signs."""
    values = _VALUES.fullmatch(text)
    if values:
        return " ".join(f"--config {values[1]}={value}" for value in values[2].split(","))
    with contextlib.suppress(ValueError, SyntaxError):
        found = ast.literal_eval(text)
        if isinstance(found, dict) and all(str(name).isidentifier() for name in found):
            return f"--config {','.join(f'{name}={value!r}' for name, value in found.items())}"
    return "--config NAME=LITERAL,NAME=LITERAL"


@contextlib.contextmanager
def _progress(count: int, as_json: bool) -> Iterator[Callable[[Question, int], None]]:
    """A bar on a terminal; nothing elsewhere."""
    console = SafeConsole(stderr=True)
    if not console.is_terminal or as_json:
        yield lambda question, number: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        tasks: Mapping[Question, Any] = {
            "bound": progress.add_task("tracing", total=count - 1),
            "time": progress.add_task("timing", total=count),
        }
        yield lambda question, number: progress.advance(tasks[question])


def _show_shard(found: ShardFile, path: Path, as_json: bool) -> None:
    timed = sum(question == "time" and each.ns is not None for (question, _), each in found.known.answers.items())
    if as_json:
        write_json({"kernel": found.kernel, "target": found.target, "shard": str(found.shard), "file": str(path)})
    else:
        stdout().print(f"shard {found.shard} of {found.kernel} on {found.target}: {timed} timed, kept in {path}")


def _show(tuned: Tuned, request: Request, pin: Path | None) -> None:
    console = stdout()
    table = Table(title=f"{tuned.kernel} on {tuned.target}", title_justify="left")
    for heading in ("configuration", "µs", "at least", "state", "reason"):
        table.add_column(heading, justify="right" if heading in ("µs", "at least") else "left")
    for each in sorted(tuned.candidates, key=_rank):
        label = each.label + (" (default)" if each.default and each.label != "default" else "")
        table.add_row(label, _us(each.ns), _us(each.bound_ns), each.state, each.reason[:_REASON])
    console.print(table)
    console.print(str(tuned))
    if any(each.assumed for each in tuned.candidates):
        console.print("loops whose trips depend on data count as one trip in these times")
    if not request.target.validated:
        console.print(evidence(tuned.target, request.target.validated))
    if pin is not None:
        console.print(f"pinned in {pin}")


def _rank(candidate: Candidate) -> tuple[bool, bool, float]:
    """The winner first, then by time, then by bound."""
    time = candidate.ns if candidate.ns is not None else candidate.bound_ns
    return candidate.state != "chosen", candidate.ns is None, float("inf") if time is None else time


def _us(ns: float | None) -> str:
    return "-" if ns is None else f"{ns / 1000:.2f}"
