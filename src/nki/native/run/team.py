"""Threads that execute one stretch of records together, each its part of the partitions."""

from __future__ import annotations

import ctypes
import os
import queue
import threading
from array import array
from collections.abc import Callable
from functools import cache, partial

from nki.core.locks import lock
from nki.native.call_context import CallContext
from nki.native.primitives.abi import ARRIVED, PHASE, SHARED, STOPPED, THREAD, THREADS, YIELD

_SHARED_WORDS = 1 + max(ARRIVED, PHASE, STOPPED)

Task = Callable[[], None]
Run = Callable[[int, int, int, int], int]


class Team:
    """The contexts of the threads of one core, and what they share.

    Args:
        contexts: one for each thread; the first is that of the thread that calls.
    """

    def __init__(self, contexts: list[CallContext]) -> None:
        self._shared = array("q", [0] * _SHARED_WORDS)
        self._contexts = contexts
        for number, context in enumerate(contexts):
            context.words[THREAD] = number
            context.words[THREADS] = len(contexts)
            context.words[SHARED] = self._shared.buffer_info()[0]
            context.words[YIELD] = _give_way()

    def run(self, run: Run, words: int, start: int, end: int) -> int | None:
        """Execute the records from `start` to `end`; returns where the first thread stopped.

        None if another call has the threads of this process; then nothing was executed.
        """
        if not _BUSY.acquire(blocking=False):
            return None
        try:
            self._shared[ARRIVED] = self._shared[STOPPED] = 0
            done: queue.SimpleQueue[int] = queue.SimpleQueue()
            tasks, given = _workers(), 0
            try:
                for context in self._contexts[1:]:
                    tasks.put(partial(_finish, run, (words, start, end, context.address), done))
                    given += 1
                return run(words, start, end, self._contexts[0].address)
            finally:
                self._shared[STOPPED] = 1  # whoever still waits for this thread was left alone by an exception
                _collect(done, given)
        finally:
            _BUSY.release()


_BUSY = lock()


def _collect(done: queue.SimpleQueue[int], count: int) -> None:
    """Wait for the other threads: the memory that they work on must not go, even if somebody interrupts this one."""
    interrupted: KeyboardInterrupt | None = None
    while count:
        try:
            done.get()
            count -= 1
        except KeyboardInterrupt as error:
            interrupted = error
    if interrupted is not None:
        raise interrupted


def _finish(run: Run, arguments: tuple[int, int, int, int], done: queue.SimpleQueue[int]) -> None:
    done.put(run(*arguments))


def threads_of(asked: int) -> int:
    """How many threads execute records: as many as asked for, or with 0 one for each processor of this process."""
    return min(asked or _processors(), _processors())


@cache  # threads are made for those that the process began with
def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache  # one team for the process, or cores would be shared by several
def _workers() -> queue.SimpleQueue[Task]:
    """Where the threads of this process take their work from."""
    tasks: queue.SimpleQueue[Task] = queue.SimpleQueue()
    for number in range(1, _processors()):
        threading.Thread(target=_work, args=(tasks,), name=f"nki worker {number}", daemon=True).start()
    return tasks


def _forget() -> None:
    """A forked process has none of the threads."""
    _workers.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _work(tasks: queue.SimpleQueue[Task]) -> None:
    while True:
        tasks.get()()


@cache  # an address of the C library, which stays
def _give_way() -> int:
    """The address of ``sched_yield``; 0 where there is none."""
    library = ctypes.CDLL(None)
    return ctypes.cast(library.sched_yield, ctypes.c_void_p).value or 0 if hasattr(library, "sched_yield") else 0
