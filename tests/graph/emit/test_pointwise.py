"""Pointwise kernels against XLA's CPU compiler: every operation, dtype, special value, and how operands are read."""

from __future__ import annotations

from collections.abc import Callable

import jax
import ml_dtypes
import numpy as np
import pytest
import scipy.special
from jax import lax

from nki.core.dtypes import from_numpy
from nki.core.errors import NkiError
from nki.graph.errors import GraphError
from nki.graph.ir import Group, Op, Value
from tests.graph.emit.harness import Array, by_xla, check, constant, group, instructions, like, op, value

BF16 = ml_dtypes.bfloat16
FLOATS = (np.float32, BF16, np.float16)
INTEGERS = (np.int32, np.uint32, np.int16, np.uint16, np.int8, np.uint8)
SPECIAL = (
    0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-3, 3e38, -3e38, 1e10, 7.99, -1e-8, 1e-30,
    3, 100.25, 88.0, -88.0, -104,
)  # fmt: skip

# ulps that each function may be off; XLA's own error is part of it
UNARY: dict[str, tuple[Callable[[Array], Array], float, float]] = {
    "negate": (lax.neg, 0, 0),
    "abs": (lax.abs, 0, 0),
    "sign": (lax.sign, 0, 0),
    "exponential": (lax.exp, 3, 0),
    "exponential_minus_one": (lax.expm1, 5, 0),
    "log": (lax.log, 3, 0),
    "log_plus_one": (lax.log1p, 4, 0),
    "logistic": (lax.logistic, 4, 0),
    "tanh": (lax.tanh, 4, 0),
    "sqrt": (lax.sqrt, 1, 0),
    "rsqrt": (lax.rsqrt, 2, 0),
    "cbrt": (lax.cbrt, 3, 0),
    "floor": (lax.floor, 0, 0),
    "ceil": (lax.ceil, 0, 0),
    "round_nearest_even": (lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), 0, 0),
    "round_nearest_afz": (lax.round, 0, 0),
    "chlo.erf": (lax.erf, 4, 0),
    "chlo.square": (lax.square, 1, 0),
    "is_finite": (lax.is_finite, 0, 0),
}
REDUCED = {"sine": (lax.sin, 3, 1e-6), "cosine": (lax.cos, 3, 1e-6)}
BINARY = {
    "add": (lax.add, 0),
    "subtract": (lax.sub, 0),
    "multiply": (lax.mul, 0),
    "divide": (lax.div, 2),
    "maximum": (lax.max, 0),
    "minimum": (lax.min, 0),
    "power": (lax.pow, 2),
    "atan2": (lax.atan2, 4),
}
COMPARISONS = {"EQ": lax.eq, "NE": lax.ne, "GE": lax.ge, "GT": lax.gt, "LE": lax.le, "LT": lax.lt}


def floats(rng: np.random.Generator, dtype: type, count: int = 300) -> Array:
    """Special values, and numbers of many magnitudes."""
    wide = rng.standard_normal(count) * np.exp2(rng.integers(-20, 20, count))
    with np.errstate(over="ignore"):
        return rng.permutation(np.concatenate([SPECIAL, rng.standard_normal(count) * 3, wide])).astype(dtype)


def integers(rng: np.random.Generator, dtype: type, count: int = 300) -> Array:
    """The edges, all magnitudes, and small numbers."""
    info = np.iinfo(dtype)
    edges = [0, 1, 2, 3, info.max, info.min, info.max - 1, info.min + 1, 7, 10]
    wide = rng.integers(info.min, info.max, count, endpoint=True) >> rng.integers(0, info.bits, count)
    small = rng.integers(max(info.min, -40), 40, count)
    return rng.permutation(np.concatenate([edges, wide, small])).astype(dtype)


def several(ops: list[Op], inputs: list[Value]) -> Group:
    """One kernel with the results of all operations as outputs."""
    return group("pointwise", ops, inputs, [o.results[0] for o in ops])


@pytest.mark.parametrize("dtype", FLOATS)
def test_functions_of_floats(dtype: type) -> None:
    x = floats(np.random.default_rng(1), dtype)
    v = like(x)
    ops = [op(name, [v], x.shape, "bool" if name == "is_finite" else v.type.dtype) for name in UNARY]
    near = dtype == np.float32
    limits = [ulps if near else 2 * bool(ulps) for _, ulps, _ in UNARY.values()]
    check(
        several(ops, [v]),
        [x],
        jax.jit(lambda x: tuple(f(x) for f, _, _ in UNARY.values())),  # by_xla has more ulps for cube roots
        tolerance=limits,
        compiled=near,
    )


