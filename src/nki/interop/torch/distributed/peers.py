"""Whether the processes of other ranks are still there: Gloo alone does not say which of them has ended."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PROC = Path("/proc")
_GONE = "ZXx"
"""States of a process that has ended and that nobody has asked for yet."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process of a host; the time of its start tells it from a later one with its number."""

    host: str
    number: int
    started: str

    @staticmethod
    def own() -> Process:
        """This process."""
        return Process(_host(), os.getpid(), _start(os.getpid()) or "")

    @staticmethod
    def read(text: str | bytes) -> Process:
        """What `text` made."""
        return Process(*json.loads(text))

    def text(self) -> str:
        """For other processes."""
        return json.dumps([self.host, self.number, self.started])

    def has_ended(self) -> bool:
        """Whether it is known that it has ended; of another host's processes nothing is known."""
        if self.host != _host():
            return False
        if self.started:
            return _start(self.number) != self.started
        try:
            os.kill(self.number, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
        return False


class Peers:
    """The processes of the ranks of a world, as far as they have told who they are.

    Args:
        store: of the world; every process writes its own entry when it makes its first group.
    """

    def __init__(self, store: Any) -> None:
        self._store = store
        self._known: dict[int, Process] = {}

    def tell(self, rank: int) -> Process | None:
        """Say which process this rank is; returns another one that says it is this rank, if there is one."""
        own = Process.own()
        said = Process.read(self._store.compare_set(_key(rank), "", own.text()))
        if said != own:
            if not said.has_ended():
                return said
            self._store.set(_key(rank), own.text())
        return None

    def ended(self, ranks: Sequence[int]) -> list[int]:
        """Which of the ranks have processes that ended."""
        for rank in ranks:
            if rank not in self._known and self._store.check([_key(rank)]):
                self._known[rank] = Process.read(self._store.get(_key(rank)))
        return self.ended_of_known(ranks)

    def ended_of_known(self, ranks: Sequence[int]) -> list[int]:
        """Which ranks ended, of those that the store was asked for before; it is not asked again."""
        return [rank for rank in ranks if rank in self._known and self._known[rank].has_ended()]

    def all_ended(self) -> list[int]:
        """Which of all ranks ended, as far as that is known: where one ends, others do so because of it."""
        return self.ended_of_known([*self._known])


def _key(rank: int) -> str:
    return f"nki/process/{rank}"


def _host() -> str:
    boot = _PROC / "sys/kernel/random/boot_id"
    return f"{socket.gethostname()} {boot.read_text().strip() if boot.exists() else ''}"


def _start(number: int) -> str | None:
    """When a process started, in the kernel's ticks; None if it has ended, or if this system does not tell."""
    try:
        fields = (_PROC / str(number) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    state, started = fields[0], fields[19]
    return None if state in _GONE else started
