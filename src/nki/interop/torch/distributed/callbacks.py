"""Threads in which callbacks of calls run: a callback may make calls and wait for them, which lanes carry out.

All callbacks of the collectives of a group run in one thread, in the order in which the program attaches them, however
early a collective ends. So the collectives that they make have the same order on all ranks. They take a way of their
own, since what the program makes at the same time comes before them on one rank and after them on another one.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from functools import partial

from nki.interop.torch.distributed.lanes import Lane, Task
from nki.interop.torch.distributed.waits import Waits
from nki.interop.torch.distributed.ways import Way


class Callbacks:
    """The callbacks of calls on one way; their thread ends when nobody can attach another one.

    Attributes:
        way: of the calls.
        thread: in which they run.
    """

    def __init__(self, waits: Waits, way: Way, name: str) -> None:
        self.way = way
        self._waits = waits
        self._lane = Lane(f"callbacks of {name}")
        self.thread = self._lane.thread
        weakref.finalize(self, self._lane.close)

    def put(self, task: Task) -> None:
        """Have a task done after those that were put before; it raises nothing."""
        self._waits.promise(self.thread)
        self._lane.put(partial(self._run, task))

    def wait(self, done: Callable[[], bool], wait: Callable[[], None]) -> None:
        """Return when a task that was put has been done.

        A callback that waits for a later one has it run here: there is no other thread that would.

        Args:
            done: whether it has been done.
            wait: blocks until it is.
        """
        if threading.current_thread() is self.thread:
            self._lane.work_until(done)
        with self._waits.following(self.thread):
            wait()

    def _run(self, task: Task) -> None:
        before, _HERE.callbacks = current(), self
        try:
            task()
        finally:
            _HERE.callbacks = before
            self._waits.keep(self.thread)


_HERE = threading.local()
"""The callbacks of which this thread runs one."""


def current() -> Callbacks | None:
    """The callbacks of which this thread runs one at this moment."""
    found: Callbacks | None = getattr(_HERE, "callbacks", None)
    return found
