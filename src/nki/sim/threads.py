"""Threads of which one holds a baton: those of cores and of ranks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import copy_context


def run_each(count: int, what: str, run: Callable[[int], None]) -> None:
    """``run(number)`` in as many threads, each with a copy of the caller's context; returns when all have ended.

    Args:
        what: of which there are so many, for the names of the threads.
        run: raises nothing.
    """
    threads = [
        threading.Thread(target=copy_context().run, args=(run, number), name=f"nki {what} {number}", daemon=True)
        for number in range(count)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