@pytest.mark.parametrize("dtype", FLOATS)
def test_functions_whose_argument_is_reduced(dtype: type) -> None:
    x: Array = (np.random.default_rng(2).standard_normal(700) * 300).astype(dtype)
    v = like(x)
    ops = [op(name, [v], x.shape, v.type.dtype) for name in REDUCED]
    check(several(ops, [v]), [x], by_xla(lambda x: (lax.sin(x), lax.cos(x))), tolerance=3, absolute=1e-6)
    small: Array = np.clip(x / 300, -1.4, 1.4).astype(dtype)
    check(several([op("tan", [v], x.shape, v.type.dtype)], [v]), [small], by_xla(lax.tan), tolerance=16)


@pytest.mark.parametrize("dtype", FLOATS)
def test_inverse_error_function(dtype: type) -> None:
    x = np.concatenate([[0, -0.0, 1, -1, np.nan, 2], np.tanh(np.random.default_rng(3).standard_normal(500) * 2)])
    x = x.astype(dtype)
    v = like(x)

    def inverse(x: np.ndarray) -> np.ndarray:
        return scipy.special.erfinv(x.astype(np.float64)).astype(dtype)

    check(several([op("chlo.erf_inv", [v], x.shape, v.type.dtype)], [v]), [x], inverse, tolerance=8)


@pytest.mark.parametrize("dtype", FLOATS)
def test_operations_of_two_floats(dtype: type) -> None:
    rng = np.random.default_rng(4)
    a, b = floats(rng, dtype), floats(rng, dtype)
    b = np.where(rng.random(a.size) < 0.1, a, b)
    va, vb = like(a), like(b)
    ops = [op(name, [va, vb], a.shape, va.type.dtype) for name in BINARY]
    ops += [op("compare", [va, vb], a.shape, "bool", comparison_direction=d, compare_type="FLOAT") for d in COMPARISONS]
    limits = [ulps if dtype == np.float32 else min(ulps, 1) for _, ulps in BINARY.values()] + [0] * len(COMPARISONS)

    def reference(a: Array, b: Array) -> tuple[Array, ...]:
        return (*(f(a, b) for f, _ in BINARY.values()), *(f(a, b) for f in COMPARISONS.values()))

    check(several(ops, [va, vb]), [a, b], by_xla(reference), tolerance=limits, compiled=dtype == np.float32)


def test_remainder_of_floats() -> None:
    rng = np.random.default_rng(5)
    a = np.concatenate([[5.5, -5.5, 5.5, -0.0, np.inf, 1, np.nan, 3e18], rng.standard_normal(400) * 1e6])
    b = np.concatenate([[2, 2, -2, 3, 2, 0, 1, 0.7], rng.standard_normal(400)])
    a, b = a.astype(np.float32), b.astype(np.float32)
    va, vb = like(a), like(b)
    check(several([op("remainder", [va, vb], a.shape, "float32")], [va, vb]), [a, b], by_xla(lax.rem))


def test_remainders_of_quotients_with_many_digits() -> None:
    a, b = np.asarray([3e38, 1.0, -7e20, 5.0], np.float32), np.asarray([1e-6, 1e-30, 3.0, 1e-37], np.float32)
    va, vb = like(a), like(b)
    check(several([op("remainder", [va, vb], a.shape, "float32")], [va, vb]), [a, b], np.fmod)


