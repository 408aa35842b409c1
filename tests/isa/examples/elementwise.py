"""Examples of tensor_tensor and tensor_scalar."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

import nki.isa as nisa
import nki.language as nl
from tests.isa.registry import Breaks, Legal
from tests.isa.tiles import (
    arrays,
    empty,
    filled,
    gather,
    gather_arrays,
    gathered,
    load,
    misplaced,
    nothing,
    scattered_to_psum,
    store,
)

F32 = np.float32
BF16 = ml_dtypes.bfloat16
SMALL = [np.float16, BF16, ml_dtypes.float8_e4m3, ml_dtypes.float8_e5m2, np.int8, np.uint8, np.int16, np.uint16]
TRN3 = ("trn3",)

# ---- references: one element at a time, in extended precision or in Python integers

_ARITHMETIC: dict[Any, Callable[[Any, Any], Any]] = {
    nl.add: lambda a, b: a + b,
    nl.subtract: lambda a, b: a - b,
    nl.multiply: lambda a, b: a * b,
    nl.maximum: max,
    nl.minimum: min,
    nl.equal: lambda a, b: a == b,
    nl.not_equal: lambda a, b: a != b,
    nl.greater: lambda a, b: a > b,
    nl.greater_equal: lambda a, b: a >= b,
    nl.less: lambda a, b: a < b,
    nl.less_equal: lambda a, b: a <= b,
    nl.logical_and: lambda a, b: bool(a) and bool(b),
    nl.logical_or: lambda a, b: bool(a) or bool(b),
    nl.logical_xor: lambda a, b: bool(a) != bool(b),
}
_ABSOLUTE = {
    nl.abs_max: lambda a, b: a if abs(a) > abs(b) else b,
    nl.abs_min: lambda a, b: a if abs(a) < abs(b) else b,
}
_UNARY = {
    nl.abs: lambda a, _: abs(a),
    nl.rsqrt: lambda a, _: 1 / np.sqrt(a),
    nl.reciprocal: lambda a, _: 1 / a,
}
_UNARY_NEW = {nl.square: lambda a, _: a * a, nl.relu: lambda a, _: max(a, np.longdouble(0))}
_POWER = {nl.power: lambda a, b: np.longdouble(math.pow(a, b))}
FLOAT = {**_ARITHMETIC, **_ABSOLUTE, **_UNARY, **_UNARY_NEW, **_POWER}
"""What every arithmetic operator computes, on extended floats or Python integers."""

BITS: dict[Any, Callable[[int, int, int], int]] = {
    nl.bitwise_and: lambda a, b, width: a & b,
    nl.bitwise_or: lambda a, b, width: a | b,
    nl.bitwise_xor: lambda a, b, width: a ^ b,
    nl.left_shift: lambda a, b, width: a * 2**b if b < width else 0,
    nl.right_shift: lambda a, b, width: a // 2**b if b < width else 0,
    nl.invert: lambda a, b, width: 2**width - 1 - a,
}
"""What every bitvec operator computes, on unsigned Python integers of a width."""


def cast(values: Any, dtype: Any) -> np.ndarray:
    """Float32 values as the engines store them: integers to nearest and saturated."""
    values = np.asarray(values, F32)
    if not np.issubdtype(dtype, np.integer):
        return values.astype(dtype)
    info = np.iinfo(dtype)
    return np.array([min(max(round(float(v)), info.min), info.max) for v in values.ravel()], dtype).reshape(
        values.shape
    )


def in_float32(op: Any, dtype: Any = F32) -> Callable[[Any, Any], np.ndarray]:
    """Element by element with one rounding to float32 and one to the dtype."""

    def expected(a: Any, b: Any) -> np.ndarray:
        pairs = zip(a.astype(F32).ravel(), b.astype(F32).ravel(), strict=True)
        return cast(np.reshape([F32(FLOAT[op](np.longdouble(x), np.longdouble(y))) for x, y in pairs], a.shape), dtype)

    return expected


def wrapped(number: int, dtype: Any) -> int:
    """The integer of the dtype that has the same low bits."""
    info = np.iinfo(dtype)
    return (number - info.min) % 2**info.bits + info.min


def exactly(op: Any, dtype: Any) -> Callable[[Any, Any], np.ndarray]:
    """Element by element in Python integers that wrap."""

    def expected(a: Any, b: Any) -> np.ndarray:
        pairs = zip(a.ravel().tolist(), b.ravel().tolist(), strict=True)
        return np.reshape([wrapped(int(FLOAT[op](x, y)), dtype) for x, y in pairs], a.shape).astype(dtype)

    return expected


def in_bits(op: Any, dtype: Any) -> Callable[[Any, Any], np.ndarray]:
    """Element by element on unsigned Python integers."""

    def expected(a: Any, b: Any) -> np.ndarray:
        width = np.iinfo(dtype).bits
        pairs = zip(a.ravel().tolist(), b.ravel().tolist(), strict=True)
        results = [BITS[op](x % 2**width, y % 2**width, width) % 2**width for x, y in pairs]
        return np.reshape([wrapped(n, dtype) for n in results], a.shape).astype(dtype)

    return expected


def integers(*dtypes: Any, most: int = 2**32, shape: Any = (8, 24)) -> Callable[[], tuple[Any, ...]]:
    """Integers of the whole range, or up to `most`."""

    def make() -> tuple[Any, ...]:
        r = np.random.default_rng(2)
        ranges = [np.iinfo(dtype) for dtype in dtypes]
        return tuple(
            r.integers(max(i.min, -most), min(i.max, most) + 1, shape).astype(d)
            for i, d in zip(ranges, dtypes, strict=True)
        )

    return make


def few() -> tuple[Any, ...]:
    """Floats among which many are equal or 0."""
    r = np.random.default_rng(3)
    return tuple(r.integers(-2, 3, (8, 24)).astype(F32) for _ in "ab")


# ---- tensor_tensor


def pairwise(op: Any, dtype: Any = F32, places: Any = (nl.sbuf,) * 3, **options: Any) -> Any:
    def kernel(a: Any, b: Any) -> Any:
        result = empty(a.shape, dtype, places[0])
        nisa.tensor_tensor(result, load(a, places[1]), load(b, places[2]), op, **options)
        return store(result)

    return kernel


def in_place(a: Any, b: Any) -> Any:
    """Strided views of three ranks, the result over an input."""
    x, y = load(a), load(b)
    nisa.tensor_tensor(dst=x[:, 0:12:2], data1=x[:, 12:24:2], data2=y.reshape((8, 2, 3, 4))[:, :, :, 1], op=nl.subtract)
    return store(x)


def in_place_expected(a: Any, b: Any) -> np.ndarray:
    out = a.copy()
    for i in range(6):
        out[:, 2 * i] = a[:, 12 + 2 * i] - b[:, 4 * i + 1]
    return out


def refused(code: str, call: Any, target: str = "trn2") -> Breaks:
    """A kernel that calls `call(float tile, int tile, PSUM tile)` on (4, 8) elements."""

    def kernel(a: Any) -> Any:
        tile = load(a)
        call(tile, filled((4, 8), 1, np.int32), filled((4, 8), 1.0, buffer=nl.psum))
        return store(tile)

    return Breaks(code, kernel, nothing, target)


def tensor(dst: Any, data1: Any, data2: Any, op: Any = nl.add, **options: Any) -> Any:
    return nisa.tensor_tensor(dst, data1, data2, op, **options)


PSUM_PLACES = [(nl.psum, nl.sbuf, nl.sbuf), (nl.sbuf, nl.psum, nl.sbuf), (nl.psum, nl.sbuf, nl.psum)]
FLOATS = arrays((8, 24), (8, 24), scale=50.0)

TENSOR_TENSOR = [
    *[Legal("tensor_tensor", pairwise(op), FLOATS, in_float32(op)) for op in _ARITHMETIC],
    *[Legal("tensor_tensor", pairwise(op), few, in_float32(op)) for op in _ARITHMETIC],
    *[Legal("tensor_tensor", pairwise(op), few, in_float32(op), TRN3) for op in _ABSOLUTE],
    Legal(
        "tensor_tensor", pairwise(nl.power), lambda: tuple(np.abs(v) for v in few()), in_float32(nl.power), rtol=1e-6
    ),
    *[
        Legal("tensor_tensor", pairwise(op, d), arrays((8, 24), (8, 24), dtype=d, scale=90.0), in_float32(op, d))
        for d in SMALL
        for op in (nl.add, nl.multiply)
    ],
    Legal("tensor_tensor", pairwise(nl.less, np.uint8), FLOATS, in_float32(nl.less, np.uint8)),
    Legal("tensor_tensor", pairwise(nl.add, np.int32), FLOATS, in_float32(nl.add, np.int32)),
    *[
        Legal("tensor_tensor", pairwise(op, d), integers(d, d), exactly(op, d))
        for d in (np.int32, np.uint32)
        for op in (nl.add, nl.subtract, nl.multiply, nl.maximum, nl.minimum, nl.greater, nl.logical_xor)
    ],
    Legal("tensor_tensor", pairwise(nl.add, np.int32), integers(np.uint32, np.int32), exactly(nl.add, np.int32)),
    *[
        Legal(
            "tensor_tensor",
            pairwise(nl.add, np.int32, **options),
            integers(np.int32, np.int32),
            in_float32(nl.add, np.int32),
        )
        for options in ({"engine": nisa.engine.vector}, *({"places": places} for places in PSUM_PLACES))
    ],
    *[
        Legal("tensor_tensor", pairwise(op, d), integers(d, d, most=40), in_bits(op, d))
        for op in BITS
        if op is not nl.invert
        for d in (np.int8, np.uint16, np.int32)
    ],
    Legal(
        "tensor_tensor",
        pairwise(nl.bitwise_xor, np.uint32),
        integers(np.int32, np.uint32),
        in_bits(nl.bitwise_xor, np.uint32),
    ),
    *[
        Legal("tensor_tensor", pairwise(nl.add, BF16, places), FLOATS, in_float32(nl.add, BF16))
        for places in PSUM_PLACES
    ],
    Legal("tensor_tensor", pairwise(nl.multiply, engine=nisa.engine.gpsimd), FLOATS, in_float32(nl.multiply)),
    Legal("tensor_tensor", in_place, FLOATS, in_place_expected),
    Legal(
        "tensor_tensor",
        gather(lambda dst, data: tensor(dst, data, filled((16, 16), 2.0))),
        gather_arrays,
        lambda a, index: gathered(a, index) + F32(2),
        TRN3,
    ),
    refused("tensor_tensor.shapes", lambda f, i, p: tensor(f[:, 0:4], f[:, 0:4], f[:, 0:1])),
    refused("tensor_tensor.shapes", lambda f, i, p: tensor(f[0:2], f[0:2], f)),
    refused("tensor_tensor.both-psum", lambda f, i, p: tensor(f, p, p)),
    refused("tensor_tensor.operator", lambda f, i, p: tensor(f, f, f, nl.exp)),
    refused("tensor_tensor.operator", lambda f, i, p: tensor(f, f, f, nl.abs)),
    refused("tensor_tensor.operator-target", lambda f, i, p: tensor(f, f, f, nl.abs_max)),
    refused("tensor_tensor.bitvec-dtype", lambda f, i, p: tensor(f, f, f, nl.bitwise_and)),
    refused("tensor_tensor.bitvec-dtype", lambda f, i, p: tensor(i, i, filled((4, 8), 1, np.int16), nl.bitwise_or)),
    refused("tensor_tensor.power-engine", lambda f, i, p: tensor(f, f, f, nl.power, engine=nisa.engine.vector)),
    refused("tensor_tensor.vector-engine", lambda f, i, p: tensor(i, i, i, nl.left_shift, engine=nisa.engine.gpsimd)),
    refused(
        "tensor_tensor.vector-engine", lambda f, i, p: tensor(f, f, f, nl.abs_min, engine=nisa.engine.gpsimd), "trn3"
    ),
    Breaks("tensor_tensor.indirect", gather(lambda dst, data: tensor(dst, dst, data)), gather_arrays, "trn3"),
    Breaks("tensor_tensor.indirect", gather(lambda dst, data: tensor(dst, data, dst)), gather_arrays, "trn2"),
    Breaks("tensor_tensor.indirect-partitions", misplaced(lambda dst, data: tensor(dst, data, dst)), nothing, "trn3"),
]


# ---- tensor_scalar


def scaled(op0: Any, operand0: Any, *rest: Any, dtype: Any = F32, places: Any = (nl.sbuf,) * 2, **options: Any) -> Any:
    """A kernel of the data and a column, which stands for operands that are `COLUMN`."""

    def kernel(a: Any, column: Any) -> Any:
        result, tile = empty(a.shape, dtype, places[0]), load(column)
        operands = [tile if value is COLUMN else value for value in (operand0, *rest)]
        nisa.tensor_scalar(result, load(a, places[1]), op0, *operands, **options)
        return store(result)

    return kernel


COLUMN = object()


def two_steps(
    op0: Any,
    operand0: Any,
    reverse0: bool = False,
    op1: Any = None,
    operand1: Any = None,
    reverse1: bool = False,
    dtype: Any = F32,
) -> Callable[[Any, Any], np.ndarray]:
    """Both steps, one after the other, each rounded to float32, and the cast."""

    def expected(a: Any, column: Any) -> np.ndarray:
        result = a.astype(F32)
        for op, operand, reverse in ((op0, operand0, reverse0), (op1, operand1, reverse1)):
            if op is not None:
                other = np.empty_like(result)
                other[...] = column.reshape(-1, *[1] * (a.ndim - 1)) if operand is COLUMN else operand or 0
                result = in_float32(op)(other, result) if reverse else in_float32(op)(result, other)
        return cast(result, dtype)

    return expected


def same(
    *arguments: Any, targets: Any = ("trn1", "trn2", "trn3"), make: Any = None, rtol: float = 0.0, **options: Any
) -> Legal:
    """A legal tensor_scalar whose arguments are those of its reference."""
    dtype = options.get("dtype", F32)
    kernel = scaled(*arguments, **options)
    return Legal("tensor_scalar", kernel, make or SHAPES, two_steps(*arguments, dtype=dtype), targets, rtol=rtol)


def two_bit_steps(op0: Any, operand0: Any, op1: Any, operand1: Any, dtype: Any) -> Callable[[Any, Any], np.ndarray]:
    def expected(a: Any, column: Any) -> np.ndarray:
        result = a
        for op, operand in ((op0, operand0), (op1, operand1)):
            if op is not None:
                other = (
                    np.broadcast_to(column, a.shape) if operand is COLUMN else np.full(a.shape, operand or 0, object)
                )
                result = in_bits(op, dtype)(result, other)
        return result

    return expected


def bitwise(op0: Any, operand0: Any, op1: Any = None, operand1: Any = None, dtype: Any = np.int32) -> Legal:
    def make() -> tuple[Any, ...]:
        info = np.iinfo(dtype)
        r = np.random.default_rng(4)
        return r.integers(info.min, info.max + 1, (8, 12)).astype(dtype), r.integers(0, info.bits + 2, (8, 1)).astype(
            dtype
        )

    kernel = scaled(op0, operand0, False, op1, operand1, dtype=dtype)
    return Legal("tensor_scalar", kernel, make, two_bit_steps(op0, operand0, op1, operand1, dtype))


def positive() -> tuple[Any, ...]:
    return tuple(np.abs(v) + F32(0.5) for v in SHAPES())


def with_views(a: Any, column: Any) -> Any:
    """A strided source of another rank than its destination, a column inside a larger tensor."""
    data, table = load(a), load(column)
    result = filled((8, 30), 0.0)
    view = data.reshape((8, 3, 4))[:, :, 1:3]
    nisa.tensor_scalar(dst=result[:, 5:17:2], data=view, op0=nl.multiply, operand0=table[:, 1], op1=nl.add, operand1=1)
    return store(result)


def with_views_expected(a: Any, column: Any) -> np.ndarray:
    out = np.zeros((8, 30), F32)
    for n, i in enumerate((1, 2, 5, 6, 9, 10)):
        out[:, 5 + 2 * n] = a[:, i] * column[:, 1] + F32(1)
    return out


def scalar(dst: Any, data: Any, op0: Any = nl.add, operand0: Any = 1.0, **options: Any) -> Any:
    return nisa.tensor_scalar(dst, data, op0, operand0, **options)


def indirect_integers(a: Any, index: Any) -> Any:
    table, offsets, result = filled((16, 8), 3, np.int32), load(index), filled((16, 16), 0, np.int32)
    scalar(result, table.indirect(offsets, 16))
    return store(result)


SHAPES = arrays((8, 12), (8, 1), scale=3.0)
SCALAR, GPSIMD, VECTOR = nisa.engine.scalar, nisa.engine.gpsimd, nisa.engine.vector

TENSOR_SCALAR = [
    *[same(op, 1.0) for op in _ARITHMETIC],
    *[same(op, COLUMN, True) for op in _ARITHMETIC],
    *[same(op, -1.5, False, targets=TRN3) for op in _ABSOLUTE],
    same(nl.power, 2.5, make=positive, rtol=1e-6),
    same(nl.power, 2.0, True, rtol=1e-6),
    *[same(op, operand, make=positive, rtol=1e-6) for op in _UNARY for operand in (None, 0, 0.0)],
    *[same(op, None, targets=TRN3) for op in _UNARY_NEW],
    same(nl.abs, 0.0, True),
    same(nl.add, 2, False, nl.rsqrt, None, make=positive, rtol=1e-6),
    same(nl.multiply, COLUMN, False, nl.add, COLUMN),
    same(nl.subtract, COLUMN, True, nl.subtract, 0.75, True),
    same(nl.maximum, -1.0, False, nl.minimum, COLUMN),
    same(nl.greater, 0.0, False, nl.multiply, COLUMN),
    same(None, None, False, nl.maximum, 0.25),
    *[
        same(nl.multiply, COLUMN, False, nl.add, 0.5, dtype=d, make=arrays((8, 12), (8, 1), scale=60.0))
        for d in (*SMALL, np.int32, np.uint32)
    ],
    *[
        Legal(
            "tensor_scalar",
            scaled(nl.multiply, 1.5, dtype=d),
            lambda d=d: (arrays((8, 12), dtype=d, scale=40.0)()[0], np.zeros((8, 1), F32)),
            two_steps(nl.multiply, 1.5, dtype=d),
        )
        for d in (*SMALL, np.int32)
    ],
    *[
        same(nl.multiply, COLUMN, False, nl.add, 2.0, places=places)
        for places in ((nl.psum, nl.sbuf), (nl.sbuf, nl.psum))
    ],
    same(nl.rsqrt, None, places=(nl.psum, nl.psum), make=positive, rtol=1e-6),
    same(nl.rsqrt, None, engine=GPSIMD, make=positive, rtol=1e-6),
    same(nl.multiply, COLUMN, False, nl.add, 2.0, engine=SCALAR),
    same(nl.multiply, -2.0, engine=SCALAR),
    same(nl.add, COLUMN, engine=SCALAR),
    same(nl.subtract, 1.0, True, nl.maximum, COLUMN, engine=SCALAR, targets=TRN3),
    *[
        bitwise(op, operand, dtype=d)
        for op in BITS
        for operand in ((None, 0) if op is nl.invert else (3, COLUMN))
        for d in (np.int8, np.uint16, np.int32)
    ],
    bitwise(nl.bitwise_and, 0xFFFF0000),
    bitwise(nl.bitwise_xor, -1, dtype=np.uint8),
    bitwise(nl.right_shift, 3, nl.bitwise_and, COLUMN, dtype=np.uint32),
    bitwise(nl.invert, None, nl.left_shift, 2.0, dtype=np.int16),
    Legal("tensor_scalar", with_views, arrays((8, 12), (8, 3)), with_views_expected),
    Legal(
        "tensor_scalar",
        gather(lambda dst, data: scalar(dst, data, nl.multiply, 3.0)),
        gather_arrays,
        lambda a, index: gathered(a, index) * F32(3),
        TRN3,
    ),
    refused("tensor_scalar.shapes", lambda f, i, p: scalar(f, f[:, 0:4])),
    refused("tensor_scalar.operator", lambda f, i, p: scalar(f, f, nl.exp, None)),
    refused("tensor_scalar.operator", lambda f, i, p: scalar(f, f, op1=nl.tanh, operand1=0.0)),
    refused("tensor_scalar.operator-target", lambda f, i, p: scalar(f, f, nl.abs_max)),
    refused("tensor_scalar.operator-target", lambda f, i, p: scalar(f, f, nl.relu, None)),
    refused("tensor_scalar.mixed-classes", lambda f, i, p: scalar(i, i, nl.bitwise_and, 1, op1=nl.add, operand1=1)),
    refused("tensor_scalar.operand0", lambda f, i, p: scalar(f, f, nl.add, None)),
    refused("tensor_scalar.operand0", lambda f, i, p: scalar(f, f, nl.abs, 1.0)),
    refused("tensor_scalar.operand0", lambda f, i, p: scalar(f, f, None, 1.0, op1=nl.add, operand1=1.0)),
    refused("tensor_scalar.operand1", lambda f, i, p: scalar(f, f, op1=nl.multiply)),
    refused("tensor_scalar.operand1", lambda f, i, p: scalar(f, f, operand1=0.0)),
    refused("tensor_scalar.operand1", lambda f, i, p: scalar(f, f, op1=nl.abs, operand1=f[:, 0:1])),
    refused("tensor_scalar.bitvec-dtype", lambda f, i, p: scalar(f, f, nl.invert, None)),
    refused("tensor_scalar.bitvec-dtype", lambda f, i, p: scalar(i, i, nl.bitwise_and, f[:, 0:1])),
    refused("tensor_scalar.bitvec-number", lambda f, i, p: scalar(i, i, nl.bitwise_and, 2**32)),
    refused("tensor_scalar.bitvec-number", lambda f, i, p: scalar(i, i, nl.left_shift, 0.5)),
    refused("tensor_scalar.operand-dtype", lambda f, i, p: scalar(f, f, operand0=i[:, 0:1])),
    refused("tensor_scalar.operand-partitions", lambda f, i, p: scalar(f, f, operand0=f[0:2, 0:1])),
    refused("tensor_scalar.bitvec-engine", lambda f, i, p: scalar(i, i, nl.bitwise_or, 1, engine=SCALAR), "trn3"),
    refused("tensor_scalar.bitvec-engine", lambda f, i, p: scalar(i, i, nl.bitwise_or, 1, engine=GPSIMD)),
    refused("tensor_scalar.scalar-engine", lambda f, i, p: scalar(f, f, nl.subtract, engine=SCALAR)),
    refused("tensor_scalar.scalar-engine", lambda f, i, p: scalar(f, f, op1=nl.multiply, operand1=2.0, engine=SCALAR)),
    refused("tensor_scalar.gpsimd-engine", lambda f, i, p: scalar(f, f, engine=GPSIMD)),
    Breaks("tensor_scalar.indirect", gather(scalar), gather_arrays, "trn2"),
    Breaks("tensor_scalar.indirect-partitions", misplaced(scalar), nothing, "trn3"),
    Breaks(
        "tensor_scalar.indirect-psum",
        scattered_to_psum(lambda dst, data: scalar(dst, data, engine=SCALAR)),
        nothing,
        "trn3",
    ),
    Breaks("tensor_scalar.indirect-address", indirect_integers, gather_arrays, "trn3"),
]

EXAMPLES = [*TENSOR_TENSOR, *TENSOR_SCALAR]
