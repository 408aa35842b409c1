"""Rewriting a program: instructions put between others, and uses of a buffer moved to another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from nki.core.register import VirtualRegister
from nki.core.tensor import Buffer, View
from nki.spec.program import Block, ForLoop, Issued, Program, WhileLoop

Item = Issued | ForLoop | WhileLoop


@dataclass(slots=True)
class Edit:
    """Changes of one block; keys are positions in its `items`.

    Attributes:
        buffers: that are added to the block.
        before, after: instructions to put before and after an item.
        renames: from an item on, all uses of a buffer, by its id, mean another one.
    """

    buffers: list[Buffer] = field(default_factory=list)
    before: dict[int, list[Issued]] = field(default_factory=dict)
    after: dict[int, list[Issued]] = field(default_factory=dict)
    renames: dict[int, dict[int, Buffer]] = field(default_factory=dict)


def rewritten(program: Program, edits: Mapping[int, Edit]) -> Program:
    """The program with the edits of its blocks, by ``id(block)``; edges and fences follow their instructions."""
    writer = _BlockRewriter(edits)
    body = writer.block(program.body, {})
    place = writer.places
    return replace(
        program,
        body=body,
        edges=[(place[producer], place[consumer]) for producer, consumer in program.edges],
        fences=[
            (place[first], place[after - 1] + 1) if after > first else (place[first], place[first])
            for first, after in program.fences
        ],
    )


class _BlockRewriter:
    """Copies blocks with their edits; `places` maps old positions in the walk to new ones."""

    def __init__(self, edits: Mapping[int, Edit]) -> None:
        self._edits = edits
        self._position = 0
        self.places: list[int] = []

    def block(self, block: Block, names: Mapping[int, Buffer]) -> Block:
        edit = self._edits.get(id(block), Edit())
        items: list[Item] = []
        current = dict(names)
        for number, item in enumerate(block.items):
            current.update(edit.renames.get(number, {}))
            items += self._new(edit.before.get(number, ()))
            items.append(self._item(item, current))
            items += self._new(edit.after.get(number, ()))
        return Block([*block.buffers, *edit.buffers], items)

    def _new(self, added: Sequence[Issued]) -> Sequence[Issued]:
        self._position += len(added)
        return added

    def _item(self, item: Item, names: Mapping[int, Buffer]) -> Item:
        if isinstance(item, Issued):
            self.places.append(self._position)
            self._position += 1
            return renamed(item, names) if names else item
        return replace(item, body=self.block(item.body, names))


def renamed(issued: Issued, names: Mapping[int, Buffer]) -> Issued:
    """The instruction with other buffers in place of some; the same object if it uses none of them."""
    arguments = list(issued.arguments)
    changed = False
    for place, _ in issued.instruction.tensor_positions:
        value = arguments[place]
        if type(value) is View:
            arguments[place] = _view(value, names)
        elif type(value) is tuple:
            arguments[place] = tuple(_view(view, names) for view in value)
        changed = changed or arguments[place] is not value
    return issued._replace(arguments=issued.instruction.arguments._make(arguments)) if changed else issued


def _view(view: View, names: Mapping[int, Buffer]) -> View:
    buffer = names.get(view.buffer.id)
    if buffer is not None:
        view = view._replace(buffer=buffer)
    dynamic = view.dynamic
    if dynamic is None or isinstance(dynamic.indices, VirtualRegister):
        return view
    indices = _view(dynamic.indices, names)
    return view if indices is dynamic.indices else view._replace(dynamic=dynamic._replace(indices=indices))
