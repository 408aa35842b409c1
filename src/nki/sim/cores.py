"""Two cores of one kernel: threads that pass one baton, so that a run is deterministic and a debugger works."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from nki.core.baton import Baton
from nki.core.errors import DivergenceError
from nki.core.source import Location
from nki.core.tensor import Buffer
from nki.sim.memory import LiveStorage, Memory

T = TypeVar("T")

_RULE = "both cores reach the same barriers and transfers in the same order"
_SWAP_FIX = "call nisa.sendrecv on both cores, each with 1 - nl.program_id(0) as send_to_rank and recv_from_rank"
_SAME_FIX = "make the same call on both cores: move it out of the branch on nl.program_id"


class Cores:
    """The meeting point of the cores of a launch.

    Exactly one thread runs at any time. A core hands the baton on when it waits at a rendezvous and when it ends.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._baton = Baton(count)
        self._ended = [False] * count
        self._waiting: list[tuple[Any, Any] | None] = [None] * count
        self._inbox: list[list[Any]] = [[] for _ in range(count)]
        self._errors: list[BaseException | None] = [None] * count
        self._shared: list[list[LiveStorage]] = [[] for _ in range(count)]
        self._where: list[Location] = [Location()] * count

    def run(self, tasks: Sequence[Callable[[], T]]) -> list[T]:
        """Run one task per core; the first error of any core is raised, and ends the other one."""
        results: list[Any] = [None] * self.count
        self._baton.run("core", lambda core: self._task(core, tasks[core], results))
        for error in self._errors:
            if error is not None and not isinstance(error, _Aborted):
                raise error
        return results

    def meet(self, core: int, key: Any, values: Any, where: Location) -> Any:
        """Wait until the other core meets with the same key; returns its values."""
        other = (core + 1) % self.count
        self._waiting[core], self._where[core] = (key, values), where
        waiting = self._waiting[other]
        if waiting is not None:
            self._pair(core, other, key, waiting)
        elif self._ended[other]:
            raise _deadlock(core, other, key, where)
        else:
            self._baton.give(other)
            self._wait_for_turn(core)
        return self._inbox[core].pop()

    def claim(self, core: int, memory: Memory, buffer: Buffer) -> LiveStorage:
        """Storage of a shared_hbm buffer: the n-th one of each core is the same memory."""
        mine = self._shared[core]
        for other in self._shared:
            if other is not mine and len(other) > len(mine):
                storage = other[len(mine)]
                self._check_pair(core, storage.buffer, buffer)
                storage.settle()
                shared = LiveStorage(buffer, storage.base, storage.pitch, storage.start, storage.written)
                shared.shadow = storage.shadow
                memory.share(shared)
                mine.append(shared)
                return shared
        mine.append(memory.allocate(buffer))
        return mine[-1]

    def _check_pair(self, core: int, first: Buffer, second: Buffer) -> None:
        if (first.name, first.shape, first.dtype) != (second.name, second.shape, second.dtype):
            raise DivergenceError(
                "cores.shared-mismatch",
                f"core {core} allocates {_allocation(second)} where the other core has {_allocation(first)}",
                rule="shared_hbm tensors pair by order, name, shape and dtype on both cores",
                location=second.location,
                fix="allocate the same shared_hbm tensors in the same order on both cores",
            )

    def _pair(self, core: int, other: int, key: Any, waiting: tuple[Any, Any]) -> None:
        if waiting[0] != key:
            raise DivergenceError(
                "cores.mismatch",
                f"core {core} is at {_describe(key)} while core {other} waits at "
                f"{_describe(waiting[0])} in {_place(self._where[other])}",
                location=self._where[core],
                rule=_RULE,
                fix=_meeting_fix(key) if key[0] == waiting[0][0] else _SAME_FIX,
            )
        self._inbox[core].append(waiting[1])
        mine = self._waiting[core]
        assert mine is not None, "set by meet"
        self._inbox[other].append(mine[1])
        self._waiting[core] = self._waiting[other] = None

    def _task(self, core: int, task: Callable[[], Any], results: list[Any]) -> None:
        try:
            self._wait_for_turn(core)
            results[core] = task()
        except BaseException as error:  # noqa: BLE001 - carried to the caller's thread by run()
            self._errors[core] = error
        finally:
            self._ended[core] = True
            self._end(core)

    def _end(self, core: int) -> None:
        other = (core + 1) % self.count
        if not self._ended[other]:
            waiting = self._waiting[other]
            if self._errors[core] is None and waiting is not None:
                self._errors[other] = _deadlock(other, core, waiting[0], self._where[other])
            self._baton.give(other)

    def _wait_for_turn(self, core: int) -> None:
        self._baton.wait(core)
        other = (core + 1) % self.count
        if self._errors[core] is not None or self._errors[other] is not None:
            raise self._errors[core] or _Aborted()


class _Aborted(Exception):
    """Raised on a core whose partner failed; the partner's error is the one to show."""


def _deadlock(core: int, other: int, key: Any, where: Location) -> DivergenceError:
    return DivergenceError(
        "cores.deadlock",
        f"core {core} waits for core {other} at {_describe(key)}, but core {other} has ended",
        rule=_RULE,
        location=where,
        fix=_SAME_FIX if key[0] == "barrier" else _SWAP_FIX,
    )


def _meeting_fix(key: Any) -> str:
    return "pass the same pipe_id on both cores" if key[0] != "barrier" else _SAME_FIX


def _describe(key: Any) -> str:
    return "core_barrier" if key[0] == "barrier" else f"sendrecv with pipe_id {key[1]}"


def _place(where: Location) -> str:
    frame = where.frame
    return "another place" if frame is None else f"line {frame.line} of {frame.function}"


def _allocation(buffer: Buffer) -> str:
    return f"{buffer.name} ({buffer.dtype}{list(buffer.shape)})"
