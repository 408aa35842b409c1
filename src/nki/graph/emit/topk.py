"""The largest elements of rows and where they are: eight at a time, of equal ones the first ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import nki.isa as nisa
import nki.language as nl
from nki.core.dtypes import float32, int16, int32, uint8, uint32
from nki.core.nki_tensor import NkiTensor
from nki.core.numerics import FP32_MIN
from nki.graph.emit.kit.network import sort_rows
from nki.graph.emit.kit.panels import Chunks, Dim, Loader, OperandBlock, ProductOperand, joined, store, strides_of
from nki.graph.errors import unsupported
from nki.graph.ir import Op, Value
from nki.isa import alu
from nki.target.model import Target

_SLOTS = 8
_SEGMENT = 8192
"""Elements of a row that are searched at once; an instruction could take twice as many, SBUF could not."""

_SORTED = 4096
"""Integers of a row that can be sorted."""

_LOWEST = float("-inf")
_END = 2.0**127
"""Above the half of every finite number."""
_LEAST = 2.0**-149
"""The smallest float32 above 0."""


class TopK:
    """A top_k of CHLO along the last dimension.

    Raises:
        GraphError: rows that do not fit into a partition (``graph.unsupported``).
    """

    def __init__(self, op: Op, target: Target) -> None:
        self._op, self._target = op, target
        value = op.operands[0]
        self._dtype, self._length = value.type.dtype, value.type.shape[-1]
        self._count = op.results[0].type.shape[-1]
        candidates = -(-self._length // _SEGMENT) * -(-self._count // _SLOTS) * _SLOTS
        if (candidates if self._dtype.is_float else 2 * self._length) > 2 * _SORTED:
            raise unsupported(
                op,
                f"{self._count} of {self._length} elements do not fit into a partition with what a search needs",
                "search shorter rows first, or fewer elements",
            )

    def run(self, source: NkiTensor, results: Sequence[NkiTensor | None]) -> None:
        """As many rows as there are partitions at a time."""
        value = self._op.operands[0]
        rows = prod(value.type.shape) // self._length
        chunks = Chunks(rows, min(rows, self._target.partitions), True)
        loader = Loader(_rows(source, value), chunks, self._dtype, self._target)
        for piece in range(chunks.count):
            rows = chunks.rows(piece)

            def part(start: int, length: int, piece: int = piece, rows: int = rows) -> NkiTensor:
                tile = loader.load(OperandBlock(0, 1, start, length, piece, 1))
                return tile.reshape((chunks.size, length))[0:rows, :]

            found = self._floats(part) if self._dtype.is_float else self._integers(part(0, self._length))
            for result, out, best in zip(results, self._op.results, found, strict=True):
                if result is not None:
                    store(_rows(result, out), chunks, piece, 0, best[:, 0 : self._count])

    # --- floats: searches on Vector

    def _floats(self, part: Callable[[int, int], NkiTensor]) -> tuple[NkiTensor, NkiTensor]:
        """Long rows in segments; of the largest of each segment the largest are searched again."""
        kind = self._op.results[1].type.dtype
        segments = -(-self._length // _SEGMENT)
        size = -(-self._length // segments)
        starts = range(0, self._length, size)
        found = [self._of_segment(part(start, min(size, self._length - start)), start) for start in starts]
        values, places = found[0]
        if segments > 1:
            width = values.shape[1]
            values = nl.ndarray((values.shape[0], segments * width), dtype=self._dtype, buffer=nl.sbuf)
            places = nl.ndarray(values.shape, dtype=uint32, buffer=nl.sbuf)
            nisa.memset(dst=values, value=_LOWEST)
            nisa.memset(dst=places, value=0)
            for number, (best, where) in enumerate(found):
                there = slice(number * width, number * width + best.shape[1])
                nisa.tensor_copy(dst=values[:, there], src=best)
                nisa.tensor_copy(dst=places[:, there], src=where)
            chosen = self._search(self._keys(values), self._count)
            values, places = _at(values, chosen), _at(places, chosen)
        return values, places.view(kind)

    def _of_segment(self, tile: NkiTensor, start: int) -> tuple[NkiTensor, NkiTensor]:
        """The largest elements of a segment in descending order, and their places in the row."""
        places = self._search(self._keys(tile), min(self._count, tile.shape[1]))
        values = _at(tile, places)
        if start:  # places are below 2**24, so that float32 holds them exactly
            moved = nl.ndarray(places.shape, dtype=uint32, buffer=nl.sbuf)
            nisa.tensor_scalar(dst=moved, data=places, op0=alu.ADD, operand0=float(start))
            places = moved
        return values, places

    def _keys(self, tile: NkiTensor) -> NkiTensor:
        """At least eight float32 to search in, in the total order -NaN < -inf < ... < -0 < 0 < ... < inf < NaN.

        Halves make room for the infinities among the finite numbers: inf is NaN, and -inf stands for what was found.
        """
        rows, length = tile.shape
        whole = nl.ndarray((rows, max(_SLOTS, length)), dtype=float32, buffer=nl.sbuf)
        if length < _SLOTS:
            nisa.memset(dst=whole, value=_LOWEST)
        keys = whole[:, 0:length]
        nisa.tensor_scalar(dst=keys, data=tile, op0=alu.MULTIPLY, operand0=0.5, op1=alu.MINIMUM, operand1=_END)
        nisa.tensor_scalar(dst=keys, data=keys, op0=alu.MAXIMUM, operand0=-_END)
        bits = tile.view(int16 if tile.dtype.itemsize == int16.itemsize else int32)
        below, strange = (nl.ndarray((rows, length), dtype=uint8, buffer=nl.sbuf) for _ in range(2))
        nisa.tensor_scalar(dst=below, data=bits, op0=alu.EQUAL, operand0=float(bits.dtype.min))
        nisa.tensor_copy_predicated(dst=keys, src=-_LEAST, predicate=below)
        nisa.tensor_tensor(dst=strange, data1=tile, data2=tile, op=alu.NOT_EQUAL)
        nisa.tensor_copy_predicated(dst=keys, src=float("inf"), predicate=strange)
        nisa.scalar_tensor_tensor(
            dst=below, data=bits, op0=alu.LESS, operand0=0.0, op1=alu.MULTIPLY, operand1=strange
        )  # fmt: skip
        nisa.tensor_copy_predicated(dst=keys, src=FP32_MIN, predicate=below)
        return whole

    def _search(self, keys: NkiTensor, count: int) -> NkiTensor:
        """Places of the largest keys in descending order, uint32."""
        rows = keys.shape[0]
        rounds = -(-count // _SLOTS)
        values = nl.ndarray((rows, rounds * _SLOTS), dtype=float32, buffer=nl.sbuf)
        places = nl.ndarray((rows, rounds * _SLOTS), dtype=uint32, buffer=nl.sbuf)
        left = keys
        for number in range(rounds):
            slots = slice(number * _SLOTS, (number + 1) * _SLOTS)
            nisa.max8(dst=values[:, slots], src=left)
            nisa.nc_find_index8(dst=places[:, slots], data=left, vals=values[:, slots])
            if number + 1 < rounds:
                rest = nl.ndarray(keys.shape, dtype=float32, buffer=nl.sbuf) if number == 0 else left
                nisa.nc_match_replace8(dst=rest, data=left, vals=values[:, slots], imm=_LOWEST)
                left = rest
        return places[:, 0:count]

    # --- integers: a sort

    def _integers(self, tile: NkiTensor) -> tuple[NkiTensor, NkiTensor]:
        rows = tile.shape[0]
        size = 1 << max(1, (self._length - 1).bit_length())
        keys = nl.ndarray((rows, size), dtype=self._dtype, buffer=nl.sbuf)
        nisa.memset(dst=keys, value=0)
        nisa.tensor_copy(dst=keys[:, 0 : self._length], src=tile)
        places = nl.ndarray((rows, size), dtype=self._op.results[1].type.dtype, buffer=nl.sbuf)
        nisa.iota(dst=places, pattern=[[1, size]])

        def larger(first: Sequence[NkiTensor], second: Sequence[NkiTensor]) -> NkiTensor:
            exact = nl.ndarray(first[0].shape, dtype=self._dtype, buffer=nl.sbuf)
            nisa.tensor_tensor(dst=exact, data1=first[0], data2=second[0], op=alu.GREATER)
            result = nl.ndarray(first[0].shape, dtype=uint8, buffer=nl.sbuf)
            nisa.tensor_copy(dst=result, src=exact)
            return result

        sort_rows([keys, places], self._length, larger, stable=True)
        return keys, places


def _at(tile: NkiTensor, places: NkiTensor) -> NkiTensor:
    """The elements of each row at these places."""
    result = nl.ndarray(places.shape, dtype=tile.dtype, buffer=nl.sbuf)
    nisa.nc_n_gather(dst=result, data=tile, indices=places)
    return result


def _rows(tensor: NkiTensor, value: Value) -> ProductOperand:
    """The last dimension as the free one, all others over the partitions."""
    shape, steps = value.type.shape, strides_of(value.type.shape)
    rest = joined([Dim(size, step) for size, step in zip(shape[:-1], steps[:-1], strict=True)])[0]
    return ProductOperand(tensor, (Dim(1, 1),), (Dim(shape[-1], 1),), rest)
