"""A limit of time for work of this process on what came from a candidate."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn


class TooLong(Exception):
    """The time is over."""


@contextlib.contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raise `TooLong` in the main thread, where commands run, once the time is over."""
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("only the main thread can be interrupted")

    def over(number: int, frame: FrameType | None) -> NoReturn:
        raise TooLong

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
