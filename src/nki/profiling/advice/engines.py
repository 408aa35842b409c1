"""The rules of the advice: what engines do that the same work could do in less time.

A rule that speaks of another form of an instruction asks the formula of its declaration what that form would cost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from nki.core.dtypes import bfloat16
from nki.core.tensor import MemoryRegion, View, contiguous_strides
from nki.profiling.advice.ranking import Advice, Evidence, busy, counted, duration, percent, ranked, where, work
from nki.profiling.facts.work import on_chip
from nki.spec.program import Issued
from nki.timing.recipe import MATMUL


def _with(issued: Issued, change: Callable[[str, View], View]) -> Issued:
    """The instruction with other views."""
    made = {}
    for name, value in zip(issued.instruction.operands, issued.arguments, strict=True):
        if type(value) is View:
            made[name] = change(name, value)
    return issued._replace(arguments=issued.arguments._replace(**made))


def _narrow(name: str, view: View) -> View:
    return view._replace(dtype=bfloat16) if view.dtype.kind == "float" and view.dtype.itemsize > 2 else view


def _saved(evidence: Evidence, positions: list[int], change: Callable[[Issued], Issued]) -> dict[int, float]:
    """ns that each instruction would take less, where that is anything; the same for all of one shape."""
    found: dict[int, float] = {}
    known: dict[int, float] = {}
    for position in positions:
        recipe = evidence.core.recipes[position]
        less = known.get(id(recipe))
        if less is None:
            issued = evidence.core.items[position]
            less = known[id(recipe)] = work(issued, evidence) - work(change(issued), evidence)
        if less > 0.0:
            found[position] = less * evidence.runs(position)
    return found


def _inputs(issued: Issued) -> list[tuple[str, View]]:
    operands = issued.instruction.operands
    return [(name, view) for name, view in issued.views() if operands[name].reads and not operands[name].writes]


def two_inputs(evidence: Evidence) -> Advice | None:
    """Vector reads two tiles from SBUF, one element in two cycles."""
    positions = []
    for position in evidence.on("vector"):
        issued = evidence.core.items[position]
        tiles = [view for _, view in _inputs(issued) if view.buffer.region is MemoryRegion.sbuf and view.shape[-1] > 1]
        if len(tiles) >= 2:
            positions.append(position)
    psum = _saved(evidence, positions, lambda issued: _with(issued, _first_in_psum(issued)))
    narrow = _saved(evidence, positions, lambda issued: _with(issued, _narrow))
    best = max((psum, narrow), key=lambda saved: sum(saved.values()))
    if not best:
        return None
    costs = {position: evidence.ns(position) for position in {*psum, *narrow}}
    options = [
        f"{what} would save {duration(sum(saved.values()))}{how}"
        for what, how, saved in (("one operand in PSUM", _TO_PSUM, psum), ("bfloat16 throughout", "", narrow))
        if saved
    ]
    return Advice(
        "two-inputs",
        "vector",
        f"{busy(evidence, 'vector')}; {percent(sum(costs.values()), evidence.busy('vector'))} of its work are "
        f"instructions that read two tiles from SBUF, which takes two cycles for each element instead of one"
        f"{where(evidence, costs)}",
        "; ".join(options),
        evidence.shorter("vector", best),
        ranked(costs),
    )


_TO_PSUM = " (the DMA cannot write there: ScalarE copies it, or computes it there)"


def _first_in_psum(issued: Issued) -> Callable[[str, View], View]:
    first = next(name for name, view in _inputs(issued) if view.buffer.region is MemoryRegion.sbuf)

    def change(name: str, view: View) -> View:
        if name != first:
            return view
        return view._replace(buffer=replace(view.buffer, region=MemoryRegion.psum))

    return change


def float32_matmul(evidence: Evidence) -> Advice | None:
    """Matmuls of 4-byte operands take several passes."""
    found = {at: evidence.ns(at) for at in evidence.on("tensor") if evidence.core.recipes[at].kind == MATMUL}
    saved = _saved(evidence, list(found), lambda issued: _with(issued, _narrow_operands))
    if not saved:
        return None
    costs = {position: found[position] for position in saved}
    times = sum(costs.values()) / (sum(costs.values()) - sum(saved.values()))
    return Advice(
        "float32-matmul",
        "tensor",
        f"{busy(evidence, 'tensor')}; {percent(sum(costs.values()), evidence.busy('tensor'))} of its work are matmuls "
        f"of float32, which take {times:.3g} times as long as those of bfloat16{where(evidence, costs)}",
        f"give nc_matmul operands of bfloat16, which saves {duration(sum(saved.values()))} of TensorE: they are "
        "rounded to 8 bits of mantissa, an error of up to 1 in 256, and the products are still added up in float32",
        evidence.shorter("tensor", saved),
        ranked(costs),
    )


def _narrow_operands(name: str, view: View) -> View:
    return _narrow(name, view) if name in ("stationary", "moving") else view


def far_strides(evidence: Evidence) -> Advice | None:
    """Innermost steps that are far apart slow every engine down."""
    positions = evidence.on("vector", "scalar", "tensor")
    saved = _saved(evidence, positions, lambda issued: _with(issued, _dense))
    saved = {
        at: ns for at, ns in saved.items() if any(_far(view, evidence) for _, view in evidence.core.items[at].views())
    }
    if not saved:
        return None
    unit = _most(evidence, saved)
    far = evidence.core.target.access.stride_penalty_bytes
    return Advice(
        "far-strides",
        unit,
        f"{busy(evidence, unit)}; {duration(sum(saved.values()))} of that because neighbouring elements of a tile "
        f"lie more than {far} bytes apart in their partition{where(evidence, saved)}",
        "lay the tile out so that its last dimension is contiguous, or transpose it while it is loaded",
        evidence.shorter(unit, {at: ns for at, ns in saved.items() if evidence.core.unit(at) == unit}),
        ranked(saved),
    )


def _dense(name: str, view: View) -> View:
    if not on_chip(view):
        return view
    return view._replace(strides=(view.strides[0], *contiguous_strides(view.shape[1:])))


def _far(view: View, evidence: Evidence) -> bool:
    steps = [s for n, s in zip(view.shape[1:], view.strides[1:], strict=True) if n > 1]
    return bool(steps) and abs(steps[-1]) * view.dtype.itemsize > evidence.core.target.access.stride_penalty_bytes


def _most(evidence: Evidence, costs: dict[int, float]) -> str:
    """The unit that most of the time belongs to."""
    by_unit: dict[str, float] = {}
    for position, ns in costs.items():
        unit = evidence.core.unit(position)
        by_unit[unit] = by_unit.get(unit, 0.0) + ns
    return max(by_unit, key=lambda unit: by_unit[unit])


def few_partitions(evidence: Evidence) -> Advice | None:
    """Lanes of partitions that an instruction does not use stand still."""
    lanes = evidence.core.target.partitions
    found: dict[int, float] = {}
    for position in evidence.on("vector", "scalar"):
        used = evidence.facts[position].partitions
        if used <= lanes // 2:
            found[position] = evidence.ns(position) * (1.0 - used / lanes)
    if not found:
        return None
    unit = _most(evidence, found)
    here = {at: ns for at, ns in found.items() if evidence.core.unit(at) == unit}
    costs = {at: evidence.ns(at) for at in here}
    mean = lanes * (1.0 - sum(here.values()) / sum(costs.values()))
    return Advice(
        "few-partitions",
        unit,
        f"{busy(evidence, unit)}; {percent(sum(costs.values()), evidence.busy(unit))} of its work is done on "
        f"{mean:.0f} of {lanes} partitions on average{where(evidence, costs)}",
        f"spread the work over more partitions, for example by loading more rows at once: an instruction takes as long "
        f"for {lanes} partitions as for one",
        evidence.shorter(unit, here),
        ranked(costs),
    )


def short_instructions(evidence: Evidence) -> Advice | None:
    """An instruction of few elements takes as long as one of the least interval."""
    least = evidence.core.target.issue.min_ii_cycles
    found: dict[int, float] = {}
    for position in evidence.on("vector", "scalar"):
        elements = evidence.facts[position].elements
        if elements < least:
            ghz = evidence.core.target.engines[evidence.core.unit(position)].ghz
            streaming = elements / ghz * evidence.runs(position)
            found[position] = max(0.0, evidence.ns(position) - streaming)
    if not found:
        return None
    unit = _most(evidence, found)
    here = {at: ns for at, ns in found.items() if evidence.core.unit(at) == unit}
    times = sum(evidence.runs(at) for at in here)
    mean = sum(evidence.facts[at].elements * evidence.runs(at) for at in here) / times
    return Advice(
        "short-instructions",
        unit,
        f"{busy(evidence, unit)}; in {counted(times, 'instruction')} it works on {counted(mean, 'element')} of each "
        f"partition on average, but none takes less time than {least} elements would, and each has to be started: "
        f"{duration(sum(here.values()))} in which nothing is computed{where(evidence, here)}",
        "let one instruction work on more elements: put several tiles next to each other in the free dimension",
        evidence.shorter(unit, here),
        ranked(here),
    )


def slow_engine(evidence: Evidence) -> Advice | None:
    """GpSimd does what Vector could do faster."""
    positions = [at for at in evidence.on("gpsimd") if _vector_too(evidence.core.items[at])]
    saved = _saved(evidence, positions, lambda issued: issued._replace(engine=_vector(issued)))
    if not saved:
        return None
    costs = {at: evidence.ns(at) for at in saved}
    spare = evidence.makespan - evidence.busy("vector")
    return Advice(
        "slow-engine",
        "gpsimd",
        f"{busy(evidence, 'gpsimd')}; {percent(sum(costs.values()), evidence.busy('gpsimd'))} of its work could be "
        f"done by VectorE in {duration(sum(costs.values()) - sum(saved.values()))}, which is idle for {duration(spare)}"
        f"{where(evidence, costs)}",
        "write engine=nisa.engine.vector for these instructions, as many of them as VectorE has time for",
        evidence.possible("gpsimd", min(sum(saved.values()), spare)),
        ranked(costs),
    )


def _vector_too(issued: Issued) -> bool:
    return any(each.name == "vector" for each in issued.instruction.engines) and not any(
        view.dtype.kind in ("int", "uint") and view.dtype.itemsize == 4 for _, view in issued.views()
    )


def _vector(issued: Issued) -> Any:
    return next(each for each in issued.instruction.engines if each.name == "vector")
