"""Asking the timing model about many candidates at once: in processes of its own, or here where that cannot be."""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from nki.tune.job import Answer, Answers, Question, TuningJob
from nki.tune.task import pickled_task

_LEAST = 3
"""Fewer candidates are not worth the start of a process."""
_WORTH_SECONDS = 2.0
"""CPU time of questions from which on other processes are worth their start, which takes about half of that each."""
_END_SECONDS = 5.0
_NO_ANSWER = (EOFError, pickle.UnpicklingError, AttributeError, ImportError, IndexError)
"""What `pickle.load` raises for something that is no answer of this version (pickle, UnpicklingError)."""

Ask = Callable[[Question, Sequence[int]], list[Answer]]
"""Answers in the order of the numbers."""


@contextlib.contextmanager
def askers(job: TuningJob, processes: int | None, done: Callable[[Question, int], None]) -> Iterator[Ask]:
    """What answers questions about the candidates of a job.

    Args:
        job: the kernel with its candidates.
        processes: how many; 1 for this one. None for this one as long as the questions are quickly answered, and then
            as many as there are processors.
        done: called with every question that was answered, by the thread that asked.
    """
    answers = Answers(job)

    def here(question: Question, numbers: Sequence[int]) -> list[Answer]:
        found = []
        for number in numbers:
            found.append(answers.of(question, number))
            done(question, number)
        return found

    wanted = min(processes or (os.cpu_count() or 1), len(job.configs) // (1 if processes else _LEAST))
    if wanted <= 1:
        yield here
        return
    with contextlib.ExitStack() as stack:
        elsewhere: Ask | None = None

        def there(question: Question, numbers: Sequence[int]) -> list[Answer]:
            nonlocal elsewhere
            first: list[Answer] = []
            if processes is None and elsewhere is None:
                began = time.process_time()
                first = here(question, numbers[:1])
                if (time.process_time() - began) * (len(numbers) - 1) < _WORTH_SECONDS:
                    return first + here(question, numbers[1:])
            if elsewhere is None:
                elsewhere = stack.enter_context(_processes(job, wanted, here, done))
            return first + elsewhere(question, numbers[len(first) :])

        yield there


@contextlib.contextmanager
def _processes(job: TuningJob, wanted: int, here: Ask, done: Callable[[Question, int], None]) -> Iterator[Ask]:
    """What answers in so many other processes, and `here` what they cannot answer."""
    sent = pickled_task(job)
    if sent is None:
        yield here
        return
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(_worker(sent)) for _ in range(wanted)]
        pool = stack.enter_context(ThreadPoolExecutor(wanted))
        idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        for worker in workers:
            idle.put(worker)

        def one(question: Question, number: int) -> Answer | None:
            worker = idle.get()
            try:
                found = worker.ask(question, number)
            finally:
                idle.put(worker)
            if found is not None:
                done(question, number)
            return found

        def there(question: Question, numbers: Sequence[int]) -> list[Answer]:
            found = list(pool.map(lambda number: one(question, number), numbers))
            return [mine or here(question, [n])[0] for mine, n in zip(found, numbers, strict=True)]

        yield there


class _Worker:
    """One process; after it failed once it answers nothing, and the questions are answered here."""

    def __init__(self, process: subprocess.Popen[bytes], sent: bytes) -> None:
        self.process, self._sent, self._ready = process, sent, False
        self._broken = False

    def ask(self, question: Question, number: int) -> Answer | None:
        """None if it cannot tell."""
        if not self._ready:
            self._ready = True
            self._broken = self._exchange(self._sent) is not True
        found = None if self._broken else self._exchange(pickle.dumps((question, number)))
        if not isinstance(found, Answer):
            self._broken = True
            return None
        return found

    def _exchange(self, sent: bytes) -> Any:
        into, out = self.process.stdin, self.process.stdout
        if into is None or out is None:
            return None
        try:
            into.write(sent)
            into.flush()
            return pickle.load(out)
        except (OSError, *_NO_ANSWER):
            return None


@contextlib.contextmanager
def _worker(sent: bytes) -> Iterator[_Worker]:
    root = str(Path(__file__).resolve().parents[2])
    paths = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    process = subprocess.Popen(
        [sys.executable, "-m", "nki.tune.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": paths},
    )
    try:
        yield _Worker(process, sent)
    finally:
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
