"""Running passes one after the other, and showing what each of them did: files, text, and differences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from difflib import unified_diff
from pathlib import Path

from nki.core.errors import UsageError
from nki.core.source import UNKNOWN
from nki.core.visible import file_name
from nki.ir.build import build
from nki.ir.print import readable
from nki.ir.read import read
from nki.ir.text import load, save, to_text
from nki.ir.verify import verify, verify_structure
from nki.passes.names import current, renamed
from nki.passes.pipeline import Stage, passes_named
from nki.spec.allocation import check_tensors
from nki.spec.program import Block, Issued, Program, Sync
from nki.spec.rule import Finding
from nki.target.load import load_target
from nki.target.model import Target
from nki.tools.output import echo

TRACE = "trace"
_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


@dataclass(slots=True)
class StageWatch:
    """What is to be shown of the stages; call it after every one of them.

    Attributes:
        kernel: name of the kernel.
        dump: directory for a file for every stage; "" for none.
        after: the pass after which MLIR is printed to stderr, or "all"; "" for none.
        diff: whether differences between stages are wanted.
        stages: that there have been.
        differences: of each stage to the one before it, in lines.
    """

    kernel: str
    dump: str = ""
    after: str = ""
    diff: bool = False
    stages: list[Stage] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    _text: list[str] = field(default_factory=list)

    def __call__(self, stage: Stage) -> None:
        """Note a stage, write it, print it, compare it with the last one."""
        number = len(self.stages)
        self.stages.append(stage)
        if self.dump:
            directory = _directory(Path(self.dump) / file_name(self.kernel))
            save(build(stage.programs), directory / f"{number:02}-{stage.name}.mlir")
        if self.after in (stage.name, "all"):
            echo(f"// {self.kernel} after {stage.name}\n{to_text(build(stage.programs))}", err=True)
        if self.diff:
            self._compare(stage)

    def _compare(self, stage: Stage) -> None:
        before, self._text = self._text, list(stage_lines(stage.programs))
        if len(self.stages) > 1:
            names = (self.stages[-2].name, stage.name)
            self.differences += unified_diff(before, self._text, *names, lineterm="", n=1)


def _directory(path: Path) -> Path:
    """Make a directory for stages. Raises UsageError "output.directory"."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"--dump-ir: {path}: {error.strerror}"
        raise UsageError("output.directory", message, fix="name another directory", location=UNKNOWN) from None
    return path


def check_pass_name(name: str, stages: Sequence[str]) -> None:
    """A stage that can be printed, of those that there will be. Raises UsageError "pass.unknown" or "compile.pass"."""
    if name in ("all", *stages):
        return
    if name != TRACE:
        passes_named([name])
    raise UsageError(
        "compile.pass",
        f"--print-after {name}: that pass does not run",
        rule=f"the stages are {', '.join(stages)}",
        fix="name one of them, or all",
        location=UNKNOWN,
    )


def pass_list(text: str | None) -> list[str] | None:
    """``a,b,c`` as names, as they are written; None if nothing was given."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def load_stage(
    path: Path, target: str | None, disabled_rules: frozenset[str] = frozenset()
) -> tuple[list[Program], Target, tuple[Finding, ...]]:
    """The programs of a dumped stage, verified for their target, and what is to be said of the file.

    They went through passes by their names of today, whatever the names were when the file was written.

    Raises:
        IRError: the file cannot be read, is no module of the dialects, or was compiled for another target.
        VerificationError: an instruction breaks a rule of the target.
        TensorError: a tensor is larger than its memory, or has no element.
    """
    module = load(path)
    verify_structure(module)
    programs = read(module)
    found = load_target(target or programs[0].target)
    for program in programs:
        check_tensors(program, found)
    notes = renamed(name for program in programs for name in program.passed)
    verified = verify(module, found, disabled_rules)
    return [replace(each, passed=tuple(map(current, each.passed))) for each in verified], found, notes


def show_differences(lines: Sequence[str], *, err: bool) -> None:
    """A unified diff, in colour on a terminal."""
    for line in lines:
        echo(line, fg=_COLOURS.get(line[:1]), err=err)


def stage_lines(programs: Sequence[Program]) -> Iterator[str]:
    """The readable form with what the compiler decided behind it: addresses, queues and waits."""
    for program in programs:
        lines = readable([program]).splitlines()
        marks = ["", *("" for _ in program.inputs), *_marks(program.body, program), ""]
        yield from (line + mark for line, mark in zip(lines, marks, strict=True))


def _marks(block: Block, program: Program) -> Iterator[str]:
    placement = program.placement or {}
    for buffer in block.buffers:
        place = placement.get(buffer.id)
        yield "" if place is None else f"  ; at partition {place[0]}, byte {place[1]}"
    syncs: Sequence[Sync | None] = block.sync or [None] * len(block.items)
    for item, sync in zip(block.items, syncs, strict=True):
        yield "" if sync is None else _sync(sync)
        if not isinstance(item, Issued):
            yield from _marks(item.body, program)


def _sync(sync: Sync) -> str:
    waits = "".join(f", after {wait.signals} of {wait.queue}" for wait in sync.waits)
    return f"  ; on {sync.queue}{waits}{', signals' if sync.signals else ''}"
