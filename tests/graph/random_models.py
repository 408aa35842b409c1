"""Random models of a few operations, with the values on which careless identities fail."""

from __future__ import annotations

import random

import numpy as np

from nki.core.dtypes import DType, bool_, float32, int32
from nki.graph.ir import Function, Module, Op, Region, TensorType, Value

SHAPES = ((2, 3, 4), (6, 4), (2, 12), (2, 3, 1), (2, 3), (1, 4), (4,), ())
SPECIAL = (0.0, -0.0, 1.0, -1.0, 2.0, 0.5, 3.0, float("inf"), float("-inf"), float("nan"), 1e-30)
UNARY = ("negate", "abs", "sign", "floor", "is_finite", "sqrt", "tanh", "exponential", "logistic")
BINARY = ("add", "subtract", "multiply", "divide", "maximum", "minimum", "power")
INTEGER = ("add", "subtract", "multiply", "maximum", "minimum", "and", "or", "xor")


class Maker:
    """Adds operations on values that are there."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.ops: list[Op] = []
        self.values: list[Value] = []

    def op(
        self, name: str, operands: list[Value], kind: TensorType, regions: tuple[Region, ...] = (), **a: object
    ) -> Value:
        result = Value(kind)
        self.ops.append(Op(name, tuple(operands), (result,), a, regions))
        self.values.append(result)
        return result

    def pick(self, *dtypes: DType, shape: tuple[int, ...] | None = None) -> Value:
        fitting = [v for v in self.values if (not dtypes or v.type.dtype in dtypes) and shape in (None, v.type.shape)]
        if fitting and (shape is None or self.random.random() < 0.8):
            return self.random.choice(fitting[-6:])
        return self.constant(dtypes[0], shape if shape is not None else self.random.choice(SHAPES))

    def constant(self, dtype: DType, shape: tuple[int, ...]) -> Value:
        count = int(np.prod(shape)) if self.random.random() < 0.3 else 1
        numbers = [self.random.choice(SPECIAL if dtype is float32 else (0, 1, -1, 5)) for _ in range(count)]
        array = np.array(numbers).astype(dtype.numpy)
        value = array.reshape(shape) if count > 1 else np.broadcast_to(array.reshape(()), shape)
        return self.op("constant", [], TensorType(shape, dtype), value=value)

    def step(self) -> None:
        self.random.choice(STEPS)(self)


def _unary(m: Maker) -> None:
    x = m.pick(float32)
    name = m.random.choice(UNARY)
    m.op(name, [x], TensorType(x.type.shape, bool_ if name == "is_finite" else float32))


def _binary(m: Maker) -> None:
    x = m.pick(float32)
    m.op(m.random.choice(BINARY), [x, m.pick(float32, shape=x.type.shape)], x.type)


def _integer(m: Maker) -> None:
    x = m.pick(int32)
    m.op(m.random.choice(INTEGER), [x, m.pick(int32, shape=x.type.shape)], x.type)


def _compare(m: Maker) -> None:
    x = m.pick(float32, int32)
    y = m.pick(x.type.dtype, shape=x.type.shape)
    kind = "FLOAT" if x.type.dtype is float32 else "SIGNED"
    direction = m.random.choice(("EQ", "NE", "LT", "LE", "GT", "GE"))
    m.op("compare", [x, y], TensorType(x.type.shape, bool_), comparison_direction=direction, compare_type=kind)


def _select(m: Maker) -> None:
    x = m.pick(float32)
    condition = m.pick(bool_, shape=x.type.shape)
    m.op("select", [condition, x, m.pick(float32, shape=x.type.shape)], x.type)


def _convert(m: Maker) -> None:
    x = m.pick(int32, bool_)
    m.op("convert", [x], TensorType(x.type.shape, m.random.choice((float32, int32))))


def _reshape(m: Maker) -> None:
    x = m.pick()
    fitting = [s for s in SHAPES if np.prod(s) == x.type.size]
    if fitting:
        m.op("reshape", [x], TensorType(m.random.choice(fitting), x.type.dtype))


def _transpose(m: Maker) -> None:
    x = m.pick()
    order = list(range(len(x.type.shape)))
    m.random.shuffle(order)
    m.op("transpose", [x], TensorType(tuple(x.type.shape[d] for d in order), x.type.dtype), permutation=tuple(order))


def _broadcast(m: Maker) -> None:
    x = m.pick()
    shape = m.random.choice(SHAPES)
    rank = len(x.type.shape)
    if rank > len(shape):
        return
    dims = sorted(m.random.sample(range(len(shape)), rank))
    if all(n in (1, shape[d]) for n, d in zip(x.type.shape, dims, strict=True)):
        m.op("broadcast_in_dim", [x], TensorType(shape, x.type.dtype), broadcast_dimensions=tuple(dims))


def _reduce(m: Maker) -> None:
    x = m.pick(float32)
    rank = len(x.type.shape)
    if not rank:
        return
    first = m.random.randrange(rank)
    dims = tuple(range(first, rank)) if m.random.random() < 0.7 else (first,)
    name, start = m.random.choice((("add", 0.0), ("maximum", -np.inf), ("minimum", np.inf)))
    scalar = TensorType((), float32)
    initial = m.op("constant", [], scalar, value=np.array(start, np.float32))
    one, two, made = Value(scalar), Value(scalar), Value(scalar)
    region = Region((one, two), [Op(name, (one, two), (made,))], (made,))
    shape = tuple(n for d, n in enumerate(x.type.shape) if d not in dims)
    m.op("reduce", [x, initial], TensorType(shape, float32), (region,), dimensions=dims)


def _slice(m: Maker) -> None:
    x = m.pick()
    bounds = [sorted(m.random.sample(range(n + 1), 2)) for n in x.type.shape]
    strides = [m.random.choice((1, 1, 2)) for _ in bounds]
    shape = tuple(-(-(high - low) // step) for (low, high), step in zip(bounds, strides, strict=True))
    m.op("slice", [x], TensorType(shape, x.type.dtype), start_indices=tuple(b[0] for b in bounds),
         limit_indices=tuple(b[1] for b in bounds), strides=tuple(strides))  # fmt: skip


def _pad(m: Maker) -> None:
    x = m.pick(float32)
    low, high, inner = ([m.random.choice((0, 0, 1, -1 if k < 2 else 2)) for _ in x.type.shape] for k in range(3))
    shape = tuple(n + a + b + max(n - 1, 0) * c for n, a, b, c in zip(x.type.shape, low, high, inner, strict=True))
    if min(shape, default=1) < 1:
        return
    value = m.op("constant", [], TensorType((), float32), value=np.array(m.random.choice(SPECIAL), np.float32))
    m.op("pad", [x, value], TensorType(shape, float32), edge_padding_low=tuple(low), edge_padding_high=tuple(high),
         interior_padding=tuple(inner))  # fmt: skip


def _concatenate(m: Maker) -> None:
    x = m.pick()
    if x.type.shape:
        y = m.pick(x.type.dtype, shape=x.type.shape)
        dim = m.random.randrange(len(x.type.shape))
        shape = tuple(n * 2 if d == dim else n for d, n in enumerate(x.type.shape))
        m.op("concatenate", [x, y], TensorType(shape, x.type.dtype), dimension=dim)


def _dot(m: Maker) -> None:
    x = m.pick(float32)
    if len(x.type.shape) != 2:
        return
    y = m.pick(float32, shape=x.type.shape)
    left, right = m.random.choice(((1, 1), (0, 0)))
    kept = x.type.shape[1 - left], y.type.shape[1 - right]
    m.op("dot_general", [x, y], TensorType(kept, float32), lhs_batching_dimensions=(), rhs_batching_dimensions=(),
         lhs_contracting_dimensions=(left,), rhs_contracting_dimensions=(right,))  # fmt: skip


def _iota(m: Maker) -> None:
    shape = m.random.choice(SHAPES[:-1])
    m.op(
        "iota", [], TensorType(shape, m.random.choice((float32, int32))), iota_dimension=m.random.randrange(len(shape))
    )


STEPS = (
    _unary, _binary, _binary, _binary, _integer, _compare, _select, _convert, _reshape, _reshape, _transpose,
    _broadcast, _broadcast, _reduce, _slice, _pad, _concatenate, _dot, _iota,
)  # fmt: skip


def random_model(seed: int, count: int = 30) -> tuple[Module, list[np.ndarray]]:
    """A model whose results are everything that it computes lately, and inputs for it."""
    m = Maker(seed)
    kinds = [TensorType(m.random.choice(SHAPES), dtype) for dtype in (float32, float32, int32)]
    arguments = tuple(Value(kind) for kind in kinds)
    m.values += arguments
    for _ in range(count):
        m.step()
    results = tuple(dict.fromkeys([v for v in m.values if v not in arguments][-8::2]))
    generator = np.random.default_rng(seed)
    inputs = [_input(generator, kind) for kind in kinds]
    return Module({"main": Function("main", arguments, list(m.ops), results)}), inputs


def _input(generator: np.random.Generator, kind: TensorType) -> np.ndarray:
    if kind.dtype is int32:
        return generator.integers(-4, 5, kind.shape).astype(np.int32)
    values = generator.standard_normal(kind.shape).astype(np.float32)
    odd = generator.choice(np.array(SPECIAL, np.float32), kind.shape)
    return np.where(generator.random(kind.shape) < 0.2, odd, values).astype(np.float32)
