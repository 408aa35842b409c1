"""``nki opt``: passes on a file of IR, one after the other, each result verified."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from nki.core.collector import paused_collector
from nki.ir.build import build
from nki.ir.text import to_text
from nki.ir.verify import verify
from nki.passes.context import Context
from nki.passes.names import current, renamed
from nki.passes.pipeline import Stage, compile_programs, passes_named
from nki.spec.program import Program
from nki.spec.rule import Finding
from nki.tools.compile.command import check_directory
from nki.tools.compile.stages import TRACE, StageWatch, check_pass_name, load_stage, pass_list, show_differences
from nki.tools.compile.summary import PassRow
from nki.tools.options import IMITATE_OPTION, options_of
from nki.tools.output import Command, echo, show_finding, write_json
from nki.tools.request import JSON, TARGET, usage_error


@click.command("opt", cls=Command, short_help="Run passes on a file of IR.")
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE.mlir")
@click.option("--passes", required=True, metavar="A,B,C", help="What to run, in this order; may be empty.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write to a file instead of stdout.")
@click.option("--print-after", metavar="PASS|all", help="Print MLIR after a pass to stderr.")
@click.option("--diff", is_flag=True, help="Show what each pass changed.")
@TARGET
@IMITATE_OPTION
@JSON
def command(
    file: Path,
    passes: str,
    output: Path | None,
    print_after: str | None,
    diff: bool,
    target: str | None,
    as_json: bool,
) -> None:
    """Run passes on a stage that `nki compile --dump-ir` or `nki ir --mlir` wrote, and print the MLIR.

    The program is verified before the first and after every pass. Nothing but the named passes runs.
    """
    check_directory(output)
    if file.suffix == ".neff":
        raise usage_error("opt.file", f"{file} is compiled", "name a file of MLIR; `nki disasm` shows a .neff file")
    names, after = pass_list(passes) or [], current(print_after or "")
    chosen = passes_named(names)
    if print_after is not None:
        check_pass_name(after, [TRACE, *(item.name for item in chosen)])
    options = options_of()
    programs, found, notes = load_stage(file, target, options.disabled_rules)
    context = Context(found, options)
    watch = StageWatch(programs[0].name, after=after, diff=diff)
    watch(Stage(TRACE, tuple(programs), 0.0))
    findings: list[Finding] = [*notes, *renamed([*names, print_after or ""])]
    with paused_collector():
        for item in chosen:
            stages: list[Stage] = []
            changed = compile_programs(programs, context, [item], stages.append)
            programs = verify(build(changed.programs), found, options.disabled_rules)
            findings += changed.findings
            watch(Stage(item.name, tuple(programs), stages[-1].seconds))
    for finding in () if as_json else findings:
        show_finding(finding)
    _deliver(file, programs, findings, watch, output, as_json)


def _deliver(
    file: Path,
    programs: Sequence[Program],
    findings: Sequence[Finding],
    watch: StageWatch,
    output: Path | None,
    as_json: bool,
) -> None:
    text = to_text(build(programs))
    if output is not None:
        output.write_text(text, encoding="utf-8")
    if as_json:
        counts = [(stage, sum(1 for p in stage.programs for _ in p.body.walk())) for stage in watch.stages[1:]]
        write_json(
            {
                "file": str(file),
                "kernel": programs[0].name,
                "target": programs[0].target,
                "passes": [PassRow(stage.name, stage.seconds, count).to_json() for stage, count in counts],
                "passed": list(programs[0].passed),
                "diff": watch.differences if watch.diff else None,
                "text": text if output is None else None,
                "output": None if output is None else str(output),
                "findings": [finding.to_json() for finding in findings],
            }
        )
        return
    show_differences(watch.differences, err=output is None)
    if output is None:
        echo(text, nl=not text.endswith("\n"))
