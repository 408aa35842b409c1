"""Trying something that may end the process in a process of its own."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import resource
import signal
import warnings
from collections.abc import Callable


def ends_by(doing: Callable[[], object]) -> str:
    """The name of the signal that ends a process which does something; empty if none does.

    Results and exceptions of `doing` are lost: whoever calls this does it again afterwards. Where processes cannot be
    forked nothing is tried.

    Args:
        doing: must not depend on other threads.
    """
    if not hasattr(os, "fork"):
        return ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python and JAX warn of other threads; the child uses nothing that they hold
        child = os.fork()
    if child == 0:
        _do_and_end(doing)
    _, status = os.waitpid(child, 0)
    return signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else ""


def _do_and_end(doing: Callable[[], object]) -> None:
    """Do something in the child process: say nothing, leave nothing behind, and do not return."""
    try:
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        faulthandler.disable()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(BaseException):
            doing()
    finally:
        os._exit(0)
