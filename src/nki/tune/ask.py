"""Asking the timing model about many candidates at once: by an executor, or here where that cannot be."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from typing import Any

from nki.core.errors import LaunchError
from nki.core.source import here as location
from nki.report import warn
from nki.spec.rule import Finding
from nki.tune.job import Answer, Answers, Question, TuningJob, unanswered
from nki.tune.processes import CallTimeoutError, ProcessEnded, Processes, running
from nki.tune.sent import NotSentError, SentJob, Unable, asked, prepare
from nki.tune.settings import Settings

_LEAST = 3
"""Fewer candidates are not worth the start of a process."""
_WORTH_SECONDS = 2.0
"""CPU time of questions from which on other processes are worth their start, which takes about half of that each."""

_LOOK_SECONDS = 2.0
"""How often somebody who waits looks whether there is still somebody to wait for."""

Ask = Callable[[Question, Sequence[int]], list[Answer]]
"""Answers in the order of the numbers."""
Done = Callable[[Question, int], None]

_END = "the worker that was asked about it ended, and so did the next one, which was asked about nothing else"


@contextlib.contextmanager
def asking(job: TuningJob, settings: Settings, done: Done) -> Iterator[Ask]:
    """What answers questions about the candidates of a job.

    Without an executor and a number of processes, this process answers as long as the questions are quickly answered,
    and then as many processes as there are processors.

    Args:
        job: the kernel with its candidates.
        settings: `executor`, `processes` and `timeout` of it count.
        done: called with every question that was answered, by the thread that asked.
    """
    answers = Answers(job)
    sent = SentJob(job, answers)

    def here(question: Question, numbers: Sequence[int]) -> list[Answer]:
        found = []
        for number in numbers:
            found.append(answers.of(question, number))
            done(question, number)
        return found

    with contextlib.ExitStack() as stack:
        if settings.executor is not None:
            ask: Ask = _Asker(sent, settings.executor, done, None, stack)
        elif settings.processes or settings.timeout:
            ask = _given(job, settings, sent, here, done, stack)
        else:
            ask = _as_they_pay(job, sent, here, done, stack)
        yield ask


def _given(
    job: TuningJob, settings: Settings, sent: SentJob, here: Ask, done: Done, stack: contextlib.ExitStack
) -> Ask:
    """The processes that are asked for, which may be this one."""
    wanted = min(settings.processes or _processors(), len(job.configs))
    if settings.timeout is None:
        return here if wanted <= 1 else _elsewhere(sent, wanted, here, done, stack)
    try:
        sent.pickled  # noqa: B018  raises if it cannot be made
    except NotSentError as problem:
        raise _refused(f"{job.launch.name} {problem}", problem.fix) from None
    executor = stack.enter_context(running(Processes(wanted, settings.timeout, prepare, (sent,))))
    return _Asker(sent, executor, done, None, stack)


def _as_they_pay(job: TuningJob, sent: SentJob, here: Ask, done: Done, stack: contextlib.ExitStack) -> Ask:
    """This process, until the questions that are left would take it longer than others need to start."""
    wanted = min(_processors(), len(job.configs) // _LEAST)
    elsewhere: Ask | None = None

    def there(question: Question, numbers: Sequence[int]) -> list[Answer]:
        nonlocal elsewhere
        if wanted <= 1:
            return here(question, numbers)
        first: list[Answer] = []
        if elsewhere is None:
            began = time.process_time()
            first = here(question, numbers[:1])
            if (time.process_time() - began) * (len(numbers) - 1) < _WORTH_SECONDS:
                return first + here(question, numbers[1:])
            elsewhere = _elsewhere(sent, wanted, here, done, stack)
        return first + elsewhere(question, numbers[len(first) :])

    return there


def _elsewhere(sent: SentJob, wanted: int, here: Ask, done: Done, stack: contextlib.ExitStack) -> Ask:
    """Have so many processes asked, if the job can be sent there."""
    try:
        sent.pickled  # noqa: B018  raises if it cannot be made
    except NotSentError:
        return here
    return _Asker(sent, stack.enter_context(running(Processes(wanted, None, prepare, (sent,)))), done, here, stack)


class _Asker:
    """Asks by an executor.

    An answer that is lost, because a worker ended, is asked for once more, alone. What is lost then as well has failed,
    and nothing else has. An executor that is broken by that is replaced by processes of this package.
    """

    def __init__(
        self, sent: SentJob, executor: Executor, done: Done, instead: Ask | None, stack: contextlib.ExitStack
    ) -> None:
        """`instead` answers what workers cannot, which is an error without it; `stack` ends what is begun here."""
        self._sent, self._executor, self._done, self._instead, self._stack = sent, executor, done, instead, stack
        self._answered = False
        # Held to the end: Dask computes anew what a worker that ended took along, and when nobody holds its future any
        # more it cancels that, which leaves the worker waiting for ever.
        self._kept: list[Future[Answer | Unable]] = []

    def __call__(self, question: Question, numbers: Sequence[int]) -> list[Answer]:
        outcomes = self._outcomes(question, numbers, 0)
        for number, outcome in outcomes.items():
            if not isinstance(outcome, Answer | CallTimeoutError):
                outcomes.update(self._outcomes(question, [number], 1))
        return [self._answer(question, number, outcomes[number]) for number in numbers]

    def _answer(self, question: Question, number: int, outcome: Answer | Exception) -> Answer:
        """What was answered, or why there is no answer."""
        if isinstance(outcome, Answer):
            return outcome
        if isinstance(outcome, CallTimeoutError):
            answer = unanswered("tune.timeout", str(outcome))
        elif self._answered:
            answer = unanswered("tune.lost", _END + ("" if _is_end(outcome) else f" ({_told(outcome)})"))
        else:
            raise _refused(f"the executor answers nothing: {_told(outcome)}", "look at what its workers print")
        self._done(question, number)
        return answer

    def _outcomes(self, question: Question, numbers: Sequence[int], attempt: int) -> dict[int, Answer | Exception]:
        """For each number the answer, or what was raised in its place."""
        found: dict[int, Answer | Exception] = {}
        futures: dict[Future[Answer | Unable], int] = {}
        try:
            for number in numbers:
                try:
                    future = self._executor.submit(asked, self._sent, question, number, attempt)
                    futures[future] = number
                    self._kept.append(future)
                except BrokenExecutor as problem:
                    found[number] = problem
                except Exception as problem:  # noqa: BLE001  executors refuse calls in their own words
                    raise self._not_taken(problem) from None
            for future in self._completed(futures):
                found[futures[future]] = self._outcome(future, question, futures[future])
        finally:  # all are done, unless something was raised
            for future in () if _is_closed(self._executor) else futures:
                future.cancel()
        for outcome in found.values():
            if isinstance(outcome, BrokenExecutor) and not isinstance(outcome, ProcessEnded):
                self._replace(outcome)
                break
        return found

    def _completed(self, futures: Collection[Future[Any]]) -> Iterator[Future[Any]]:
        """Each future when it is done; those of a client that lost its scheduler never are."""
        waiting = set(futures)
        while waiting:
            done, waiting = wait(waiting, _LOOK_SECONDS, FIRST_COMPLETED)
            yield from done
            if not done and _is_closed(self._executor):
                fix = "look at the scheduler, and hand over the executor of a new client"
                raise _refused("the executor lost its scheduler", fix)

    def _outcome(self, future: Future[Answer | Unable], question: Question, number: int) -> Answer | Exception:
        try:
            outcome = future.result()
        except Exception as problem:  # noqa: BLE001  executors tell of a worker that ended in their own words
            if self._sent.refusal is not None:
                raise self._not_taken(problem) from None
            return problem
        if isinstance(outcome, Unable):
            if self._instead is not None:
                return self._instead(question, [number])[0]
            fix = "install the same version and the same kernels there, and start its processes again"
            raise _refused(f"{outcome.why}", fix)
        self._answered = True
        self._done(question, number)
        return outcome

    def _not_taken(self, problem: Exception) -> LaunchError:
        """The error of an executor that did not take a question."""
        if self._sent.refusal is not None:
            return _refused(f"{self._sent.name} {self._sent.refusal}", self._sent.refusal.fix)
        return _refused(
            f"the executor takes no questions: {_told(problem)}", "begin a new executor, and hand that over"
        )

    def _replace(self, problem: BrokenExecutor) -> None:
        """Go on with processes that are not lost together."""
        try:
            self._sent.pickled  # noqa: B018  raises if it cannot be made
        except NotSentError as why:
            raise _refused(f"the executor broke ({_told(problem)}), and {self._sent.name} {why}", why.fix) from None
        warn(
            Finding(
                "tune.executor-broken",
                "warning",
                f"the executor broke ({_told(problem)}), and other processes answer what it left",
                "an executor that breaks takes no more questions, whatever the other configurations are",
                "docs/tuning.md",
                "look at the configurations that failed with tune.lost",
                location(),
                {},
            )
        )
        self._executor = self._stack.enter_context(running(Processes(_processors())))


def _is_closed(executor: Executor) -> bool:
    """Whether an executor of Dask has a client that gave its scheduler up."""
    return getattr(getattr(executor, "_client", None), "status", "") == "closed"


def _is_end(problem: Exception) -> bool:
    """Whether a worker ended; Dask has its own word for it, and need not be installed."""
    return isinstance(problem, BrokenExecutor) or type(problem).__name__ == "KilledWorker"


def _told(problem: Exception) -> str:
    return " ".join(f"{type(problem).__name__}: {problem}".split())[:300]


def _refused(message: str, fix: str) -> LaunchError:
    rule = "the workers of an executor answer as this process does: they import the same kernel and the same nki"
    return LaunchError("tune.executor", message, rule=rule, fix=fix)


def _processors() -> int:
    return os.cpu_count() or 1
