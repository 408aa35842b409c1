"""The operators that regions of StableHLO combine elements with, recognised, and how engines do the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import nki.isa as nisa
import nki.language as nl
from nki.core.dtypes import DType, bool_, int32, uint32
from nki.core.nki_tensor import NkiTensor
from nki.graph.errors import unsupported
from nki.graph.ir import Op, Region
from nki.isa import alu
from nki.spec.operator import Operator

_OPERATORS = {
    "add": alu.ADD,
    "multiply": alu.MULTIPLY,
    "maximum": alu.MAXIMUM,
    "minimum": alu.MINIMUM,
    "or": alu.MAXIMUM,
    "and": alu.MINIMUM,
}
_BITWISE = {"or": alu.BITWISE_OR, "and": alu.BITWISE_AND, "xor": alu.BITWISE_XOR}
_OF_TRUTH = {"add": alu.MAXIMUM, "multiply": alu.MINIMUM}


@dataclass(frozen=True, slots=True)
class Combination:
    """``a <operator> b``; `operator` is None if the second one replaces the first.

    Attributes:
        words: whether the elements are 32-bit integers, which have to stay out of float32.
    """

    operator: Operator | None
    words: bool

    def into(self, dst: NkiTensor, a: NkiTensor, b: NkiTensor) -> None:
        """One instruction; 32-bit integers go to GpSimd."""
        assert self.operator is not None, "a replacement combines nothing"
        nisa.tensor_tensor(dst=dst, data1=a, data2=b, op=self.operator)


def combination(op: Op, region: Region, bits: bool = False) -> Combination:
    """What a region with two arguments does.

    Args:
        bits: whether operators on the bits of integers are known to the caller as well.

    Raises:
        GraphError: it is more than one operator on both (``graph.unsupported``).
    """
    dtype = op.results[0].type.dtype
    words = dtype in (int32, uint32)
    (result,) = region.results
    if result is region.arguments[1]:
        return Combination(None, words)
    body = [inner for inner in region.ops if isinstance(inner, Op)]
    if len(body) == 1 and set(body[0].operands) == set(region.arguments) and body[0].results[0] is result:
        name = body[0].name
        if dtype == bool_ and name in _OF_TRUTH:
            return Combination(_OF_TRUTH[name], False)
        if bits and name in _BITWISE and (dtype != bool_ or name == "xor"):
            return Combination(_BITWISE[name], words)
        if name in _OPERATORS and (dtype == bool_ or name not in ("or", "and")):
            return Combination(_OPERATORS[name], words)
    found = ", ".join(inner.name for inner in body) or "nothing"
    raise unsupported(
        op, f"its region is {found}, not one of {', '.join(_OPERATORS)}", "use one of these operators of two elements"
    )


def column_of(tensor: NkiTensor, rows: int, dtype: DType) -> NkiTensor:
    """A scalar of device memory in each of some partitions."""
    tile = nl.ndarray((rows, 1), dtype=dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=tensor.ap([[0, rows], [1, 1]], offset=0))
    return tile


def spread(column: NkiTensor, shape: Sequence[int]) -> NkiTensor:
    """A column seen as a tile of this shape with the same element in each row."""
    rank = len(shape)
    view = column[0 : shape[0], :].reshape((shape[0],) + (1,) * (rank - 1))
    for dim in range(1, rank):
        view = view.broadcast(dim, shape[dim])
    return view
