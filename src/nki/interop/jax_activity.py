"""What XLA is doing with kernels: how many calls run, when the last one was, and an end of the process without any."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import jax

_QUIET_SECONDS = 0.2
"""Between the end of one call and the start of the next that was dispatched with it, on a machine under load."""

_POLL_SECONDS = 0.005


class Activity:
    """Calls of kernels by XLA, on any of its threads.

    Attributes:
        running: calls that have begun and not ended.
        last: when a call last began or ended, by `time.monotonic`; minus infinity before the first one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.running = 0
        self.last = float("-inf")

    @contextmanager
    def call(self) -> Iterator[None]:
        """Around a call."""
        self._note(1)
        try:
            yield
        finally:
            self._note(-1)

    def _note(self, change: int) -> None:
        with self._lock:
            self.running += change
            self.last = time.monotonic()

    def quiet_for(self) -> float:
        """Seconds since the last call; 0 while one runs."""
        return 0.0 if self.running else time.monotonic() - self.last

    def drain(self) -> None:
        """Wait for the programs that were dispatched and that nobody waited for.

        At the end of the process Python ends every thread that wants the interpreter's lock. A thread of XLA's pool
        that calls a kernel then would be gone, and XLA's client, which waits for its pool, would never end. JAX does
        not say which programs still run: those of arrays that live can be waited for, and the others are over when
        for some time no kernel was called.
        """
        if self.last == float("-inf"):
            return
        for array in jax.live_arrays():
            try:
                array.block_until_ready()
            except Exception:  # noqa: BLE001 - the program failed or gave the array away, and nobody asked for it
                continue
        while self.quiet_for() < _QUIET_SECONDS:
            time.sleep(_POLL_SECONDS)


ACTIVITY = Activity()

# Run before JAX takes its clients down, as JAX was imported earlier.
atexit.register(ACTIVITY.drain)
