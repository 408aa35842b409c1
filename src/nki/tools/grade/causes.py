"""From trials to causes: not only that results are wrong, but in which way, so that each mistake has a name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from nki.core.errors import NkiError
from nki.options import Options
from nki.spec.rule import Finding
from nki.target.model import Target
from nki.tools.grade.programs import JudgedProgram, Outcome, execute, poisoned
from nki.tools.grade.sets import ArgumentSet
from nki.tools.grade.trials import Trial
from nki.tools.grade.verdicts import fault

_NORMAL = ("normal", "again")
_RULE = "a kernel computes what the reference does, for all inputs for which that has an answer"


def causes(trials: Sequence[Trial], sets: Sequence[ArgumentSet]) -> list[Finding]:
    """One finding for each way in which results are wrong."""
    found = [trial.error for trial in trials if trial.error is not None][:1]
    wrong = [trial for trial in trials if trial.error is None and not trial.passed]
    if not wrong:
        return found
    constant = _constant(trials)
    if constant is not None:
        return [*found, constant]
    plain = [trial for trial in wrong if trial.question.number == 0 and trial.question.kind.name in _NORMAL]
    special = [trial for trial in wrong if trial.question.number == 0 and trial.question.kind.special]
    ranged = [t for t in wrong if t.question.number == 0 and t not in plain and t not in special]
    if ranged:  # infinity is as large as numbers get
        special = [trial for trial in special if trial.question.nan_given]
    shaped = [trial for trial in wrong if trial.question.number > 0]
    if plain:
        return [
            *found,
            fault("grade.values", _told(plain), _RULE, "compare with the reference: nki compare", _facts(plain)),
        ]
    if ranged:
        fix = "compute in a way that holds for numbers of any size, such as softmax after taking off the maximum"
        message = f"right for ordinary numbers; {_told(ranged)}"
        found.append(fault("grade.range", message, _RULE, fix, _facts(ranged)))
    if special:
        message = f"right for ordinary numbers; {_told(special)}"
        fix = "have NaN and infinity go where the reference has them, or leave the kind out with --skip"
        found.append(fault("grade.special", message, _RULE, fix, _facts(special)))
    if shaped:
        chosen = sets[shaped[0].question.number]
        message = f"wrong for {chosen}: {_told(shaped)}"
        fix = "take sizes from the arguments, and refuse what the kernel does not do; --only-given leaves this out"
        found.append(fault("grade.shape", message, _RULE, fix, _facts(shaped)))
    return found


def writes_arguments(judged: JudgedProgram, trials: Sequence[Trial]) -> list[Finding]:
    """Arguments that the program writes to, and the reference leaves as they are."""
    mine = [trial for trial in trials if trial.question.number == 0 and trial.outcome is not None]
    changed = {name for trial in mine for name in trial.question.expected.changed}
    found = []
    for position, name in enumerate(judged.names):
        moved = any(
            not _same(trial.outcome.arguments[name], trial.question.inputs[name]) for trial in mine if trial.outcome
        )
        if name not in changed and (position in judged.written or moved):
            message = f"the kernel writes to its argument {name}, which the reference does not change"
            rule = "arguments belong to the caller"
            fix = "write to a tensor of the kernel, and return it"
            where = judged.writer_of(position)
            found.append(fault("grade.writes-argument", message, rule, fix, {"argument": name}, where))
    return found


def determinism(judged: JudgedProgram, first: Trial, target: Target, options: Options) -> list[Finding]:
    """Whether results depend on memory that nobody wrote, or on what random generators began with."""
    if first.outcome is None:
        return []
    found = []
    # Both: with other poison and another seed; then one of them, to say which.
    if not _repeats(judged, first, target, poisoned(options, other=True)):
        if _repeats(judged, first, target, poisoned(options)):
            found.append(_unwritten(first))
        else:
            rule, fix = "the same inputs give the same bits", "use no state that an earlier run leaves behind"
            found.append(fault("grade.unrepeatable", "two runs on the same inputs gave different results", rule, fix))
    return found


def _unwritten(first: Trial) -> Finding:
    lost = sum(row.beyond for row in first.rows if np.isnan(row.found))
    return fault(
        "grade.unwritten",
        "results depend on memory that the kernel did not write, or on the first state of a random generator"
        + (f"; {lost} elements are not as the reference has them" if lost else ""),
        "every element of a result is written by the kernel, from its arguments alone",
        "write all of each result, also its last rows and columns",
    )


def _repeats(judged: JudgedProgram, first: Trial, target: Target, options: Options) -> bool:
    try:
        again = execute(judged, first.question.inputs, target, options)
    except NkiError:
        return False
    return _equal(first.outcome, again)


def _equal(left: Outcome | None, right: Outcome | None) -> bool:
    if left is None or right is None or left.results.keys() != right.results.keys():
        return False
    return all(_same(array, right.results[name]) for name, array in left.results.items())


def _constant(trials: Sequence[Trial]) -> Finding | None:
    """Results that are the same whatever the inputs are."""
    mine = [t for t in trials if t.question.number == 0 and t.question.kind.name in _NORMAL and t.outcome is not None]
    if len(mine) < 2 or not mine[0].rows or not _equal(mine[0].outcome, mine[1].outcome):
        return None
    if _alike(mine[0].question.expected.results, mine[1].question.expected.results):
        return None
    return fault(
        "grade.constant",
        "the results are the same for different inputs, and those of the reference are not",
        _RULE,
        "compute the results from the arguments",
    )


def _alike(left: Mapping[str, np.ndarray], right: Mapping[str, np.ndarray]) -> bool:
    return all(np.array_equal(array, right[name], equal_nan=True) for name, array in left.items())


def _told(wrong: Sequence[Trial]) -> str:
    """The first element that is wrong, and for which kinds of inputs there are such."""
    row = next(row for row in wrong[0].rows if not row.passed)
    kinds = ", ".join(dict.fromkeys(trial.question.kind.name for trial in wrong))
    if row.problem:
        return f"{row.name} has {row.problem} (inputs: {kinds})"
    place = f"{row.name}[{', '.join(map(str, row.worst or ()))}]"
    return (
        f"{row.beyond} of {row.judged} elements of {row.name} are wrong for {kinds} inputs; "
        f"{place} is {row.found:.6g} instead of {row.expected:.6g}, within {row.allowed:.3g}"
    )


def _facts(wrong: Sequence[Trial]) -> dict[str, str | int]:
    first = wrong[0]
    row = next(row for row in first.rows if not row.passed)
    kinds = ", ".join(dict.fromkeys(trial.question.kind.name for trial in wrong))
    return {"kinds": kinds, "seed": first.question.seed, "result": row.name, "beyond": row.beyond, "judged": row.judged}


def _same(left: np.ndarray, right: np.ndarray) -> bool:
    return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
