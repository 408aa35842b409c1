"""Executors of this process that do what executors over other processes and machines do."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from concurrent.futures import Executor, Future
from concurrent.futures.process import BrokenProcessPool
from typing import Any


class KilledWorker(Exception):
    """What Dask calls a task whose worker ended, and ended again."""


class Pickling(Executor):
    """Calls that arrive as pickles and whose results leave as pickles, in the order in which they were made.

    Attributes:
        calls: the arguments of all of them, but the job.
    """

    def __init__(self, lost: Callable[..., bool] = lambda *_: False) -> None:
        """`lost` says of a call's question, number and attempt whether its worker ends."""
        self.lost = lost
        self.calls: list[tuple[Any, ...]] = []
        self._closed = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        sent = pickle.dumps((fn, args, kwargs))
        self.calls.append(args[1:])
        future: Future[Any] = Future()
        try:
            future.set_result(self.carried_out(sent, args[1:]))
        except Exception as problem:  # noqa: BLE001  as executors do
            future.set_exception(problem)
        return future

    def carried_out(self, sent: bytes, what: tuple[Any, ...]) -> Any:
        """What a call gives."""
        if self.lost(*what):
            raise KilledWorker(what)
        fn, args, kwargs = pickle.loads(sent)
        return pickle.loads(pickle.dumps(fn(*args, **kwargs)))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._closed = True


class Breaking(Pickling):
    """A pool that breaks with its first worker: what it has not answered yet is lost, and it takes no more."""

    _broken = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self._broken:
            raise BrokenProcessPool("not usable anymore")
        return super().submit(fn, *args, **kwargs)

    def carried_out(self, sent: bytes, what: tuple[Any, ...]) -> Any:
        """What a call gives, while there are workers."""
        if self.lost(*what):
            self._broken = True
            raise BrokenProcessPool("terminated abruptly")
        return super().carried_out(sent, what)


def made() -> Executor:
    """For a command line that names it."""
    return Pickling()


def wrong() -> str:
    """What a command line should not name."""
    return "executor"
