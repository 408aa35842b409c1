"""``nki profile``: a kernel in time on a target: where the time goes, what waits for what, and what to change."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nki.profiling.breakdown import BY, Breakdown
from nki.profiling.gate import compare_measured, load_profile, profile_programs, show_measured
from nki.profiling.summary import show_breakdown, show_summary
from nki.tools.options import said_to_imitate
from nki.tools.output import echo, stdout, working, write_json
from nki.tools.request import compile_request, kernel_command, read_request, usage_error
from nki.tools.run.artifact import load_artifact

if TYPE_CHECKING:
    from nki.profiling.measured.comparison import Comparison
    from nki.profiling.record import Profile

FORMATS = ("summary", "summary-json", "perfetto", "parquet", "csv")
TRACE, EXPLORER, CSV = "trace.pftrace", "explorer", "csv"
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
def command(
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
) -> None:
    """Compile a kernel and time it; nothing runs, so only shapes and dtypes of arrays count.

    FILE may also be a compiled kernel or model (.neff), or a folder that --out wrote before.
    """
    wanted = {*formats, "summary-json"} if as_json else set(formats) or {"summary"}
    files = wanted & {"perfetto", "parquet", "csv"}
    if files and out is None:
        raise usage_error("profile.out", f"--format {min(files)} without a folder", "add --out DIR")
    if by is not None and measured is not None:
        raise usage_error("profile.by", "--by with --measured", "ask for one of them")
    if Path(kernel).is_dir():
        if args or target is not None or lnc is not None or said_to_imitate():
            fix = "leave --arg, --target, --lnc and --imitate out"
            raise usage_error("profile.stored", f"{kernel} is a profile", fix)
        profile = load_profile(Path(kernel))
    else:
        profile = _profiled(kernel, args, target, lnc, seed, as_json)
    comparison = None if measured is None else compare_measured(profile, measured)
    if out is not None:
        _write(profile, out, files)
    if by is None:
        _show(profile, comparison, wanted, out)
    else:
        _show_by(profile.breakdown(by), wanted)


def _show_by(found: Breakdown, wanted: set[str]) -> None:
    """The time of a model, divided, to stdout."""
    if "summary-json" in wanted:
        write_json(found.to_json())
    else:
        show_breakdown(stdout(), found)


def _show(profile: Profile, comparison: Comparison | None, wanted: set[str], out: Path | None) -> None:
    """What goes to stdout."""
    if "summary-json" in wanted:
        told = profile.to_json()
        write_json(told if comparison is None else {**told, "measured": comparison.to_json()})
    elif "summary" in wanted or out is None:
        show_summary(stdout(), profile.about, profile.tables)
        for load in profile.about.kept_loads:
            echo("{loads:,} loads of {source} ({location}) left out: kept from {earlier}".format(**load))
    else:
        echo(f"{profile.about.kernel} on {profile.about.target}: {profile.makespan_ns / 1000:.2f} µs, in {out}")
    if comparison is not None and "summary-json" not in wanted:
        stdout().print()
        show_measured(stdout(), comparison)


def _profiled(
    kernel: str, args: tuple[str, ...], target: str | None, lnc: int | None, seed: int, as_json: bool
) -> Profile:
    if Path(kernel).suffix == ".neff":
        if args or lnc is not None or said_to_imitate():
            given = f"--arg, --lnc or --imitate with {kernel}"
            raise usage_error("run.compiled", given, "leave them out: it is compiled")
        loaded = load_artifact(Path(kernel), target)
        with working(f"profiling {kernel}"):
            return loaded.profile()
    request = read_request(kernel, args, target, lnc, seed, as_json)
    with working(f"profiling {request.launch.name}"):
        made = compile_request(request, {})
        options = request.options
        return profile_programs(made.programs, request.target, imitate=options.imitate, kept_loads=made.kept_loads)


def _write(profile: Profile, out: Path, files: set[str]) -> None:
    profile.save(out)
    if "perfetto" in files:
        profile.perfetto(out / TRACE)
    if "parquet" in files:
        profile.explorer(out / EXPLORER)
    if "csv" in files:
        profile.csv(out / CSV)
