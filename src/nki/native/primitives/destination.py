"""Where the rows of a matrix product go: into float32, or rounded to bfloat16."""

from __future__ import annotations

from typing import NamedTuple

from nki.native.primitives.abi import GATHER, SCATTER, SlotValues, row_helper
from nki.native.primitives.scratch import NARROW_ROW
from nki.native.primitives.tile import LANES
from nki.native.primitives.widen import STORED, load_wide
from nki.native.primitives.writer import FunctionBuilder


class Destination(NamedTuple):
    """Slot 0 of a product.

    Attributes:
        slot: of float32 or bfloat16.
        dtype: its name.
        columns: of the result.
        scratch: pointer.
    """

    slot: SlotValues
    dtype: str
    columns: str
    scratch: str

    def row(self, w: FunctionBuilder, number: str) -> str:
        """Pointer to the first element of a row."""
        return w.at(self.slot.pointer, w.mul(number, self.slot.stride))

    def read(self, w: FunctionBuilder, number: str, values: str) -> None:
        """Have the float32 values of a row at `values`."""
        if self.dtype == "float32":
            row_helper(w, GATHER[4], (values, self.row(w, number), self.slot.dims))
            return
        stored, narrow = STORED[self.dtype], w.at(self.scratch, NARROW_ROW)
        row_helper(w, GATHER[stored.size], (narrow, self.row(w, number), self.slot.dims))
        with w.loop(0, self.columns, LANES) as column:
            wide = load_wide(w, stored, w.at(narrow, w.mul(column, stored.size)), LANES)
            w.store(wide, f"vector<{LANES}xf32>", w.at(values, w.mul(column, 4)), 4)

    def write(self, w: FunctionBuilder, number: str, values: str) -> None:
        """Store the float32 `values` in a row, rounded to nearest, ties to even."""
        if self.dtype == "float32":
            row_helper(w, SCATTER[4], (self.row(w, number), values, self.slot.dims))
            return
        narrow = w.at(self.scratch, NARROW_ROW)
        with w.loop(0, self.columns, LANES) as column:
            wide = w.load(f"vector<{LANES}xf32>", w.at(values, w.mul(column, 4)), 4)
            w.store(_rounded(w, wide), f"vector<{LANES}xi16>", w.at(narrow, w.mul(column, 2)), 2)
        row_helper(w, SCATTER[2], (self.row(w, number), narrow, self.slot.dims))


def _rounded(w: FunctionBuilder, value: str) -> str:
    """The bits of bfloat16; NaN keeps its sign and becomes quiet."""
    words, floats = f"vector<{LANES}xi32>", f"vector<{LANES}xf32>"
    bits = w.value(f"arith.bitcast {value} : {floats} to {words}")
    high = w.op("shrui", bits, w.constant(16, words), words)
    odd = w.op("andi", high, w.constant(1, words), words)
    up = w.op("addi", w.op("addi", bits, w.constant(0x7FFF, words), words), odd, words)
    rounded = w.op("shrui", up, w.constant(16, words), words)
    sign = w.op("andi", high, w.constant(0x8000, words), words)
    quiet = w.op("ori", sign, w.constant(0x7FC0, words), words)
    nan = w.value(f"arith.cmpf uno, {value}, {value} : {floats}")
    chosen = w.value(f"arith.select {nan}, {quiet}, {rounded} : vector<{LANES}xi1>, {words}")
    return w.value(f"arith.trunci {chosen} : {words} to vector<{LANES}xi16>")
