"""``nki profile --ranks``: a step of many ranks, from a script of PyTorch, a kernel or a compiled file."""

from __future__ import annotations

import importlib
import os
import runpy
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nki.core.errors import UsageError
from nki.profiling.gate import load_step, profile_ranks, show_sizes, show_step
from nki.timing.ranks.step import RankProgram, Run, step_of
from nki.tools.output import quiet_stdout, stdout, working, write_json
from nki.tools.request import compile_request, read_request, usage_error
from nki.tools.run.artifact import load_artifact
from nki.tools.user_code import script_errors

if TYPE_CHECKING:
    from nki.profiling.ranks.record import StepProfile

TRACE = "trace.pftrace"
"""Where the trace goes in the folder."""

RANKS = "nki.ranks"
"""Where the options that are about ranks are kept, for `asked_ranks`."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """What the command line says of ranks.

    Attributes:
        sizes: numbers of ranks, one step for each.
        compiled: ranks whose programs differ.
        slowdown: by rank.
        instance: name, or empty for that of the target.
        script_args: of a script.
    """

    sizes: tuple[int, ...]
    compiled: tuple[int, ...]
    slowdown: dict[int, float]
    instance: str
    script_args: tuple[str, ...]


def rank_options(function: Any) -> Any:
    """Decorator: the options that are about ranks; `asked_ranks` has them."""
    for name, metavar, text in reversed(_OPTIONS):
        function = click.option(name, metavar=metavar, callback=_keep, expose_value=False, help=text)(function)
    return function


_OPTIONS = (
    ("--ranks", "N[,N...]", "Show a step of N ranks; FILE may be a script of PyTorch, of which one rank is compiled."),
    ("--compile-ranks", "R[,R...]", "With --ranks: ranks of a script whose programs differ.  [default: 0]"),
    ("--slow", "R=F[,R=F...]", "With --ranks: rank R takes F times as long for its own work."),
    ("--instance", "NAME", "With --ranks: what the ranks are cores of, for example trn2.ultraserver."),
    ("--script-args", "TEXT", "With --ranks: arguments of the script."),
)


def _keep(context: click.Context, option: click.Parameter, value: str | None) -> None:
    context.meta.setdefault(RANKS, {})[option.name] = value


def asked_ranks() -> Ranks | None:
    """What the command line says of ranks; None without --ranks.

    Raises:
        UsageError: "profile.ranks" for values that make no sense, or options that need --ranks.
    """
    said: dict[str, str | None] = click.get_current_context().meta[RANKS]
    if said["ranks"] is None:
        alone = next((name for name, value in said.items() if value is not None), None)
        if alone is not None:
            raise usage_error("profile.ranks", f"--{alone.replace('_', '-')} without --ranks", "add --ranks N")
        return None
    sizes = _numbers("--ranks", said["ranks"])
    if not all(sizes):
        raise _no_numbers("--ranks", said["ranks"])
    return Ranks(
        sizes,
        _numbers("--compile-ranks", said["compile_ranks"] or "0"),
        dict(_pair(text, said["slow"] or "") for text in (said["slow"] or "").split(",") if text),
        said["instance"] or "",
        tuple(shlex.split(said["script_args"] or "")),
    )


def _numbers(option: str, text: str) -> tuple[int, ...]:
    if not all(part.isascii() and part.isdigit() for part in text.split(",")):
        raise _no_numbers(option, text)
    return tuple(map(int, text.split(",")))


def _no_numbers(option: str, text: str) -> UsageError:
    return usage_error("profile.ranks", f"{option} {text}", f"write numbers with commas between them: {option} 4,64")


def _pair(text: str, whole: str) -> tuple[int, float]:
    rank, _, factor = text.partition("=")
    try:
        return int(rank), float(factor)
    except ValueError:
        raise usage_error("profile.ranks", f"--slow {whole}", "write a rank and a number: --slow 3=1.5") from None


def show_ranks(
    asked: Ranks,
    kernel: str,
    args: tuple[str, ...],
    target: str | None,
    lnc: int | None,
    seed: int,
    as_json: bool,
    out: Path | None,
    files: set[str],
) -> None:
    """Print the steps, and write them to a folder.

    Raises:
        UsageError: "profile.ranks" for formats that a step has not.
    """
    wrong = files - {"perfetto"}
    if wrong:
        raise usage_error("profile.ranks", f"--format {min(wrong)} of a step", "use perfetto, or --json")
    if out is not None and len(asked.sizes) > 1:
        raise usage_error("profile.ranks", "--out with several numbers of ranks", "give one number of ranks")
    found = list(_profiles(asked, kernel, args, target, lnc, seed, as_json))
    if out is not None:
        found[0].save(out)
        if "perfetto" in files:
            found[0].perfetto(out / TRACE)
    if as_json:
        write_json(found[0].to_json() if len(found) == 1 else {"steps": [each.to_json() for each in found]})
    elif len(found) == 1:
        show_step(stdout(), found[0])
    else:
        show_sizes(stdout(), found)


def show_stored(folder: Path, as_json: bool) -> None:
    """Print a step that was written to a folder. Raises ArtifactError as `StepProfile.load`."""
    found = load_step(folder)
    if as_json:
        write_json(found.to_json())
    else:
        show_step(stdout(), found)


def _profiles(
    asked: Ranks, kernel: str, args: tuple[str, ...], target: str | None, lnc: int | None, seed: int, as_json: bool
) -> Iterator[StepProfile]:
    path = Path(kernel)
    if path.suffix == ".py" and path.is_file() and "::" not in kernel:
        if args or lnc is not None:
            fix = f"write {kernel}::KERNEL for a kernel; a script has --script-args"
            raise usage_error("profile.ranks", f"--arg or --lnc with the script {kernel}", fix)
        for size in asked.sizes:
            yield _of_script(path, asked, size, target, as_json)
        return
    if asked.script_args or asked.compiled != (0,):
        raise usage_error("profile.ranks", f"{kernel} is no script", "leave --compile-ranks and --script-args out")
    if path.suffix == ".neff":
        loaded = load_artifact(path, target)
        model = loaded.artifact.model
        run = Run(tuple(loaded.artifact.programs), path.stem, (), () if model is None else tuple(model.kernels))
        found = loaded.target
    else:
        request = read_request(kernel, args, target, lnc, seed, as_json)
        with working(f"compiling {request.launch.name}"):
            run = Run(tuple(compile_request(request, {}).programs), request.launch.name)
        found = request.target
    for size in asked.sizes:
        step = step_of([RankProgram(0, (run,))], size, asked.slowdown)
        yield profile_ranks(step, asked.instance, found, run.name)


def _of_script(path: Path, asked: Ranks, size: int, target: str | None, as_json: bool) -> StepProfile:
    make = importlib.import_module("nki.interop.torch.one_rank.profile").profile_step

    def step() -> None:
        with quiet_stdout(as_json), script_errors(str(path)):
            runpy.run_path(str(path), run_name="__main__")

    with working(f"compiling a rank of {size} of {path}"), _as_script(path, asked.script_args, target):
        found: StepProfile = make(
            step, size, compiled=asked.compiled, instance=asked.instance, slowdown=asked.slowdown, name=path.stem
        )
    return found


@contextmanager
def _as_script(path: Path, arguments: Sequence[str], target: str | None) -> Iterator[None]:
    """Arguments, the search path and the target's variable as if Python had been started with the script."""
    kept, known = sys.argv, os.environ.get(_TARGET)
    folder = str(path.resolve().parent)
    sys.argv = [str(path), *arguments]
    sys.path.insert(0, folder)
    if target is not None:
        os.environ[_TARGET] = target
    try:
        yield
    finally:
        sys.argv = kept
        sys.path.remove(folder)
        if target is not None:
            os.environ.pop(_TARGET)
            if known is not None:
                os.environ[_TARGET] = known


_TARGET = "NEURON_PLATFORM_TARGET_OVERRIDE"
