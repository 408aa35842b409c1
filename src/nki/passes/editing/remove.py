"""Removing items from a program, with everything that counts positions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from nki.core.tensor import View
from nki.spec.program import Block, ForLoop, Issued, Program, WhileLoop

Item = Issued | ForLoop | WhileLoop


def kept_items(program: Program, keep: Callable[[Item], bool]) -> Program:
    """The program without the items that are not to be kept; the same object if all are.

    `keep` is asked for outer loops first, and not for what is in a loop that goes. Edges to what goes are dropped,
    others and ordered regions get new positions.
    """
    kept: list[bool] = []
    removed = [0]
    body = _block(program.body, keep, kept, removed)
    if not removed[0]:
        return program
    after = [0]
    for flag in kept:
        after.append(after[-1] + flag)
    edges = [(after[p], after[c]) for p, c in program.edges if kept[p] and kept[c]]
    fences = [(after[first], after[end]) for first, end in program.fences]
    return replace(program, body=body, edges=edges, fences=[f for f in fences if f[1] - f[0] > 1])


def _block(block: Block, keep: Callable[[Item], bool], kept: list[bool], removed: list[int]) -> Block:
    items: list[Item] = []
    for item in block.items:
        if not keep(item):
            removed[0] += 1
            kept += [False for _ in _instructions(item)]
        elif isinstance(item, Issued):
            kept.append(True)
            items.append(item)
        else:
            items.append(replace(item, body=_block(item.body, keep, kept, removed)))
    return Block(list(block.buffers), items)


def _instructions(item: Item) -> Iterator[Issued]:
    return iter((item,)) if isinstance(item, Issued) else item.body.walk()


def without_unused_tensors(program: Program) -> Program:
    """The program without tensors on chip that nobody uses; those that the kernel gave an address stay."""
    used = {view.buffer.id for view in program.outputs}
    for issued in program.body.walk():
        _note_used(issued, used)
    unused = {b.id for b in program.body.all_buffers() if b.on_chip and b.address is None} - used
    return replace(program, body=_without(program.body, unused)) if unused else program


def _note_used(issued: Issued, used: set[int]) -> None:
    arguments = issued.arguments
    for position, _ in issued.instruction.tensor_positions:
        value = arguments[position]
        for view in (value,) if type(value) is View else value if type(value) is tuple else ():
            used.add(view.buffer.id)
            if view.dynamic is not None and isinstance(view.dynamic.indices, View):
                used.add(view.dynamic.indices.buffer.id)


def _without(block: Block, unused: set[int]) -> Block:
    items = [i if isinstance(i, Issued) else replace(i, body=_without(i.body, unused)) for i in block.items]
    return replace(block, buffers=[buffer for buffer in block.buffers if buffer.id not in unused], items=items)
