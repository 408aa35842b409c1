"""The search: candidates by their bounds, the promising ones timed, the fastest one checked.

The winner depends on the kernel, the candidates and the timing model, and not on how many processes there are: a
candidate is left out only if it cannot be faster than one that is known to be right, and of equal times the first wins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from nki.core.errors import LaunchError
from nki.tune.ask import Ask
from nki.tune.job import Answer, Caches, TuningJob, is_unanswered, reason_of
from nki.tune.same import Leaves, difference, outcome
from nki.tune.tuned import Candidate

Check = Callable[[int], str]
"""In what a candidate differs from the default; empty if it does not."""


def search(job: TuningJob, ask: Ask, check: Check, *, default: int, budget: int | None) -> tuple[Candidate, ...]:
    """All candidates of a job, one of them chosen.

    Args:
        job: with host arrays of NumPy in its arguments.
        ask: answers questions about candidates.
        check: asked about the fastest one.
        default: number of the candidate that the others are compared with.
        budget: how many others are timed at most; None for no limit.

    Raises:
        NkiError: the default configuration is refused.
    """
    found = _Search(job, default, ask, budget)
    while True:
        found.time_promising()
        best = found.best()
        if best == default:
            break
        problem = check(best)
        if not problem:
            found.checked.add(best)
            break
        found.wrong[best] = problem
    return found.candidates(best)


class _Search:
    """What is known so far."""

    def __init__(self, job: TuningJob, default: int, ask: Ask, budget: int | None) -> None:
        self._job, self._default, self._ask = job, default, ask
        others = [number for number in range(len(job.configs)) if number != default]
        self.bounds: dict[int, Answer] = dict(zip(others, ask("bound", others), strict=True))
        self.times: dict[int, Answer] = {default: ask("time", [default])[0]}
        if self.times[default].ns is None:
            _refuse(job, default, self.times[default])
        self.wrong: dict[int, str] = {}
        self.checked: set[int] = {default}
        self._left = len(others) if budget is None else budget

    def best(self) -> int:
        """The fastest that is not known to be wrong, the first of several."""
        times = [(answer.ns, number) for number, answer in self.times.items() if number not in self.wrong]
        return min((ns, number) for ns, number in times if ns is not None)[1]

    def time_promising(self) -> None:
        """Time all that may be faster than the best one, those with small bounds first, as the budget allows."""
        while self._left > 0:
            waiting = [(answer.ns, n) for n, answer in self.bounds.items() if n not in self.times]
            limit = self._ns(self.best())
            promising = sorted((ns, n) for ns, n in waiting if ns is not None and ns <= limit)
            wave = [number for _, number in promising[: min(self._left, _WAVE)]]
            if not wave:
                return
            self._left -= len(wave)
            self.times.update(zip(wave, self._ask("time", wave), strict=True))

    def candidates(self, chosen: int) -> tuple[Candidate, ...]:
        """All candidates, in the order of the configurations."""
        return tuple(self._candidate(number, chosen) for number in range(len(self._job.configs)))

    def _candidate(self, number: int, chosen: int) -> Candidate:
        bound, time = self.bounds.get(number), self.times.get(number)
        refused = next((a for a in (bound, time) if a is not None and a.ns is None), None)
        state, reason = "timed", ""
        if number == chosen:
            state = "chosen"
        elif refused is not None:
            state, reason = "failed", refused.reason
        elif number in self.wrong:
            state, reason = "wrong", self.wrong[number]
        elif time is None:
            state = "pruned" if bound is not None and (bound.ns or 0.0) > self._ns(chosen) else "over budget"
        return Candidate(
            self._job.configs[number].label,
            state,
            time.ns if time is not None else None,
            bound.ns if bound is not None else None,
            number == self._default,
            number in self.checked,
            time is not None and time.assumed,
            reason,
        )

    def _ns(self, number: int) -> float:
        return self.times[number].ns or 0.0


_WAVE = 8
"""Candidates that are timed before the best time is looked at again; a constant, so that tables are repeatable."""


class Checker:
    """Runs candidates on the arrays of the call, in this process; the check of a `search`."""

    def __init__(self, job: TuningJob, default: int, tolerance: float | None, caches: Caches) -> None:
        """`tolerance` is that of `nki.tune.same.allowed`, `caches` are of compiled kernels."""
        self._job, self._default, self._tolerance, self._caches = job, default, tolerance, caches
        self._expected: Leaves | None = None

    def __call__(self, number: int) -> str:
        """In what a candidate differs from the default; empty if it does not."""
        if self._expected is None:
            self._expected = self._outcome(self._default)
        try:
            found = self._outcome(number)
        except Exception as problem:  # noqa: BLE001  what the Python of a kernel raises concerns this candidate alone
            return reason_of(problem)
        return difference(found, self._expected, self._tolerance)

    def _outcome(self, number: int) -> Leaves:
        launch, arguments = self._job.with_config(number)
        return outcome(launch, arguments, self._caches.setdefault(number, {}), self._job.options)


def _refuse(job: TuningJob, number: int, answer: Answer) -> NoReturn:
    """The error of the default configuration, as a call raises it."""
    if is_unanswered(answer.reason):
        code, _, why = answer.reason.partition(": ")
        raise LaunchError(
            code,
            f"the default configuration of {job.launch.name} ({job.configs[number].label}): {why}",
            rule="what the others are compared with can be timed and run",
            fix="call the kernel with it in a process of its own, and look at what it does",
        )
    launch, arguments = job.with_config(number)
    outcome(launch, arguments, {}, job.options)
    raise AssertionError("the default configuration was refused and then ran")
