"""Ranks that make a group together: each waits here until all of them do, before it waits in C++ for connections."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from nki.core.errors import NkiError
from nki.interop.torch.distributed.calls import Call
from nki.interop.torch.distributed.peers import Peers
from nki.interop.torch.distributed.waits import Waits, in_words
from nki.interop.torch.user_location import user_line
from nki.ranks.protocol import deadlock

_LOOK, _ASK = 0.02, 0.5
"""Seconds between two looks for the others, and between two questions whether they cannot come."""


class Beginning:
    """A group that is being made, as what a rank waits for.

    Args:
        store: the part of the store that belongs to this generation of the group.
        name: of the group, the same on all ranks.
        members: the global ranks.
        rank: the global rank of this process.
    """

    one = False
    parts: Sequence[Any] = ()

    def __init__(self, store: Any, name: str, members: Sequence[int], rank: int) -> None:
        self.call = Call(("new_group",), user_line())
        self.members = tuple(members)
        self.way = f"{name}|new"
        self.number = 0
        self.needs: Mapping[int, str] = {member: self.way for member in members if member != rank}
        self._store = store
        self._rank = rank

    @property
    def ended(self) -> bool:
        """Whether all ranks are here."""
        return not self.needs or bool(self._store.check([_key(member) for member in self.needs]))

    def wait(self, peers: Peers, waits: Waits | None, patience: float) -> None:
        """Return when all ranks are here.

        Args:
            peers: the processes of the ranks.
            waits: what they wait for, in a world that is there.
            patience: seconds that the others have to come.

        Raises:
            DivergenceError: "ranks.deadlock": one of them has ended, waits for something else, or does not come.
        """
        self._store.set(_key(self._rank), "")
        if waits is None:
            self._look_until_ended(peers, None, patience)
            return
        waits.made(self)
        try:
            with waits.waiting(self):
                self._look_until_ended(peers, waits, patience)
        finally:
            waits.ended(self)

    def _look_until_ended(self, peers: Peers, waits: Waits | None, patience: float) -> None:
        begun, asked = time.monotonic(), 0.0
        while not self.ended:
            time.sleep(_LOOK)
            spent = time.monotonic() - begun
            if spent - asked > _ASK:
                asked = spent
                self._ask(peers, waits)
            if spent > patience:
                missing = [member for member in self.needs if not self._store.check([_key(member)])]
                raise self._error(dict.fromkeys(missing, f"did not come within {patience:g} s"))

    def _ask(self, peers: Peers, waits: Waits | None) -> None:
        ended = peers.ended([*self.needs])
        found = None if waits is None else waits.in_vain(ended)
        if found is not None:
            own, others = found
            raise deadlock(self._rank, own.meeting, in_words(own, others))
        if ended:
            raise self._error(dict.fromkeys(ended, "has ended"))

    def _error(self, others: Mapping[int, str]) -> NkiError:
        return deadlock(self._rank, self.call.meeting(self.members), others)


def _key(rank: int) -> str:
    return f"nki/here/{rank}"
