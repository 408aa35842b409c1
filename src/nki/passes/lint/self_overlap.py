"""Instructions that read what they write, but shifted: engines and DMA write while they read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from nki.core.tensor import ScalarOffset, View
from nki.passes.analysis.disjoint import disjoint
from nki.passes.analysis.footprints import Accesses, Footprint
from nki.spec.program import Issued, Program
from nki.spec.rule import Finding
from nki.target.model import Target

_REORDER = frozenset({"dma_transpose"})
"""Instructions that move elements even where source and destination are one view."""


def self_overlaps(program: Program, target: Target) -> list[Finding]:
    """A warning for each instruction whose source and destination share elements, but not each with itself.

    The machine reads all of a source before it writes. An engine or a DMA queue writes while it reads, and no document
    says how far the one runs ahead of the other. What is read and written in place is no mistake. Operands of one
    element for each partition are read at the start, and what is reduced is written at the end.

    Code: ``access.overlap``.
    """
    accesses = Accesses(program, target)
    found: list[Finding] = []
    for issued in program.body.walk():
        for dst, src in _shared(issued):
            read, written = accesses.footprint(src), accesses.footprint(dst)
            if read.space == written.space and not disjoint(read, written):
                finding = _finding(issued, (dst, written), (src, read))
                if finding not in found:
                    found.append(finding)
                break
    return found


class _Order(NamedTuple):
    """Which bytes a view names, in which order: partitions, the first byte, and steps from the outermost inwards."""

    space: int | str
    partitions: tuple[int, int]
    start: int
    size: int
    steps: tuple[tuple[int, int], ...]


def _shared(issued: Issued) -> Iterator[tuple[View, View]]:
    """Destinations and sources of as many elements that may lie in the same bytes, and not in the same order."""
    operands = issued.instruction.operands
    views = list(issued.views())
    for name, dst in views:
        if not operands[name].writes:
            continue
        for other, src in views:
            if other == name or not operands[other].reads or dst.size != src.size:
                continue
            if src.buffer is not dst.buffer and (src.buffer.address is None or dst.buffer.address is None):
                continue
            pair = _at_one_place(dst, src)
            if pair is not None and (issued.instruction.name in _REORDER or not _in_place(issued, *pair)):
                yield pair


def _at_one_place(dst: View, src: View) -> tuple[View, View] | None:
    """Both views as static ones; None where nobody knows how far they are apart."""
    if dst.dynamic is None and src.dynamic is None:
        return dst, src
    same = isinstance(dst.dynamic, ScalarOffset) and dst.dynamic == src.dynamic
    return (dst._replace(dynamic=None), src._replace(dynamic=None)) if same else None


def _in_place(issued: Issued, dst: View, src: View) -> bool:
    """Whether each element that is read and written is written in the place from which it was read."""
    if dst == src or _order(dst) == _order(src):
        return True
    if not issued.instruction.moves_bits or dst.dtype is not src.dtype or dst.shape != src.shape:
        return False
    spread = [size > 1 and stride == 0 for size, stride in zip(src.shape, src.strides, strict=True)]
    if not any(spread) or (src.on_chip and spread[0]):
        return False
    return _order(_without(dst, spread)) == _order(_without(src, spread))  # of a spread row the first copy is itself


def _without(view: View, dims: list[bool]) -> View:
    kept = [at for at, gone in enumerate(dims) if not gone]
    return view._replace(shape=tuple(view.shape[at] for at in kept), strides=tuple(view.strides[at] for at in kept))


def _order(view: View) -> _Order:
    buffer, size = view.buffer, view.dtype.itemsize
    space: int | str = buffer.id if buffer.address is None else buffer.region.name
    partition, byte = buffer.address or (0, 0)
    partitions, start, inner = (0, 1), view.offset, 0
    if view.on_chip:
        first, start = divmod(view.offset, view.row)
        partitions, inner = (partition + first, view.shape[0]), 1
    steps: list[tuple[int, int]] = []
    for count, stride in zip(view.shape[inner:], view.strides[inner:], strict=True):
        if count == 1:
            continue
        if steps and steps[-1][0] == stride * size * count:
            steps[-1] = (stride * size, steps[-1][1] * count)
        else:
            steps.append((stride * size, count))
    return _Order(space, partitions, byte + start * size, size, tuple(steps))


def _finding(issued: Issued, dst: tuple[View, Footprint], src: tuple[View, Footprint]) -> Finding:
    apart = _apart(_order(dst[0]), _order(src[0]))
    label = issued.instruction.label
    return Finding(
        "access.overlap",
        "warning",
        f"{label} reads {_place(*src)} of {src[0].buffer.name} and writes {_place(*dst)}, {apart}: "
        "it may read what it has written itself",
        "an instruction writes while it reads: its source and destination are apart, or elements stay in place",
        "",
        "write to another tensor, and copy that back with a second instruction",
        issued.location,
        {"reads": _place(*src), "writes": _place(*dst)},
    )


def _place(view: View, footprint: Footprint) -> str:
    size = view.dtype.itemsize
    elements = f"elements {footprint.low // size}:{footprint.high // size}"
    return elements if footprint.hbm else f"partitions {footprint.first}:{footprint.after}, {elements}"


def _apart(dst: _Order, src: _Order) -> str:
    """How far the destination lies from the source."""
    if (dst.size, dst.steps, dst.partitions[1]) != (src.size, src.steps, src.partitions[1]):
        return "in another order"
    partitions, elements = dst.partitions[0] - src.partitions[0], (dst.start - src.start) // src.size
    parts = [_count(partitions, "partition")] if partitions else []
    if elements or not parts:
        parts.append(_count(elements, "element"))
    return " and ".join(parts)


def _count(number: int, noun: str) -> str:
    amount = abs(number)
    return f"{amount} {noun}{'' if amount == 1 else 's'} {'later' if number > 0 else 'earlier'}"
