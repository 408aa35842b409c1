"""A machine and buffers for tests, and the numbers of a view's elements worked out one by one."""

from __future__ import annotations

from itertools import count, product

from nki.core.dtypes import DType
from nki.core.tensor import Buffer, MemoryRegion, View, whole
from nki.options import Options
from nki.ranks.protocol import ALONE
from nki.sim.machine import Machine
from nki.sim.memory import LiveStorage, Memory
from nki.spec.engine import engine as Engine
from nki.spec.rule import Finding
from nki.target.load import load_target

_IDS = count()


class Bench:
    """One machine, what it warned about, and the storages that keep its buffers alive."""

    def __init__(self, target: str = "trn2") -> None:
        self.findings: list[Finding] = []
        self.memory = Memory(load_target(target))
        self.machine = Machine(load_target(target), Options(), self.memory, self.findings.append, ALONE)
        self.machine.engine = Engine.vector
        self.storages: list[LiveStorage] = []

    def tensor(
        self,
        shape: tuple[int, ...],
        dtype: DType,
        region: MemoryRegion = MemoryRegion.sbuf,
        address: tuple[int, int] | None = None,
    ) -> View:
        buffer = Buffer(next(_IDS), "t", region, shape, dtype, address)
        self.storages.append(self.memory.allocate(buffer))
        return whole(buffer)

    def warned(self) -> bool:
        """Whether something was reported since the last time; forgets it, so that it can be reported again."""
        found = bool(self.findings)
        self.findings.clear()
        self.machine._warned.clear()
        return found


def numbers(view: View) -> list[int]:
    """The number of each element in the buffer, in row-major order of a static view."""
    return [
        view.offset + sum(i * s for i, s in zip(index, view.strides, strict=True))
        for index in product(*[range(n) for n in view.shape])
    ]
