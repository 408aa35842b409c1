"""Forwarding: a row that the language spread over the partitions is read from PSUM, and not copied to SBUF first.

`nl.broadcast_to` multiplies a row by ones, which leaves it in PSUM, and copies it to an SBUF tile, because kernels may
give that to what cannot read PSUM. Vector and Scalar can (nki/guides/architecture/trainium_inferentia2_arch.rst), and
Vector has one port for two tiles of SBUF, so that it takes half as long with one of them in PSUM. The profile of the
Mamba tutorial (nki/guides/tutorials/fused_mamba.rst, mamba_v1_profile_zoomed.png) shows that the device's compiler lets
Vector read rows of up to one bank there. Copies that a kernel makes itself stay as they are written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from nki.core.dtypes import float32
from nki.core.tensor import Buffer, MemoryRegion, View, contiguous_strides
from nki.isa import functions
from nki.passes.allocation.lifetime_extension import without_room
from nki.passes.context import Context, rewriting
from nki.passes.editing.remove import kept_items
from nki.passes.editing.rewrite import renamed
from nki.spec.engine import reduce_cmd
from nki.spec.program import Block, ForLoop, Issued, Program, WhileLoop
from nki.spec.queue import queue_class
from nki.spec.signature import Key, Seen, add
from nki.spec.verify import verify
from nki.target.model import Target
from nki.timing.cost import duration

_READERS = ("vector", "scalar")


class _OperandUse(NamedTuple):
    """An operand, or the index of one, for which `name` is "".

    Attributes:
        position: of the instruction in ``program.body.walk()``.
        block: that it stands in, by identity.
    """

    position: int
    block: int
    issued: Issued
    name: str
    view: View

    @property
    def writes(self) -> bool:
        return bool(self.name) and self.issued.instruction.operands[self.name].writes


Uses = dict[int, list[_OperandUse]]
"""Uses of marked tiles and of tensors in PSUM, by id, in program order."""


class _RemovableCopy(NamedTuple):
    """A copy that may go, what it copies, and who reads the tile, each instruction once."""

    copy: _OperandUse
    tile: Buffer
    source: Buffer
    readers: tuple[_OperandUse, ...]


def run(program: Program, context: Context) -> Program:
    """Let the readers of a tile with the role "copy" read what it is a copy of, and drop it.

    All of them or none: each is an instruction of Vector or Scalar behind the copy, in its block, that follows the
    rules with the other operand and takes no longer. The product keeps its bank for longer, so that a program stays as
    it is if it has tensors in PSUM of more than a bank or at addresses of the kernel, and a copy stays where fewer
    banks would be left than `Imitation.spare_banks`.
    """
    tiles = {buffer.id: buffer for buffer in program.body.all_buffers() if buffer.role == "copy"}
    if not tiles or program.placement is not None or not _only_single_banks(program, context.target):
        return program
    uses, pinned = _uses(program, tiles), _pinned(program)
    found = [each for tile in tiles.values() if (each := _candidate(tile, uses, pinned)) is not None]
    ready = _Ready(context)
    found = [each for each in found if all(ready.reads(use.issued, each.tile, each.source) for use in each.readers)]
    return _forwarded(program, _together(_with_room(program, found, context), ready))


def _only_single_banks(program: Program, target: Target) -> bool:
    """Whether PSUM is a matter of counting banks: intervals of one bank fit if no more than all live at once."""
    own = (buffer for buffer in program.body.all_buffers() if buffer.region is MemoryRegion.psum)
    single = all(buffer.address is None and buffer.row_bytes <= target.psum.bank_bytes for buffer in own)
    return single and target.psum.allocations_start_at_bank


# --- who uses what


def _uses(program: Program, tiles: Mapping[int, Buffer]) -> Uses:
    uses: Uses = {}
    psum = MemoryRegion.psum
    position = 0

    def note(block: int, issued: Issued, name: str, view: View) -> None:
        buffer = view.buffer
        if buffer.region is psum or buffer.id in tiles:
            uses.setdefault(buffer.id, []).append(_OperandUse(position, block, issued, name, view))
        if view.dynamic is not None and type(view.dynamic.indices) is View:
            note(block, issued, "", view.dynamic.indices)

    def walk(block: Block) -> None:
        nonlocal position
        number = id(block)
        for item in block.items:
            if type(item) is not Issued:
                walk(item.body)  # type: ignore[union-attr]
                continue
            for name, view in item.views():
                buffer = view.buffer
                if buffer.region is psum or buffer.id in tiles or view.dynamic is not None:
                    note(number, item, name, view)
            position += 1

    walk(program.body)
    return uses


def _pinned(program: Program) -> set[int]:
    """Positions whose order the kernel chose: they stay what they are."""
    pinned = {position for edge in program.edges for position in edge}
    return pinned.union(*(range(first, after) for first, after in program.fences))


# --- one tile


def _candidate(tile: Buffer, uses: Uses, pinned: set[int]) -> _RemovableCopy | None:
    """The copy that fills a tile, if nothing but its readers' rules, their time and the room in PSUM is against it."""
    own = uses.get(tile.id, ())
    written, readers = [use for use in own if use.writes], [use for use in own if not use.writes]
    if len(written) != 1 or not readers or not _exact(written[0].issued):
        return None
    copy, source = written[0], written[0].issued.arguments.data.buffer
    products = uses.get(source.id, ())
    if not _same_bytes(tile, copy) or any(use.block != copy.block for use in (*readers, *products)):
        return None
    if any(use.position >= copy.position or use.issued.instruction.name != "nc_matmul" for use in _writers(products)):
        return None
    if not all(_reads_after(copy, use, pinned) for use in readers) or copy.position in pinned:
        return None
    once = {use.position: use for use in readers}
    return _RemovableCopy(copy, tile, source, tuple(once.values()))


