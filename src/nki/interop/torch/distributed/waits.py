"""What the ranks of a world wait for: ranks that wait for each other are found, and one that computes is waited for.

A rank all of whose threads wait writes down, in the store of the world, for which calls that is and how many calls it
has made. It takes that back before a thread of it goes on. A rank that waits reads what all of them have written twice.
What is there both times was true at one moment, and stays so if each of these ranks needs a call that another one of
them has not made.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from nki.core.locks import rlock
from nki.interop.torch.distributed.calls import Call
from nki.interop.torch.distributed.ways import from_anybody, group_of_way
from nki.ranks.protocol import Meeting

_OWN = "nki "
"""How the names of this package's threads begin: they make no call of their own."""


class Waiting(Protocol):
    """A call that somebody may wait for: `pending.Pending`, as far as it is needed here."""

    call: Call
    members: tuple[int, ...]
    way: str
    number: int
    needs: Mapping[int, str]
    one: bool

    @property
    def parts(self) -> Sequence[Waiting]:
        """Calls that it consists of."""

    @property
    def ended(self) -> bool:
        """Whether nobody has to wait for it any more."""


@dataclass(frozen=True, slots=True)
class Wait:
    """One call that a rank waits for.

    Attributes:
        number: how many calls of its way there are up to it.
        needs: the way on which each rank that is needed makes its part of it.
        one: whether one of these ranks is enough.
        members: the ranks of the group.
        call: what it is.
    """

    number: int
    needs: Mapping[int, str]
    one: bool
    members: tuple[int, ...]
    call: Call

    def document(self) -> dict[str, Any]:
        """In a form that JSON has."""
        needs = [[rank, way] for rank, way in self.needs.items()]
        return {
            "number": self.number,
            "needs": needs,
            "one": self.one,
            "members": list(self.members),
            **self.call.document(),
        }

    @staticmethod
    def of(document: Mapping[str, Any]) -> Wait:
        """What `document` made."""
        members = tuple(document["members"])
        return Wait(document["number"], dict(document["needs"]), document["one"], members, Call.of(document))

    @property
    def meeting(self) -> Meeting:
        """As errors spell it."""
        return self.call.meeting(self.members)


@dataclass(frozen=True, slots=True)
class Entry:
    """What a rank has written down.

    Attributes:
        waits: what each of its threads waits for; none if one of them goes on.
        made: how many calls it has made on each way.
        open: ways with calls that have not ended.
        left: groups that it has destroyed.
    """

    waits: tuple[Wait, ...] = ()
    made: Mapping[str, int] = field(default_factory=dict)
    open: Collection[str] = ()
    left: Collection[str] = ()

    def text(self, number: int) -> str:
        """For other ranks; the number tells it from an equal one before."""
        waits = [wait.document() for wait in self.waits]
        parts = {"waits": waits, "made": self.made, "open": [*self.open], "left": [*self.left]}
        return json.dumps({"number": number, **parts})

    @staticmethod
    def of(text: bytes) -> Entry:
        """What `text` made."""
        found = json.loads(text)
        waits = tuple(map(Wait.of, found["waits"]))
        return Entry(waits, found["made"], frozenset(found["open"]), frozenset(found["left"]))

    def has_made(self, wait: Wait, way: str) -> bool:
        """Whether this rank has made its part of a call that another one waits for.

        Whose messages were received from anybody is not known, so that all of them may have been.
        """
        if wait.one:
            return way in self.open
        return self.made.get(way, 0) >= wait.number or self.made.get(from_anybody(way), 0) > 0


def stuck(entries: Mapping[int, Entry]) -> dict[int, dict[int, Wait | None]]:
    """The ranks that cannot go on whatever else happens.

    Returns:
        For each of them the ranks that hold it up, and what these wait for; None for one that has left the group.
    """
    found = {rank for rank, entry in entries.items() if entry.waits}
    while True:
        held = {rank: [_holding(wait, entries, found) for wait in entries[rank].waits] for rank in found}
        free = {rank for rank, each in held.items() if not all(each)}
        if not free:
            return {rank: {other: what for one in each for other, what in one.items()} for rank, each in held.items()}
        found -= free


def _holding(wait: Wait, entries: Mapping[int, Entry], waiting: Collection[int]) -> dict[int, Wait | None]:
    """The ranks for which a wait is in vain; empty if it may still end."""
    missing = [rank for rank, way in wait.needs.items() if rank in entries and not entries[rank].has_made(wait, way)]
    found: dict[int, Wait | None] = {}
    for rank in missing:
        if group_of_way(wait.needs[rank]) in entries[rank].left:
            found[rank] = None
        elif rank in waiting:
            found[rank] = entries[rank].waits[0]
    return {} if wait.one and len(found) < len(wait.needs) else found


def in_words(own: Wait, others: Mapping[int, Wait | None]) -> dict[int, Meeting | str]:
    """What holds a rank up, as `nki.ranks.protocol.deadlock` takes it."""
    words: dict[int, Meeting | str] = {}
    for rank, wait in sorted(others.items()):
        if wait is None:
            words[rank] = "has left the group"
        elif wait.members == own.members and wait.call.what[0] == own.call.what[0]:
            words[rank] = f"waits at the {wait.call.what[0]} of another group or tag, {wait.call.location}"
        else:
            words[rank] = wait.meeting
    return words


