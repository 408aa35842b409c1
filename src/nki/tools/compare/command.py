"""``nki compare``: where a kernel leaves its reference, or where two runs of it part."""

from __future__ import annotations

from typing import Any

import click

from nki.tools.compare.against import FORMS, Setup, setups
from nki.tools.compare.reference import Comparison, compare_with, load_reference
from nki.tools.compare.rows import allowance, exact_unless
from nki.tools.compare.runs import Runs, compare_runs
from nki.tools.compare.show import diverged_json, parted_json, show_comparison, show_runs
from nki.tools.output import REFUSED, working, write_json
from nki.tools.request import Request, kernel_command, read_request, usage_error

_TOLERANCE = click.FloatRange(min=0)


@kernel_command("compare", short_help="Compare a kernel with a reference, or with itself under other settings.")
@click.option("--reference", metavar="FILE::FUNCTION", help="NumPy function of the same arguments.")
@click.option("--against", multiple=True, metavar="SETTING", help=f"Another run of the kernel: {FORMS}; repeatable.")
@click.option("--rtol", type=_TOLERANCE, help="Relative tolerance. Default: from the dtype; 0 with --against.")
@click.option("--atol", type=_TOLERANCE, help="Absolute tolerance. Default: rtol times the RMS; 0 with --against.")
def command(
    kernel: str,
    args: tuple[str, ...],
    target: str | None,
    lnc: int | None,
    seed: int,
    as_json: bool,
    reference: str | None,
    against: tuple[str, ...],
    rtol: float | None,
    atol: float | None,
) -> None:
    """Run a kernel, and find the first place where its values are not those of a reference.

    With --reference the outputs are compared, and what both name with nki.testing.tap(name, value). With --against the
    kernel runs twice, and everything that its instructions write is compared.

    Exit code 0: equal within the tolerance. 1: something differs. 2: the command was used wrongly.
    """
    if (reference is None) is (not against):
        raise usage_error(
            "compare.mode",
            "compare got neither --reference nor --against" if reference is None else "--reference with --against",
            "add --reference FILE::FUNCTION, or --against SETTING",
        )
    request = read_request(kernel, args, target, lnc, seed, as_json)
    if reference is not None:
        equal = _with_reference(request, reference, rtol, atol)
    else:
        equal = _with_itself(request, against, rtol, atol)
    if not equal:
        raise click.exceptions.Exit(REFUSED)


def _with_reference(request: Request, text: str, rtol: float | None, atol: float | None) -> bool:
    reference = load_reference(text, request)
    with working(f"comparing {request.launch.name} with {text}"):
        comparison = compare_with(request, reference, allowance(rtol, atol))
    if request.as_json:
        write_json(_comparison_json(comparison, text))
    else:
        show_comparison(comparison, text)
    return comparison.equal


def _with_itself(request: Request, words: tuple[str, ...], rtol: float | None, atol: float | None) -> bool:
    first, second = setups(words, request.target)
    with working(f"running {request.launch.name}: {first} against {second}"):
        runs = compare_runs(request, first, second, exact_unless(rtol, atol))
    if request.as_json:
        write_json(_runs_json(request, runs, first, second))
    else:
        show_runs(request.launch.name, runs, first, second)
    return runs.equal


def _comparison_json(comparison: Comparison, reference: str) -> dict[str, Any]:
    report = comparison.report
    return {
        "kernel": report.kernel,
        "reference": reference,
        "target": report.target,
        "cores": report.cores,
        "equal": comparison.equal,
        "rows": [row.to_json() for row in comparison.rows],
        "first": None if comparison.first is None else comparison.first.to_json(),
        "findings": [finding.to_json() for finding in report.findings],
        "provenance": report.provenance(),
    }


def _runs_json(request: Request, runs: Runs, first: Setup, second: Setup) -> dict[str, Any]:
    return {
        "kernel": request.launch.name,
        "runs": [str(first), str(second)],
        "equal": runs.equal,
        "instructions": runs.steps,
        "rows": [row.to_json() for row in runs.rows],
        "first": None if runs.diverged is None else diverged_json(runs.diverged),
        "parted": None if runs.parted is None else parted_json(runs.parted),
        "provenance": [report.provenance() for report in runs.reports],
    }
