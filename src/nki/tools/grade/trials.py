"""Trials: one set of arguments with one kind of inputs, through the reference and through a candidate's program."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from nki.core.errors import NkiError
from nki.options import Options
from nki.spec.rule import Finding, finding_of
from nki.target.model import Target
from nki.tools.grade.deadline import TooLong, deadline
from nki.tools.grade.inputs import KINDS, Arrays, Kind, can_be_special, make_inputs
from nki.tools.grade.programs import JudgedProgram, Outcome, execute
from nki.tools.grade.reference import Expected, Reference
from nki.tools.grade.sets import ArgumentSet, Span
from nki.tools.grade.values import TRIALS, Row, compare, perturbed
from nki.tools.grade.verdicts import fault

_SHARES = (1.0, 0.5, 0.2)
_EVERY_SET = ("normal", "mixed")
"""Kinds for the second set of arguments and those after it."""


@dataclass(frozen=True, slots=True)
class Question:
    """Inputs, and what the reference says of them.

    Attributes:
        number: of the set of arguments.
        kind, seed: of the inputs.
        others: gives what the reference says of inputs that were rounded differently; it is only asked where what the
            dtype of a result explains is not enough, as it takes several runs of the reference.
        nan_given: whether some input is NaN.
        note: why the kind does not apply; empty if it does.
    """

    number: int
    kind: Kind
    seed: int
    inputs: Arrays
    expected: Expected
    others: Callable[[], Sequence[Expected]] = tuple
    nan_given: bool = False
    note: str = ""


@dataclass(slots=True)
class Trial:
    """What a program answered to a question."""

    question: Question
    rows: list[Row] = field(default_factory=list)
    outcome: Outcome | None = None
    error: Finding | None = None

    @property
    def passed(self) -> bool:
        return self.error is None and all(row.passed for row in self.rows)

    def to_json(self) -> dict[str, Any]:
        """JSON types only."""
        question = self.question
        return {
            "set": question.number,
            "kind": question.kind.name,
            "seed": question.seed,
            "passed": self.passed,
            "skipped": question.note,
            "error": None if self.error is None else self.error.to_json(),
            "results": [row.to_json() for row in self.rows],
        }


@dataclass(frozen=True, slots=True)
class Judgement:
    """How values are judged: the reference, where numbers lie, tolerances if given, and kinds that do not count."""

    reference: Reference
    ranges: Mapping[str, Span]
    rtol: float | None
    atol: float | None
    skipped: frozenset[str]
    seed: int

    def kinds(self, first: bool) -> list[Kind]:
        """The kinds of inputs for the first set of arguments, or for the others."""
        names = KINDS if first else _EVERY_SET
        return [KINDS[name] for name in names if name not in self.skipped]


def ask(judgement: Judgement, chosen: ArgumentSet, number: int, kind: Kind) -> Question:
    """Make inputs and have the reference answer; a kind for which it has no numbers does not apply.

    Raises:
        NkiError: what the reference raises on normal inputs.
    """
    seed = judgement.seed + 1000 * number + list(KINDS).index(kind.name)
    if kind.special:
        return _special(judgement, chosen, number, kind, seed)
    found: Question | None = None
    for share in _SHARES if kind.name in ("large", "mixed") else _SHARES[:1]:
        inputs = make_inputs(chosen, kind, seed, judgement.ranges, share=share)
        try:
            found = _question(judgement, chosen, number, kind, seed, inputs)
        except NkiError as problem:
            if kind.name in ("normal", "again"):
                raise
            found = _not_asked(number, kind, seed, f"the reference raises {problem.message}")
            continue
        if _answers(found.expected) >= 0.5:
            break
    assert found is not None, "there is at least one share"
    return found


def answer(
    judgement: Judgement, judged: JudgedProgram, question: Question, target: Target, options: Options, seconds: float
) -> Trial:
    """Run a program on the inputs of a question, for so long at most, and compare."""
    trial = Trial(question)
    if question.note:
        return trial
    what = f"running the program on {question.kind.name} inputs"
    try:
        ran = in_time(seconds, what, lambda: execute(judged, question.inputs, target, options))
    except NkiError as problem:
        ran = finding_of(problem, "error")
    if isinstance(ran, Finding):
        trial.error = ran
        return trial
    trial.outcome = ran
    wanted, found = question.expected.all(), _answered(trial.outcome, question)
    if wanted.keys() != found.keys():
        message = (
            f"the kernel has {', '.join(found) or 'no result'}; the reference has {', '.join(wanted) or 'no result'}"
        )
        rule, fix = "a kernel returns what the reference returns, in the same tuple or dictionary", "return the same"
        trial.error = fault("grade.outputs", message, rule, fix)
        return trial
    trial.rows = [_row(judgement, question, name, found[name], expected) for name, expected in wanted.items()]
    return trial


def _row(judgement: Judgement, question: Question, name: str, found: np.ndarray, expected: np.ndarray) -> Row:
    given = (question.nan_given, judgement.rtol, judgement.atol)
    row = compare(name, found, expected, (), *given)
    if row.passed or row.problem:
        return row
    return compare(name, found, expected, [other.all()[name] for other in question.others()], *given)


def in_time(seconds: float, what: str, work: Any) -> Any:
    """The value of `work()`, or the finding that it took too long."""
    try:
        with deadline(seconds):
            return work()
    except TooLong:
        rule = "checking, running and timing a program ends within --seconds each"
        return fault(
            "grade.time", f"{what} took more than {seconds:g} s", rule, "make loops shorter, or raise --seconds"
        )


def _answered(outcome: Outcome, question: Question) -> dict[str, np.ndarray]:
    changed = {f"argument {name}": outcome.arguments[name] for name in question.expected.changed}
    return {**outcome.results, **changed}


def _question(
    judgement: Judgement, chosen: ArgumentSet, number: int, kind: Kind, seed: int, inputs: Arrays
) -> Question:
    expected = judgement.reference(chosen, inputs)

    @cache  # for one question, which is soon gone
    def others() -> Sequence[Expected]:
        found = []
        for each in range(TRIALS):
            with contextlib.suppress(NkiError):  # at the border of what it takes
                found.append(judgement.reference(chosen, perturbed(inputs, seed + 1 + each)))
        return [other for other in found if other.all().keys() == expected.all().keys()]

    exact = judgement.rtol is not None or judgement.atol is not None
    return Question(number, kind, seed, inputs, expected, tuple if exact else others)


def _special(judgement: Judgement, chosen: ArgumentSet, number: int, kind: Kind, seed: int) -> Question:
    """The first argument whose special values reach some results and not all of them."""
    for name in can_be_special(chosen, kind, judgement.ranges):
        inputs = make_inputs(chosen, kind, seed, judgement.ranges, name)
        try:
            found = _question(judgement, chosen, number, kind, seed, inputs)
        except NkiError:
            continue
        finite = [np.isfinite(array.astype(np.float64)).mean() for array in found.expected.all().values()]
        nan = bool(np.isnan(kind.special).any())
        if any(0.0 < share < 1.0 for share in finite) or (not nan and all(share == 1.0 for share in finite)):
            return Question(number, kind, seed, inputs, found.expected, found.others, nan_given=nan)
    return _not_asked(number, kind, seed, "no argument whose special values reach some results and not all")


def _not_asked(number: int, kind: Kind, seed: int, note: str) -> Question:
    return Question(number, kind, seed, {}, Expected({}, {}), note=note)


def _answers(expected: Expected) -> float:
    """The share of results that are numbers."""
    shares = [1.0 - float(np.isnan(array.astype(np.float64)).mean()) for array in expected.all().values() if array.size]
    return min(shares, default=1.0)