def _writers(uses: Iterable[_OperandUse]) -> Iterable[_OperandUse]:
    return (use for use in uses if use.writes)


def _exact(issued: Issued) -> bool:
    """Whether an instruction is Scalar's copy and nothing else."""
    a = issued.arguments
    return (
        issued.instruction.name == "activation"
        and a.op == functions.COPY
        and a.bias is None
        and a.scale == 1
        and a.reduce_res is None
        and a.reduce_cmd is reduce_cmd.idle
    )


def _same_bytes(tile: Buffer, copy: _OperandUse) -> bool:
    """Whether all of a float32 tile is a copy of all of a PSUM tensor, so that a view of it fits that as it is.

    The copy has as many partitions and elements on both sides.
    """
    source = copy.issued.arguments.data.buffer
    return (
        source.region is MemoryRegion.psum
        and tile.region is MemoryRegion.sbuf
        and tile.address is None
        and tile.dtype is source.dtype is float32
        and _all_of(copy.view, tile)
        and _all_of(copy.issued.arguments.data, source)
    )


def _all_of(view: View, buffer: Buffer) -> bool:
    """Whether a view shows a buffer's elements in their order; each partition's row is one view's row."""
    return (
        view.dynamic is None
        and view.dtype is buffer.dtype
        and (view.shape[0], view.offset, view.nbytes) == (buffer.partitions, 0, buffer.nbytes)
        and view.strides == contiguous_strides(view.shape)
    )


def _reads_after(copy: _OperandUse, use: _OperandUse, pinned: set[int]) -> bool:
    """Whether a reader comes after the copy, at known addresses, and in no order of the kernel's own."""
    return (
        use.position > copy.position
        and use.position not in pinned
        and use.view.dtype is float32
        and all(view.dynamic is None for _, view in use.issued.views())
    )


class _Ready:
    """Which instructions may read a tile's source in its place; those with one signature are looked at once."""

    def __init__(self, context: Context) -> None:
        self._target = context.target
        self._disabled = context.options.disabled_rules
        self._known: dict[Key, bool] = {}

    def reads(self, issued: Issued, tile: Buffer, source: Buffer) -> bool:
        """Whether Vector or Scalar runs it, no rule says no that did not before, and it takes no longer."""
        seen: Seen = {}
        key: list[Any] = [issued.instruction, issued.engine, source.shape]
        if not all([add(key, value, seen) for value in issued.arguments]):
            return self._asked(issued, tile, source)
        signature = (*key, seen[tile][0], seen.get(source, (-1, 0))[0])
        if signature not in self._known:
            self._known[signature] = self._asked(issued, tile, source)
        return self._known[signature]

    def _asked(self, issued: Issued, tile: Buffer, source: Buffer) -> bool:
        if queue_class(issued) not in _READERS:
            return False
        other = renamed(issued, {tile.id: source})
        before, after = duration(issued, self._target), duration(other, self._target)
        if after.busy > before.busy or sum(after) > sum(before):
            return False
        return self._broken(other) <= self._broken(issued)

    def _broken(self, issued: Issued) -> set[str]:
        return {finding.code for finding in verify(issued, self._target, self._disabled)}


# --- all of them


def _with_room(program: Program, found: list[_RemovableCopy], context: Context) -> list[_RemovableCopy]:
    """The copies whose sources may live to the last reader: PSUM has room for all of them together.

    Some banks are left to others, so that the scheduler still has a choice of orders.
    """
    if not found:
        return found
    wanted = [(each.source, each.readers[-1].position) for each in found]
    full = without_room(program, wanted, context.target.psum.banks - context.imitation.spare_banks)
    return [each for number, each in enumerate(found) if number not in full]


def _together(found: list[_RemovableCopy], ready: _Ready) -> dict[int, _RemovableCopy]:
    """The copies that go, by the tile; an instruction that reads several tiles is asked again for each one more."""
    gone: dict[int, _RemovableCopy] = {}
    names: dict[int, dict[int, Buffer]] = {}
    for each in found:
        taken = [(use, names[use.position]) for use in each.readers if use.position in names]
        if all(ready.reads(renamed(use.issued, before), each.tile, each.source) for use, before in taken):
            gone[each.tile.id] = each
            for use in each.readers:
                names.setdefault(use.position, {})[each.tile.id] = each.source
    return gone


def _forwarded(program: Program, gone: Mapping[int, _RemovableCopy]) -> Program:
    """The program without copies and tiles, the same object if all stay."""
    if not gone:
        return program
    names = {tile: each.source for tile, each in gone.items()}
    readers = {id(use.issued) for each in gone.values() for use in each.readers}
    copies = {id(each.copy.issued) for each in gone.values()}

    def changed(item: Issued | ForLoop | WhileLoop) -> Issued | ForLoop | WhileLoop:
        if type(item) is Issued:
            return renamed(item, names) if id(item) in readers else item
        return replace(item, body=block(item.body))  # type: ignore[union-attr,type-var]

    def block(old: Block) -> Block:
        return Block([buffer for buffer in old.buffers if buffer.id not in gone], [changed(item) for item in old.items])

    shorter = kept_items(program, lambda item: id(item) not in copies)
    return replace(shorter, body=block(shorter.body))


PASS = rewriting(
    "copy_propagation", "Let instructions read a broadcast row from PSUM, where the language copied it.", run
)
