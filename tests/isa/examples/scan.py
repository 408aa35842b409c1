"""Examples of tensor_tensor_scan and scalar_tensor_tensor."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

import nki.language as nl
from nki.core import dtypes
from nki.isa import alu, functions
from nki.isa.scan import scalar_tensor_tensor, tensor_tensor_scan
from tests.isa.registry import Breaks, Legal
from tests.isa.tiles import arrays, bf16, breaks, empty, filled, gather, gather_arrays, load, store

_PYTHON = {
    alu.ADD: operator.add,
    alu.SUBTRACT: operator.sub,
    alu.MULTIPLY: operator.mul,
    alu.MAXIMUM: max,
    alu.GREATER: lambda a, b: float(a > b),
}


def calculated(op: Any, first: Any, second: Any, reverse: bool) -> Any:
    """One operation of Python on two float32 numbers."""
    if reverse:
        first, second = second, first
    return np.float32(_PYTHON[op](np.float32(first), np.float32(second)))


def stored(values: Any, dtype: Any) -> Any:
    """As the engines cast: integers to nearest."""
    values = np.array(values)
    return (np.rint(values) if np.issubdtype(dtype, np.integer) else values).astype(dtype)


# ---- tensor_tensor_scan


def make(op0: Any, op1: Any, dtype: Any = np.float32, psum: bool = False, **options: Any) -> Any:
    def kernel(a: Any, b: Any, initial: Any) -> Any:
        first, second = empty(a.shape, dtype), empty(a.shape, dtype, nl.psum)
        places = (nl.psum, nl.sbuf) if psum else (nl.sbuf, nl.psum)
        x, y = load(a, places[0]), load(b, places[1])
        tensor_tensor_scan(first, x, y, load(initial), op0, op1, **options)
        tensor_tensor_scan(second, x, y, 0.5, op0, op1, **options)
        return store(first), store(second)

    return kernel


def expected(op0: Any, op1: Any, dtype: Any = np.float32, reverse0: bool = False, reverse1: bool = False) -> Any:
    def scan(a: Any, b: Any, state: Any) -> Any:
        out = []
        for x, y in zip(a.reshape(-1), b.reshape(-1), strict=True):
            state = calculated(op1, calculated(op0, x, state, reverse0), y, reverse1)
            out.append(state)
        return np.reshape(out, a.shape)

    def both(a: Any, b: Any, initial: Any) -> Any:
        first = [scan(x, y, s[0]) for x, y, s in zip(a, b, initial, strict=True)]
        second = [scan(x, y, np.float32(0.5)) for x, y in zip(a, b, strict=True)]
        return stored(first, dtype), stored(second, dtype)

    return both


def pieces(a: Any, b: Any) -> Any:
    """A long scan in two instructions, the second from the last element of the first."""
    x, y, result = load(a), load(b), empty(a.shape)
    tensor_tensor_scan(result[:, 0:6], x[:, 0:6], y[:, 0:6], 0, alu.MULTIPLY, alu.ADD)
    tensor_tensor_scan(result[:, 6:10], x[:, 6:10], y[:, 6:10], result[:, 5:6], alu.MULTIPLY, alu.ADD)
    return store(result)


def pieces_expected(a: Any, b: Any) -> Any:
    zero = np.zeros((len(a), 1), np.float32)
    return expected(alu.MULTIPLY, alu.ADD)(a, b, zero)[0]


def scanned(dst: Any, data0: Any, data1: Any, initial: Any = 0.0, op0: Any = alu.MULTIPLY, op1: Any = alu.ADD) -> Any:
    return tensor_tensor_scan(dst, data0, data1, initial, op0, op1)


SHAPES = arrays((16, 20), (16, 20), (16, 1), scale=1.0)

SCAN = [
    *[
        Legal("tensor_tensor_scan", make(*ops, **options), SHAPES, expected(*ops, **options))
        for ops, options in (
            ((alu.MULTIPLY, alu.ADD), {}),
            ((alu.SUBTRACT, alu.SUBTRACT), {}),
            ((alu.SUBTRACT, alu.MULTIPLY), {"reverse0": True}),
            ((alu.MAXIMUM, alu.SUBTRACT), {"reverse1": True}),
            ((alu.GREATER, alu.ADD, np.int8), {}),
            ((alu.ADD, alu.MAXIMUM, np.float16), {"reverse0": True, "reverse1": True}),
        )
    ],
    Legal("tensor_tensor_scan", make(alu.ADD, alu.MULTIPLY, psum=True), SHAPES, expected(alu.ADD, alu.MULTIPLY)),
    Legal(
        "tensor_tensor_scan",
        make(alu.MULTIPLY, alu.ADD),
        arrays((4, 2, 3), (4, 2, 3), (4, 1)),
        expected(alu.MULTIPLY, alu.ADD),
    ),
    Legal("tensor_tensor_scan", pieces, arrays((8, 10), (8, 10)), pieces_expected),
    breaks("tensor_tensor_scan.shapes", lambda d, s, c: scanned(d, s, s[:, 0:4])),
    breaks("tensor_tensor_scan.operators", lambda d, s, c: scanned(d, s, s, op0=alu.ABS)),
    breaks("tensor_tensor_scan.operators", lambda d, s, c: scanned(d, s, s, op1=functions.EXP)),
    breaks("tensor_tensor_scan.operators", lambda d, s, c: scanned(d, s, s, op1=alu.BITWISE_OR)),
    breaks("tensor_tensor_scan.operator-target", lambda d, s, c: scanned(d, s, s, op1=alu.ABS_MAX)),
    breaks("tensor_tensor_scan.column-partitions", lambda d, s, c: scanned(d, s, s, c[0:2])),
    breaks(
        "tensor_tensor_scan.both-psum",
        lambda d, s, c: scanned(d, filled((4, 8), buffer=nl.psum), filled((4, 8), buffer=nl.psum)),
    ),
    Breaks("tensor_tensor_scan.indirect", gather(lambda d, s: scanned(d, s, filled((16, 16)))), gather_arrays, "trn3"),
]


# ---- scalar_tensor_tensor


def make_pair(op0: Any, op1: Any, dtype: Any = np.float32, **options: Any) -> Any:
    def kernel(a: Any, b: Any, column: Any) -> Any:
        first, second = empty(a.shape, dtype), empty(a.shape, dtype, nl.psum)
        scalar_tensor_tensor(first, load(a, nl.psum), op0, load(column), op1, load(b), **options)
        scalar_tensor_tensor(second, load(a), op0, -1.5, op1, load(b, nl.psum), **options)
        return store(first), store(second)

    return kernel


def expected_pair(op0: Any, op1: Any, dtype: Any = np.float32, reverse0: bool = False, reverse1: bool = False) -> Any:
    def apply(a: Any, b: Any, column: Any) -> Any:
        result = np.empty(a.shape, np.float32)
        for p, i in np.ndindex(*a.shape):
            result[p, i] = calculated(op1, calculated(op0, a[p, i], column[p], reverse0), b[p, i], reverse1)
        return stored(result, dtype)

    def both(a: Any, b: Any, column: Any) -> Any:
        return apply(a, b, column[:, 0]), apply(a, b, np.full(len(a), -1.5, np.float32))

    return both


def fused(dst: Any, data: Any, operand1: Any, operand0: Any = 2.0, op0: Any = alu.MULTIPLY, op1: Any = alu.ADD) -> Any:
    return scalar_tensor_tensor(dst, data, op0, operand0, op1, operand1)


def bf16_column(a: Any, b: Any, column: Any) -> Any:
    """operand0 may have any dtype, and dst may be an operand."""
    tile = load(a)
    scalar_tensor_tensor(tile, tile, alu.SUBTRACT, load(column, dtype=dtypes.bfloat16), alu.MULTIPLY, load(b))
    return store(tile)


PAIR = [
    *[
        Legal("scalar_tensor_tensor", make_pair(*ops, **options), SHAPES, expected_pair(*ops, **options))
        for ops, options in (
            ((alu.MULTIPLY, alu.ADD), {}),
            ((alu.SUBTRACT, alu.MULTIPLY, np.float16), {}),
            ((alu.SUBTRACT, alu.SUBTRACT), {"reverse0": True}),
            ((alu.MULTIPLY, alu.SUBTRACT), {"reverse1": True}),
            ((alu.GREATER, alu.MULTIPLY, np.int16), {}),
        )
    ],
    Legal(
        "scalar_tensor_tensor",
        bf16_column,
        SHAPES,
        lambda a, b, column: (a - bf16(column).astype(np.float32)) * b,
    ),
    breaks("scalar_tensor_tensor.shapes", lambda d, s, c: fused(d, s, s[:, 0:4])),
    breaks("scalar_tensor_tensor.operators", lambda d, s, c: fused(d, s, s, op0=alu.RELU)),
    breaks("scalar_tensor_tensor.operators", lambda d, s, c: fused(d, s, s, op1=alu.LEFT_SHIFT)),
    breaks("scalar_tensor_tensor.operator-target", lambda d, s, c: fused(d, s, s, op0=alu.ABS_MIN)),
    breaks("scalar_tensor_tensor.column-partitions", lambda d, s, c: fused(d, s, s, c[0:2])),
    breaks(
        "scalar_tensor_tensor.both-psum",
        lambda d, s, c: fused(d, filled((4, 8), buffer=nl.psum), filled((4, 8), buffer=nl.psum)),
    ),
    Breaks("scalar_tensor_tensor.indirect", gather(lambda d, s: fused(d, s, filled((16, 16)))), gather_arrays, "trn3"),
]

EXAMPLES = [*SCAN, *PAIR]
