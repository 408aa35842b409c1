"""Threads that carry calls out, each one after the other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

import torch

Task = Callable[[], None]


class Lane:
    """A thread, which ends when the lane is closed."""

    def __init__(self, name: str) -> None:
        self._queue: SimpleQueue[Task | None] = SimpleQueue()
        self._thread = threading.Thread(target=_work, args=(self._queue,), name=name, daemon=True)
        self._thread.start()

    def put(self, task: Task) -> None:
        """Have a task done after those that were put before; it raises nothing."""
        self._queue.put(task)

    def close(self) -> None:
        """End after the tasks that there are."""
        self._queue.put(None)

    def join(self, seconds: float) -> None:
        """Wait until it has ended, at most so many seconds."""
        self._thread.join(seconds)


def _work(queue: SimpleQueue[Task | None]) -> None:
    with torch.no_grad():
        while (task := queue.get()) is not None:
            task()
            del task  # what it holds goes before the next one comes
