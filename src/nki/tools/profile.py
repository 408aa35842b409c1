"""``nki profile``: a kernel in time on a target: where the time goes, what waits for what, and what to change."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from nki.profiling.breakdown import BY, Breakdown
from nki.profiling.gate import (
    calibrate,
    compare_measured,
    load_profile,
    measured_profile,
    profile_programs,
    show_measured,
)
from nki.profiling.optional_formats import STEP
from nki.profiling.summary import show_breakdown, show_summary
from nki.spec.program import Program
from nki.target.model import Target
from nki.tools.options import said_to_imitate
from nki.tools.output import echo, stdout, working, write_json
from nki.tools.profile_ranks import asked_ranks, rank_options, show_ranks, show_stored
from nki.tools.request import compile_request, kernel_command, read_request, usage_error
from nki.tools.run.artifact import load_artifact

if TYPE_CHECKING:
    from nki.profiling.measured.comparison import Comparison
    from nki.profiling.measured.fit import Fit
    from nki.profiling.record import Profile

FORMATS = ("summary", "summary-json", "perfetto", "parquet", "csv")
TRACE, EXPLORER, CSV, MEASURED = "trace.pftrace", "explorer", "csv", "measured"
"""Where the formats go in the folder."""


@kernel_command("profile", short_help="Where the time of a kernel goes on the target.")
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Write the profile to a folder.")
@click.option(
    "--format",
    "formats",
    type=click.Choice(FORMATS),
    multiple=True,
    help="summary (default) or summary-json on stdout; perfetto, parquet (tables of Neuron Explorer) or csv in DIR.",
)
@click.option(
    "--measured",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Compare with tables that neuron-explorer wrote of a capture of this kernel.",
)
@click.option(
    "--by", type=click.Choice(BY), help="Of a model: a table of its time by module, class, operation or kernel."
)
@click.option(
    "--calibrate",
    "calibration",
    type=click.Path(path_type=Path),
    metavar="OUT.toml",
    help="Write the target's coefficients, fitted to what was measured, as a target of its own.",
)
@rank_options
def command(  # noqa: PLR0913 - one parameter for each option
    kernel: str,
    args: tuple[str, ...],
    target: str | None,
    lnc: int | None,
    seed: int,
    as_json: bool,
    out: Path | None,
    formats: tuple[str, ...],
    measured: Path | None,
    by: str | None,
    calibration: Path | None,
) -> None:
    """Compile a kernel and time it; nothing runs, so only shapes and dtypes of arrays count.

    FILE may also be a compiled kernel or model (.neff), or a folder that --out wrote before. With --ranks it may be a
    script of PyTorch, which runs as one rank.
    """
    wanted = {*formats, "summary-json"} if as_json else set(formats) or {"summary"}
    files = wanted & {"perfetto", "parquet", "csv"}
    if files and out is None:
        raise usage_error("profile.out", f"--format {min(files)} without a folder", "add --out DIR")
    if by is not None and measured is not None:
        raise usage_error("profile.by", "--by with --measured", "ask for one of them")
    if calibration is not None:
        _check_calibration(kernel, measured, calibration)
    asked = asked_ranks()
    if asked is None and (Path(kernel) / STEP).is_file():
        if args or target is not None or lnc is not None or out is not None or by is not None or measured is not None:
            raise usage_error("profile.stored", f"{kernel} is a step of many ranks", "leave all options but --json out")
        show_stored(Path(kernel), "summary-json" in wanted)
        return
    if asked is not None:
        if by is not None or measured is not None:
            raise usage_error("profile.ranks", "--by or --measured with --ranks", "ask for one of them")
        show_ranks(asked, kernel, args, target, lnc, seed, as_json, out, files)
        return
    found = _profiled(kernel, args, target, lnc, seed, as_json)
    profile = found.profile
    comparison = None if measured is None else compare_measured(profile, measured)
    fitted = None if comparison is None or calibration is None else _fitted(comparison, found, calibration)
    if out is not None:
        _write(profile, out, files, None if comparison is None else measured_profile(comparison))
    if by is None:
        _show(profile, wanted, out, comparison, fitted, calibration)
    else:
        _show_by(profile.breakdown(by), wanted)


def _show_by(found: Breakdown, wanted: set[str]) -> None:
    """The time of a model, divided, to stdout."""
    if "summary-json" in wanted:
        write_json(found.to_json())
    else:
        show_breakdown(stdout(), found)


def _check_calibration(kernel: str, measured: Path | None, calibration: Path) -> None:
    """What a calibration needs."""
    if measured is None:
        raise usage_error("profile.calibrate", "--calibrate without a measured profile", "add --measured DIR")
    if Path(kernel).is_dir():
        fix = "name the kernel's file with its arguments, or a .neff file"
        raise usage_error("profile.calibrate", f"--calibrate with {kernel}, which has no program", fix)
    if calibration.suffix != ".toml":
        fix = f"write {calibration.with_suffix('.toml').name}: --target knows such a file by its ending"
        raise usage_error("profile.calibrate", f"--calibrate {calibration} is no .toml file", fix)


def _show(
    profile: Profile,
    wanted: set[str],
    out: Path | None,
    comparison: Comparison | None,
    fitted: Fit | None,
    calibration: Path | None,
) -> None:
    """What goes to stdout."""
    if "summary-json" in wanted:
        told = profile.to_json()
        if comparison is not None:
            told["measured"] = comparison.to_json()
        if fitted is not None:
            told["calibration"] = {"file": str(calibration), **fitted.to_json()}
        write_json(told)
    elif "summary" in wanted or out is None:
        show_summary(stdout(), profile.about, profile.tables)
        for load in profile.about.kept_loads:
            echo("{loads:,} loads of {source} ({location}) left out: kept from {earlier}".format(**load))
    else:
        echo(f"{profile.about.kernel} on {profile.about.target}: {profile.makespan_ns / 1000:.2f} µs, in {out}")
    if comparison is not None and "summary-json" not in wanted:
        stdout().print()
        show_measured(stdout(), comparison, fitted, calibration)


def _fitted(comparison: Comparison, found: _Profiled, calibration: Path) -> Fit | None:
    """The coefficients that were written; a stored profile has no program, see `_check_calibration`."""
    if found.target is None:
        return None
    with working("fitting coefficients"):
        return calibrate(comparison, found.programs, found.target, calibration)


class _Profiled(NamedTuple):
    """A profile, and the programs and the target that it was made of, if it was not stored."""

    profile: Profile
    programs: Sequence[Program] = ()
    target: Target | None = None


def _profiled(
    kernel: str, args: tuple[str, ...], target: str | None, lnc: int | None, seed: int, as_json: bool
) -> _Profiled:
    if Path(kernel).is_dir():
        if args or target is not None or lnc is not None or said_to_imitate():
            fix = "leave --arg, --target, --lnc and --imitate out"
            raise usage_error("profile.stored", f"{kernel} is a profile", fix)
        return _Profiled(load_profile(Path(kernel)))
    if Path(kernel).suffix == ".neff":
        if args or lnc is not None or said_to_imitate():
            given = f"--arg, --lnc or --imitate with {kernel}"
            raise usage_error("run.compiled", given, "leave them out: it is compiled")
        loaded = load_artifact(Path(kernel), target)
        with working(f"profiling {kernel}"):
            return _Profiled(loaded.profile(), loaded.artifact.programs, loaded.target)
    request = read_request(kernel, args, target, lnc, seed, as_json)
    with working(f"profiling {request.launch.name}"):
        made = compile_request(request, {})
        imitate = request.options.imitate
        profile = profile_programs(made.programs, request.target, imitate=imitate, kept_loads=made.kept_loads)
        return _Profiled(profile, made.programs, request.target)


def _write(profile: Profile, out: Path, files: set[str], measured: Profile | None) -> None:
    profile.save(out)
    if measured is not None:
        measured.save(out / MEASURED)
    if "perfetto" in files:
        profile.perfetto(out / TRACE, *(() if measured is None else (measured,)))
    if "parquet" in files:
        profile.explorer(out / EXPLORER)
    if "csv" in files:
        profile.csv(out / CSV)
