"""A call that is carried out elsewhere, and how somebody waits for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch

from nki.core.errors import NkiError
from nki.core.locks import lock
from nki.interop.torch.distributed.calls import Call
from nki.interop.torch.distributed.ways import Way
from nki.ranks.protocol import deadlock

if TYPE_CHECKING:
    from nki.interop.torch.distributed.callbacks import Callbacks
    from nki.interop.torch.distributed.group import Group
    from nki.interop.torch.distributed.transport import Transport

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

    def __init__(
        self, group: Group, call: Call, way: Way, needs: Needs, tensors: list[torch.Tensor], patience: float
    ) -> None:
        self.call = call
        self._way = way
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
        self._group.waits.ended(self)

    @property
    def transport(self) -> Transport:
        """What carries its bytes."""
        return self._group.transport.on(self._way)

    def callbacks(self) -> Callbacks:
        """Where callbacks of it run."""
        return self._group.callbacks(self._way)

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

    def missing(self, patience: float) -> NkiError:
        """The error of a call for which others did not come in time."""
        others = dict.fromkeys(self.needs, f"did not come within {patience:g} s")
        return deadlock(self._group.number, self.call.meeting(self._group.members), others)
