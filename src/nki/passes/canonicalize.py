"""Canonical form: what does nothing is taken out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from nki.core.tensor import View
from nki.passes.context import Context, Pass
from nki.passes.remove import kept_items
from nki.spec.program import Block, ForLoop, Issued, Program, WhileLoop

_COPIES = frozenset({"dma_copy", "tensor_copy"})


def run(program: Program, context: Context) -> Program:
    """Drop copies of a view onto itself, loops without a trip or an instruction, and unused tensors on chip."""
    program = kept_items(program, _useful)
    used = {view.buffer.id for view in program.outputs} | set(_used(program.body))
    unused = {b.id for b in program.body.all_buffers() if b.on_chip and b.address is None} - used
    return replace(program, body=_without(program.body, unused)) if unused else program


def _used(block: Block) -> Iterator[int]:
    for issued in block.walk():
        for _, view in issued.views():
            yield view.buffer.id
            if view.dynamic is not None and isinstance(view.dynamic.indices, View):
                yield view.dynamic.indices.buffer.id


def _without(block: Block, unused: set[int]) -> Block:
    """A block without some of its tensors."""
    items = [i if isinstance(i, Issued) else replace(i, body=_without(i.body, unused)) for i in block.items]
    return replace(block, buffers=[buffer for buffer in block.buffers if buffer.id not in unused], items=items)


def _useful(item: Issued | ForLoop | WhileLoop) -> bool:
    if isinstance(item, Issued):
        return item.instruction.name not in _COPIES or not _onto_itself(item)
    if isinstance(item, WhileLoop):
        return True  # an empty one may be endless, which is for whoever runs it to find out
    lower, upper = item.lower, item.upper
    if isinstance(lower, int) and isinstance(upper, int) and not range(lower, upper, item.step):
        return False
    return bool(item.body.items)


def _onto_itself(issued: Issued) -> bool:
    """The same bytes in the same dtype, at addresses that are known, and nothing besides."""
    arguments = issued.arguments
    if issued.instruction.effects(arguments) or arguments.dst.dynamic is not None:
        return False
    adds = "dst_rmw_op" in issued.instruction.operands and arguments.dst_rmw_op is not None
    return bool(arguments.dst == arguments.src) and not adds


PASS = Pass("canonicalize", "Take out copies onto themselves, loops that do nothing and tensors nobody uses.", run)
