"""Threads that do one caller's work together: an interrupt of the caller ends them all."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable
from contextvars import copy_context
from queue import SimpleQueue

from nki.core.source import STARTED


class Crew:
    """As many threads as there are cores or ranks.

    An interrupt reaches the thread that calls `run`, which waits. It is raised again in the threads: in one that works
    at any place, as without threads. So what a thread waits with must leave nothing locked: a queue, or a lock of C
    that a `with` statement takes.

    Attributes:
        stopped: all are to end. Whoever has waited raises KeyboardInterrupt then.
    """

    def __init__(self, count: int, wake: Callable[[], None]) -> None:
        """`wake` has every thread go on that waits for another one, or is going to."""
        self.stopped = False
        self._count = count
        self._wake = wake

    def run(self, what: str, run: Callable[[int], None]) -> None:
        """``run(number)`` in a thread each, with a copy of the caller's context; returns when all have ended.

        Args:
            what: of which there are so many, for the names of the threads.
            run: raises nothing but an interrupt.

        Raises:
            KeyboardInterrupt: there was an interrupt, and the threads have ended. Whatever else a signal raises in the
                caller's thread interrupts them as well. A second interrupt does not wait for them.
        """
        mark = STARTED.set(sys._getframe(1))
        try:
            threads = [_Thread(f"nki {what} {number}", run, number) for number in range(self._count)]
        finally:
            STARTED.reset(mark)
        caller = threading.current_thread()
        if isinstance(caller, _Thread):
            caller.inner = lambda: self._stop(threads)
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.wait()
        except BaseException:
            self._stop(threads)
            for thread in threads:
                if thread.begun:  # any other one ends by itself when it begins
                    thread.wait()
            raise
        finally:
            if isinstance(caller, _Thread):
                caller.inner = None
        if self.stopped:  # by who waits for the caller
            raise KeyboardInterrupt

    def _stop(self, threads: list[_Thread]) -> None:
        self.stopped = True
        for thread in threads:
            thread.interrupt()
        self._wake()


class _Thread(threading.Thread):
    """A thread that can be interrupted.

    Attributes:
        begun: whether it got to its task.
        inner: interrupts the threads that this one waits for.
    """

    def __init__(self, name: str, run: Callable[[int], None], number: int) -> None:
        super().__init__(name=name, daemon=True)
        self.begun = False
        self.inner: Callable[[], None] | None = None
        self._copied = copy_context()
        self._task = run
        self._number = number
        self._working = False
        self._changing = threading.Lock()
        self._ends: SimpleQueue[None] = SimpleQueue()

    def run(self) -> None:
        """An interrupt ends the task, and nothing of what follows it."""
        try:
            self.begun = self._working = True
            try:
                self._copied.run(self._task, self._number)
            finally:
                with self._changing:
                    self._working = False
        except KeyboardInterrupt:
            self._working = False
        self._ends.put(None)
        self._ends.put(None)  # for who was interrupted when it had just got the first one

    def wait(self) -> None:
        """Wait until the thread has ended; at most twice.

        Python's `join` takes a thread for ended after an interrupt.
        """
        self._ends.get()
        self.join()

    def interrupt(self) -> None:
        """Raise KeyboardInterrupt in it when it executes Python code next, or in the threads that it waits for."""
        with self._changing:
            if self.inner is not None:
                self.inner()
            elif self._working and self.ident is not None:
                interrupt = ctypes.py_object(KeyboardInterrupt)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.ident), interrupt)