def test_total_order() -> None:
    rng = np.random.default_rng(6)
    a, b = (rng.choice(np.asarray([*SPECIAL, -np.nan], np.float32), 400) for _ in range(2))
    va, vb = like(a), like(b)
    ops = [
        op("compare", [va, vb], a.shape, "bool", comparison_direction=d, compare_type="TOTALORDER") for d in COMPARISONS
    ]

    def key(x: Array) -> Array:
        bits = x.view(np.int32).astype(np.int64)
        return np.where(bits < 0, -(2**31) - bits - 1, bits)

    kinds = {"EQ": np.equal, "NE": np.not_equal, "GE": np.greater_equal, "GT": np.greater, "LE": np.less_equal}
    kinds["LT"] = np.less
    check(several(ops, [va, vb]), [a, b], lambda a, b: tuple(f(key(a), key(b)) for f in kinds.values()))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_wrap_and_are_exact(dtype: type) -> None:
    rng = np.random.default_rng(7)
    a, b = integers(rng, dtype), integers(rng, dtype)
    b = np.where(rng.random(a.size) < 0.1, a, b)
    va, vb = like(a), like(b)
    kind = va.type.dtype
    unary = {"negate": lax.neg, "sign": lax.sign, "popcnt": lax.population_count, "count_leading_zeros": lax.clz}
    unary["not"] = lax.bitwise_not
    if np.dtype(dtype).kind == "i":
        unary["abs"] = lax.abs
    binary = {
        "add": lax.add, "subtract": lax.sub, "multiply": lax.mul, "divide": lax.div, "remainder": lax.rem,
        "maximum": lax.max, "minimum": lax.min, "and": lax.bitwise_and, "or": lax.bitwise_or, "xor": lax.bitwise_xor,
    }  # fmt: skip
    ops = [op(name, [va], a.shape, kind) for name in unary]
    ops += [op(name, [va, vb], a.shape, kind) for name in binary]
    ops += [op("compare", [va, vb], a.shape, "bool", comparison_direction=d, compare_type="") for d in COMPARISONS]

    def reference(a: Array, b: Array) -> tuple[Array, ...]:
        both = (*binary.values(), *COMPARISONS.values())
        return (*(f(a) for f in unary.values()), *(f(a, b) for f in both))

    check(several(ops, [va, vb]), [a, b], by_xla(reference), compiled=dtype in (np.int32, np.uint8))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_shifts(dtype: type) -> None:
    rng = np.random.default_rng(8)
    a = integers(rng, dtype)
    b: Array = rng.integers(0, 40, a.size).astype(dtype)
    va, vb = like(a), like(b)
    shifts = {
        "shift_left": lax.shift_left,
        "shift_right_logical": lax.shift_right_logical,
        "shift_right_arithmetic": lax.shift_right_arithmetic,
    }
    ops = [op(name, [va, vb], a.shape, va.type.dtype) for name in shifts]
    check(several(ops, [va, vb]), [a, b], by_xla(lambda a, b: tuple(f(a, b) for f in shifts.values())))


@pytest.mark.parametrize("dtype", (np.int32, np.uint8))
def test_integer_powers(dtype: type) -> None:
    rng = np.random.default_rng(9)
    a = integers(rng, dtype, 100)
    b: Array = rng.integers(0, 40, 210).astype(dtype)
    va, vb = like(a), like(b)

    def reference(a: Array, b: Array) -> Array:
        wide = [pow(int(x), int(y), 2**32) for x, y in zip(a, b, strict=True)]
        return np.array(wide, np.uint64).astype(dtype)

    check(several([op("power", [va, vb], a.shape, va.type.dtype)], [va, vb]), [a, b], reference, compiled=False)


@pytest.mark.parametrize("dtype", (*FLOATS, *INTEGERS, np.bool_))
def test_conversions(dtype: type) -> None:
    rng = np.random.default_rng(10)
    kind = np.dtype(dtype).kind
    x = rng.integers(0, 2, 50).astype(bool) if kind == "b" else (integers if kind in "iu" else floats)(rng, dtype)
    if kind not in "iub":
        x = np.concatenate([x, (rng.standard_normal(200) * 300).astype(dtype)])
    v = like(x)
    wanted = [t for t in (*FLOATS, *INTEGERS, np.bool_) if t != dtype]
    ops = [op("convert", [v], x.shape, from_numpy(np.dtype(t))) for t in wanted]
    check(several(ops, [v]), [x], by_xla(lambda x: tuple(lax.convert_element_type(x, t) for t in wanted)), tolerance=0)


