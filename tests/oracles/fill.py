"""The smallest record function, for tests of how records are executed."""

from __future__ import annotations

from nki.native.primitives.abi import HEADER, RECORD_ARGUMENTS, SLOT, dims_of, slot
from nki.native.primitives.base import nest, row
from nki.native.primitives.rows import row_functions
from nki.native.primitives.writer import FunctionBuilder


def fill_text(name: str, size: int) -> str:
    """A record function: slot 0, the destination, is filled with the low bytes of the immediate after it."""
    w = FunctionBuilder()
    dst = slot(w, 0)
    item = w.at("%words", 8 * (HEADER + SLOT))
    extents, strides = zip(*dims_of(w, dst.dims), strict=True)
    with w.loop("%first", "%last") as partition:
        start = w.at(dst.pointer, w.mul(partition, dst.stride))
        with nest(w, extents[:-1], [(start, strides[:-1])]) as (place,):
            row(w, size, place, item, extents[-1], (strides[-1], w.constant(0)))
    w.done(w.constant(0, "i32"), "i32")
    return row_functions(size) + w.function(name, RECORD_ARGUMENTS, "i32")
