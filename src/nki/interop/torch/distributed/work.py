"""What a call gives back: a `Work` of PyTorch for a call that a lane carries out."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

import torch
from torch._C import _distributed_c10d as c10d

from nki.core.errors import NkiError
from nki.interop.torch.distributed.futures import CallFuture, future_in_cpp
from nki.interop.torch.distributed.pending import Pending

_HOOKS = frozenset(("_run_allreduce_hook", "_run_comm_hook"))
"""How a hook of DDP, which is called in a backward, hands its gradients back to the reducer."""


class NeuronWork(c10d.PythonCallbackWork):
    """A call that may not have ended; an error of it is raised where somebody waits."""

    def __init__(self, pending: Pending) -> None:
        super().__init__(lambda timeout: _waited(pending, timeout))
        self._pending = pending

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Return when the call has ended; raises its error."""
        return _waited(self._pending, timeout)

    def synchronize(self) -> None:
        """Wait: nothing else orders calls on this device."""
        self._pending.wait()

    def is_completed(self) -> bool:
        """Whether it has ended, with its result or without."""
        return self._pending.ended

    def is_success(self) -> bool:
        """Whether it has ended with its result."""
        return self._pending.ended and self._pending.error is None

    def exception(self) -> NkiError | None:
        """What ended it."""
        return self._pending.error

    def result(self) -> list[torch.Tensor]:
        """The tensors that were written."""
        self._pending.wait()
        return self._pending.tensors

    def get_future(self) -> torch.futures.Future[Any]:
        """The tensors that were written, once they are."""
        return CallFuture(self._pending)

    def _source_rank(self) -> int:
        return self._pending.source

    source_rank = _source_rank


def work_of(pending: Pending) -> Any:
    """A work for who called: Python, or the reducer of DDP, which has nothing but the future of it."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("nki."):
        frame = frame.f_back
    if frame.f_code.co_name == "_engine_run_backward" or not _HOOKS.isdisjoint(frame.f_code.co_names):
        return c10d._create_work_from_future(future_in_cpp(pending))  # type: ignore[attr-defined]
    return NeuronWork(pending)


def _waited(pending: Pending, timeout: timedelta) -> bool:
    seconds = timeout.total_seconds()
    pending.wait(seconds if seconds > 0 else None)
    return True
