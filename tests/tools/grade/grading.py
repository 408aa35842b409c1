"""Grades a kernel that is given as source."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path

from nki.options import Options
from nki.target.load import load_target
from nki.tools.grade.grade import Grade, GradeRequest, grade
from nki.tools.grade.process.confine import Limits
from nki.tools.grade.process.files import read_files
from nki.tools.grade.reference import load_reference
from nki.tools.grade.sets import read_ranges, read_sets
from nki.tools.grade.trials import Judgement
from tests.tools.grade.kernels import REFERENCES

ADD = ("a=64x32:float32", "b=64x32:float32")
_NUMBERS = itertools.count()


def graded(
    folder: Path,
    source: str,
    args: tuple[str, ...] = ADD,
    *,
    name: str = "add",
    baseline: str = "",
    also: tuple[str, ...] = (),
    ranges: tuple[str, ...] = (),
    derive: bool = False,
    skip: tuple[str, ...] = (),
    traces: int = 1,
    limits: Limits | None = None,
    lnc: int | None = None,
    package: Mapping[str, str] | None = None,
) -> Grade:
    """The grade of a kernel `name` by the reference of that name; in one process unless more are asked for.

    `package` has further files of the folder, which is a package then.
    """
    for file, text in {"__init__.py": "", **package}.items() if package is not None else ():
        (folder / file).write_text(text)
    references = folder / "references.py"
    references.write_text(REFERENCES)
    candidate, other = folder / f"candidate{next(_NUMBERS)}.py", folder / "baseline.py"
    candidate.write_text(source)
    if baseline:
        other.write_text(baseline)
    sets = read_sets(args, also)
    hidden = [references.resolve(), other.resolve()]
    return grade(
        GradeRequest(
            candidate=read_files(f"{candidate}::{name}", (), hidden),
            baseline=read_files(f"{other}::{name}", (), hidden[:1]) if baseline else None,
            sets=sets,
            derive=derive,
            judgement=Judgement(
                reference=load_reference(f"{references}::{name}", as_json=False),
                ranges=read_ranges(ranges, sets),
                rtol=None,
                atol=None,
                skipped=frozenset(skip),
                seed=7,
            ),
            target=load_target("trn2"),
            options=Options(target="trn2"),
            lnc=lnc,
            limits=limits or Limits(seconds=30.0),
            traces=traces,
        )
    )


def codes(made: Grade) -> list[str]:
    """Codes of the errors."""
    return [finding.code for finding in made.findings if finding.severity == "error"]
