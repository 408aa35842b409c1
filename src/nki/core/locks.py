"""Locks that are open in a forked process, whoever held them in its parent.

A fork takes along one thread, and the state of all locks: what another thread held would stay locked for ever. That
happens where a process forks to load data. So every lock of this package that lives longer than a call is made here.

What such a lock protects may have been left in the middle of a change. So whoever changes it does that in an order in
which every step leaves something valid, or has it made anew by `renewed`. Nobody forks while he holds a lock himself.
"""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

_KNOWN: weakref.WeakSet[Any] = weakref.WeakSet()
"""Every lock that a fork has to open again, wherever it was made; one goes when its owner does."""

_RENEWED: weakref.WeakSet[Any] = weakref.WeakSet()
"""What begins anew in a forked process; each goes when its owner does."""

_GATES: weakref.WeakSet[Gate] = weakref.WeakSet()
"""Gates at which a fork of the process waits; each goes when its owner does."""


class Renewable(Protocol):
    """An object that depends on threads which a forked process does not have."""

    def begin_anew(self) -> None:
        """Take the state, in a forked process, of an object that no thread uses but the one that calls."""


def lock() -> threading.Lock:
    """A plain lock: `threading.Lock()`."""
    return _known(threading.Lock())


def rlock() -> threading.RLock:
    """A lock that its thread may take again: `threading.RLock()`; a fork leaves it to the thread that has it."""
    return _known(threading.RLock())


class Gate:
    """Calls of a library that has locks of its own; a fork waits until every thread is outside, or at a pause.

    Such locks cannot be opened in the child. The calls must come to a `pause`, or to their end, in a reasonable time.
    """

    def __init__(self) -> None:
        self.begin_anew()
        _GATES.add(self)
        renewed(self)

    def begin_anew(self) -> None:
        """Begin with nobody inside, as in a forked process."""
        self._changed = threading.Condition()
        self._inside = 0
        self._forking = 0

    def __enter__(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._forking)
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._inside -= 1
            self._changed.notify_all()

    def pause(self) -> None:
        """Called from inside, where the library holds no lock that another thread's calls would wait for."""
        if self._forking:
            self.__exit__()
            self.__enter__()

    def close(self) -> None:
        """Wait until nobody is inside, and let nobody in until `open`."""
        with self._changed:
            self._forking += 1
            self._changed.wait_for(lambda: not self._inside)

    def open(self) -> None:
        """Let threads in again that `close` kept out."""
        with self._changed:
            self._forking = max(self._forking - 1, 0)  # 0 where it was made while a fork waited for others
            self._changed.notify_all()


class cached_property(functools.cached_property[T]):  # noqa: N801 - as the one that it replaces
    """`functools.cached_property`, which has a lock for all objects of a class before Python 3.12."""

    def __init__(self, func: Callable[[Any], T]) -> None:
        super().__init__(func)
        held = getattr(self, "lock", None)
        if held is not None:
            _known(held)


def renewed(each: Renewable) -> None:
    """Have ``each.begin_anew()`` called in a forked process, as long as the object lives; locks are open then."""
    _RENEWED.add(each)


def _known(made: T) -> T:
    _KNOWN.add(made)
    return made


def _begin_anew() -> None:
    for held in _KNOWN:
        owned = getattr(held, "_is_owned", None)  # of those that may be taken again
        if owned is None or not owned():
            held._at_fork_reinit()
    for each in _RENEWED:
        each.begin_anew()


def _close_gates() -> None:
    for gate in _GATES:
        gate.close()


def _open_gates() -> None:
    for gate in _GATES:
        gate.open()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_close_gates, after_in_parent=_open_gates, after_in_child=_begin_anew)