@pytest.mark.parametrize("target", ("trn1", "trn2", "trn3"))
def test_choices(target: str) -> None:
    rng = np.random.default_rng(11)
    x, y = floats(rng, np.float32), floats(rng, np.float32)
    p, i = rng.random(x.size) < 0.5, integers(rng, np.int32, 307)[: x.size]
    p2 = np.concatenate([p, p])[: x.size]
    i = np.resize(i, x.size)
    vx, vy, vp, vi = like(x), like(y), like(p2), like(i)
    low, high = constant(np.float32(-2.5)), constant(np.float32(100.0))
    ilow, ihigh = constant(np.int32(-5)), constant(np.int32(2**31 - 3))
    ops = [
        low, high, ilow, ihigh,
        op("select", [vp, vx, vy], x.shape, "float32"),
        op("clamp", [low.results[0], vx, high.results[0]], x.shape, "float32"),
        op("clamp", [ilow.results[0], vi, ihigh.results[0]], x.shape, "int32"),
        op("bitcast_convert", [vx], x.shape, "int32"),
        op("reduce_precision", [vx], x.shape, "float32", exponent_bits=8, mantissa_bits=7),
        op("not", [vp], x.shape, "bool"),
    ]  # fmt: skip

    def reference(x: Array, y: Array, p: Array, i: Array) -> tuple[Array, ...]:
        bits = lax.bitcast_convert_type(x, np.int32)
        clamped = lax.clamp(np.float32(-2.5), x, np.float32(100)), lax.clamp(np.int32(-5), i, np.int32(2**31 - 3))
        return lax.select(p, x, y), *clamped, bits, lax.reduce_precision(x, 8, 7), lax.bitwise_not(p)

    made = group("pointwise", ops, [vx, vy, vp, vi], [o.results[0] for o in ops[4:]])
    check(made, [x, y, p2, i], by_xla(reference), target=target)


# ------------------------------------------------------------------------------------------------------------- shapes


def _broadcast(v: Value, shape: tuple[int, ...], dims: tuple[int, ...]) -> Op:
    return op("broadcast_in_dim", [v], shape, v.type.dtype, broadcast_dimensions=dims)


@pytest.mark.parametrize("seed", range(18))
def test_random_broadcasts(seed: int) -> None:
    """Sums of operands that have some of the dimensions, in tensors of any rank and size."""
    rng = np.random.default_rng(100 + seed)
    rank = int(rng.integers(0, 6))
    shape = tuple(int(s) for s in rng.choice((1, 2, 3, 5, 7, 16, 33, 130), rank))
    while np.prod(shape) > 60000:
        shape = shape[1:]
    arrays, ops, inputs = [], [], []
    total = None
    for _ in range(3):
        dims = tuple(d for d in range(len(shape)) if rng.random() < 0.6)
        small = tuple(1 if rng.random() < 0.2 else shape[d] for d in dims)
        array = rng.standard_normal(small).astype(np.float32)
        v = like(array)
        wide = _broadcast(v, shape, dims)
        ops.append(wide)
        inputs.append(v)
        arrays.append((array, dims))
        if total is not None:
            ops.append(op(str(rng.choice(["add", "multiply", "maximum"])), [total, wide.results[0]], shape, "float32"))
        total = ops[-1].results[0]

    def reference(*_: Array) -> Array:
        result = None
        names = iter([o.name for o in ops if o.name != "broadcast_in_dim"])
        functions = {"add": np.add, "multiply": np.multiply, "maximum": np.maximum}
        for array, dims in arrays:
            full = np.ones(len(shape), int)
            full[list(dims)] = array.shape
            wide = np.broadcast_to(array.reshape(full), shape)
            result = wide if result is None else functions[next(names)](result, wide)
        return np.array(result)

    check(group("pointwise", ops, inputs), [a for a, _ in arrays], reference, target=("trn1", "trn2", "trn3")[seed % 3])


