"""Times in which Python does not look for garbage."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

_PAUSES: set[object] = set()
"""Who paused it at this moment: Python has one collector for all threads, and each pause takes its own entry out."""


@contextmanager
def paused_collector() -> Iterator[None]:
    """Pause the collector for work that makes many small objects which all stay: looking at them only costs time."""
    pause = object()
    if gc.isenabled():
        _PAUSES.add(pause)
    gc.disable()
    try:
        yield
    finally:
        if pause in _PAUSES:
            _PAUSES.discard(pause)
            gc.enable()


def _end_pauses() -> None:
    """The threads that would end them are not there in a forked process."""
    if _PAUSES:
        _PAUSES.clear()
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_end_pauses)
