"""``nki run``: one call of a kernel, with what came out and how."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.table import Table

from nki.driver.call import call
from nki.frontend.results import written_inputs
from nki.report import NkiWarning, Report
from nki.runtime.model import Model, model_of
from nki.runtime.spans import recording, span
from nki.runtime.trace import write_system_trace
from nki.target.model import Target
from nki.tools.options import said_to_imitate
from nki.tools.output import show_finding, stdout, working, write_json
from nki.tools.request import Request, kernel_command, read_request, usage_error
from nki.tools.results import ArrayFacts, check_output, facts_of, named_arrays, save
from nki.tools.run.artifact import Loaded, artifact_inputs, load_artifact, run_artifact
from nki.tools.run.model import model_inputs, save_results
from nki.tools.usage import Usage, usage_of, usage_rows


@dataclass(frozen=True, slots=True)
class Done:
    """A call that ended: its result, its report, and its arguments by name."""

    result: Any
    report: Report
    arguments: list[tuple[str, Any]]


@kernel_command("run", short_help="Run a kernel on arrays.")
@click.option("--mode", type=click.Choice(["compiled", "eager"]), help="Overrides NKI_SIMULATOR; default: compiled.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the results to a .npy or .npz file.")
@click.option("--inputs", metavar="A.npy,B.npy", help="Of a FILE.neff: its arrays, in the order of its arguments.")
@click.option("--trace", type=click.Path(path_type=Path), metavar="FILE.pftrace", help="Of a model: host and device.")
def command(
    kernel: str,
    args: tuple[str, ...],
    target: str | None,
    lnc: int | None,
    seed: int,
    as_json: bool,
    mode: str | None,
    output: Path | None,
    inputs: str | None,
    trace: Path | None,
) -> None:
    """Run a kernel, or a compiled file, on the NumPy machine and show what it returned.

    FILE.neff, written by `nki compile --emit neff` or `nki cc`, takes arrays by --arg or --inputs and runs as it was
    compiled. Results of a model go to the folder -o, one .npy file each.

    Results keep their names in a .npz file: result, result[0], ..., and "argument NAME" for arrays it wrote to.
    """
    if Path(kernel).suffix == ".neff":
        if mode is not None or lnc is not None or said_to_imitate():
            given = f"--mode, --lnc or --imitate with {kernel}"
            raise usage_error("run.compiled", given, "leave them out: it is compiled")
        return _run_file(load_artifact(Path(kernel), target), kernel, args, inputs, seed, output, as_json, trace)
    check_trace(trace)
    check_output(output)
    if inputs is not None:
        raise usage_error("run.inputs", "--inputs with a kernel", "name its arrays: --arg NAME=SHAPE:DTYPE:FILE.npy")
    request = read_request(kernel, args, target, lnc, seed, as_json)
    start = time.perf_counter()
    with working(f"running {request.launch.name}"):
        result, report = run_request(request, mode)
    done = Done(result, report, list(request.kwargs.items()))
    return _finish(done, request.target, time.perf_counter() - start, output, as_json)


def _run_file(
    loaded: Loaded,
    file: str,
    args: tuple[str, ...],
    inputs: str | None,
    seed: int,
    output: Path | None,
    as_json: bool,
    trace: Path | None,
) -> None:
    """Run a compiled kernel or model."""
    if loaded.artifact.model is not None:
        with recording() as found:
            _run_model(model_of(loaded.artifact), args, inputs, seed, output, as_json)
        if trace is not None:
            write_system_trace(found.spans, trace, loaded.profile())
        return
    check_trace(trace)
    check_output(output)
    arrays = artifact_inputs(loaded.artifact, args, inputs, seed)
    start = time.perf_counter()
    with working(f"running {file}"):
        result, report = run_artifact(loaded, arrays)
    done = Done(result, report, [(b.name, a) for b, a in zip(report.programs[0].inputs, arrays, strict=True)])
    _finish(done, loaded.target, time.perf_counter() - start, output, as_json)


def check_trace(trace: Path | None) -> None:
    """Only models have a system trace."""
    if trace is not None:
        raise usage_error(
            "run.trace", "--trace with a kernel", "profile it: nki profile KERNEL --format perfetto --out DIR"
        )


def _run_model(
    model: Model, args: tuple[str, ...], inputs: str | None, seed: int, output: Path | None, as_json: bool
) -> None:
    """One run of a model, with what came out."""
    arrays = model_inputs(model, args, inputs, seed)
    start = time.perf_counter()
    with working(f"running {model.name}"), span(f"call {model.name}", "framework"):
        outcome = model.run(arrays)
    seconds = time.perf_counter() - start
    named = [(port.name, array) for port, array in zip(model.part.outputs, outcome.results, strict=True)]
    if output is not None:
        save_results(output, named)
    report = Report(
        kernel=model.name,
        target=model.target.name,
        mode="compiled",
        cores=len(model.programs),
        matmul=model.options.matmul,
        precise_fp=True,
        kernel_hash="",
        findings=outcome.findings,
        programs=model.programs,
        compiled="artifact",
        executed=outcome.executed,
        imitate=model.options.imitate,
    )
    facts, usage = [facts_of(name, array) for name, array in named], usage_of(model.programs)
    if as_json:
        write_json({"model": model.name, **_json(report, facts, usage, seconds, output)})
    else:
        _show(report, facts, usage, model.target, seconds, output)


def _finish(done: Done, target: Target, seconds: float, output: Path | None, as_json: bool) -> None:
    """Write and show what came out."""
    arrays = [*named_arrays(done.result), *_written(done)]
    if output is not None:
        save(output, arrays)
    facts = [facts_of(name, array) for name, array in arrays]
    usage = usage_of(done.report.programs)
    if as_json:
        write_json(_json(done.report, facts, usage, seconds, output))
    else:
        _show(done.report, facts, usage, target, seconds, output)


def run_request(request: Request, mode: str | None, cache: dict[Any, Any] | None = None) -> tuple[Any, Report]:
    """Call the kernel through the driver; warnings stay in the report."""
    options = request.options if mode is None else replace(request.options, simulator=mode == "eager")
    with warnings.catch_warnings(), request.user_code():
        warnings.simplefilter("ignore", NkiWarning)
        return call(request.launch, (), request.kwargs, {} if cache is None else cache, options)


def _written(done: Done) -> list[tuple[str, np.ndarray]]:
    """Arguments that the kernel changed in place and did not return."""
    programs, arguments = done.report.programs, dict(done.arguments)
    returned = {view.buffer.id for view in programs[0].outputs}
    inputs = programs[0].inputs
    changed = [inputs[at] for at in sorted(written_inputs(programs)) if inputs[at].id not in returned]
    return [(f"argument {b.name}", arguments[b.name]) for b in changed if b.name in arguments]


def _json(report: Report, facts: list[ArrayFacts], usage: Usage, seconds: float, output: Path | None) -> dict[str, Any]:
    return {
        **report.to_json(),
        "memory_peak": usage.to_json(),
        "provenance": report.provenance(),
        "seconds": round(seconds, 6),
        "results": [item.to_json() for item in facts],
        "output": None if output is None else str(output),
    }


def _show(
    report: Report, facts: list[ArrayFacts], usage: Usage, target: Target, seconds: float, output: Path | None
) -> None:
    for finding in report.findings:
        show_finding(finding)
    console = stdout()
    table = Table(title=report.kernel, title_justify="left")
    for heading in ("result", "shape", "dtype", "min", "max", "mean", "not finite", "sha256"):
        table.add_column(heading)
    for item in facts:
        figures = [_figure(value) for value in (item.minimum, item.maximum, item.mean)]
        shape = " x ".join(str(size) for size in item.shape)
        table.add_row(item.name, shape, item.dtype, *figures, str(item.not_finite), item.sha256[:12])
    console.print(table)
    grid = Table.grid(padding=(0, 2))
    for row in usage_rows(report, usage, target):
        grid.add_row(*row)
    grid.add_row("wall time", f"{seconds:.2f} s")
    grid.add_row("provenance", report.provenance())
    if output is not None:
        grid.add_row("written to", str(output))
    console.print(grid)


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"
