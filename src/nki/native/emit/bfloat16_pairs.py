"""Rows of bfloat16 two vectors at a time: the elements at even places in one, those at odd places in the other.

That spares what it takes to spread 16-bit elements over 32-bit lanes and to bring them together again. It is for loops
in which every element is on its own: the order of the lanes does not show.
"""

from __future__ import annotations

from nki.native.emit.casts import round_upper
from nki.native.emit.code import LANES, Code
from nki.native.emit.loops import ElementLoop
from nki.native.trace.expression import I32, ROW, Node

_UPPER = 0xFFFF_0000
_NAME = "bfloat16"


def are_paired(loop: ElementLoop) -> bool:
    """Whether a loop reads and writes rows of bfloat16 only, and just their values."""
    if loop.reductions or loop.spills or loop.reloads or loop.scans:
        return False
    inner = {argument.number for node in loop.nodes if node.op != "decode" for argument in node.arguments}
    stored = [store.value for store in loop.stores]
    if any(node.rank != ROW or node.op != "encode" or node.number in inner for node in stored):
        return False
    ends = {node.number for node in stored}
    return all(_fits(node, inner, ends) for node in loop.nodes)


def _fits(node: Node, inner: set[int], ends: set[int]) -> bool:
    if node.op == "position":
        return False
    if node.op == "load":
        return node.dtype is not None and node.dtype.name == _NAME and node.number not in inner
    if node.op in ("decode", "encode"):
        return node.attribute == _NAME and (node.op == "decode" or node.number in ends)
    return True


def unpacked(code: Code, pair: str) -> tuple[str, str]:
    """The values at even and at odd places of 32 elements."""
    even = code.binary("arith.shli", pair, code.constant(16, I32, LANES), I32, LANES)
    odd = code.binary("arith.andi", pair, code.constant(_UPPER, I32, LANES), I32, LANES)
    first, second = (code.cast("arith.bitcast", half, I32, "f32", LANES) for half in (even, odd))
    return first, second


def packed(code: Code, even: str, odd: str) -> str:
    """32 elements from the values at even and at odd places."""
    low, high = round_upper(code, even, LANES), round_upper(code, odd, LANES)
    low = code.binary("arith.shrui", low, code.constant(16, I32, LANES), I32, LANES)
    high = code.binary("arith.andi", high, code.constant(_UPPER, I32, LANES), I32, LANES)
    return code.binary("arith.ori", low, high, I32, LANES)
