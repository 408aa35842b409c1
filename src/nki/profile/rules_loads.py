"""The rule of the advice on loads of bytes that were loaded before, and what other rules ask about them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from nki.core.tensor import Buffer, View
from nki.profile.advice import LEAST, Advice, Evidence, amount, duration, ranked, times, where
from nki.profile.core import is_transfer
from nki.spec.program import Issued
from nki.spec.step import UNITS

BOUND = 0.7
"""A unit that is busy for more of the time than this is what bounds a program, and not the lack of overlap."""

_CAUSE = 0.25
"""If so much of what a rule complains about are bytes that are loaded again, these are the cause."""

_NAMED = 3


@dataclass(slots=True)
class _Loads:
    """Of one tensor in device memory.

    Attributes:
        nbytes: payload of each transfer, all runs.
        again: part of each transfer's runs that load exactly what was loaded before.
        least: bytes that have to be loaded, each once for every state of the tensor.
    """

    tensor: Buffer
    nbytes: dict[int, float] = field(default_factory=dict)
    again: dict[int, float] = field(default_factory=dict)
    least: float = 0.0

    @property
    def extra(self) -> float:
        return sum(self.nbytes.values()) - self.least


def repeated_loads(evidence: Evidence) -> Advice | None:
    """The same bytes are loaded several times."""
    found = sorted(_repeated(evidence), key=lambda loads: -loads.extra)
    if not found:
        return None
    core, extra = evidence.core, sum(loads.extra for loads in found)
    again, starting = _again(found), _starting(evidence, found)
    count = sum(evidence.runs(at) * part for at, part in again.items())
    named = ", ".join(
        f"{each.tensor.name} ({amount(each.tensor.nbytes)}) {times(sum(each.nbytes.values()) / each.least)}"
        for each in found[:_NAMED]
    )
    begun = f", and starting {count:,.0f} transfers for it {duration(sum(starting.values()))}" if starting else ""
    costs = {at: nbytes for loads in found for at, nbytes in loads.nbytes.items()}
    return Advice(
        "repeated-loads",
        "dma",
        f"the same bytes are loaded again: {named}, {amount(extra)} more than needed; moving that takes "
        f"{duration(extra / core.target.dma.aggregate_gbps)} at the full rate{begun}{where(evidence, costs)}",
        _kept(found[0].tensor, evidence),
        _saved(evidence, found),
        ranked(costs),
    )


def _kept(tensor: Buffer, evidence: Evidence) -> str:
    """What to do about the tensor that is loaded again most."""
    chip = evidence.core.target
    needed, size = tensor.nbytes / chip.partitions, chip.sbuf.bytes_per_partition
    if needed > size / 2:
        return (
            f"{tensor.name} is too large to stay in SBUF: change the order of the loops, so that a tile of it is used "
            "for everything while it is there"
        )
    return (
        f"load {tensor.name} once, before the loop, and keep it in SBUF: it takes {amount(needed)} of the "
        f"{amount(size)} in each partition"
    )


def caused_by_repeats(evidence: Evidence, costs: Mapping[int, float]) -> bool:
    """Whether a large part of these costs of transfers is due to bytes that are loaded again, which is advice then."""
    found = _repeated(evidence)
    again = _again(found)
    part = sum(ns * again.get(at, 0.0) for at, ns in costs.items())
    return part >= _CAUSE * sum(costs.values()) and _saved(evidence, found) >= LEAST * evidence.makespan


def _saved(evidence: Evidence, found: list[_Loads]) -> float:
    """ns if nothing is loaded again: of the DMA engines, of units that start transfers, or of the path."""
    extra = sum(loads.extra for loads in found)
    less = {"dma": extra / evidence.core.target.dma.aggregate_gbps, **_starting(evidence, found)}
    most = max(evidence.busy(unit) - less.get(unit, 0.0) for unit in UNITS)
    saved = max(less.values())
    if evidence.busy(evidence.busiest()) <= BOUND * evidence.makespan:
        again = _again(found)
        path = sum((piece.end - piece.start) * again.get(piece.position, 0.0) for piece in evidence.path)
        saved = max(saved, path)
    return max(0.0, min(saved, evidence.makespan - most))


def _again(found: list[_Loads]) -> dict[int, float]:
    return {at: part for loads in found for at, part in loads.again.items()}


def _starting(evidence: Evidence, found: list[_Loads]) -> dict[str, float]:
    """ns in which each unit starts transfers of what is loaded again."""
    by_unit: dict[str, float] = defaultdict(float)
    for position, part in _again(found).items():
        unit = evidence.core.trigger(position)
        if unit and part:
            by_unit[unit] += evidence.starting(position) * part
    return by_unit


def _repeated(evidence: Evidence) -> list[_Loads]:
    """Tensors of which something is loaded again although nobody wrote to them in between."""
    core = evidence.core
    states, found, first = Counter[int](), dict[int, _Loads](), dict[tuple[int, int], dict[View, float]]()
    written = {view.buffer.id for issued in core.items for view in _device(issued, writes=True)}
    for position, issued in enumerate(core.items):
        if not core.ran[position] or not evidence.runs(position):
            continue
        if is_transfer(core, position) and evidence.facts[position].writes[1]:
            for view in _device(issued, writes=False):
                number, runs = view.buffer.id, evidence.runs(position)
                loads = found.setdefault(number, _Loads(view.buffer))
                seen = first.setdefault((number, states[number]), {})
                fixed = view.dynamic is None and number not in written
                new = 0.0 if view in seen and view.dynamic is None else 1.0 if fixed else runs
                loads.nbytes[position] = evidence.facts[position].nbytes * runs
                loads.again[position] = 1.0 - new / runs
                seen[view] = seen.get(view, 0.0) + new
        states.update({view.buffer.id for view in _device(issued, writes=True)})
        if "rendezvous" in issued.instruction.effects(issued.arguments):  # the other core may have written
            states.update(found.keys())
    for (number, _), views in first.items():
        found[number].least += _distinct(views, found[number].tensor.nbytes)
    return [loads for loads in found.values() if loads.extra > 0.0]


def _device(issued: Issued, *, writes: bool) -> list[View]:
    """Operands in device memory that an instruction reads, or writes."""
    operands = issued.instruction.operands
    return [
        view
        for name, view in issued.views()
        if view.buffer.region.is_hbm and (operands[name].writes if writes else operands[name].reads)
    ]


def _distinct(views: Mapping[View, float], nbytes: int) -> float:
    """Bytes that different views hold, at most those of the tensor; a dynamic one is another one every time."""
    sizes = 0.0
    for view, count in views.items():
        size = view.dtype.itemsize * count
        for extent, stride in zip(view.shape, view.strides, strict=True):
            size *= extent if stride else 1
        sizes += size
    return float(min(nbytes, sizes))
