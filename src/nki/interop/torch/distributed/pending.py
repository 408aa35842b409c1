"""A call that is carried out elsewhere, and how somebody waits for it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

from nki.core.errors import NkiError
from nki.core.locks import lock
from nki.interop.torch.distributed.calls import Call
from nki.ranks.protocol import deadlock

if TYPE_CHECKING:
    from nki.interop.torch.distributed.group import Group

LOOK = 0.1
"""Seconds between two looks at whether the other processes are there."""
_ASK = 0.5
"""Seconds between two questions whether another rank has failed."""


class Pending:
    """A call that was handed to a lane.

    Attributes:
        call: what it is.
        waits_for: global ranks without which it cannot end.
        tensors: what `torch.futures` gives.
        patience: seconds that the others have to come.
        source: the rank in the group that sent a message, once it is there.
    """

    def __init__(
        self, group: Group, call: Call, waits_for: Sequence[int], tensors: list[torch.Tensor], patience: float
    ) -> None:
        self.call = call
        self.waits_for = waits_for
        self.tensors = tensors
        self.source = -1
        self.error: NkiError | None = None
        self.patience = patience
        self._group = group
        self._ended = threading.Event()
        self._lock = lock()
        self._told: list[Callable[[NkiError | None], None]] = []

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    def end(self, error: NkiError | None = None) -> None:
        """Have those that wait go on; the first end counts."""
        with self._lock:
            if self._ended.is_set():
                return
            self.error = error
            self._ended.set()
            told, self._told = self._told, []
        for tell in told:
            tell(error)

    def then(self, tell: Callable[[NkiError | None], None]) -> None:
        """Call when it has ended, in whichever thread ends it."""
        with self._lock:
            if not self._ended.is_set():
                self._told.append(tell)
                return
        tell(self.error)

    def wait(self, seconds: float | None = None) -> None:
        """Return when it has ended.

        Raises:
            NkiError: it failed, or cannot end any more.
        """
        group, began, asked = self._group, time.monotonic(), 0.0
        patience = self.patience if seconds is None else seconds
        while not self._ended.wait(LOOK):
            spent = time.monotonic() - began
            if spent > patience:
                group.fail(self, self.missing(patience))
            elif spent - asked > _ASK:
                asked = spent
                group.look(self, ask=True)
            else:
                group.look(self, ask=False)
        if self.error is not None:
            raise self.error

    def watch(self) -> None:
        """Have a thread look after a call that nobody waits for here."""
        threading.Thread(target=self._watch, name="nki watch", daemon=True).start()

    def _watch(self) -> None:
        with contextlib.suppress(NkiError):
            self.wait()

    def missing(self, patience: float) -> NkiError:
        """The error of a call for which others did not come in time."""
        others = dict.fromkeys(self.waits_for, f"did not come within {patience:g} s")
        return deadlock(self._group.number, self.call.meeting(self._group.members), others)
