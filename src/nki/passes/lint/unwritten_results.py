"""Results of a kernel of which some elements are never written: which ones, as slices."""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterable, Sequence
from math import gcd
from typing import NamedTuple

import numpy as np

from nki.core.tensor import View
from nki.passes.analysis.footprints import Accesses, Footprint
from nki.passes.analysis.loop_views import spread_out
from nki.spec.program import Block, Issued, Program, trips_of
from nki.spec.rule import Finding
from nki.target.model import Target

_MOST_UNITS = 1 << 26
"""Pieces of a result that are followed one by one; a larger one that is written in finer pieces is not judged."""

_MOST_BOXES = 3
"""Regions that a message names."""


_ASSIGNED = re.compile(r"\s*(\w+)\s*(?::[^=]*)?=\s*$")


class ElementBox(NamedTuple):
    """A box of elements: where each dimension begins and ends."""

    begin: tuple[int, ...]
    end: tuple[int, ...]


def partly_written(programs: Sequence[Program], target: Target) -> list[Finding]:
    """A warning for each result of which some elements are certainly never written, by no core.

    What an instruction at a dynamic address can reach counts as written, unless the address counts with loops of known
    trips; so does what is in a loop whose trips are not known. A result that nobody writes to at all has a warning of
    its own, ``return.unwritten``.

    Code: ``return.partly-written``.
    """
    wanted = [place for place, view in enumerate(programs[0].outputs) if view.buffer.role == "temporary" and view.size]
    if not wanted or any(_touches_anything(program.body) for program in programs):
        return []
    writes = [_writes(spread_out(program), target) for program in programs]
    found = []
    for place in wanted:
        footprints = {
            footprint
            for program, by_buffer in zip(programs, writes, strict=True)
            if place < len(program.outputs)
            for footprint in by_buffer.get(program.outputs[place].buffer.id, ())
        }
        view = programs[0].outputs[place]
        missing = _missing(view, footprints) if footprints else None
        if missing is not None:
            found.append(_finding(view, missing))
    return found


def _touches_anything(block: Block) -> bool:
    return any("fence" in issued.instruction.effects(issued.arguments) for issued in block.walk())


def _writes(program: Program, target: Target) -> dict[int, set[Footprint]]:
    """What the instructions that may run write to the results, by buffer."""
    accesses = Accesses(program, target)
    found: dict[int, set[Footprint]] = {view.buffer.id: set() for view in program.outputs}

    def follow(block: Block) -> None:
        for item in block.items:
            if not isinstance(item, Issued):
                if trips_of(item) != 0:
                    follow(item.body)
                continue
            for view in item.written():
                if view.buffer.id in found:
                    found[view.buffer.id].add(accesses.footprint(view))

    follow(program.body)
    return found


def _missing(view: View, footprints: Iterable[Footprint]) -> np.ndarray | None:
    """Which elements of a result nobody writes, bool in its shape; None if there are none, or if nobody can tell."""
    total = view.buffer.nbytes
    unit = total
    for f in footprints:
        if not f.dims and f.low == 0 and f.run >= total:
            return None
        unit = gcd(unit, f.low, f.run, *(stride for stride, _ in f.dims))
    if total // unit > _MOST_UNITS:
        return None
    written = np.zeros(total // unit, np.bool_)
    for f in footprints:
        shape = (*(count for _, count in f.dims), f.run // unit)
        strides = (*(stride // unit for stride, _ in f.dims), 1)
        np.ndarray(shape, np.bool_, written, f.low // unit, strides)[...] = True
    if written.all():
        return None
    size = view.dtype.itemsize
    if total // size > _MOST_UNITS:
        return None
    elements = np.repeat(written, unit // size) if unit >= size else written.reshape(-1, size // unit).all(axis=1)
    seen = np.ndarray(view.shape, np.bool_, np.ascontiguousarray(elements), view.offset, view.strides)
    return None if seen.all() else ~seen


def _finding(view: View, missing: np.ndarray) -> Finding:
    name = _name(view)
    count, regions = int(np.count_nonzero(missing)), regions_of(missing)
    shown = [f"{name}[{_slices(region, missing.shape)}]" for region in regions[:_MOST_BOXES]]
    more = "" if len(regions) <= _MOST_BOXES else " and more"
    verb = "is" if len(shown) == 1 and not more else "are"
    return Finding(
        "return.partly-written",
        "warning",
        f"{', '.join(shown)}{more} {verb} never written: {count} of {missing.size} elements of the result "
        f"{view.describe()}",
        "what a kernel returns is what it stored there, and the rest is left to chance",
        "nki/get-started/nki-language-guide.rst",
        _fix(regions[0], missing.shape),
        view.buffer.location,
        {"region": ", ".join(_slices(region, missing.shape) for region in regions[:_MOST_BOXES]), "elements": count},
    )


def _fix(region: ElementBox, shape: tuple[int, ...]) -> str:
    """What is missing is mostly the last tile, which is smaller than the others."""
    for begin, end, size in zip(region.begin, region.end, shape, strict=True):
        if begin > 0 and end == size:
            return (
                f"write the last {size - begin} as well: let the loop round up, and the last tile have min(tile, "
                f"{size} - start) rows or columns"
            )
    return (
        f"write [{_slices(region, shape)}] as well: let the indices of the loop reach it, and use none of them after "
        "the loop, as a lambda does; or return a tensor that has only what was written"
    )


def _name(view: View) -> str:
    """What the kernel calls the tensor: the variable that it is assigned to, where that is seen, else its own name."""
    for frame in view.buffer.location.frames:
        found = _ASSIGNED.match(linecache.getline(frame.file, frame.line)[: frame.column])
        if found is not None:
            return found[1]
    return view.buffer.name


def regions_of(missing: np.ndarray) -> list[ElementBox]:
    """Boxes that together are what is missing: at most one more than are named."""
    left = missing.copy()
    found: list[ElementBox] = []
    while len(found) <= _MOST_BOXES and left.any():
        begin = np.unravel_index(int(left.argmax()), left.shape)
        region = _grown(left, tuple(int(at) for at in begin))
        left[tuple(slice(a, b) for a, b in zip(*region, strict=True))] = False
        found.append(region)
    return found


def _grown(left: np.ndarray, begin: tuple[int, ...]) -> ElementBox:
    """The box that begins there: as long as possible in the last dimension, then in the one before."""
    end = [at + 1 for at in begin]
    for axis in reversed(range(left.ndim)):
        box = tuple(slice(a, None if k == axis else b) for k, (a, b) in enumerate(zip(begin, end, strict=True)))
        whole = left[box].all(axis=tuple(k for k in range(left.ndim) if k != axis))
        length = whole.size if whole.all() else int(whole.argmin())
        end[axis] = begin[axis] + length
    return ElementBox(begin, tuple(end))


def _slices(region: ElementBox, shape: tuple[int, ...]) -> str:
    parts = []
    for begin, end, size in zip(*region, shape, strict=True):
        if (begin, end) == (0, size):
            parts.append(":")
        else:
            parts.append(str(begin) if end == begin + 1 else f"{begin}:{end}")
    return ", ".join(parts)
