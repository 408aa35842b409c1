"""Kernels for random numbers: distributions from the device's generator, and bits as a function of a state."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import nki.isa as nisa
import nki.language as nl
from nki.core.dtypes import DType, float32, int32, uint32
from nki.core.nki_tensor import NkiTensor
from nki.graph.emit.kit.combine import column_of, spread
from nki.graph.errors import unsupported
from nki.graph.ir import Group, Op
from nki.isa import alu
from nki.isa import functions as unit
from nki.spec.operator import Operator
from nki.target.model import Target

_COLUMNS = 2048
_MANTISSA = 24

# Threefry-2x32 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3": rotations and the constant of the key.
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_ROUNDS = 5


def emit_rng(group: Group, target: Target) -> Callable[..., None]:
    """The kernel of an rng or rng_bit_generator.

    Raises:
        GraphError: another algorithm than Threefry, or elements that are no 32-bit words (``graph.unsupported``).
    """
    op = group.ops[-1]
    make = _generator(op) if op.name == "rng_bit_generator" else _distribution(op)

    def random(*tensors: NkiTensor) -> None:
        known = dict(zip((*group.inputs, *group.outputs), tensors, strict=True))
        make([known[v] for v in op.operands if v in known], [known.get(v) for v in op.results], target)

    return random


@dataclass(frozen=True, slots=True)
class _Piece:
    """Elements of a flat tensor that a tile holds."""

    start: int
    rows: int
    columns: int

    def of(self, flat: NkiTensor) -> NkiTensor:
        """Where these rows and columns lie in device memory."""
        return flat.ap([[self.columns, self.rows], [1, self.columns]], offset=self.start)


def _pieces(size: int, partitions: int) -> Iterator[_Piece]:
    start = 0
    while start < size:
        left = size - start
        rows = min(partitions, left)
        columns = min(_COLUMNS, left // rows)
        yield _Piece(start, rows, columns)
        start += rows * columns


Maker = Callable[[list[NkiTensor], list[NkiTensor | None], Target], None]

# ------------------------------------------------------------------------------------------------------- distributions


def _distribution(op: Op) -> Maker:
    dtype = op.results[0].type.dtype
    normal = str(op.attributes.get("rng_distribution", "UNIFORM")) == "NORMAL"
    if not dtype.is_float and (normal or dtype not in (int32, uint32)):
        raise unsupported(op, f"there are no random {dtype} here", "make float32 and convert them")

    def make(inputs: list[NkiTensor], outputs: list[NkiTensor | None], target: Target) -> None:
        (result,) = outputs
        if result is None:
            return
        first, second = (column_of(tensor, target.partitions, float32) for tensor in inputs[:2])
        flat = result.reshape((op.results[0].type.size,))
        for piece in _pieces(op.results[0].type.size, target.partitions):
            values = _normal(piece) if normal else _uniform(piece)
            nisa.dma_copy(dst=piece.of(flat), src=_scaled(values, first, second, dtype, normal))

    return make


def _uniform(piece: _Piece) -> NkiTensor:
    """In [0, 1), float32, from 24 random bits."""
    bits = nl.ndarray((piece.rows, piece.columns), dtype=uint32, buffer=nl.sbuf)
    nisa.rng(dst=bits)
    short = nl.ndarray(bits.shape, dtype=uint32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=short, data=bits, op0=alu.RIGHT_SHIFT, operand0=uint32.bits - _MANTISSA)
    result = nl.ndarray(bits.shape, dtype=float32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=result, data=short, op0=alu.MULTIPLY, operand0=2.0**-_MANTISSA)
    return result


def _normal(piece: _Piece) -> NkiTensor:
    """With mean 0 and deviation 1: the product of a radius and the sine of an angle, after Box and Muller."""
    shape = (piece.rows, piece.columns)
    above = nl.ndarray(shape, dtype=float32, buffer=nl.sbuf)  # in (0, 1]
    nisa.tensor_scalar(dst=above, data=_uniform(piece), op0=alu.MULTIPLY, operand0=-1.0, op1=alu.ADD, operand1=1.0)
    radius = nl.ndarray(shape, dtype=float32, buffer=nl.sbuf)
    nisa.activation(dst=radius, op=unit.LOG, data=above)
    nisa.activation(dst=radius, op=unit.SQRT, data=radius, scale=-2.0)
    angle = nl.ndarray(shape, dtype=float32, buffer=nl.sbuf)  # in [-pi, pi)
    nisa.tensor_scalar(
        dst=angle, data=_uniform(piece), op0=alu.SUBTRACT, operand0=0.5, op1=alu.MULTIPLY, operand1=2.0 * _BELOW_PI
    )
    sine = nl.ndarray(shape, dtype=float32, buffer=nl.sbuf)
    nisa.activation(dst=sine, op=unit.SIN, data=angle)
    nisa.tensor_tensor(dst=sine, data1=sine, data2=radius, op=alu.MULTIPLY)
    return sine


_BELOW_PI = math.pi * (1.0 - 2.0**-22)
"""The sine of the device is defined up to pi, which float32 would round up."""


def _scaled(values: NkiTensor, first: NkiTensor, second: NkiTensor, dtype: DType, normal: bool) -> NkiTensor:
    """``first + values * second`` of a mean and a deviation, or ``first + values * (second - first)`` of limits."""
    rows = values.shape[0]
    width, low = second[0:rows, :], first[0:rows, :]
    if not normal:
        width = nl.ndarray((rows, 1), dtype=float32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=width, data1=second[0:rows, :], data2=low, op=alu.SUBTRACT)
    if dtype.is_float:
        result = nl.ndarray(values.shape, dtype=dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=result, data=values, op0=alu.MULTIPLY, operand0=width, op1=alu.ADD, operand1=low)
        return result
    steps = nl.ndarray(values.shape, dtype=float32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=steps, data=values, op0=alu.MULTIPLY, operand0=width, op1=alu.SUBTRACT, operand1=0.5)
    whole = nl.ndarray(values.shape, dtype=dtype, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=whole, data=steps, op0=alu.MAXIMUM, operand0=0.0)  # rounding takes the half back
    nisa.tensor_scalar(dst=whole, data=whole, op0=alu.ADD, operand0=low)
    return whole


# ---------------------------------------------------------------------------------------------------------------- bits


def _generator(op: Op) -> Maker:
    state, bits = op.operands[0].type, op.results[1].type
    algorithm = str(op.attributes.get("rng_algorithm", "DEFAULT"))
    if algorithm not in ("DEFAULT", "THREE_FRY"):
        raise unsupported(op, f"the algorithm {algorithm} has no kernel", "use THREE_FRY")
    words = (int32, uint32)
    if state.dtype not in words or bits.dtype not in words or state.size not in (2, 4):
        raise unsupported(op, "its state or its result are no 32-bit words", "use two or four 32-bit words of state")

    def make(inputs: list[NkiTensor], outputs: list[NkiTensor | None], target: Target) -> None:
        source, (after, result) = inputs[0], outputs
        blocks = -(-bits.size // 2)
        if result is not None:
            flat = result.reshape((bits.size,))
            for piece in _pieces(blocks, target.partitions):
                for half, tile in enumerate(_threefry(source, state.size, piece)):
                    _store_half(flat, piece, tile, half * blocks, bits.size)
        if after is not None:
            _advance(source, after, state.size, blocks)

    return make


def _store_half(flat: NkiTensor, piece: _Piece, tile: NkiTensor, offset: int, size: int) -> None:
    """The words of a tile, but for one too many at the end of an odd number of them."""
    tile = tile.view(flat.dtype)
    start = piece.start + offset
    if start + piece.rows * piece.columns <= size:
        nisa.dma_copy(dst=_Piece(start, piece.rows, piece.columns).of(flat), src=tile)
        return
    for row in range(piece.rows):
        count = min(piece.columns, size - start - row * piece.columns)
        if count > 0:
            at = start + row * piece.columns
            nisa.dma_copy(dst=flat[at : at + count], src=tile[row : row + 1, 0:count])


def _threefry(source: NkiTensor, words: int, piece: _Piece) -> tuple[NkiTensor, NkiTensor]:
    """Two words for each counter: the first two words of the state are the key, the others where counters begin."""
    shape = (piece.rows, piece.columns)
    key = [_word(source, number, piece.rows) for number in range(2)]
    parity = _new((piece.rows, 1))
    nisa.tensor_tensor(dst=parity, data1=key[0], data2=key[1], op=alu.BITWISE_XOR)
    key.append(_bits(parity, alu.BITWISE_XOR, _PARITY))
    columns = [spread(word, shape) for word in key]
    counter = _new(shape)
    nisa.iota(dst=counter, pattern=[[1, piece.columns]], offset=piece.start, channel_multiplier=piece.columns)
    low, high = counter, None
    if words > 2:
        low = _sum(counter, spread(_word(source, 2, piece.rows), shape))
        above = _sum(spread(_word(source, 3, piece.rows), shape), _carry(low, counter))
        high = _sum(above, columns[1])
    x = [_sum(low, columns[0]), columns[1] if high is None else high]
    for number in range(_ROUNDS):
        for rotation in _ROTATIONS[number % 2]:
            x[0] = _sum(x[0], x[1])
            x[1] = _xor(_rotated(x[1], rotation), x[0])
        x[0] = _sum(x[0], columns[(number + 1) % 3])
        x[1] = _sum(_sum(x[1], columns[(number + 2) % 3]), _constant(number + 1, shape))
    return x[0], x[1]


def _advance(source: NkiTensor, after: NkiTensor, words: int, blocks: int) -> None:
    """The state for the next call: the counter moves on, or the key where there is no counter."""
    flat = after.reshape((words,))
    carry = None
    for number in range(words):
        word = _word(source, number, 1)
        if number == words - 2:
            word = _sum(word, _constant(blocks, (1, 1)))
            carry = _carry(word, _constant(blocks, (1, 1)))
        elif carry is not None:
            word = _sum(word, carry)
        nisa.dma_copy(dst=flat[number : number + 1], src=word.view(after.dtype))


def _new(shape: tuple[int, ...]) -> NkiTensor:
    return nl.ndarray(shape, dtype=uint32, buffer=nl.sbuf)


def _word(source: NkiTensor, number: int, rows: int) -> NkiTensor:
    tile = nl.ndarray((rows, 1), dtype=source.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=source.ap([[0, rows], [1, 1]], offset=number))
    return tile.view(uint32)


def _constant(value: int, shape: tuple[int, int]) -> NkiTensor:
    column = _new((shape[0], 1))
    nisa.memset(dst=column, value=value)
    return spread(column, shape)


def _sum(a: NkiTensor, b: NkiTensor) -> NkiTensor:
    """Modulo 2**32, which GpSimd adds words by."""
    result = _new(a.shape)
    nisa.tensor_tensor(dst=result, data1=a, data2=b, op=alu.ADD)
    return result


def _carry(total: NkiTensor, part: NkiTensor) -> NkiTensor:
    """1 where a sum of words is less than one of them, else 0."""
    result = _new(total.shape)
    nisa.tensor_tensor(dst=result, data1=total, data2=part, op=alu.LESS)
    return result


def _xor(a: NkiTensor, b: NkiTensor) -> NkiTensor:
    result = _new(a.shape)
    nisa.tensor_tensor(dst=result, data1=a, data2=b, op=alu.BITWISE_XOR)
    return result


def _bits(x: NkiTensor, op: Operator, operand: int) -> NkiTensor:
    result = _new(x.shape)
    nisa.tensor_scalar(dst=result, data=x, op0=op, operand0=operand)
    return result


def _rotated(x: NkiTensor, left: int) -> NkiTensor:
    result = _new(x.shape)
    high, low = _bits(x, alu.LEFT_SHIFT, left), _bits(x, alu.RIGHT_SHIFT, uint32.bits - left)
    nisa.tensor_tensor(dst=result, data1=high, data2=low, op=alu.BITWISE_OR)
    return result
