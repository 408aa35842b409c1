"""The rule of the advice on loads of bytes that were loaded before, and what other rules ask about them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from nki.core.tensor import Buffer, View
from nki.profiling.advice.ranking import LEAST, Advice, Evidence, amount, duration, listed, times, where
from nki.profiling.facts.change import UNUSED, Change, scaled, unused
from nki.profiling.facts.timed_core import is_transfer
from nki.spec.program import Issued
from nki.timing.recipe import Recipe

BOUND = 0.7
"""A unit that is busy for more of the time than this is what bounds a program, and not the lack of overlap."""

_CAUSE = 0.25
"""If so much of what a rule complains about are bytes that are loaded again, these are the cause."""

_NAMED = 3

_ROOM = 0.75
"""Part of SBUF that what is kept may take."""


@dataclass(slots=True)
class _Loads:
    """The transfers from one tensor in device memory.

    Attributes:
        nbytes: payload of each transfer, all runs.
        loaded: bytes of the tensor that each transfer reads, all runs; one that it repeats over partitions counts once.
        again: part of each transfer's runs that load exactly what was loaded before.
        kept: the earlier transfer of the same bytes, for each that loads them again.
        least: bytes that have to be loaded, each once for every state of the tensor.
        tiles: bytes of each partition that different parts of the tensor take in SBUF.
    """

    tensor: Buffer
    nbytes: dict[int, float] = field(default_factory=dict)
    loaded: dict[int, float] = field(default_factory=dict)
    again: dict[int, float] = field(default_factory=dict)
    kept: dict[int, int] = field(default_factory=dict)
    least: float = 0.0
    tiles: dict[View, int] = field(default_factory=dict)

    @property
    def times(self) -> float:
        """How often each byte is loaded, on average."""
        return sum(self.loaded.values()) / self.least

    @property
    def extra(self) -> float:
        """Payload that need not move."""
        return sum(self.nbytes.values()) * (1.0 - 1.0 / self.times)


def repeated_loads(evidence: Evidence) -> Advice | None:
    """Advice for tensors whose bytes are loaded several times."""
    found = sorted(_repeated(evidence), key=lambda loads: -loads.extra)
    if not found:
        return None
    core, extra = evidence.core, sum(loads.extra for loads in found)
    again, starting = _again(found), _starting(evidence, found)
    count = sum(evidence.runs(at) * part for at, part in again.items())
    named = ", ".join(
        f"{each.tensor.name} ({amount(each.tensor.nbytes)}) {times(each.times)}" for each in found[:_NAMED]
    )
    begun = f", and starting {count:,.0f} transfers for it {duration(sum(starting.values()))}" if starting else ""
    costs = {at: nbytes for loads in found for at, nbytes in loads.nbytes.items()}
    return Advice(
        "repeated-loads",
        "dma",
        f"the same bytes are loaded again: {named}, {amount(extra)} more than needed; moving that takes "
        f"{duration(extra / core.target.dma.aggregate_gbps)} at the full rate{begun}{where(evidence, costs)}",
        _kept(found, evidence),
        evidence.gain(_without(evidence, found)),
        costs,
    )


def _kept(found: list[_Loads], evidence: Evidence) -> str:
    """What to do about the tensors that are loaded again, those first that are most."""
    size, needed = evidence.core.target.sbuf.bytes_per_partition, 0
    fitting: list[str] = []
    for loads in found[:_NAMED]:
        tiles = sum(loads.tiles.values())
        if needed + tiles <= _ROOM * size:
            needed += tiles
            fitting.append(loads.tensor.name)
    if not fitting:
        return (
            f"{found[0].tensor.name} is too large to stay in SBUF: change the order of the loops, so that a tile of it "
            "is used for everything while it is there"
        )
    names, them = listed(fitting), "it" if len(fitting) == 1 else "them"
    takes = "it takes" if len(fitting) == 1 else "they take"
    return (
        f"load {names} once, before the loop, and keep {them} in SBUF: {takes} {amount(needed)} of the {amount(size)} "
        "in each partition"
    )


def caused_by_repeats(evidence: Evidence, costs: Mapping[int, float]) -> bool:
    """Whether a large part of these costs of transfers is due to bytes that are loaded again, which is advice then."""
    found = _repeated(evidence)
    again = _again(found)
    part = sum(ns * again.get(at, 0.0) for at, ns in costs.items())
    worth = part >= _CAUSE * sum(costs.values())
    return worth and evidence.expected(_without(evidence, found)) >= LEAST * evidence.makespan


def _without(evidence: Evidence, found: list[_Loads]) -> Change:
    """The program without what is loaded again.

    Of a tensor of which only parts are loaded again, every load is shorter by that part.
    """
    gone: dict[int, int] = {}
    recipes: dict[int, Recipe] = {}
    for loads in found:
        gone |= {at: loads.kept[at] if loads.kept[at] < at else UNUSED for at, part in loads.again.items() if part}
        if not any(loads.again.values()):
            part = 1.0 / loads.times
            recipes |= {at: scaled(evidence.core.recipes[at], 0.0, part) for at in loads.nbytes}
    return Change(recipes, gone=unused(evidence.core, gone))


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
    origin: dict[tuple[int, View], int] = {}
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
                loads.loaded[position] = _read(view, issued) * runs
                loads.tiles[view] = _tile(issued)
                loads.again[position] = 1.0 - new / runs
                seen[view] = seen.get(view, 0.0) + new
                loads.kept[position] = origin.setdefault((states[number], view), position)
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


def _tile(issued: Issued) -> int:
    """Bytes in each partition of what a transfer writes."""
    written = (view for name, view in issued.views() if issued.instruction.operands[name].writes)
    return max(prod(view.shape[1:]) * view.dtype.itemsize for view in written)


def _read(view: View, issued: Issued) -> int:
    """Different bytes of the tensor that one run of a transfer reads through a view of it, however often it does."""
    written = (to for name, to in issued.views() if issued.instruction.operands[name].writes)
    return min(_size(view), view.dtype.itemsize * max(prod(to.shape) for to in written))


def _size(view: View) -> int:
    """Different bytes that a view holds: dimensions without a step repeat, and steps may lead to the same place."""
    moving = [(extent, abs(step)) for extent, step in zip(view.shape, view.strides, strict=True) if step]
    reach = 1 + sum((extent - 1) * step for extent, step in moving)
    return view.dtype.itemsize * min(prod(extent for extent, _ in moving), reach)


def _distinct(views: Mapping[View, float], nbytes: int) -> float:
    """Bytes that different views hold, at most those of the tensor; a dynamic one is another one every time."""
    return float(min(nbytes, sum(_size(view) * count for view, count in views.items())))
