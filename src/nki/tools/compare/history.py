"""What a watched run did, in order, and which of its instructions a value comes from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from nki.core.source import Location
from nki.core.tensor import MemoryRegion, View
from nki.sim.machine import Machine
from nki.sim.watch import observable, snapshot
from nki.spec.program import Issued


@dataclass(frozen=True, slots=True, eq=False)
class Tapped:
    """A tap of a kernel: the values that it copied."""

    name: str
    core: int
    view: View
    values: np.ndarray
    location: Location


@dataclass(slots=True)
class History:
    """A watch that keeps, for each core, the order of instructions and taps."""

    cores: dict[int, list[Issued | Tapped]] = field(default_factory=dict)

    def before(self, machine: Machine, issued: Issued) -> None:
        """Nothing to remember."""

    def after(self, machine: Machine, issued: Issued) -> None:
        """Remember what was executed."""
        self._of(machine).append(issued)

    def tap(self, machine: Machine, name: str, view: View, location: Location) -> None:
        """Remember the values."""
        self._of(machine).append(Tapped(name, machine.core, view, snapshot(machine, view), location))

    def taps(self) -> list[Tapped]:
        """All taps, one core after the other."""
        return [item for _, items in sorted(self.cores.items()) for item in items if isinstance(item, Tapped)]

    def before_tap(self, tapped: Tapped) -> list[Issued | Tapped]:
        """What the same core did before."""
        items = self.cores[tapped.core]
        return items[: next(at for at, item in enumerate(items) if item is tapped)]

    def _of(self, machine: Machine) -> list[Issued | Tapped]:
        return self.cores.setdefault(machine.core, [])


def writer(items: list[Issued | Tapped], view: View, index: tuple[int, ...]) -> Issued | None:
    """The last instruction that wrote an element of a view; a write to a dynamic address counts for its tensor."""
    element = view._replace(
        shape=(1,) * view.ndim,
        offset=view.offset + sum(at * stride for at, stride in zip(index, view.strides, strict=True)),
    )
    space, partition, byte = _spots(element)
    for item in reversed(items):
        if isinstance(item, Issued) and any(_covers(each, space, partition, byte) for each in written(item)):
            return item
    return None


def origins(items: list[Issued | Tapped], view: View, right: Iterable[Tapped]) -> list[Issued]:
    """The instructions that the values of a view may come from, the last one first, each line once.

    The way back ends at tensors that a tap of `right` showed to be right, and at those that nothing wrote before. What
    is written to PSUM may add to what was there, so that the way goes on.
    """
    needed, known = {view.buffer.id}, {id(tapped) for tapped in right}
    found: dict[tuple[str, Location], Issued] = {}
    for item in reversed(items):
        if isinstance(item, Tapped):
            if id(item) in known and _is_whole(item.view):
                needed.discard(item.view.buffer.id)
            continue
        writes = [each for each in written(item) if each.buffer.id in needed]
        if not writes:
            continue
        found.setdefault((item.instruction.name, item.location), item)
        needed -= {each.buffer.id for each in writes if _is_whole(each) and each.region is not MemoryRegion.psum}
        needed |= {each.buffer.id for each in _read(item)}
    return list(found.values())


def written(issued: Issued) -> Iterator[View]:
    """The tensors that an instruction writes to."""
    return (observable(view) for name, view in issued.views() if issued.instruction.operands[name].writes)


def _read(issued: Issued) -> Iterator[View]:
    for name, view in issued.views():
        if issued.instruction.operands[name].reads:
            yield view
        if view.dynamic is not None:
            if isinstance(view.dynamic.indices, View):
                yield view.dynamic.indices
            if issued.instruction.operands[name].writes:
                yield view  # what it does not overwrite stays


def _is_whole(view: View) -> bool:
    return view.nbytes == view.buffer.nbytes and 0 not in view.strides


def _covers(view: View, space: object, partition: np.ndarray, byte: np.ndarray) -> bool:
    its_space, partitions, starts = _spots(view)
    if its_space != space:
        return False
    inside = (starts <= byte) & (byte < starts + view.dtype.itemsize)
    return bool(((partitions == partition) & inside).any())


def _spots(view: View) -> tuple[object, np.ndarray, np.ndarray]:
    """Where the elements of a static view lie: in which memory, in which partition, from which byte on.

    Tensors with explicit addresses share the memory of their region; every other one is a memory of its own.
    """
    flat = np.full((), view.offset)
    for size, stride in zip(view.shape, view.strides, strict=True):
        flat = flat[..., None] + np.arange(size) * stride
    partition, free = np.divmod(flat, view.row) if view.on_chip else (np.zeros_like(flat), flat)
    address = view.buffer.address
    if address is None:
        return view.buffer.id, partition, free * view.dtype.itemsize
    return view.region, partition + address[0], free * view.dtype.itemsize + address[1]
