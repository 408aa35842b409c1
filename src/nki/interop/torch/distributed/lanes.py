"""Threads that carry calls out, each one after the other."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

import torch

Task = Callable[[], None]

_PATIENCE = 2.0
"""Seconds that the end of the process waits for all lanes together."""


class Lane:
    """A thread, which ends when the lane is closed.

    Attributes:
        thread: which does the tasks.
    """

    def __init__(self, name: str) -> None:
        self._queue: SimpleQueue[Task | None] = SimpleQueue()
        self.thread = threading.Thread(target=self._work, name=name, daemon=True)
        _LANES.add(self)
        self.thread.start()

    def put(self, task: Task) -> None:
        """Have a task done after those that were put before; it raises nothing."""
        self._queue.put(task)

    def close(self) -> None:
        """End after the tasks that there are."""
        self._queue.put(None)

    def join(self, seconds: float) -> None:
        """Wait until it has ended, at most so many seconds."""
        self.thread.join(seconds)

    def work_until(self, done: Callable[[], bool]) -> None:
        """Do the tasks that come next, for a task that needs one of them."""
        while not done():
            task = self._queue.get()
            if task is None:
                self._queue.put(None)
                return
            task()

    def _work(self) -> None:
        with torch.no_grad():
            while (task := self._queue.get()) is not None:
                task()
                del task  # what it holds goes before the next one comes
        _LANES.discard(self)


_LANES: set[Lane] = set()
"""Lanes whose threads run; they have to end before the process does."""


@atexit.register
def _end_all() -> None:
    """Python ends threads that come back from C++ later in the middle of it, and the process is aborted."""
    end = time.monotonic() + _PATIENCE
    lanes = list(_LANES)
    for lane in lanes:
        lane.close()
    for lane in lanes:
        lane.join(max(0.0, end - time.monotonic()))
