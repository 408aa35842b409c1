"""Versions of a tile: what it holds from one instruction that overwrites all of it to the next.

Kernels use a tile again for the next value, often in place. Each version has readers of its own, so that one may be
device memory while the next one is not. A version with a place of its own is another buffer for the executor, and the
instructions that touch it are given that buffer; the program stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from nki.core.tensor import Buffer, View
from nki.spec.engine import oob_mode
from nki.spec.program import Block, Issued


class TileUse(NamedTuple):
    """An operand: the position of its instruction in the block, and what happens to it."""

    position: int
    issued: Issued
    view: View
    reads: bool
    writes: bool


class Renamed(NamedTuple):
    """Operands of an instruction that name a version in place of the tile.

    Attributes:
        issued: the instruction.
        writes: whether that is what it writes, or what it reads.
        tile: id of the tile.
        version: id of the version.
    """

    issued: Issued
    writes: bool
    tile: int
    version: int


def blocks(block: Block) -> Iterator[Block]:
    """A block and the bodies of all loops in it."""
    yield block
    for item in block.items:
        if not isinstance(item, Issued):
            yield from blocks(item.body)


def uses_of(block: Block) -> tuple[dict[int, list[TileUse]], set[int]]:
    """Who touches which buffer in this block itself, and the buffers that loops in it touch or addresses need."""
    uses: dict[int, list[TileUse]] = {}
    inner: set[int] = set()
    for position, item in enumerate(block.items):
        if not isinstance(item, Issued):
            for issued in item.body.walk():
                inner |= {view.buffer.id for _, view in issued.views()} | _of_addresses(issued)
            continue
        inner |= _of_addresses(item)
        for name, view in item.views():
            operand = item.instruction.operands[name]
            uses.setdefault(view.buffer.id, []).append(TileUse(position, item, view, operand.reads, operand.writes))
    return uses, inner


def _of_addresses(issued: Issued) -> set[int]:
    dynamic = [view.dynamic for _, view in issued.views() if view.dynamic is not None]
    return {each.indices.buffer.id for each in dynamic if isinstance(each.indices, View)}


def versions_of(uses: Sequence[TileUse]) -> list[list[TileUse]]:
    """The uses of a buffer in a block, split where all of it is overwritten by what does not keep any of it."""
    found: list[list[TileUse]] = [[]]
    at = 0
    while at < len(uses):
        end = at + 1
        while end < len(uses) and uses[end].position == uses[at].position:
            end += 1
        together = uses[at:end]
        if overwrites(together):
            found[-1] += [use for use in together if not use.writes]
            found.append([use for use in together if use.writes])
        else:
            found[-1] += together
        at = end
    return [version for version in found if version]


def overwrites(uses: Sequence[TileUse]) -> bool:
    """Whether an instruction, which has these uses of a buffer, writes all of it whatever the values are."""
    writes = [use for use in uses if use.writes]
    if len(writes) != 1 or writes[0].reads or not _is_whole(writes[0].view):
        return False
    issued = writes[0].issued
    names = [name for name, view in issued.views() if view is writes[0].view]
    operands = [issued.instruction.operands[name] for name in names]
    return not any(o.partial or o.parts is not None for o in operands) and oob_mode.skip not in issued.arguments


def _is_whole(view: View) -> bool:
    if view.dynamic is not None or view.offset != 0 or view.nbytes != view.buffer.nbytes:
        return False
    step = 1
    for size, stride in zip(reversed(view.shape), reversed(view.strides), strict=True):
        if size > 1 and stride != step:
            return False
        step *= size
    return True


def renamed(changes: Iterable[Renamed]) -> dict[int, Issued]:
    """The instructions with the versions that they name, by identity of the instruction in the program."""
    versions: dict[int, Buffer] = {}
    tables: dict[int, tuple[Issued, dict[tuple[bool, int], Buffer]]] = {}
    for issued, writes, tile, version in changes:
        if version not in versions:
            buffer = next(view.buffer for _, view in issued.views() if view.buffer.id == tile)
            versions[version] = replace(buffer, id=version)
        tables.setdefault(id(issued), (issued, {}))[1][writes, tile] = versions[version]
    return {key: _with(issued, table) for key, (issued, table) in tables.items()}


def _with(issued: Issued, table: Mapping[tuple[bool, int], Buffer]) -> Issued:
    arguments = list(issued.arguments)
    for position, name in issued.instruction.tensor_positions:
        writes, value = issued.instruction.operands[name].writes, arguments[position]
        if type(value) is View:
            arguments[position] = _other(value, writes, table)
        elif type(value) is tuple:
            arguments[position] = tuple([_other(view, writes, table) for view in value])
    return issued._replace(arguments=type(issued.arguments)(*arguments))


def _other(view: View, writes: bool, table: Mapping[tuple[bool, int], Buffer]) -> View:
    buffer = table.get((writes, view.buffer.id))
    return view if buffer is None else view._replace(buffer=buffer)
