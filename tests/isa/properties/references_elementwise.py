"""References of instructions that work element by element: two operands and more, copies and fills.

Comparison: moves and integers bit by bit, arithmetic as in `references_alu`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nki.spec.engine import engine
from tests.isa.properties.cases import State
from tests.isa.properties.compare import Bits, Expected, Near, exactly
from tests.isa.properties.formats import F64, bits_of, f32, stored
from tests.isa.properties.places import Tile
from tests.isa.properties.references_alu import alu, each_bits, on_integers, wrapped

Results = dict[str, Expected]
WIDE = ("int32", "uint32")


def value(operand: Any) -> F64:
    """A number or a tile as float32 values ``(1, 1)``, ``(P, 1)`` or ``(P, F)``."""
    return operand.f32 if isinstance(operand, Tile) else f32(0.0 if operand is None else operand).reshape(1, 1)


def spread(candidates: F64, tile: Tile) -> Near:
    """Candidates as those of a whole destination."""
    return Near(np.broadcast_to(candidates, (len(candidates), tile.partitions, tile.count)))


def expect_rounding(state: State, dst: Tile, data: Sequence[Tile], ops: Sequence[Any]) -> None:
    """The warning of integers that float32 does not hold: certain for those that are read, possible for results."""
    wide = [tile for tile in data if tile.dtype.name in WIDE]
    if ops and ops[0].alu == "logical":  # what is rounded is as true as before
        return
    if not wide or not (dst.dtype.name in WIDE or any(op.alu == "compare" for op in ops)):
        return
    rounded = any((tile.exact.astype(np.float64) != tile.f32).any() for tile in wide)
    (state.warned if rounded else state.may_warn).add("lint.integer-precision")


def tensor_tensor(a: Any, state: State) -> Results:
    """Bits, integers that wrap where GpSimd has all three in 32 bits in SBUF, or float32."""
    name, tiles = a.op.name, (a.dst, a.data1, a.data2)
    if a.op.is_bitvec:
        return {"dst": Bits(each_bits(name, a.data1.bits, a.data2.bits, a.dst.dtype.bits))}
    native = all(t.dtype.name in WIDE for t in tiles) and not any(t.psum for t in tiles)
    on_gpsimd = a.engine is engine.gpsimd or (a.engine in (None, engine.unknown) and native)
    if on_gpsimd and native and a.op.alu != "logical" and name not in ("power", "abs_max", "abs_min"):
        pairs = zip(a.data1.exact.ravel().tolist(), a.data2.exact.ravel().tolist(), strict=True)
        numbers = [wrapped(on_integers(name, int(p), int(q)), 32, False) for p, q in pairs]
        return {"dst": Bits(np.array(numbers, np.uint32).reshape(a.data1.bits.shape))}
    expect_rounding(state, a.dst, (a.data1, a.data2), [a.op])
    return {"dst": spread(alu(name, a.data1.f32, a.data2.f32), a.dst)}


def _pattern(operand: Any, bits: int) -> Any:
    if isinstance(operand, Tile):
        return operand.bits
    return np.array([[int(operand or 0) % (1 << bits)]], np.uint64)


def tensor_scalar(a: Any, state: State) -> Results:
    """One or two operators, in order; an operator that is None is left out."""
    steps = [(a.op0, a.operand0, bool(a.reverse0)), (a.op1, a.operand1, bool(a.reverse1))]
    steps = [(op, operand, reverse and op.arity == 2) for op, operand, reverse in steps if op is not None]
    if any(op.is_bitvec for op, _, _ in steps):
        bits = a.data.bits
        for op, operand, reverse in steps:
            bits = each_bits(op.name, bits, _pattern(operand, a.data.dtype.bits), a.data.dtype.bits, reverse)
        return {"dst": Bits(bits)}
    expect_rounding(state, a.dst, (a.data,), [op for op, _, _ in steps])
    result = a.data.f32
    for op, operand, reverse in steps:
        result = alu(op.name, result, value(operand), reverse)
    return {"dst": spread(result if result.ndim == 3 else result[None], a.dst)}


def scalar_tensor_tensor(a: Any, state: State) -> Results:
    """Two operators, the second with a tile."""
    first = alu(a.op0.name, a.data.f32, value(a.operand0), bool(a.reverse0))
    return {"dst": spread(alu(a.op1.name, first, a.operand1.f32, bool(a.reverse1)), a.dst)}


def reciprocal(a: Any, state: State) -> Results:
    """Correctly rounded."""
    return {"dst": spread(alu("reciprocal", a.data.f32, 0.0), a.dst)}


# ---- copies


def copied(dst: Tile, src: Tile) -> Expected:
    """The bits between equal dtypes, else by way of float32."""
    return Bits(src.bits) if src.dtype is dst.dtype else exactly(src.f32)


def tensor_copy(a: Any, state: State) -> Results:
    """On every engine; the Scalar engine of NeuronCore-v2, which would round, has no such instruction."""
    return {"dst": copied(a.dst, a.src)}


def memset(a: Any, state: State) -> Results:
    """A number in every element."""
    if a.dst.dtype.is_integer:
        return {"dst": Bits(np.full(a.dst.bits.shape, int(a.value) % (1 << a.dst.dtype.bits), a.dst.bits.dtype))}
    return {"dst": constant(a.dst, a.value)}


def constant(dst: Tile, number: float) -> Expected:
    """A number as a float32 in every element; x4 types take only 0."""
    if dst.dtype.is_packed:
        return Bits(np.zeros_like(dst.bits))
    return exactly(np.full((dst.partitions, dst.count), f32(number)))


def tensor_copy_predicated(a: Any, state: State) -> Results:
    """Element by element; what is not chosen keeps its bits."""
    chosen = (a.predicate.exact != 0) != bool(a.reverse_pred)
    if isinstance(a.src, Tile):
        return {"dst": Bits(np.where(chosen, a.src.bits, a.dst.bits))}
    return {"dst": Bits(np.where(chosen, number_bits(a.src, a.dst), a.dst.bits))}


def number_bits(number: float, dst: Tile) -> Any:
    """The bits of a number in the dtype of a tile: the rounded value has one encoding, but for the payload of NaN."""
    if dst.dtype.is_packed:
        return np.zeros(1, dst.bits.dtype)
    rounded = np.atleast_1d(stored(f32(number), dst.dtype))
    with np.errstate(all="ignore"):
        return bits_of(rounded.astype(dst.dtype.numpy))
