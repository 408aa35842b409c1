"""Reductions in the epilogue of a product, over the rows of blocks that have all of their columns."""

from __future__ import annotations

from collections.abc import Sequence

from nki.core.dtypes import float32
from nki.core.nki_tensor import NkiTensor
from nki.graph.emit.kit.evaluation import Evaluation
from nki.graph.emit.kit.reducers import Extreme, combined, reduce_last
from nki.graph.ir import Op
from nki.isa import alu


class RowReducer:
    """Reductions of float32 values over the last dimension of tiles; they start with what changes nothing.

    Args:
        shape: of the block: partitions, and all columns last.
    """

    def __init__(self, shape: Sequence[int]) -> None:
        self._shape = tuple(shape)

    def sums(self, op: Op) -> bool:
        """Whether a partition has one row, which is summed."""
        return all(size == 1 for size in self._shape[1:-1]) and combined(op) == alu.ADD

    def reduce(self, evaluation: Evaluation, op: Op) -> list[NkiTensor]:
        """The reduced values, one for each row."""
        value = op.operands[0]
        made = evaluation.sums.get(value) if self.sums(op) else None
        if made is None:
            e, how = evaluation.e, combined(op)
            assert not isinstance(how, Extreme), "epilogues have no argmax"
            tile = e.fit(evaluation.tile(value), self._shape)
            made = e.new((*self._shape[:-1], 1), float32)
            reduce_last(e, made, tile, how, (len(self._shape) - 1,))
        return [made]
