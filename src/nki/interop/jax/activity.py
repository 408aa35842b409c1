"""What XLA is doing with kernels: which calls run, when the last one was, and an end of the process without any."""

from __future__ import annotations

import atexit
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import jax
import numpy as np

from nki.core.errors import ExecutionError
from nki.core.source import UNKNOWN
from nki.report import warn
from nki.spec.rule import Finding

_QUIET_SECONDS = 0.2
"""Between the end of one call and the start of the next that was dispatched with it, on a machine under load."""

_POLL_SECONDS = 0.005

_SILENT_SECONDS = 5.0
"""From when on somebody who waits for the end of the process is told what it waits for."""

_PATIENCE = 60.0
"""Seconds in which other threads may go on with calls when everything that could be waited for is over."""


class Activity:
    """Calls of kernels by XLA, on any of its threads.

    Attributes:
        last: when a call last began or ended, by `time.monotonic`; minus infinity before the first one.
        expected: whether programs that call kernels were made, which may be called for the first time at any moment.
        refusing: whether calls are errors, because the process ends.
    """

    def __init__(self) -> None:
        # By a key of its own for each call, the thread that it runs on. No lock: the collector, a signal or a fork may
        # come at any place.
        self._running: dict[object, int] = {}
        self.last = float("-inf")
        self.expected = False
        self.refusing = False

    @contextmanager
    def call(self) -> Iterator[None]:
        """Around a call. Raises ExecutionError "jax.exit" if there shall be none any more."""
        if self.refusing:
            raise _refused()
        key = object()
        self.last = time.monotonic()
        self._running[key] = threading.get_ident()
        try:
            yield
        finally:
            self._running.pop(key, None)
            self.last = time.monotonic()

    def quiet_for(self) -> float:
        """Seconds since the last call; 0 while one runs on another thread than this one.

        On this one there is none, whatever an interrupt left behind.
        """
        mine = threading.get_ident()
        busy = any(thread != mine for thread in list(self._running.values()))
        return 0.0 if busy else time.monotonic() - self.last

    def forget(self) -> None:
        """Nothing runs, and nothing ran: the case in a forked process, which has no thread but one."""
        self._running.clear()
        self.last = float("-inf")
        self.expected = False

    def drain(self) -> None:
        """Wait for the programs that were dispatched and that nobody waited for.

        At the end of the process Python ends every thread that wants the interpreter's lock. A thread of XLA's pool
        that calls a kernel then would be gone, and XLA's client, which waits for its pool, would never end.

        JAX does not say which programs still run. What this thread dispatched comes before what it dispatches now, and
        arrays that live can be asked. Other programs, those of other threads whose results nobody has, are taken to be
        over when no kernel was called for some time. A thread that never stops calling them, and an interrupt, make
        all further calls errors; a second interrupt ends the process at once, wherever it is.
        """
        if not self.expected:
            return
        try:
            self._settle()
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            self.refusing = True
            self._settle()
        if not self._is_quiet():
            self.refusing = True
            _wait(self._is_quiet, _PATIENCE)

    def _settle(self) -> None:
        """Wait for what can be waited for, then for calls to end."""
        try:
            _wait(_ready([*_dispatched_last(), *jax.live_arrays("cpu")]))
        except Exception:
            _wait(self._is_quiet, _PATIENCE)
            raise
        _wait(self._is_quiet, _PATIENCE)

    def _is_quiet(self) -> bool:
        return self.quiet_for() >= _QUIET_SECONDS


def _dispatched_last() -> list[jax.Array]:
    """Results of programs that begin when all that this thread dispatched before them have ended.

    XLA's client for the host runs the programs of a thread on one device in their order, and those on several devices
    one after another; so there is one of each kind.
    """
    devices = jax.local_devices(backend="cpu")
    groups = [[device] for device in devices] + ([devices] if len(devices) > 1 else [])
    step = jax.jit(lambda x: x + 1)
    last = []
    for group in groups:
        mesh = jax.sharding.Mesh(np.array(group), ("device",))
        place = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("device"))
        with jax.set_mesh(mesh):  # the process may have set another one
            last.append(step(jax.device_put(np.zeros(len(group), np.int32), place)))
    return last


def _ready(arrays: list[Any]) -> Callable[[], bool]:
    """Whether nobody has to wait for any of these any more; each is asked until it is ready."""

    def ready() -> bool:
        while arrays:
            try:
                if not arrays[-1].is_ready():
                    return False
            except RuntimeError:  # it was given away
                pass
            arrays.pop()
        return True

    return ready


def _wait(over: Callable[[], bool], patience: float = float("inf")) -> None:
    """Until something is over, or the patience; Python handles interrupts meanwhile, which XLA's own waits do not."""
    begin, told = time.monotonic(), False
    while not over() and (waited := time.monotonic() - begin) < patience:
        if waited > _SILENT_SECONDS and not told:
            told = True
            warn(_waiting())
        time.sleep(_POLL_SECONDS)


def _waiting() -> Finding:
    return Finding(
        "jax.exit",
        "warning",
        "the end of this process waits for JAX programs that call kernels",
        "a process ends when the programs that it dispatched have ended",
        "docs/jax.md",
        "wait for results with block_until_ready(), or interrupt the process, which ends them",
        UNKNOWN,
        {},
    )


def _refused() -> ExecutionError:
    return ExecutionError(
        "jax.exit",
        "a JAX program calls a kernel while the process ends",
        rule="a process ends when the programs that it dispatched have ended",
        fix="wait for results with block_until_ready(), and join threads that call kernels",
    )


ACTIVITY = Activity()
"""The activity of all calls in the process, because it is the process that ends; an entry goes when its call does."""


@cache
def install() -> None:
    """Wait for calls when the process ends, and forget those of the parent in a fork; once per process."""
    atexit.register(ACTIVITY.drain)  # runs before JAX takes its clients down, as JAX was imported earlier
    os.register_at_fork(after_in_child=ACTIVITY.forget)