@pytest.mark.parametrize("seed", range(12))
def test_random_views(seed: int) -> None:
    """Chains of transposes, slices, reverses and reshapes between pointwise operations."""
    rng = np.random.default_rng(200 + seed)
    array = rng.standard_normal(tuple(int(s) for s in rng.choice((2, 4, 6, 12, 32), 3))).astype(np.float32)
    v = current = like(array)
    expected, ops = array, []
    for _ in range(4):
        choice = rng.integers(0, 4)
        shape = current.type.shape
        if choice == 0:
            order = tuple(int(i) for i in rng.permutation(len(shape)))
            expected = expected.transpose(order)
            made = op("transpose", [current], expected.shape, "float32", permutation=order)
        elif choice == 1:
            starts = tuple(int(rng.integers(0, s)) for s in shape)
            steps = tuple(int(rng.integers(1, 3)) for _ in shape)
            expected = expected[tuple(slice(a, s, d) for a, s, d in zip(starts, shape, steps, strict=True))]
            made = op(
                "slice", [current], expected.shape, "float32", start_indices=starts, limit_indices=shape, strides=steps
            )
        elif choice == 2:
            dims = tuple(d for d in range(len(shape)) if rng.random() < 0.5)
            expected = np.flip(expected, dims)
            made = op("reverse", [current], expected.shape, "float32", dimensions=dims)
        else:
            expected = np.sin(expected) * 0 + expected
            made = op("negate", [current], expected.shape, "float32")
            expected = -expected
        ops.append(made)
        current = made.results[0]
    ops.append(op("abs", [current], current.type.shape, "float32"))
    final = np.abs(np.ascontiguousarray(expected))
    check(group("pointwise", ops, [v]), [array], lambda _: final, target=("trn1", "trn2", "trn3")[seed % 3])


def test_reshapes_that_split_and_merge() -> None:
    x = np.random.default_rng(12).standard_normal((4, 30, 16)).astype(np.float32)
    v = like(x)
    turned = op("transpose", [v], (30, 4, 16), "float32", permutation=(1, 0, 2))
    merged = op("reshape", turned.results, (30, 64), "float32")
    negated = op("negate", merged.results, (30, 64), "float32")
    check(group("pointwise", [turned, merged, negated], [v]), [x], lambda x: -x.transpose(1, 0, 2).reshape(30, 64))


def test_a_reshape_without_a_pattern_is_refused() -> None:
    v = value((6, 10), "float32")
    turned = op("transpose", [v], (10, 6), "float32", permutation=(1, 0))
    other = op("reshape", turned.results, (4, 15), "float32")
    x = np.zeros((6, 10), np.float32)
    with pytest.raises(GraphError) as caught:
        check(group("pointwise", [turned, other], [v]), [x], lambda x: x.T.reshape(4, 15))
    assert caught.value.code == "graph.unsupported" and "reshape" in str(caught.value)


def test_an_unknown_operation_is_named() -> None:
    v = value((6,), "float32")
    with pytest.raises(NkiError) as caught:
        check(several([op("fft", [v], (6,), "float32")], [v]), [np.zeros(6, np.float32)], lambda x: x, compiled=False)
    assert caught.value.code == "graph.unsupported" and "fft(tensor<6xfloat32>)" in str(caught.value)


def test_iota_and_constants() -> None:
    shape = (7, 200)
    across = op("iota", (), shape, "int32", iota_dimension=1)
    down = op("iota", (), shape, "bfloat16", iota_dimension=0)
    table = constant(np.arange(1400, dtype=np.float32).reshape(shape))
    column = op("convert", across.results, shape, "float32")
    total = op("add", [table.results[0], column.results[0]], shape, "float32")
    made = group(
        "pointwise", [across, down, table, column, total], [], [across.results[0], down.results[0], *total.results]
    )

    def reference() -> tuple[Array, ...]:
        x = np.broadcast_to(np.arange(200, dtype=np.int32), shape)
        y = np.broadcast_to(np.arange(7)[:, None], shape).astype(BF16)
        return x, y, np.arange(1400, dtype=np.float32).reshape(shape) + x.astype(np.float32)

    check(made, [], reference)


def test_large_tensors_of_any_length() -> None:
    x = np.random.default_rng(13).standard_normal(300007).astype(np.float32)
    v = like(x)
    check(several([op("multiply", [v, v], x.shape, "float32")], [v]), [x], lambda x: x * x)


def test_instructions_are_fused() -> None:
    """``exp(2 x + 1)`` is one instruction between two transfers."""
    v = value((128, 512), "float32")
    two, one = constant(np.float32(2)), constant(np.float32(1))
    wide = [_broadcast(c.results[0], v.type.shape, ()) for c in (two, one)]
    product = op("multiply", [v, wide[0].results[0]], v.type.shape, "float32")
    total = op("add", [product.results[0], wide[1].results[0]], v.type.shape, "float32")
    result = op("exponential", total.results, v.type.shape, "float32")
    made = group("pointwise", [two, one, *wide, product, total, result], [v])
    assert sorted(instructions(made)) == ["activation", "dma_copy", "dma_copy"]
