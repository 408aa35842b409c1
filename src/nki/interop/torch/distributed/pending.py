"""A call that is carried out elsewhere, and how somebody waits for it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch

from nki.core.errors import NkiError
from nki.core.locks import lock
from nki.interop.torch.distributed.calls import Call
from nki.ranks.protocol import deadlock

if TYPE_CHECKING:
    from nki.interop.torch.distributed.group import Group

LOOK = 0.1
"""Seconds between two looks at whether the other processes are there."""
_ASK, _ASK_LATER, _LATER = 0.5, 2.0, 10.0
"""Seconds between two questions whether another rank has failed or waits as well; of who has waited for long, and from
when on that is. Of ranks that wait for each other one has begun last, and finds it."""


class Needs(NamedTuple):
    """What a call needs of other ranks: attributes of `Pending`."""

    way: str
    needs: Mapping[int, str]
    one: bool
    members: tuple[int, ...]


class Pending:
    """A call that was handed to a lane.

    Attributes:
        call: what it is.
        way: the name of its way.
        number: how many calls there are on it up to this one.
        needs: for each global rank without which it cannot end, the way on which that one makes its part of it.
        one: whether one of these ranks is enough.
        members: the ranks that errors name.
        parts: calls that it consists of.
        tensors: what `torch.futures` gives.
        patience: seconds that the others have to come.
        source: the rank in the group that sent a message, once it is there.
    """

    def __init__(self, group: Group, call: Call, needs: Needs, tensors: list[torch.Tensor], patience: float) -> None:
        self.call = call
        self.way, self.needs, self.one, self.members = needs
        self.number = 0
        self.parts: Sequence[Pending] = ()
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
        self._group.waits.ended(self)
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
        if not self._ended.wait(LOOK):
            with self._group.waits.waiting(self):
                self._look_until_ended(self.patience if seconds is None else seconds)
        if self.error is not None:
            raise self.error

    def _look_until_ended(self, patience: float) -> None:
        group, began, asked = self._group, time.monotonic(), 0.0
        while not self._ended.wait(LOOK):
            spent = time.monotonic() - began
            if spent > patience:
                group.fail(self, self.missing(patience))
                continue
            ask = spent - asked > (_ASK if spent < _LATER else _ASK_LATER)
            if ask:
                asked = spent
            group.look(self, ask)

    def watch(self) -> None:
        """Have a thread look after a call that nobody waits for here."""
        threading.Thread(target=self._watch, name="nki watch", daemon=True).start()

    def _watch(self) -> None:
        with contextlib.suppress(NkiError):
            self.wait()

    def missing(self, patience: float) -> NkiError:
        """The error of a call for which others did not come in time."""
        others = dict.fromkeys(self.needs, f"did not come within {patience:g} s")
        return deadlock(self._group.number, self.call.meeting(self._group.members), others)
