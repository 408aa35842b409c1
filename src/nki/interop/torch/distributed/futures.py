"""Futures of calls, as PyTorch's hooks use them: results of calls, and of callbacks that wait for them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch

from nki.core.errors import NkiError
from nki.interop.torch.distributed.callbacks import Callbacks
from nki.interop.torch.distributed.pending import Pending


class _Raised(NamedTuple):
    """What stands for the result of a callback that failed; PyTorch's C++ says that it is no tensor."""

    error: BaseException

    def __str__(self) -> str:
        return f"the result of a callback that raised {type(self.error).__name__}: {self.error}"

    def again(self) -> None:
        """Raise it where somebody asks for the result."""
        raise self.error


class CallbackFuture(torch.futures.Future[Any]):
    """What a callback returns.

    PyTorch runs a callback in the thread that ends a call, or in that which attaches it if the call has ended. Here it
    is always the thread of the callbacks, so that it is no matter of time which calls come first.
    """

    def __init__(self, callbacks: Callbacks) -> None:
        super().__init__()
        self._callbacks = callbacks

    def then(self, callback: Callable[[Any], Any]) -> CallbackFuture:
        """The future of what a callback makes of this one."""
        made = CallbackFuture(self._callbacks)
        self._callbacks.put(partial(made._run, callback, self))
        return made

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Call back once this future is complete; PyTorch logs an error of it."""
        self._callbacks.put(partial(super().add_done_callback, callback))

    def wait(self) -> Any:
        """Return the result, once it is there; raises the error of the callback."""
        self._callbacks.wait(self.done, self._wait)
        return super().wait()

    def _wait(self) -> None:
        with contextlib.suppress(BaseException):  # raised again by who asked
            super().wait()

    def _run(self, callback: Callable[[Any], Any], before: Any) -> None:
        result: Any
        try:
            result = callback(before)
        except BaseException as error:  # noqa: BLE001 - whatever it is, who waits must know
            result = _Raised(error)
            self._set_unwrap_func(_Raised.again)
        self.set_result(result)


class CallFuture(CallbackFuture):
    """The tensors that a call writes."""

    def __init__(self, pending: Pending) -> None:
        super().__init__(pending.callbacks())
        self._pending = pending
        self._callbacks.put(partial(self._run, _result, pending))

    def done(self) -> bool:
        """Whether the call has ended, with its result or without."""
        return self._pending.ended

    def wait(self) -> list[torch.Tensor]:
        """Return the tensors, once they are written; raises the error of the call."""
        return _result(self._pending)

    def value(self) -> list[torch.Tensor]:
        """The tensors of a call that has ended; raises its error."""
        if self._pending.ended:
            return _result(self._pending)
        result: list[torch.Tensor] = super().value()
        return result


def future_in_cpp(pending: Pending) -> torch.futures.Future[Any]:
    """A future for PyTorch's C++, which knows no errors but those that it has caught itself."""
    begun: torch.futures.Future[Any] = torch.futures.Future()

    def end() -> None:
        with contextlib.suppress(NkiError):
            pending.wait()
        begun.set_result(None)

    made: torch.futures.Future[Any] = begun.then(lambda _: _result(pending))
    pending.callbacks().put(end)
    return made


def _result(pending: Pending) -> list[torch.Tensor]:
    pending.wait()
    return pending.tensors
