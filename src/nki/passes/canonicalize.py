"""Canonical form: what does nothing is taken out."""

from __future__ import annotations

from nki.passes.context import Context, rewriting
from nki.passes.editing.remove import kept_items, without_unused_tensors
from nki.spec.program import ForLoop, Issued, Program, WhileLoop

_COPIES = frozenset({"dma_copy", "tensor_copy"})


def run(program: Program, context: Context) -> Program:
    """Drop copies of a view onto itself, loops without a trip or an instruction, and unused tensors on chip."""
    return without_unused_tensors(kept_items(program, _useful))


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
    """Whether a copy has one view for both operands, at addresses that are known, and does nothing besides."""
    arguments = issued.arguments
    if issued.instruction.effects(arguments) or arguments.dst.dynamic is not None:
        return False
    adds = "dst_rmw_op" in issued.instruction.operands and arguments.dst_rmw_op is not None
    return bool(arguments.dst == arguments.src) and not adds


PASS = rewriting("canonicalize", "Take out copies onto themselves, loops that do nothing and tensors nobody uses.", run)
