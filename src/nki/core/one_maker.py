"""Work that several threads come to at the same time: one does it, and the others wait for it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from nki.core.errors import NkiError
from nki.core.locks import lock, renewed, rlock

T = TypeVar("T")


@dataclass(slots=True)
class _Work:
    """What threads wait for.

    Attributes:
        held: by who does it.
        threads: how many do it or wait.
        error: what ended it.
    """

    held: Any = field(default_factory=rlock)
    threads: int = 0
    error: NkiError | None = None


class OneMaker:
    """For each key one thread at a time makes what is missing."""

    def __init__(self) -> None:
        self.begin_anew()
        renewed(self)

    def begin_anew(self) -> None:
        """Begin with nobody at work, as in a forked process."""
        self._lock = lock()
        self._works: dict[Hashable, _Work] = {}

    def make(self, key: Hashable, make: Callable[[], T], share_errors: bool = False) -> T:
        """``make()``, which looks first whether a thread before has made it.

        Args:
            key: what is made.
            make: called by one thread after the other.
            share_errors: whether a refusal is that of those that wait as well.
        """
        with self._lock:
            work = self._works.setdefault(key, _Work())
            work.threads += 1
        try:
            with work.held:
                if work.error is not None:
                    raise copy.copy(work.error)
                try:
                    return make()
                except NkiError as error:
                    if share_errors:
                        work.error = error
                    raise
        finally:
            with self._lock:
                work.threads -= 1
                if not work.threads:
                    self._works.pop(key, None)
