"""The array namespace with NumPy values: the golden reference of every body."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nki.core.dtypes import DType, pack_x4, unpack_x4
from nki.core.numerics import round_to, to_f32
from nki.sim.numpy_primitives import COMPARE, NumpyPrimitives
from nki.sim.products import matmul_blas, matmul_ordered
from nki.spec.arrays import LANES
from nki.spec.operator import Operator

F32 = np.float32

_BITWISE: dict[str, Callable[..., Any]] = {
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
}

_REDUCE: dict[str, Any] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
}


class NumpyArrays(NumpyPrimitives):
    """Arithmetic of `nki.spec.arrays.Arrays` on float32 arrays; memory is added by the machine."""

    ordered_matmul: bool = False

    def constant(self, value: float) -> Any:
        return F32(value)

    def add(self, a: Any, b: Any) -> Any:
        return np.add(a, b, dtype=F32)

    def subtract(self, a: Any, b: Any) -> Any:
        return np.subtract(a, b, dtype=F32)

    def multiply(self, a: Any, b: Any) -> Any:
        return np.multiply(a, b, dtype=F32)

    def divide(self, a: Any, b: Any) -> Any:
        return np.divide(a, b, dtype=F32)

    def maximum(self, a: Any, b: Any) -> Any:
        return np.maximum(a, b, dtype=F32)

    def minimum(self, a: Any, b: Any) -> Any:
        return np.minimum(a, b, dtype=F32)

    def absolute(self, a: Any) -> Any:
        return np.abs(a)

    def negative(self, a: Any) -> Any:
        return np.negative(a)

    def sign(self, a: Any) -> Any:
        return np.sign(a)

    def sqrt(self, a: Any) -> Any:
        return np.sqrt(a, dtype=F32)

    def floor(self, a: Any) -> Any:
        return np.floor(a)

    def round(self, a: Any, dtype: DType) -> Any:
        return to_f32(round_to(a, dtype), dtype)

    def compare(self, name: str, a: Any, b: Any) -> Any:
        return COMPARE[name](a, b).astype(F32)

    def truth(self, a: Any) -> Any:
        return np.not_equal(a, 0).astype(F32)

    def where(self, condition: Any, a: Any, b: Any) -> Any:
        return np.where(np.not_equal(condition, 0), a, b)

    def bitwise(self, name: str, a: Any, b: Any) -> Any:
        if name == "invert":
            return np.invert(a)
        if name in _BITWISE:
            return _BITWISE[name](a, b)
        return _shift(name, a, b)

    def integer(self, name: str, a: Any, b: Any, dtype: DType) -> Any:
        a, b = np.asarray(a).astype(np.int64), np.asarray(b).astype(np.int64)
        if name in COMPARE:
            return COMPARE[name](a, b).astype(dtype.numpy)
        wide = {
            "add": np.add,
            "subtract": np.subtract,
            "multiply": np.multiply,
            "maximum": np.maximum,
            "minimum": np.minimum,
        }[name](a, b)
        return wide.astype(np.uint64).astype(np.uint32).view(np.uint32).astype(dtype.numpy)

    def affine(self, partitions: int, pattern: Sequence[tuple[int, int]], offset: int, multiplier: int) -> Any:
        grid = (np.arange(partitions, dtype=np.int64) * multiplier + offset)[:, None]
        for step, count in pattern:
            grid = (grid[:, :, None] + np.arange(count, dtype=np.int64) * step).reshape(partitions, -1)
        return grid.astype(np.int32)

    def to_float(self, a: Any) -> Any:
        return np.asarray(a).astype(F32)

    def reshape(self, a: Any, shape: Sequence[int]) -> Any:
        return np.asarray(a).reshape(shape)

    def transpose(self, a: Any) -> Any:
        return np.ascontiguousarray(np.transpose(a))

    def every(self, a: Any, start: int, step: int) -> Any:
        return a[..., start::step]

    def concatenate(self, parts: Sequence[Any]) -> Any:
        return np.concatenate(parts, axis=-1)

    def broadcast(self, a: Any, partitions: int, count: int) -> Any:
        return np.broadcast_to(a, (partitions, count))

    def rows(self, a: Any, first: int, count: int) -> Any:
        return a[first : first + count]

    def identity(self, count: int) -> Any:
        return np.eye(count, dtype=F32)

    def dequantize(self, packed: Any, dtype: DType, scales: Any) -> Any:
        partitions, columns = packed.shape
        lanes = unpack_x4(packed, dtype).reshape(partitions, columns, -1).transpose(2, 0, 1)
        values = np.multiply(lanes, np.repeat(scales, partitions // len(scales), axis=0), dtype=F32)
        return np.ascontiguousarray(values).reshape(-1, columns)

    def pack_x4(self, a: Any, dtype: DType) -> Any:
        return pack_x4(a, dtype)

    def reduce(self, operator: Operator, a: Any) -> Any:
        if operator.name in ("logical_and", "logical_or", "logical_xor"):
            return _reduce_logical(operator.name, a)
        assert operator.identity is not None, f"{operator} has an identity"
        return _lanes(_REDUCE[operator.name], np.asarray(a, F32), F32(operator.identity))

    def sum_in_order(self, a: Any) -> Any:
        # From 0.0 on; as -0.0 is the sum of nothing but -0.0, adding 0.0 at the end comes to the same.
        return np.add(np.add.accumulate(a, axis=-1, dtype=F32)[..., -1:], F32(0))

    def recurrence(self, step: Callable[..., Any], initial: Any, *sequences: Any) -> Any:
        columns = [np.ascontiguousarray(np.transpose(sequence)) for sequence in sequences]
        states = np.empty_like(columns[0])
        state = np.broadcast_to(np.reshape(initial, -1), states.shape[1:])
        for i, values in enumerate(zip(*columns, strict=True)):
            states[i] = state = step(state, *values)
        return np.ascontiguousarray(states.T)

    def reduce_bits(self, operator: Operator, a: Any) -> Any:
        return _REDUCE[operator.name].reduce(a, axis=-1, keepdims=True)

    def matmul(self, stationary: Any, moving: Any) -> Any:
        if self.ordered_matmul:
            return matmul_ordered(stationary, moving)
        return matmul_blas(stationary, moving)


def _shift(name: str, a: Any, b: Any) -> Any:
    """Shifts are logical; a count of the width or more leaves zero, as in a shifter that sees the whole count."""
    bits = a.dtype.itemsize * 8
    unsigned = a.view(f"u{a.dtype.itemsize}")
    count = np.asarray(b).astype(np.int64)
    clipped = np.clip(count, 0, bits - 1).astype(unsigned.dtype)
    shifted = np.left_shift(unsigned, clipped) if name == "left_shift" else np.right_shift(unsigned, clipped)
    return np.where((count >= 0) & (count < bits), shifted, unsigned.dtype.type(0)).astype(unsigned.dtype).view(a.dtype)


def _reduce_logical(name: str, a: Any) -> Any:
    truth = np.not_equal(a, 0)
    reducer = {"logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor}[name]
    return reducer.reduce(truth, axis=-1, keepdims=True).astype(F32)


def _lanes(function: Any, a: np.ndarray, identity: np.float32) -> np.ndarray:
    """The fixed order: 16 lanes in ascending order, then a tree. Subtraction starts from the first element instead."""
    if function is np.subtract:
        rest = _lanes(np.add, a[..., 1:], F32(0)) if a.shape[-1] > 1 else F32(0)
        return np.subtract(a[..., :1], rest, dtype=F32)
    count = a.shape[-1]
    if count < LANES:
        padded = np.full((*a.shape[:-1], LANES), identity, F32)
        padded[..., :count] = a
        lanes = padded
    else:
        whole = count - count % LANES
        body = np.ascontiguousarray(a[..., :whole]).reshape(*a.shape[:-1], whole // LANES, LANES)
        lanes = function.reduce(body, axis=-2)
        if whole != count:
            tail = function(lanes[..., : count - whole], a[..., whole:])
            lanes[..., : count - whole] = tail
    for half in (8, 4, 2, 1):
        lanes = function(lanes[..., :half], lanes[..., half : 2 * half])
    return lanes
