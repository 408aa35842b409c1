"""One process group on the device: its calls in their order, and what ends them all."""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from nki.core.errors import DivergenceError, NkiError
from nki.core.locks import lock
from nki.interop.torch.distributed.callbacks import Callbacks, current
from nki.interop.torch.distributed.calls import Call
from nki.interop.torch.distributed.lanes import Lane
from nki.interop.torch.distributed.peers import Peers
from nki.interop.torch.distributed.pending import LOOK, Needs, Pending
from nki.interop.torch.distributed.transport import Transport
from nki.interop.torch.distributed.waits import Waits, in_words
from nki.interop.torch.distributed.ways import COLLECTIVES, Way
from nki.ranks.protocol import check_same_call, deadlock

_FAILED = "nki/failed"
_GRACE = 2.0
"""Seconds that a process may take to end after its connections were closed."""


class World(NamedTuple):
    """What groups know of all ranks, told of a world: their processes, and what they wait for."""

    peers: Peers
    waits: Waits


class Group:
    """The calls of a process group of PyTorch, whose transport is Gloo.

    Collectives are carried out in the order of their calls by a thread of their own, and so are messages of each pair
    of ranks and tag.

    Attributes:
        members: the global ranks, in their order in the group.
        rank: the place of this process among them.
        number: its global rank.
        patience: seconds that the others have to come.
        transport: of bytes.
        last: the last collective of each global rank that this one has seen.
        waits: what this process and others wait for.
        failure: what ended the group, if something did.
        begun: the calls since the start of a coalescing, by the thread that has started it.
    """

    def __init__(self, gloo: Any, members: Sequence[int], rank: int, store: Any, world: World, name: str) -> None:
        self.members = tuple(members)
        self.rank = rank
        self.number = self.members[rank]
        self.name = name
        self.transport = Transport(gloo, rank, len(self.members))
        self.patience = float(gloo.options._timeout.total_seconds())
        self.last: dict[int, Call] = {}
        self._store = store
        self._peers, self.waits = world
        self._lock = lock()
        self._lanes: dict[Way, Lane] = {}
        self._callbacks: dict[Way, Callbacks] = {}
        self._pending: weakref.WeakSet[Pending] = weakref.WeakSet()
        self._recent: deque[Any] = deque(maxlen=64)
        self.failure: NkiError | None = None
        self.begun: dict[int, list[Pending]] = {}
        self._silent_since = 0.0
        self._acquainted = False

    def keep(self, work: Any) -> None:
        """Keep the Python part of a work for as long as PyTorch hands it on."""
        self._recent.append(work)

    def submit(
        self,
        call: Call,
        run: Callable[[Pending], None],
        tensors: list[torch.Tensor],
        way: Way = COLLECTIVES,
        patience: float | None = None,
    ) -> Pending:
        """Have a lane carry a call out, after those that it was given before.

        Args:
            call: what it is.
            run: carries it out.
            tensors: what it writes to.
            way: who takes part in it; a lane carries out the calls of one way.
            patience: seconds that the others have to come; None for those of the group.
        """
        way = self._from_here(way)
        patience = self.patience if patience is None else patience
        pending = Pending(self, call, way, self._needs(way), tensors, patience)
        if self.failure is not None:
            pending.end(self._again(call))
            return pending
        with self._lock:
            self.waits.made(pending)
            lane = self._lanes.get(way)
            if lane is None:
                lane = self._lanes[way] = Lane(f"nki group {pending.way}")
            self._pending.add(pending)
            if (begun := self.begun.get(threading.get_ident())) is not None:
                begun.append(pending)
        lane.put(partial(self._carry_out, pending, run))
        return pending

    def callbacks(self, way: Way) -> Callbacks:
        """Where callbacks of calls on a way run; most programs have none."""
        with self._lock:
            found = self._callbacks.get(way)
            if found is None:
                found = self._callbacks[way] = Callbacks(self.waits, way, way.named(self.name))
        return found

    def _from_here(self, way: Way) -> Way:
        """The way that a call takes which this thread makes."""
        inside = current()
        if way.target is not None or inside is None or self._callbacks.get(inside.way) is not inside:
            return way
        return way.inside(inside.way) if inside.way.target is None else way

    def _needs(self, way: Way) -> Needs:
        """What a call needs of other ranks."""
        name = way.named(self.name)
        others = [place for place in range(len(self.members)) if place != self.rank]
        if way.target is None:
            return Needs(name, {self.members[place]: name for place in others}, False, self.members)
        if way.target != self.rank:
            others = [way.target]
        elif way.source is not None:
            others = [way.source]
        ways = {place: way if way.target == place else way._replace(source=place) for place in others}
        needs = {self.members[place]: each.named(self.name) for place, each in ways.items()}
        return Needs(name, needs, way.source is None, tuple(sorted((self.number, *needs))))

    def _carry_out(self, pending: Pending, run: Callable[[Pending], None]) -> None:
        if self.failure is not None:
            pending.end(self._again(pending.call))
            return
        try:
            run(pending)
        except NkiError as error:
            self.fail(pending, error)
        except Exception as error:  # noqa: BLE001 - Gloo raises RuntimeError; whatever else it is, the caller must know
            if self.failure is None:
                lost = self.lost(pending.call, error)
                lost.__cause__ = error
                self.fail(pending, lost)
            else:
                pending.end(self._again(pending.call))
        else:
            pending.end()

    def agree(self, call: Call, transport: Transport) -> list[Call]:
        """The calls of all ranks, which fit together, as they came over one of the transports.

        Raises:
            DivergenceError: ``ranks.mismatch``.
        """
        calls = transport.records(call) if len(self.members) > 1 else [call]
        own = call.meeting(self.members)
        if not self._acquainted:  # while the process of the store is there
            self._peers.ended(self.members)
            self._acquainted = True
        for place, other in enumerate(calls):
            self.last[self.members[place]] = other
            check_same_call(self.number, own, self.members[place], other.meeting(self.members))
        for place, other in enumerate(calls):
            if other.sends and call.expects and other.sends[self.rank] != call.expects[place]:
                raise self._sizes(call, place, other)
            if call.sends and other.expects and call.sends[place] != other.expects[self.rank]:
                raise self._sizes(call, place, other)
        return calls

    def _sizes(self, call: Call, place: int, other: Call) -> NkiError:
        sent, wanted = other.sends[self.rank], call.expects[place]
        here, there = f"rank {self.number}", f"rank {self.members[place]}"
        if sent == wanted:
            sent, wanted, here, there = call.sends[place], other.expects[self.rank], there, here
        return DivergenceError(
            "ranks.mismatch",
            f"{there} sends {sent} elements in {call.what[0]}, where {here} expects {wanted}; "
            f"rank {self.members[place]} is at {other.location}",
            location=call.location,
            rule="what a rank sends is as much as the other one expects",
            fix="give both ranks the same sizes",
        )

    def look(self, pending: Pending, ask: bool) -> None:
        """Fail if a rank that a call waits for has ended or failed."""
        try:
            ended = self._peers.ended([*pending.needs])
            found = self.waits.in_vain(ended) if ask or ended else None
            if found is not None:
                own, others = found
                self.fail(pending, deadlock(self.number, own.meeting, in_words(own, others)))
                return
            failed = self._store.get(_FAILED) if not ended and ask and self._store.check([_FAILED]) else None
        except RuntimeError as error:  # the store's process has ended
            ended = self._peers.ended_of_known([*pending.needs])
            self._silent_since = self._silent_since or time.monotonic()
            if not ended and time.monotonic() - self._silent_since < _GRACE:
                return  # its end may not be known yet
            failed = json.dumps([-1, f"the store does not answer: {_first_line(error)}"])
        if ended:
            self.fail(pending, self._has_ended(pending.call, ended))
        elif failed is not None:
            rank, why = json.loads(failed)
            if rank != self.number:
                self.fail(pending, self._has_failed(pending.call, rank, why), tell=False)

    def fail(self, pending: Pending, error: NkiError, tell: bool = True) -> None:
        """End the calls that wait, and all that come, with an error; `tell` the other ranks."""
        with self._lock:
            if self.failure is None:
                self.failure = error
                # Others wait for the end of this process. What PyTorch has loaded is left to the system, which frees it
                # at once; Python needs seconds for it where many ranks end at the same time.
                atexit.register(gc.freeze)
                waiting = list(self._pending)
            else:
                waiting = [pending]
        if tell:
            self.tell(error)
        self.waits.leave(self.name)
        for each in waiting:
            each.end(error if each is pending else self._again(each.call))
        pending.end(error)
        self.transport.give_up()

    def tell(self, error: NkiError) -> None:
        """Tell the other ranks that this one has failed."""
        with contextlib.suppress(RuntimeError):  # where the store's process has ended, they find that out as well
            self._store.compare_set(_FAILED, "", json.dumps([self.number, error.message]))

    def lost(self, call: Call, error: BaseException) -> NkiError:
        """The error for a failure of the transport: who has ended, if somebody has."""
        others = [rank for rank in self.members if rank != self.number]
        end = time.monotonic() + _GRACE
        while time.monotonic() < end:
            try:
                ended = self._peers.ended(others)
                failed = self._store.get(_FAILED) if not ended and self._store.check([_FAILED]) else None
            except RuntimeError:
                ended, failed = self._peers.ended_of_known(others), None
            if ended:
                return self._has_ended(call, ended)
            if failed is not None and json.loads(failed)[0] != self.number:
                return self._has_failed(call, *json.loads(failed))
            time.sleep(LOOK)
        return self._has_failed(call, -1, f"the connection failed: {_first_line(error)}")

    def _has_ended(self, call: Call, ended: Sequence[int]) -> NkiError:
        words = {}
        for rank in sorted({*ended, *self._peers.all_ended()}):
            last = self.last.get(rank)
            words[rank] = "has ended" if last is None else f"has ended, after its {last.what[0]}, {last.location}"
        return deadlock(self.number, call.meeting(self.members), words)

    def _has_failed(self, call: Call, rank: int, why: str) -> NkiError:
        if rank >= 0:
            return deadlock(self.number, call.meeting(self.members), {rank: f"has failed: {why}"})
        return DivergenceError(
            "ranks.deadlock",
            f"rank {self.number} waits at {call.meeting(self.members)}, but {why}",
            location=call.location,
            rule="all ranks of a group stay there until its last collective",
            fix="look at what the other ranks say",
        )

    def _again(self, call: Call) -> NkiError:
        assert self.failure is not None
        first = self.failure
        return DivergenceError(
            first.code,
            f"rank {self.number} is at {call.meeting(self.members)}, but the group has failed before: {first.message}",
            location=call.location,
            rule=first.rule,
            fix=first.fix,
        )

    def close(self) -> None:
        """Make no more calls: tell those that wait for one, and let the threads end when they have nothing to do."""
        self.waits.leave(self.name)
        with self._lock:
            for lane in self._lanes.values():
                lane.close()
            self._lanes.clear()
            self._callbacks.clear()


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0][:200]
