"""Zero fills: a sum in PSUM starts with its first product, and not with zeros that another engine writes before.

A published product of 2,048 x 2,048 x 2,048 (awslabs/nki-autotune) fills every tile of PSUM before it adds to it. Its
copies, sums and fills would keep Vector busy for 250 us, and all of it was measured to take 240: the device's compiler
lets the first product overwrite the tile. Zero and a product are that product, but for the sign of a zero that is left
of products too small for float32.
"""

from __future__ import annotations

from dataclasses import replace
from math import copysign

from nki.core.dtypes import float32
from nki.core.tensor import MemoryRegion
from nki.isa.copy import memset
from nki.passes.analysis.accumulation import sums
from nki.passes.analysis.ordered_positions import ordered_positions
from nki.passes.context import Context, rewriting
from nki.passes.editing.remove import kept_items
from nki.spec.program import Block, Issued, Program


def run(program: Program, context: Context) -> Program:
    """Drop fills with zeros of what a matmul then adds to, and let that matmul start the sum.

    Both stand in one block and have one view, and nothing touches its tensor in between. Tensors with addresses stay
    as they are, and so does what `nl.no_reorder` or an edge orders.
    """
    search = _Search(ordered_positions(program, sum(1 for _ in program.body.walk())))
    search.block(program.body)
    if not search.fills:
        return program
    kept = kept_items(program, lambda item: id(item) not in search.fills)
    return replace(kept, body=_started(kept.body, search.starts))


class _Search:
    """One walk over a program.

    Attributes:
        fills, starts: ids of the records of fills that are not needed, and of the matmuls that start their sums.
    """

    def __init__(self, ordered: bytearray) -> None:
        self.fills: set[int] = set()
        self.starts: set[int] = set()
        self._ordered = ordered
        self._position = 0

    def block(self, block: Block) -> None:
        waiting: dict[int, Issued] = {}
        for item in block.items:
            if type(item) is not Issued:
                self.block(item.body)  # type: ignore[union-attr]
                for inner in item.body.walk():  # type: ignore[union-attr]
                    _touched(inner, waiting)
                continue
            free = not self._ordered[self._position]
            self._position += 1
            touched = _touched(item, waiting)
            if free and _fills(item):
                waiting[item.arguments.dst.buffer.id] = item
            elif free and len(touched) == 1 and _adds_to(item, touched[0]):
                self.fills.add(id(touched[0]))
                self.starts.add(id(item))


def _touched(issued: Issued, waiting: dict[int, Issued]) -> list[Issued]:
    """The fills of tensors that an instruction touches; they wait no longer."""
    buffers = {view.buffer.id for _, view in issued.views()} if waiting else ()
    return [fill for fill in (waiting.pop(number, None) for number in buffers) if fill is not None]


def _fills(issued: Issued) -> bool:
    """Whether an instruction writes zeros to a tensor of PSUM that the allocator places."""
    if issued.instruction is not memset:
        return False
    dst, value = issued.arguments.dst, issued.arguments.value
    free = dst.buffer.region is MemoryRegion.psum and dst.buffer.address is None and dst.dynamic is None
    return free and dst.dtype is float32 and value == 0 and copysign(1.0, value) > 0.0


def _adds_to(issued: Issued, fill: Issued) -> bool:
    """Whether a matmul adds to all of what was filled, and to nothing else."""
    return sums(issued) and issued.arguments.accumulate is not False and issued.arguments.dst == fill.arguments.dst


def _started(block: Block, starts: set[int]) -> Block:
    items = [
        item
        if type(item) is Issued and id(item) not in starts
        else item._replace(arguments=item.arguments._replace(accumulate=False))
        if type(item) is Issued
        else replace(item, body=_started(item.body, starts))  # type: ignore[type-var, union-attr]
        for item in block.items
    ]
    return Block(list(block.buffers), items)


PASS = rewriting("zero_fills", "Let a sum in PSUM start with its first product in place of zeros.", run)
