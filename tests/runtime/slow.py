"""A model whose calls last as long as a test wants, and time that begins when a test wants."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from nki.runtime import device
from nki.runtime.model import Model

SECONDS = 60.0
"""More than anything here takes, also where other programs have the processors."""


class Slow:
    """A model whose calls last until they are let go."""

    def __init__(self, model: Model) -> None:
        self.model, self.go, self.started = model, threading.Event(), threading.Event()

    def run(self, *args: Any, **more: Any) -> Any:
        self.started.set()
        self.go.wait(SECONDS)
        return self.model.run(*args, **more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)


@contextmanager
def time_begins_at(event: threading.Event) -> Iterator[None]:
    """The time that calls are given counts from this event on.

    A call that is late before its core's thread got a processor was never executed, and leaves nothing behind: so what
    tests say of late ones must not depend on who is faster.
    """

    class Done(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            if timeout is not None:
                assert event.wait(SECONDS)
            return super().wait(timeout)

    plain = device.Job
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "Job", lambda run, **more: plain(run, Done(), **more))
        yield


def until(true: Callable[[], object]) -> None:
    """Wait for something that comes without an event."""
    end = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)
