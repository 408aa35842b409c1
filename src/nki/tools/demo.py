"""``nki demo``: the whole way of one kernel: checked, compiled, run, and compared with an independent reference."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import click
import numpy.typing as npt
from rich.table import Table

from nki.core.source import of_function
from nki.driver.compiled import Cache
from nki.profiling.evidence import evidence
from nki.report import Report
from nki.spec.rule import Finding
from nki.target.load import load_target
from nki.timing.cores import timelines
from nki.tools.attention import BOUND, Accuracy, Inputs, accuracy, random_inputs
from nki.tools.check.command import check_request
from nki.tools.examples import example
from nki.tools.kernel_file import load_kernel
from nki.tools.options import options_of
from nki.tools.output import REFUSED, Command, locate_kernel, show_finding, stdout, working, write_json
from nki.tools.request import JSON, Request, compile_request
from nki.tools.run.command import run_request
from nki.tools.usage import usage_of, usage_rows

SEQUENCE = 2048
HEAD = 128


@dataclass(slots=True)
class Demo:
    """What has come out so far."""

    request: Request
    inputs: Inputs
    causal: bool
    seconds: dict[str, float] = field(default_factory=dict)

    @contextlib.contextmanager
    def step(self, name: str, what: str) -> Iterator[None]:
        """Time a step, and show on a terminal that it runs."""
        start = time.perf_counter()
        with working(what):
            yield
        self.seconds[name] = time.perf_counter() - start


@click.command("demo", cls=Command, short_help="Check, compile and run an example.")
@click.option("--target", default="trn2", show_default=True, metavar="NAME", help="Target, for example trn3.")
@click.option("--lnc", type=click.IntRange(1), help="Number of cores.")
@click.option("--full", is_flag=True, help="Attend to all keys instead of those up to the query.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the inputs.")
@JSON
def command(target: str, lnc: int | None, full: bool, seed: int, as_json: bool) -> None:
    """Run flash attention for one head (2048 x 128, bfloat16) from its source to checked numbers.

    Exit code 1 if the kernel is refused, or if its result is further from the reference than rounding explains.
    """
    demo = Demo(_request(target, lnc, as_json), random_inputs(SEQUENCE, HEAD, seed), not full)
    result, report, findings = _run(demo)
    with demo.step("compare", "computing the reference in float64"):
        measured = accuracy(result, demo.inputs, demo.causal)
    if as_json:
        write_json(_json(demo, report, findings, measured))
    else:
        _show(demo, report, findings, measured)
    if not measured.passed:
        raise click.exceptions.Exit(REFUSED)


def _request(target: str, lnc: int | None, as_json: bool) -> Request:
    loaded = load_kernel(f"{example('flash_attention.py')}::flash_attention")
    locate_kernel(of_function(loaded.launch.function.__code__))
    chip = load_target(target)
    return Request(loaded.path, replace(loaded.launch, lnc=lnc), {}, chip, options_of(chip.name), as_json)


def _run(demo: Demo) -> tuple[npt.NDArray[Any], Report, list[Finding]]:
    """Check, compile, run; a kernel that is refused ends the command."""
    kwargs = {**{name: getattr(demo.inputs, name) for name in ("q", "k", "v")}, "causal": demo.causal}
    request = demo.request = replace(demo.request, kwargs=kwargs)
    with demo.step("check", f"checking for {request.target.name}"):
        findings, error = check_request(request)
    if error is not None:
        raise error
    if any(finding.severity == "error" for finding in findings):
        for finding in findings:
            show_finding(finding)
        raise click.exceptions.Exit(REFUSED)
    cache: Cache = {}
    with demo.step("compile", "compiling"):
        # The call below looks the kernel up under the same key, so that it is only a run.
        compile_request(request, cache)
    with demo.step("run", "running on the NumPy machine"):
        result, report = run_request(request, "compiled", cache)
    return result, report, [*findings, *(each for each in report.findings if each not in findings)]


def _json(demo: Demo, report: Report, findings: list[Finding], measured: Accuracy) -> dict[str, Any]:
    return {
        **report.to_json(),
        "sequence": SEQUENCE,
        "head": HEAD,
        "causal": demo.causal,
        "passed": measured.passed,
        "bound": BOUND,
        "accuracy": measured.to_json(),
        "memory_peak": usage_of(report.programs).to_json(),
        "capacity": {
            "sbuf_bytes_per_partition": demo.request.target.sbuf.bytes_per_partition,
            "psum_bytes_per_partition": demo.request.target.psum.bytes_per_partition,
        },
        "makespan_ns": _makespan(demo, report),
        "validated": demo.request.target.validated,
        "seconds": {name: round(value, 6) for name, value in demo.seconds.items()},
        "provenance": report.provenance(),
        "findings": [finding.to_json() for finding in findings],
    }


def _makespan(demo: Demo, report: Report) -> float:
    """ns on the device by the timing model."""
    return max(line.makespan for line in timelines(report.programs, demo.request.target))


def _show(demo: Demo, report: Report, findings: list[Finding], measured: Accuracy) -> None:
    for finding in findings:
        show_finding(finding)
    mask = "causal" if demo.causal else "full"
    title = f"Flash attention, {SEQUENCE} x {HEAD} bfloat16, {mask}, on {demo.request.target.title}"
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_row("result", "passed" if measured.passed else "FAILED")
    table.add_row("bound", BOUND)
    table.add_row("largest error", f"{measured.of_allowed:.0%} of the bound")
    table.add_section()
    table.add_row("against float64", f"max {measured.max_abs:.3g}, relative {measured.relative:.3g} (2-norm)")
    table.add_row(
        "against its bfloat16 rounding",
        f"max {measured.rounded_max_abs:.3g}, relative {measured.rounded_relative:.3g}, "
        f"{measured.equal_share:.1%} of the elements equal",
    )
    table.add_section()
    for row in usage_rows(report, usage_of(report.programs), demo.request.target):
        table.add_row(*row)
    table.add_section()
    target = demo.request.target
    predicted = f"{_makespan(demo, report) / 1000:,.2f} µs, {evidence(target.name, target.validated)}"
    table.add_row("time on the device", predicted)
    table.add_row("wall time here", ", ".join(f"{name} {value:.2f} s" for name, value in demo.seconds.items()))
    table.add_row("warnings", str(len(findings)) if findings else "none")
    table.add_row("provenance", report.provenance())
    table.add_row("source", str(demo.request.path))
    stdout().print(table)
