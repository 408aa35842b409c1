"""Dead code: instructions whose results nobody reads, taken out where the kernel's settings allow it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from nki.core.register import VirtualRegister
from nki.core.tensor import Buffer, MemoryRegion, View
from nki.passes.context import Context, rewriting
from nki.passes.editing.remove import Item, kept_items, without_unused_tensors
from nki.spec.program import Block, ForLoop, Issued, Program, WhileLoop

Name = tuple[str, int]
"""A buffer or a register."""


def run(program: Program, context: Context) -> Program:
    """Drop instructions without effects that write only what is never read, until none is left.

    Only with ``CompileConfig(dead_code_elim=True)``, as the setting is off by default (nki.compiler, NKI 0.7).
    """
    if not context.config.dead_code_elim:
        return program
    while True:
        needed = {("buffer", view.buffer.id) for view in program.outputs}
        needed |= {("buffer", buffer.id) for buffer in program.inputs}
        needed |= {("buffer", b.id) for b in program.body.all_buffers() if b.region.is_hbm and b.role == "constant"}
        needed |= {("buffer", b.id) for b in program.body.all_buffers() if _seen_elsewhere(b, program)}
        needed |= set(_read(program.body))
        before, program = program, kept_items(program, partial(_needed, needed))
        if program is before:
            return without_unused_tensors(program)


def _seen_elsewhere(buffer: Buffer, program: Program) -> bool:
    """Whether its bytes may be read through another tensor on top of it, or by the other core."""
    return buffer.address is not None or (program.cores > 1 and buffer.region is MemoryRegion.shared_hbm)


def _needed(needed: set[Name], item: Item) -> bool:
    """Whether an instruction has an effect, or writes something that is needed."""
    if not isinstance(item, Issued):
        return True
    written = list(_written(item))
    return bool(item.instruction.effects(item.arguments)) or not written or any(name in needed for name in written)


def _written(issued: Issued) -> Iterator[Name]:
    operands = issued.instruction.operands
    for name, view in issued.views():
        if operands[name].writes:
            yield "buffer", view.buffer.id
    for name, value in zip(operands, issued.arguments, strict=True):
        if isinstance(value, VirtualRegister) and operands[name].writes:
            yield "register", value.id


def _read(block: Block) -> Iterator[Name]:
    for item in block.items:
        match item:
            case Issued():
                yield from _read_by(item)
            case ForLoop():
                yield from (("register", r.id) for r in (item.lower, item.upper) if isinstance(r, VirtualRegister))
                yield from _read(item.body)
            case WhileLoop():
                yield "register", item.condition.id
                yield from _read(item.body)


def _read_by(issued: Issued) -> Iterator[Name]:
    """What an instruction reads; reading what it writes itself keeps nothing alive."""
    operands = issued.instruction.operands
    own = set(_written(issued))
    for name, view in issued.views():
        if operands[name].reads and ("buffer", view.buffer.id) not in own:
            yield "buffer", view.buffer.id
        if view.dynamic is not None:
            yield _index(view)
    for name, value in zip(operands, issued.arguments, strict=True):
        if isinstance(value, VirtualRegister) and operands[name].reads and ("register", value.id) not in own:
            yield "register", value.id


def _index(view: View) -> Name:
    assert view.dynamic is not None, "asked for dynamic views only"
    index = view.dynamic.indices
    return ("register", index.id) if isinstance(index, VirtualRegister) else ("buffer", index.buffer.id)


PASS = rewriting(
    "dead_code", "Take out instructions whose results nobody reads, if the kernel's settings allow it.", run
)
