"""The rules of the advice: what engines do that the same work could do in less time.

A rule that speaks of another form of an instruction asks the formula of its declaration what that form would cost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from nki.core.dtypes import bfloat16
from nki.core.tensor import MemoryRegion, View, contiguous_strides
from nki.profiling.advice.ranking import Advice, Evidence, Gain, busy, duration, most_of, percent, where, work
from nki.profiling.facts.change import Change, recipe_of
from nki.profiling.facts.work import on_chip
from nki.spec.program import Issued
from nki.timing.recipe import MATMUL, Recipe


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


def _changed(evidence: Evidence, positions: Iterable[int], change: Callable[[Issued], Issued]) -> Change:
    """The change that puts some instructions into another form."""
    items = evidence.core.items
    known: dict[int, Recipe] = {}
    made = {}
    for at in positions:
        kind = id(evidence.core.recipes[at])
        if kind not in known:
            known[kind] = recipe_of(evidence.core, change(items[at]))
        made[at] = known[kind]
    return Change(recipes=made)


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
    if not psum and not narrow:
        return None
    costs = {position: evidence.ns(position) for position in {*psum, *narrow}}
    total, less = sum(costs.values()), max(sum(psum.values()), sum(narrow.values()))
    options = [
        f"{what} takes {duration(sum(saved.values()))} less{how}"
        for what, how, saved in (("with one of them in PSUM it", _TO_PSUM, psum), ("with bfloat16 it", "", narrow))
        if saved
    ]
    return Advice(
        "two-inputs",
        "vector",
        f"{busy(evidence, 'vector')}; {percent(total, evidence.busy('vector'))} of its work are instructions that read "
        f"two tiles from SBUF, which takes {total / (total - less):.3g} times as long as with one of them in PSUM or "
        f"with tiles of bfloat16{where(evidence, costs)}",
        "; ".join(options),
        _best(
            evidence.gain(_changed(evidence, psum, lambda issued: _with(issued, _first_in_psum(issued)))),
            evidence.gain(_changed(evidence, _all(evidence), lambda issued: _with(issued, _narrow))),
        ),
        costs,
    )


def _all(evidence: Evidence) -> range:
    return range(len(evidence.core.items))


def _best(*gains: Gain) -> Gain:
    """What the best of several ways gives."""
    return Gain(max(gain.expected for gain in gains), max(gain.most for gain in gains))


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
        evidence.gain(_in_bfloat16(evidence, saved)),
        costs,
    )


def _narrow_operands(name: str, view: View) -> View:
    return _narrow(name, view) if name in ("stationary", "moving") else view


def _in_bfloat16(evidence: Evidence, matmuls: Collection[int]) -> Change:
    """The operands of matmuls in bfloat16, and all that reads or writes these tiles; what is loaded is half as much."""
    items = evidence.core.items
    tiles = {view.buffer.id for at in matmuls for name, view in items[at].views() if name in ("stationary", "moving")}

    def narrowed(issued: Issued) -> Issued:
        def change(name: str, view: View) -> View:
            mine = view.buffer.id in tiles or view.buffer.region.is_hbm
            return _narrow(name, view) if mine else view

        return _with(issued, change)

    touching = [at for at in _all(evidence) if any(view.buffer.id in tiles for _, view in items[at].views())]
    return Change(recipes={at: recipe_of(evidence.core, narrowed(items[at])) for at in touching})


def far_strides(evidence: Evidence) -> Advice | None:
    """Innermost steps that are far apart slow every engine down."""
    positions = evidence.on("vector", "scalar", "tensor")
    saved = _saved(evidence, positions, lambda issued: _with(issued, _dense))
    saved = {
        at: ns for at, ns in saved.items() if any(_far(view, evidence) for _, view in evidence.core.items[at].views())
    }
    if not saved:
        return None
    unit = most_of(evidence, saved)
    far = evidence.core.target.access.stride_penalty_bytes
    return Advice(
        "far-strides",
        unit,
        f"{busy(evidence, unit)}; {duration(sum(saved.values()))} of that because neighbouring elements of a tile "
        f"lie more than {far} bytes apart in their partition{where(evidence, saved)}",
        "lay the tile out so that its last dimension is contiguous, or transpose it while it is loaded",
        evidence.gain(_changed(evidence, saved, lambda issued: _with(issued, _dense))),
        saved,
    )


def _dense(name: str, view: View) -> View:
    if not on_chip(view):
        return view
    return view._replace(strides=(view.strides[0], *contiguous_strides(view.shape[1:])))


def _far(view: View, evidence: Evidence) -> bool:
    steps = [s for n, s in zip(view.shape[1:], view.strides[1:], strict=True) if n > 1]
    return bool(steps) and abs(steps[-1]) * view.dtype.itemsize > evidence.core.target.access.stride_penalty_bytes
