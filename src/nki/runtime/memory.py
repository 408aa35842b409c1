"""How much device memory is in use, and by what: one account for each stack of memory."""

from __future__ import annotations

from dataclasses import dataclass

from nki.core.locks import lock
from nki.runtime.status import NrtError, refused

_SHOWN = 12


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Memory that something has.

    Attributes:
        owner: "tensor", "weights" or "model", and its name.
    """

    owner: str
    nbytes: int


class Account:
    """The memory of one stack, which some cores share."""

    def __init__(self, name: str, capacity: int) -> None:
        self.name = name
        self.capacity = capacity
        self._lock = lock()
        self._uses: dict[int, MemoryUse] = {}
        self._next = 0

    @property
    def used(self) -> int:
        """Bytes."""
        with self._lock:
            return sum(use.nbytes for use in self._uses.values())

    def uses(self) -> list[MemoryUse]:
        """What has memory, the largest first."""
        with self._lock:
            return sorted(self._uses.values(), key=lambda use: (-use.nbytes, use.owner))

    def take(self, owner: str, nbytes: int) -> int:
        """Memory for an owner; returns its number. Raises NrtError "runtime.memory" with a table of who has it."""
        with self._lock:
            used = sum(use.nbytes for use in self._uses.values())
            if used + nbytes <= self.capacity:
                self._next += 1
                self._uses[self._next] = MemoryUse(owner, nbytes)
                return self._next
        raise self._full(owner, nbytes, used)

    def give(self, number: int) -> None:
        """The memory is free again."""
        with self._lock:
            self._uses.pop(number, None)

    def _full(self, owner: str, nbytes: int, used: int) -> NrtError:
        uses = self.uses()
        lines = [f"  {use.nbytes:>16,}  {use.owner}" for use in uses[:_SHOWN]]
        if len(uses) > _SHOWN:
            lines.append(f"  {sum(use.nbytes for use in uses[_SHOWN:]):>16,}  {len(uses) - _SHOWN} more")
        table = "\n".join([f"{self.name}: {used:,} of {self.capacity:,} bytes are in use", *lines])
        return refused(
            "runtime.memory",
            f"{owner} needs {nbytes:,} bytes, and {self.capacity - used:,} are free\n{table}",
            "tensors, weights and models fit the device memory of their core",
            "free tensors, unload models, or load on a core of another stack",
        )
