"""Accumulation flags: a matmul that leaves the choice open is told whether it starts or continues a sum."""

from __future__ import annotations

from dataclasses import replace

from nki.core.tensor import MemoryRegion, View
from nki.passes.analysis.accumulation import sums
from nki.passes.context import Context, rewriting
from nki.spec.program import Block, ForLoop, Issued, Program, WhileLoop

History = dict[int, set[View]]
"""For each PSUM buffer of a block the views that were written, in full and at a known address."""


def run(program: Program, context: Context) -> Program:
    """Write ``accumulate`` where it can be known from the program alone.

    ``accumulate=None`` overwrites a location that was not written since the allocation and adds to it otherwise
    (nki/api/nki/isa nc_matmul). It becomes False for bytes that nobody wrote before, and True for a view that a matmul
    wrote before. What depends on a loop's trip, or covers a part of what was written before, stays open.
    """
    return replace(program, body=_block(program.body))


def _block(block: Block) -> Block:
    own = {buffer.id for buffer in block.buffers if buffer.region is MemoryRegion.psum}
    history: History = {key: set() for key in own}
    items: list[Issued | ForLoop | WhileLoop] = []
    for item in block.items:
        if isinstance(item, Issued):
            items.append(_decided(item, history))
            _note(item, history)
        else:
            for issued in item.body.walk():
                for _, view in issued.views():
                    history.pop(view.buffer.id, None)
            items.append(replace(item, body=_block(item.body)))
    return Block(list(block.buffers), items)


def _decided(issued: Issued, history: History) -> Issued:
    arguments = issued.arguments
    if not sums(issued) or arguments.accumulate is not None:
        return issued
    view = arguments.dst
    known = history.get(view.buffer.id)
    if known is None or view.dynamic is not None:
        return issued
    if view in known:
        return _accumulating(issued, True)
    own = _extent(view)
    if all(_apart(own, _extent(other)) for other in known):
        return _accumulating(issued, False)
    return issued


def _accumulating(issued: Issued, flag: bool) -> Issued:
    """The instruction with its flag."""
    instruction, arguments, location, engine = issued
    fields = instruction.arguments
    place = fields._fields.index("accumulate")
    # A tuple of the same class, which `_replace` makes in several times as long.
    told = tuple.__new__(fields, (*arguments[:place], flag, *arguments[place + 1 :]))
    return tuple.__new__(Issued, (instruction, told, location, engine))


def _extent(view: View) -> tuple[int, int, int, int]:
    """First and last partition and byte of a static view, half open."""
    size = view.dtype.itemsize
    partition, free = divmod(view.offset, view.row)
    spans = [(n - 1) * s for n, s in zip(view.shape[1:], view.strides[1:], strict=True)]
    low, high = free + sum(s for s in spans if s < 0), free + sum(s for s in spans if s > 0)
    return partition, partition + view.shape[0], low * size, (high + 1) * size


def _apart(a: tuple[int, int, int, int], b: tuple[int, int, int, int]) -> bool:
    return a[1] <= b[0] or b[1] <= a[0] or a[3] <= b[2] or b[3] <= a[2]


def _note(issued: Issued, history: History) -> None:
    """A matmul's destination was written in full; whatever else writes a tensor, or writes it somewhere, closes it."""
    arguments = issued.arguments
    for position in issued.instruction.written_positions:
        value = arguments[position]
        for view in (value,) if type(value) is View else value if type(value) is tuple else ():
            known = history.get(view.buffer.id)
            if known is None:
                continue
            if view.dynamic is None and "accumulate" in issued.instruction.operands:
                known.add(view)
            else:
                del history[view.buffer.id]


PASS = rewriting("accumulate_flags", "Tell each matmul whether it starts or continues a sum.", run)
