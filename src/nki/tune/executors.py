"""Executors by the names that a command line has for them."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

from nki.core.errors import NkiError, UsageError
from nki.core.install import install_extra
from nki.core.source import UNKNOWN
from nki.tune.processes import Processes, running

_CONNECT_SECONDS = 10
FORMS = "threads[:N], processes[:N], dask:ADDRESS, dask:SCHEDULER_FILE, or MODULE:NAME of what returns an executor"


@contextlib.contextmanager
def named_executor(text: str, waiting: Callable[[str], None]) -> Iterator[Executor]:
    """The executor of a name, as long as it is used.

    Args:
        text: one of `FORMS`.
        waiting: called with a sentence when a cluster has no workers yet.

    Raises:
        UsageError: there is none of that name (``tune.executor``), or Dask is not installed (``tune.extra``).
    """
    kind, _, rest = text.partition(":")
    if kind in ("threads", "processes"):
        if rest and not (rest.isdecimal() and 1 <= int(rest) <= 4096):
            raise _refused(f"--executor {text}: {rest!r} is no number of workers", f"write --executor {kind}:4")
        count = int(rest or os.cpu_count() or 1)
        with ThreadPoolExecutor(count) if kind == "threads" else running(Processes(count)) as executor:
            yield executor
    elif kind == "dask" and rest:
        with _cluster(rest) as client:
            if not client.scheduler_info(n_workers=-1)["workers"]:
                waiting(f"{rest} has no workers yet; questions wait for the first one")
            yield client.get_executor(pure=False)
    else:
        with _made(text) as executor:
            yield executor


@contextlib.contextmanager
def _cluster(address: str) -> Iterator[Any]:
    try:
        distributed = importlib.import_module("distributed")
    except ModuleNotFoundError:
        raise UsageError(
            "tune.extra",
            "a Dask cluster needs distributed, which is not installed",
            rule="dask.distributed is an optional package",
            fix=install_extra("cluster"),
            location=UNKNOWN,
        ) from None
    where = {"address": address} if "://" in address or not os.path.exists(address) else {"scheduler_file": address}
    try:
        client = distributed.Client(**where, timeout=_CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, TypeError) as problem:
        told = " ".join(f"{type(problem).__name__}: {problem}".split())[:200]
        fix = "start it with `dask scheduler`, and name the address that it prints: --executor dask:tcp://HOST:8786"
        raise _refused(f"--executor dask:{address}: there is no scheduler ({told})", fix) from None
    with client:
        yield client


@contextlib.contextmanager
def _made(text: str) -> Iterator[Executor]:
    """The executor that a function of the user's makes, or a class of somebody's."""
    module, _, name = text.partition(":")
    if not name:
        raise _refused(f"--executor {text}: there is no executor of that name", "write --executor processes:4")
    try:
        made = getattr(importlib.import_module(module), name)()
    except NkiError:
        raise
    except Exception as problem:
        told = f"{type(problem).__name__}: {problem}"
        raise _refused(f"--executor {text} gives no executor: {told}", "name a function without arguments") from problem
    if not isinstance(made, Executor):
        raise _refused(
            f"--executor {text} gives a {type(made).__name__}", "have it return a concurrent.futures.Executor"
        )
    with made:
        yield made


def _refused(message: str, fix: str) -> UsageError:
    return UsageError("tune.executor", message, rule=f"an executor is {FORMS}", fix=fix, location=UNKNOWN)
