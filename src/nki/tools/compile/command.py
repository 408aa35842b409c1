"""``nki compile``: from a kernel, or from a dumped stage of one, to any stage of the compiler or to a file to run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from nki.asm.lower import lower
from nki.asm.print import to_text as assembly
from nki.compiler import CompileConfig
from nki.core.collector import paused_collector
from nki.driver.launch import trace_only
from nki.driver.prepare import checked
from nki.ir.build import build
from nki.ir.text import fingerprint, to_text
from nki.ir.verify import verify
from nki.options import Options
from nki.passes.context import Context, Pass
from nki.passes.names import current, renamed
from nki.passes.pipeline import Compilation, check_printed, compile_programs, passes_named, remaining
from nki.spec.kept_load import KeptLoad
from nki.spec.program import Program
from nki.spec.rule import Finding
from nki.store.artifact.container import pack, save
from nki.target.model import Target
from nki.tools.compile.stages import TRACE, StageWatch, check_pass_name, load_stage, pass_list, show_differences
from nki.tools.compile.summary import Summary, console_for, show_summary, summarize
from nki.tools.options import options_of
from nki.tools.output import echo, show_finding, working, write_json
from nki.tools.request import kernel_command, read_request, usage_error

EMIT = ("check", "ir", "scheduled", "asm", "neff")


@dataclass(frozen=True, slots=True)
class Source:
    """What is compiled: traced programs, or those of a dumped stage, and the passes that they need."""

    programs: tuple[Program, ...]
    target: Target
    options: Options
    config: CompileConfig
    passes: tuple[Pass, ...]
    findings: tuple[Finding, ...] = ()


@kernel_command("compile", short_help="Compile a kernel to any stage, or to a file.")
@click.option("--emit", type=click.Choice(EMIT), default="check", show_default=True, help="What to produce.")
@click.option("--dump-ir", metavar="DIR", help="Write the MLIR of every stage to DIR/KERNEL; overrides NKI_DUMP_IR.")
@click.option("--print-after", metavar="PASS|all", help="Print MLIR after a pass to stderr; overrides NKI_PRINT_AFTER.")
@click.option("--diff", is_flag=True, help="Show what each pass changed.")
@click.option("--passes", metavar="A,B,C", help="Run these instead of all passes that are left.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write to a file; needed for --emit neff.")
def command(  # noqa: PLR0913 - one parameter for each option
    kernel: str,
    args: tuple[str, ...],
    target: str | None,
    lnc: int | None,
    seed: int,
    as_json: bool,
    emit: str,
    dump_ir: str | None,
    print_after: str | None,
    diff: bool,
    passes: str | None,
    output: Path | None,
) -> None:
    """Compile a kernel, or go on with FILE.mlir, a stage that --dump-ir wrote.

    \b
    check      only the figures
    ir         MLIR as traced: no pass runs
    scheduled  MLIR after the passes
    asm        the streams of the queues as assembly
    neff       a file that `nki run` runs
    """
    check_emit(emit, output, diff=diff, passes=passes)
    from_file = Path(kernel).suffix == ".mlir"
    if from_file and (args or lnc is not None or seed):
        raise usage_error("compile.stage", f"--arg, --lnc or --seed with {kernel}", "leave them out: it is traced")
    with working(f"compiling {kernel}"), paused_collector():
        source = (
            _from_file(Path(kernel), target) if from_file else _from_kernel(kernel, args, target, lnc, seed, as_json)
        )
        source = _with_passes(source, [] if emit == "ir" else pass_list(passes))
        watch = _watch(source, dump_ir, print_after, diff)
        programs, compiled = _compile(source, watch)
        summary = summarize(watch.stages, source.target)
        text = _emitted(emit, programs, source, watch.stages[0].programs, output)
    findings = [*source.findings, *renamed([_printed(source, print_after)]), *compiled.findings]
    if as_json:
        write_json(_json(emit, programs, source, summary, findings, compiled.kept, watch, text, output))
    else:
        _show(programs, source, summary, findings, compiled.kept, watch, text, output)


def check_emit(emit: str, output: Path | None, *, diff: bool, passes: str | None) -> None:
    """Combinations of options that contradict each other, before anything runs."""
    if emit == "neff" and output is None:
        raise usage_error("compile.output", "--emit neff without a file", "add -o NAME.neff")
    if emit == "check" and output is not None:
        emits = {".neff": "neff", ".mlir": "scheduled", ".asm": "asm", ".s": "asm"}.get(output.suffix)
        fix = f"add --emit {emits}" if emits else "choose another --emit, such as --emit neff -o NAME.neff, or omit -o"
        raise usage_error("compile.emit", f"--emit check writes no {output}", fix)
    if emit == "ir" and (diff or passes is not None):
        raise usage_error("compile.emit", "--emit ir runs no pass", "use --emit scheduled with --diff or --passes")
    check_directory(output)


def check_directory(output: Path | None) -> None:
    """The directory of a file that is to be written."""
    if output is not None and not output.parent.is_dir():
        raise usage_error("output.directory", f"-o {output}: {output.parent} is no directory", "create it first")
    if output is not None and output.is_dir():
        raise usage_error("output.directory", f"-o {output} is a directory", "name a file in it")


def _from_kernel(
    kernel: str, args: tuple[str, ...], target: str | None, lnc: int | None, seed: int, as_json: bool
) -> Source:
    request = read_request(kernel, args, target, lnc, seed, as_json)
    launch, options = request.launch, request.options
    noted = checked(launch, options)
    with request.user_code():
        tracers = trace_only(launch, (), request.kwargs, request.target, options, collect=False)
    programs = tuple(tracer.program for tracer in tracers)
    findings = (*noted, *(finding for tracer in tracers for finding in tracer.findings))
    config = launch.config
    return Source(programs, request.target, options, config, remaining(programs), findings)


def _from_file(path: Path, target: str | None) -> Source:
    options = options_of()
    programs, found, notes = load_stage(path, target, options.disabled_rules)
    return Source(tuple(programs), found, options, CompileConfig(), remaining(programs), notes)


def _with_passes(source: Source, names: Sequence[str] | None) -> Source:
    """The source with other passes than those that are left."""
    if names is None:
        return source
    return replace(source, passes=passes_named(names), findings=(*source.findings, *renamed(names)))


def _printed(source: Source, print_after: str | None) -> str:
    """The pass after which MLIR is printed, as it is named: by an option, or by a variable of the environment."""
    return source.options.print_after if print_after is None else print_after


def _watch(source: Source, dump_ir: str | None, print_after: str | None, diff: bool) -> StageWatch:
    """Options come before variables of the environment."""
    after = check_printed(source.options.print_after) if print_after is None else current(print_after)
    stages = [TRACE, *(item.name for item in source.passes)]
    if print_after is not None:
        check_pass_name(after, stages)
    return StageWatch(source.programs[0].name, source.options.dump_ir if dump_ir is None else dump_ir, after, diff)


def _compile(source: Source, watch: StageWatch) -> tuple[list[Program], Compilation]:
    """Run the passes; returns the programs as they are read back from verified IR, and what the passes have to say."""
    context = Context(source.target, source.options, source.config)
    compiled = compile_programs(source.programs, context, source.passes, watch)
    return verify(build(compiled.programs), source.target, source.options.disabled_rules), compiled


def _emitted(
    emit: str, programs: Sequence[Program], source: Source, traced: Sequence[Program], output: Path | None
) -> str | None:
    """The text that was asked for; None if there is none, or if it is in the file."""
    match emit:
        case "check":
            return None
        case "ir" | "scheduled":
            text = to_text(build(programs))
        case "asm":
            text = "\n".join(assembly(lower(program)) for program in programs)
        case _:
            assert output is not None, "checked before anything ran"
            save(output, _packed(programs, source, traced))
            return None
    if output is None:
        return text
    output.write_text(text, encoding="utf-8")
    return None


def _packed(programs: Sequence[Program], source: Source, traced: Sequence[Program]) -> bytes:
    return pack(
        programs,
        kernel_hash=fingerprint(build(traced)),
        options={**source.config.plain(), "imitate": source.options.imitate},
        disabled_rules=source.options.disabled_rules,
    )


def _json(
    emit: str,
    programs: Sequence[Program],
    source: Source,
    summary: Summary,
    findings: Sequence[Finding],
    kept: Sequence[KeptLoad],
    watch: StageWatch,
    text: str | None,
    output: Path | None,
) -> dict[str, Any]:
    return {
        "kernel": programs[0].name,
        "target": source.target.name,
        "cores": len(programs),
        "emit": emit,
        "kernel_hash": fingerprint(build(programs)),
        **summary.to_json(),
        "diff": watch.differences if watch.diff else None,
        "text": text,
        "output": None if output is None else str(output),
        "imitate": source.options.imitate,
        "kept_loads": [load.to_json() for load in kept],
        "findings": [finding.to_json() for finding in findings],
    }


def _show(
    programs: Sequence[Program],
    source: Source,
    summary: Summary,
    findings: Sequence[Finding],
    kept: Sequence[KeptLoad],
    watch: StageWatch,
    text: str | None,
    output: Path | None,
) -> None:
    """Text that was asked for goes to stdout, and then everything else to stderr."""
    for finding in findings:
        show_finding(finding)
    show_differences(watch.differences, err=text is not None)
    console = console_for(text)
    show_summary(f"{programs[0].name} for {source.target.name}", summary, console)
    for load in kept:
        console.print(str(load), highlight=False, markup=False)
    if output is not None:
        console.print(f"written to {output}")
    if text is not None:
        echo(text, nl=not text.endswith("\n"))
