"""What the tests have other processes do."""

from __future__ import annotations

import os
import time
from typing import Any


def double(value: int) -> int:
    """Twice the value, and a line that must not reach the pipe."""
    print("doubling")
    return 2 * value


def fail(kind: type[Exception], *args: Any) -> None:
    """Raise."""
    raise kind(*args)


class Unreadable(Exception):
    """An exception that is pickled and cannot be read."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first)


def end(code: int) -> None:
    """End the process, without a word."""
    os._exit(code)


def dies() -> None:
    """End the process by a signal."""
    os.kill(os.getpid(), 9)


def sleep(seconds: float) -> None:
    """Take so long."""
    time.sleep(seconds)


def process_id() -> int:
    """Of the process that is asked."""
    return os.getpid()
