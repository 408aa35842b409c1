"""An executor of processes of its own, of which each may end, or be ended, without the others."""

from __future__ import annotations

import contextlib
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from nki.core.locks import lock

T = TypeVar("T")

_END_SECONDS = 5.0
"""For how long a process may go on when it has nothing more to do."""


class ProcessEnded(BrokenExecutor):
    """The process that carried out a call ended; the executor goes on with another one."""


class CallTimeoutError(TimeoutError):
    """A call took too long, and its process was ended."""


class Processes(Executor):
    """An executor over processes of this Python that do not run the caller's main script.

    What a process loses when it ends is one call. A call that takes too long has its process ended.
    """

    def __init__(
        self,
        count: int,
        seconds: float | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
    ) -> None:
        """Start nothing yet: a process begins with the first call that finds none idle.

        Args:
            count: how many processes there are at most.
            seconds: that a call may take; None for no limit. The start of a process does not count.
            initializer, initargs: the first call of each process, which is part of its start.
        """
        self._first = pickle.dumps((initializer or _nothing, initargs, {}))
        self._threads = ThreadPoolExecutor(count, "nki process")
        self._seconds = seconds
        self._lock = lock()
        self._workers: set[_Worker] = set()
        self._own = threading.local()
        self._killed = False

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Have a process carry out a call; all of it can be pickled.

        The future raises `ProcessEnded` if the process ended, and `CallTimeoutError` if it took too long.
        """
        return self._threads.submit(self._call, pickle.dumps((fn, args, kwargs)))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; the processes end when they have carried out theirs."""
        self._threads.shutdown(wait=wait, cancel_futures=cancel_futures)
        for worker in self._all():
            worker.end()

    def kill_workers(self) -> None:
        """End all processes at once, whatever they do."""
        self._killed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        for worker in self._all():
            worker.kill()
        self.shutdown()

    def _all(self) -> list[_Worker]:
        with self._lock:
            return list(self._workers)

    def _call(self, call: bytes) -> Any:
        """One call, in the process of this thread."""
        worker: _Worker | None = getattr(self._own, "worker", None)
        if worker is None:
            worker = self._own.worker = self._started()
        try:
            if worker.is_new:
                worker.exchange(self._first, None)
            done, value = worker.exchange(call, self._seconds)
        except BaseException:
            self._own.worker = None
            worker.kill()
            worker.end()
            with self._lock:
                self._workers.discard(worker)
            raise
        if not done:
            raise value
        return value

    def _started(self) -> _Worker:
        with self._lock:
            if self._killed:
                raise ProcessEnded("the processes were ended")
            worker = _Worker()
            self._workers.add(worker)
            return worker


@contextlib.contextmanager
def running(processes: Processes) -> Iterator[Processes]:
    """The processes, which have ended afterwards; at once if something was raised."""
    try:
        yield processes
    except BaseException:
        processes.kill_workers()
        raise
    processes.shutdown()


def _nothing() -> None:
    """Do nothing, in a process that has begun."""


class _Worker:
    """One process.

    Attributes:
        is_new: whether it was asked for nothing yet.
    """

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(Path(__file__).with_name("worker.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._late = False
        self.is_new = True

    def exchange(self, call: bytes, seconds: float | None) -> tuple[bool, Any]:
        """Whether a call returned, and what it returned or raised.

        Raises:
            ProcessEnded: there will be no reply.
            CallTimeoutError: there was none in so many seconds, and the process was ended.
        """
        watch = threading.Timer(seconds, self._too_late) if seconds is not None else None
        if watch is not None:
            watch.start()
        try:
            return self._reply(call)
        except (OSError, EOFError, pickle.UnpicklingError):
            if self._late:
                raise CallTimeoutError(f"no answer in {seconds:g} s") from None
            raise ProcessEnded(f"the process that was asked {self._fate()}") from None
        finally:
            if watch is not None:
                watch.cancel()

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> None:
        """Close its pipes, and wait until it has ended."""
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None, "both are pipes"
            with contextlib.suppress(OSError):
                pipe.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _too_late(self) -> None:
        self._late = True
        self.kill()

    def _reply(self, call: bytes) -> tuple[bool, Any]:
        into, out = self._process.stdin, self._process.stdout
        assert into is not None and out is not None, "both are pipes"
        if self.is_new:
            into.write(pickle.dumps(sys.path))
            self.is_new = False
        into.write(pickle.dumps(call))
        into.flush()
        reply: tuple[bool, Any] = pickle.loads(pickle.load(out))
        return reply

    def _fate(self) -> str:
        try:
            code = self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            return "closed its output"
        if code >= 0:
            return f"ended with exit code {code}"
        names = {each.value: each.name for each in signal.Signals}
        return f"was ended by {names.get(-code, f'signal {-code}')}"
