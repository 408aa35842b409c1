"""Products in PSUM that are overwritten before anything reads them, or that nothing reads at all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nki.core.source import Location
from nki.core.tensor import Buffer, MemoryRegion, View
from nki.passes.analysis.accumulation import adds_to_sum, sums
from nki.passes.analysis.footprints import Accesses
from nki.passes.analysis.memory_usage import place_of
from nki.passes.lint.control_flow import ControlFlow
from nki.passes.lint.writers import MAYBE, NOBODY, Plane
from nki.spec.engine import engine as Engine
from nki.spec.program import Block, ForLoop, Issued, Program, WhileLoop
from nki.spec.rule import Finding
from nki.target.model import Target


def lost_products(program: Program, target: Target) -> list[Finding]:
    """A warning for each line that overwrites all of a product of the Tensor engine that nothing has read.

    And one for each line some of whose products are read, while others are in tensors that nothing reads: it is in a
    loop that makes a new tensor in each trip. Transposes are no part of a sum: one that nobody needs is no mistake.

    A finding is certain: about instructions that run whatever the data is. Other engines overwrite what they do not
    need, for example where only a reduction on the side is wanted, and a fill before a sum changes nothing; so only
    products and transposes count, and not those of constants, which keep the engine's clock up.

    Codes: ``psum.overwritten``, ``psum.unread``.
    """
    if not any(issued.engine is Engine.tensor for issued in program.body.walk()):
        return []
    walk = _Products(program, target)
    walk.block(program.body, certain=True)
    lines: dict[tuple[Location, Location], list[tuple[Issued, Issued]]] = {}
    for lost, by in walk.lost:
        lines.setdefault((lost.location, by.location), []).append((lost, by))
    unread: dict[Location, list[tuple[Issued, View]]] = {}
    for product, view in walk.left():
        unread.setdefault(product.location, []).append((product, view))
    return [
        *(_finding(*pairs[0], len(pairs)) for pairs in lines.values()),
        *(_unread(*products[0], len(products)) for products in unread.values()),
    ]


class _Products(ControlFlow):
    """Follows a program; `lost` has pairs of an instruction and of the one that overwrites its product."""

    def __init__(self, program: Program, target: Target) -> None:
        self.lost: list[tuple[Issued, Issued]] = []
        placed = [b for b in program.body.all_buffers() if b.address is not None and b.region is MemoryRegion.psum]
        ends = [(b.address[0] + b.partitions, b.address[1] + b.row_bytes) for b in placed if b.address is not None]
        self._whole = max((end for end, _ in ends), default=0), max((end for _, end in ends), default=0)
        self._accesses = Accesses(program, target)
        self._planes: dict[int | str, Plane] = {}
        self._unread: dict[int, tuple[Issued, View]] = {}
        self._read: set[Location] = set()
        self._numbers = 0
        self._varying = {buffer.id for buffer in program.inputs}  # tensors whose values are no constants

    def left(self) -> list[tuple[Issued, View]]:
        """Products that nothing has read, of lines that have others; what only moves bits is no product."""
        unread = (pair for pair in self._unread.values() if pair[0].location in self._read)
        return [(product, view) for product, view in unread if sums(product)]

    def enter(self, block: Block) -> None:
        """Forget the products in tensors that are allocated anew."""
        for buffer in block.buffers:
            plane = self._planes.pop(buffer.id, None)
            if plane is not None:
                for number in plane.everybody():
                    self._unread.pop(number, None)

    def loop(self, loop: ForLoop | WhileLoop, trips: int | None, certain: bool) -> None:
        """Follow the body of a loop for its first trip, and once more for what a trip does to the one before."""
        for _ in range(2 if trips is None else min(trips, 2)):
            self.block(loop.body, certain=certain)

    def instruction(self, issued: Issued, certain: bool) -> None:
        """Take what is read off the list of products, and put what is written on it."""
        operands, written = issued.instruction.operands, []
        adds = adds_to_sum(issued) is not False
        for name, view in issued.views():
            if operands[name].reads or (operands[name].writes and adds):
                self._reads(view, wanted=operands[name].reads)
            if operands[name].writes:
                written.append(view)
        for view in written:
            self._writes(issued, view, certain)
        if any(True for _ in _read_by(issued)):
            self._varying |= {view.buffer.id for view in written}

    def _reads(self, view: View, *, wanted: bool) -> None:
        """Products that are read, or, where that is not `wanted`, parts of a sum that goes on."""
        plane = self._plane(view.buffer)
        if plane is not None:
            for number in plane.writers(self._accesses.footprint(view)):
                product = self._unread.pop(number, None)
                if product is not None and wanted:
                    self._read.add(product[0].location)

    def _writes(self, issued: Issued, view: View, certain: bool) -> None:
        plane = self._plane(view.buffer)
        if plane is None:
            return
        footprint = self._accesses.footprint(view)
        before = plane.writers(footprint) - {NOBODY, MAYBE}
        if view.dynamic is not None or not certain:
            for number in before:
                self._unread.pop(number, None)
            plane.write(footprint, MAYBE)
            return
        self._numbers += 1
        plane.write(footprint, self._numbers)
        for number in before & self._unread.keys():
            product, lost = self._unread[number]
            if number not in plane.writers(self._accesses.footprint(lost)):
                del self._unread[number]
                self.lost.append((product, issued))
        if issued.engine is Engine.tensor and self._is_product(issued):
            self._unread[self._numbers] = (issued, view)

    def _is_product(self, issued: Issued) -> bool:
        return any(view.buffer.id in self._varying for view in _read_by(issued))

    def _plane(self, buffer: Buffer) -> Plane | None:
        """The bytes of a PSUM tensor, or of all of PSUM for tensors with an address; None for other memories."""
        if buffer.region is not MemoryRegion.psum:
            return None
        space: int | str = buffer.id if buffer.address is None else "psum"
        if space not in self._planes:
            self._planes[space] = Plane(*(self._whole if buffer.address else (buffer.partitions, buffer.row_bytes)))
        return self._planes[space]


def _read_by(issued: Issued) -> Iterator[View]:
    operands: Any = issued.instruction.operands
    return (view for name, view in issued.views() if operands[name].reads)


def _finding(lost: Issued, by: Issued, count: int) -> Finding:
    view = next(by.written())
    products = "a product" if count == 1 else f"{count} products"
    name, place = lost.instruction.label, place_of(lost.location)
    return Finding(
        "psum.overwritten",
        "warning",
        f"{by.instruction.label} overwrites {products} of {name} at {place} in {view.buffer.name}, "
        f"{view.describe()}, before anything reads {'it' if count == 1 else 'them'}",
        "a product is added to what PSUM holds, or read before the next one overwrites it",
        "nki/api/nki/isa, nc_matmul",
        _fix(by),
        by.location,
        {"products": count, "written": place},
    )


def _unread(product: Issued, view: View, count: int) -> Finding:
    products = "a product" if count == 1 else f"{count} products"
    return Finding(
        "psum.unread",
        "warning",
        f"nothing reads {products} of {product.instruction.label}, one of them in {view.buffer.name}, "
        f"{view.describe()}, allocated at {place_of(view.buffer.location)}, and other products of this line are read",
        "products are added if they go to one tensor",
        "nki/api/nki/isa, nc_matmul",
        "allocate the PSUM tensor before the loop over K, or read it in each trip",
        product.location,
        {"products": count, "tensor": view.buffer.name},
    )


def _fix(by: Issued) -> str:
    if "accumulate" in by.instruction.operands and by.arguments.accumulate is False:
        return "leave out accumulate=False, or pass accumulate=k > 0, so that the products of a sum are added"
    return "copy the product to SBUF first, or use another PSUM tensor"