class Waits:
    """What this process waits for, and what it knows of the others.

    Args:
        store: of the world; every rank has one entry there.
        rank: the global rank of this process.
        size: how many ranks the world has.
    """

    def __init__(self, store: Any, rank: int, size: int) -> None:
        self._store = store
        self._rank = rank
        self._others = [other for other in range(size) if other != rank]
        self._lock = rlock()
        self._threads: dict[threading.Thread, Waiting | threading.Thread | None] = {threading.main_thread(): None}
        self._promised: Counter[threading.Thread] = Counter()
        self._made: Counter[str] = Counter()
        self._open: dict[str, dict[int, Waiting]] = {}
        self._left: set[str] = set()
        self._written: Entry | None = None
        self._number = 0
        self._final = False
        self._silent = False
        self._there: set[int] = set()
        self._read: dict[int, bytes] = {}

    # --------------------------------------------------------------------------------------------------------- telling

    def made(self, pending: Waiting) -> None:
        """A thread makes a call."""
        with self._lock:
            self._final = False
            self._take_back()
            thread = threading.current_thread()
            if not thread.name.startswith(_OWN):
                self._threads.setdefault(thread, None)
            self._made[pending.way] += 1
            pending.number = self._made[pending.way]
            self._open.setdefault(pending.way, {})[pending.number] = pending

    def ended(self, pending: Waiting) -> None:
        """A call has ended."""
        with self._lock:
            calls = self._open.get(pending.way, {})
            calls.pop(pending.number, None)
            if not calls:
                self._open.pop(pending.way, None)

    @contextlib.contextmanager
    def waiting(self, pending: Waiting) -> Iterator[None]:
        """A thread waits for a call."""
        thread = threading.current_thread()
        if thread.name.startswith(_OWN):
            yield
            return
        with self._held_up(thread, pending):
            yield

    def following(self, other: threading.Thread) -> contextlib.AbstractContextManager[None]:
        """A thread waits for what another one has promised."""
        return self._held_up(threading.current_thread(), other)

    @contextlib.contextmanager
    def _held_up(self, thread: threading.Thread, by: Waiting | threading.Thread) -> Iterator[None]:
        with self._lock:
            before = self._threads.get(thread)
            self._threads[thread] = by
        try:
            yield
        finally:
            with self._lock:
                self._threads[thread] = before
                self._take_back()

    def promise(self, thread: threading.Thread) -> None:
        """A thread is given something to do, which may make calls."""
        with self._lock:
            self._take_back()
            self._promised[thread] += 1
            self._threads.setdefault(thread, None)

    def keep(self, thread: threading.Thread) -> None:
        """A thread has done one of the things that it was given."""
        with self._lock:
            self._promised[thread] -= 1
            if not self._promised[thread]:
                del self._promised[thread]
                self._threads.pop(thread, None)

    def leave(self, group: str) -> None:
        """Make no more calls in a group."""
        with self._lock:
            self._left.add(group)
            if self._written is None:
                self._write(self._entry(()))

    def _take_back(self) -> None:
        """Let nobody believe that this rank waits; what it waited for in vain stays there for the others."""
        if self._written is not None and not self._final:
            self._written = None
            self._write(self._entry(()))

    def _write(self, entry: Entry) -> None:
        if self._silent:
            return
        self._number += 1
        try:
            self._store.set(_key(self._rank), entry.text(self._number))
        except RuntimeError:  # the store's process has ended, which others find out as well
            self._silent = True

    def _entry(self, waits: Sequence[Wait]) -> Entry:
        return Entry(tuple(waits), dict(self._made), frozenset(self._open), frozenset(self._left))

    def _own(self) -> Entry | None:
        """What all threads of this process wait for; None if one of them may still make a call."""
        self._threads = {thread: pending for thread, pending in self._threads.items() if thread.is_alive()}
        for thread in threading.enumerate():
            if not (thread.daemon or thread in self._threads or thread.name.startswith(_OWN)):
                return None
        waits = []
        for pending in self._threads.values():
            if isinstance(pending, threading.Thread):
                if pending not in self._threads:
                    return None
            else:
                wait = None if pending is None else self._first(pending)
                if wait is None:
                    return None
                waits.append(wait)
        return self._entry(waits)

    def _first(self, pending: Waiting) -> Wait | None:
        """The call that a pending one needs first: those of a way are carried out in their order."""
        while pending.parts:
            rest = [part for part in pending.parts if not part.ended]
            if not rest:
                return None
            pending = rest[0]
        calls = self._open.get(pending.way)
        if not calls:
            return None
        first = calls[min(calls)]
        return Wait(first.number, first.needs, first.one, first.members, first.call)

    # --------------------------------------------------------------------------------------------------------- finding

    def in_vain(self, gone: Collection[int] = ()) -> tuple[Wait, dict[int, Wait | None]] | None:
        """What this rank waits for in vain, and who holds it up, if ranks wait for each other.

        Args:
            gone: ranks that have ended, so that what they have written does not change any more.

        Raises:
            RuntimeError: the store does not answer.
        """
        with self._lock:
            own = self._own()
            if own is None:
                return None
            if self._written == own:
                own = self._written
            else:
                self._written = own
                self._write(own)
        before, self._read = self._read, self._read_others()
        entries = {
            rank: Entry.of(text) for rank, text in self._read.items() if rank in gone or before.get(rank) == text
        }
        found = stuck({**entries, self._rank: own}).get(self._rank)
        with self._lock:
            if found is None or self._written is not own:
                return None
            self._final = True
        return own.waits[0], found

    def _read_others(self) -> dict[int, bytes]:
        """What the other ranks have written, as far as they have."""
        self._there.update(rank for rank in self._others if rank not in self._there and self._store.check([_key(rank)]))
        ranks = sorted(self._there)
        return dict(zip(ranks, self._store.multi_get(list(map(_key, ranks))), strict=True)) if ranks else {}


def _key(rank: int) -> str:
    return f"nki/waits/{rank}"
