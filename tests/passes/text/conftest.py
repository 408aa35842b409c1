"""Each pass as text: files ``PASS.txt`` show what it does to programs in the readable form of the IR."""

from __future__ import annotations

import tomllib
from dataclasses import fields, replace
from functools import cache
from pathlib import Path

import pytest

from nki.compiler import CompileConfig
from nki.core.errors import NkiError
from nki.options import Options
from nki.passes.context import Context, PassResult
from nki.passes.pipeline import passes_named
from nki.spec.verify_program import verify_program
from nki.target.load import load_target
from nki.target.model import Target
from nki.tools.compile.stages import stage_lines
from tests.passes.text.reader import read
from tests.text_cases import Case, TextFile, collected

FILES = "*.txt"
UNCHANGED = "unchanged"


@cache
def toy() -> Target:
    """The target of these cases: `unit` with the memories of ``toy.toml``."""
    base = load_target("unit")
    given = tomllib.loads((Path(__file__).parent / "toy.toml").read_text(encoding="utf-8"))
    return replace(base, name="toy", **{table: replace(getattr(base, table), **new) for table, new in given.items()})


def run(case: Case) -> str:
    """What a pass makes of a program; `UNCHANGED`, or the error that refuses it."""
    program = read(case.given)
    assert "\n".join(stage_lines([program])) == case.given, "the printer would write it in another way"
    assert not list(verify_program(program, toy())), "it breaks a rule of the toy target"
    options = {each.name for each in fields(Options)}
    context = Context(
        toy(),
        Options(**{name: value for name, value in case.settings.items() if name in options}),
        CompileConfig(**{name: value for name, value in case.settings.items() if name not in options}),
    )
    (item,) = passes_named([case.file.stem])
    try:
        result = item.step(PassResult(program), context)
    except NkiError as error:
        return f"{error.code}: {error.message}"
    lines = "\n".join(stage_lines([result.program]))
    told = [f"{finding.code}: {finding.message}" for finding in result.findings]
    told += [str(load) for load in result.kept]
    return "\n".join([UNCHANGED if lines == case.given else lines, *told])


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> TextFile | None:
    """The files of this folder."""
    return collected(file_path, parent, run) if file_path.match(FILES) else None
