"""Kernels with reductions against NumPy in float64: shapes that fit and do not fit, every combiner, special values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nki.graph.errors import GraphError
from nki.graph.ir import Group, Op, Region, Value
from tests.graph.emit.harness import Array, check, check_function, constant, group, instructions, like, op, value

TARGETS = ("trn1", "trn2", "trn3")


def broadcast(v: Value, shape: Sequence[int], dims: Sequence[int]) -> Op:
    """``broadcast_in_dim``."""
    return op("broadcast_in_dim", [v], shape, v.type.dtype, broadcast_dimensions=tuple(dims))


def reduce(v: Value, how: str, dims: Sequence[int], initial: object) -> list[Op]:
    """A reduction and the constant that it starts from; the last operation is the reduction."""
    dtype = v.type.dtype
    start = constant(np.asarray(initial, np.bool_ if dtype == "bool" else dtype.numpy))
    a, b = value((), dtype), value((), dtype)
    inner = op(how, [a, b], (), dtype)
    kept = [size for dim, size in enumerate(v.type.shape) if dim not in dims]
    made = op("reduce", [v, start.results[0]], kept, dtype, dimensions=tuple(dims))
    made.regions = (Region((a, b), [inner], inner.results),)
    return [start, made]


def softmax(x: Array) -> Group:
    """Over the last dimension."""
    v = like(x)
    last = x.ndim - 1
    rows, dtype = tuple(range(last)), v.type.dtype
    largest = reduce(v, "maximum", (last,), -np.inf)
    shifted = op("subtract", [v, (wide := broadcast(largest[-1].results[0], x.shape, rows)).results[0]], x.shape, dtype)
    powers = op("exponential", shifted.results, x.shape, dtype)
    total = reduce(powers.results[0], "add", (last,), 0)
    below = broadcast(total[-1].results[0], x.shape, rows)
    result = op("divide", [powers.results[0], below.results[0]], x.shape, dtype)
    return group("rows", [*largest, wide, shifted, powers, *total, below, result], [v])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", [(4, 2, 30, 90), (3, 9000), (150, 33), (7,)])
def test_softmax(shape: tuple[int, ...], target: str) -> None:
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32) * 3
    check(softmax(x), [x], lambda x: np.asarray(jax.nn.softmax(x, axis=-1)), tolerance=8, target=target)


def test_softmax_takes_the_sum_on_the_side() -> None:
    """The Scalar engine adds up the exponentials that it computes, and takes the maximum off as a bias."""
    x = np.zeros((128, 512), np.float32)
    names = instructions(softmax(x))
    assert names.count("activation_reduce") == 1 and names.count("tensor_reduce") == 1
    assert names.count("dma_copy") == 2 and len(names) <= 8


CASES_OF_SUMS = [
    ((64, 100), (1,)), ((64, 100), (0,)), ((300, 70), (0,)), ((5, 6, 7, 8), (1, 3)), ((5, 6, 7, 8), (0, 2)),
    ((1000,), (0,)), ((100, 200), (0, 1)), ((3, 9000), (1,)), ((5, 6, 7), (1,)), ((200, 30, 2), (1,)), ((1, 1), (0,)),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "dims"), CASES_OF_SUMS)
def test_combiners(shape: tuple[int, ...], dims: tuple[int, ...]) -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal(shape).astype(np.float32)
    v = like(x)
    ops = [*reduce(v, "add", dims, 0.5), *reduce(v, "maximum", dims, -np.inf), *reduce(v, "minimum", dims, 0.25)]

    def reference(x: Array) -> tuple[Array, ...]:
        wide = x.astype(np.float64)
        low = np.minimum(wide.min(axis=dims), 0.25)
        return tuple(np.asarray(r, np.float32) for r in (wide.sum(axis=dims) + 0.5, wide.max(axis=dims), low))

    made = group("rows", ops, [v], [o.results[0] for o in ops if o.name == "reduce"])
    check(made, [x], reference, tolerance=(4, 0, 0), absolute=(1e-4 * np.sqrt(x.size), 0, 0))


def test_products_and_nan() -> None:
    x = np.random.default_rng(3).uniform(0.5, 1.5, (40, 50)).astype(np.float32)
    x[3, 7], x[5, 1], x[6, 0] = np.nan, np.inf, 0
    v = like(x)
    ops = [*reduce(v, "multiply", (1,), 1), *reduce(v, "maximum", (1,), -np.inf), *reduce(v, "minimum", (1,), np.inf)]
    made = group("rows", ops, [v], [o.results[0] for o in ops if o.name == "reduce"])

    def reference(x: Array) -> tuple[Array, ...]:
        wide = x.astype(np.float64)
        return tuple(r.astype(np.float32) for r in (wide.prod(1), wide.max(1), wide.min(1)))

    check(made, [x], reference, tolerance=(20, 0, 0))


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int8, np.uint8])
@pytest.mark.parametrize("shape", [(50, 37), (3, 20000)])
def test_integers_wrap(dtype: type, shape: tuple[int, ...]) -> None:
    info = np.iinfo(dtype)
    x: Array = np.random.default_rng(4).integers(info.min, info.max, shape, endpoint=True).astype(dtype)
    v = like(x)
    starts = {
        "add": 0,
        "maximum": info.min,
        "minimum": info.max,
        "and": np.asarray(-1).astype(dtype),
        "or": 0,
        "xor": 0,
    }
    parts = [reduce(v, how, (1,), start) for how, start in starts.items()]
    made = group("rows", [o for part in parts for o in part], [v], [part[-1].results[0] for part in parts])
    functions = (np.add, np.maximum, np.minimum, np.bitwise_and, np.bitwise_or, np.bitwise_xor)
    check(made, [x], lambda x: tuple(f.reduce(x, axis=1, dtype=dtype) for f in functions), compiled=dtype == np.int8)


def test_any_and_all() -> None:
    x = np.random.default_rng(5).random((60, 9)) < 0.8
    v = like(x)
    some, every = reduce(v, "or", (1,), False), reduce(v, "and", (1,), True)
    made = group("rows", [*some, *every], [v], [some[-1].results[0], every[-1].results[0]])
    check(made, [x], lambda x: (x.any(1), x.all(1)))


def layer_norm(x: Array, scale: Array, offset: Array) -> Group:
    """With the mean, of shape (rows, 1), as a second output."""
    v, vs, vo = like(x), like(scale), like(offset)
    rows, width = x.shape
    dtype = v.type.dtype
    total = reduce(v, "add", (1,), 0)
    count, tiny = constant(np.asarray(width, dtype.numpy)), constant(np.asarray(1e-5, dtype.numpy))
    counts, tinies = (broadcast(c.results[0], (rows,), ()) for c in (count, tiny))
    mean = op("divide", [total[-1].results[0], counts.results[0]], (rows,), dtype)
    means = broadcast(mean.results[0], x.shape, (0,))
    centred = op("subtract", [v, means.results[0]], x.shape, dtype)
    square = op("multiply", [centred.results[0]] * 2, x.shape, dtype)
    squares = reduce(square.results[0], "add", (1,), 0)
    variance = op("divide", [squares[-1].results[0], counts.results[0]], (rows,), dtype)
    above = op("add", [variance.results[0], tinies.results[0]], (rows,), dtype)
    inverse = op("rsqrt", above.results, (rows,), dtype)
    inverses = broadcast(inverse.results[0], x.shape, (0,))
    normal = op("multiply", [centred.results[0], inverses.results[0]], x.shape, dtype)
    scales, offsets = broadcast(vs, x.shape, (1,)), broadcast(vo, x.shape, (1,))
    scaled = op("multiply", [normal.results[0], scales.results[0]], x.shape, dtype)
    result = op("add", [scaled.results[0], offsets.results[0]], x.shape, dtype)
    column = op("reshape", mean.results, (rows, 1), dtype)
    ops = [*total, count, tiny, counts, tinies, mean, means, centred, square, *squares, variance, above, inverse]
    ops += [inverses, normal, scales, offsets, scaled, result, column]
    return group("rows", ops, [v, vs, vo], [result.results[0], column.results[0]])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", [(260, 384), (5, 9000)])
def test_layer_norm(shape: tuple[int, int], target: str) -> None:
    rng = np.random.default_rng(6)
    x, scale, offset = (rng.standard_normal(s).astype(np.float32) for s in (shape, shape[1], shape[1]))

    def reference(x: Array, scale: Array, offset: Array) -> tuple[Array, ...]:
        x = x.astype(np.float64)
        mean = x.mean(1, keepdims=True)
        normal = (x - mean) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
        return (normal * scale + offset).astype(np.float32), mean.astype(np.float32)

    made = layer_norm(x, scale, offset)
    check(made, [x, scale, offset], reference, tolerance=8, absolute=2e-6, target=target)


def extreme(v: Value, dim: int, direction: str) -> list[Op]:
    """The largest or smallest value of a dimension, and its first position."""
    dtype, shape = v.type.dtype, v.type.shape
    positions = op("iota", (), shape, "int32", iota_dimension=dim)
    edge = -np.inf if direction == "GT" else np.inf
    first = edge if dtype.is_float else (dtype.min if direction == "GT" else dtype.max)
    starts = constant(np.asarray(first, dtype.numpy)), constant(np.int32(0))
    a, i, b, j = value((), dtype), value((), "int32"), value((), dtype), value((), "int32")
    better = op("compare", [a, b], (), "bool", comparison_direction=direction, compare_type="FLOAT")
    chosen = [op("select", [better.results[0], *pair], (), pair[0].type.dtype) for pair in ((a, b), (i, j))]
    kept = [size for d, size in enumerate(shape) if d != dim]
    made = op("reduce", [v, positions.results[0], *(s.results[0] for s in starts)], kept, dtype, dimensions=(dim,))
    made.results = (*made.results, value(kept, "int32"))
    made.regions = (Region((a, i, b, j), [better, *chosen], tuple(c.results[0] for c in chosen)),)
    return [positions, *starts, made]


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
@pytest.mark.parametrize(("shape", "dim"), [((50, 37), 1), ((50, 37), 0), ((3, 9000), 1), ((4, 5, 6), 1)])
def test_positions_of_extremes(dtype: type, shape: tuple[int, ...], dim: int) -> None:
    x: Array = np.round(np.random.default_rng(7).standard_normal(shape) * 2).astype(dtype)
    if dtype == np.float32:
        x.flat[7] = np.nan
    for direction, best, where in (("GT", np.max, np.argmax), ("LT", np.min, np.argmin)):
        v = like(x)
        ops = extreme(v, dim, direction)
        made = group("rows", ops, [v], ops[-1].results)
        check(made, [x], lambda x, f=best, g=where: (f(x, axis=dim), g(x, axis=dim).astype(np.int32)))


@pytest.mark.parametrize("seed", range(12))
def test_random_rows(seed: int) -> None:
    """``sum(exp(x) * w)`` over random dimensions of random shapes, and what is left of each element."""
    rng = np.random.default_rng(300 + seed)
    shape = tuple(int(s) for s in rng.choice((1, 2, 3, 5, 17, 64, 131), int(rng.integers(1, 5))))
    while np.prod(shape) > 40000:
        shape = shape[1:]
    dims = tuple(d for d in range(len(shape)) if rng.random() < 0.5) or (len(shape) - 1,)
    x = rng.standard_normal(shape).astype(np.float32)
    w = rng.uniform(0.5, 1, shape[-1:]).astype(np.float32)
    v, vw = like(x), like(w)
    wide = broadcast(vw, shape, (len(shape) - 1,))
    powers = op("exponential", [v], shape, "float32")
    product = op("multiply", [powers.results[0], wide.results[0]], shape, "float32")
    total = reduce(product.results[0], "add", dims, 0)
    kept = [d for d in range(len(shape)) if d not in dims]
    totals = broadcast(total[-1].results[0], shape, kept)
    share = op("divide", [product.results[0], totals.results[0]], shape, "float32")
    ops = [wide, powers, product, *total, totals, share]
    outputs = [share.results[0], total[-1].results[0]] if seed % 2 else [total[-1].results[0]]

    def reference(x: Array, w: Array) -> tuple[Array, ...]:
        product = np.exp(x.astype(np.float64)) * w
        total = product.sum(axis=dims, keepdims=True)
        both = (product / total).astype(np.float32), np.asarray(product.sum(axis=dims), np.float32)
        return both if seed % 2 else both[1:]

    check(group("rows", ops, [v, vw], outputs), [x, w], reference, tolerance=12, target=TARGETS[seed % 3])


def test_an_unknown_combiner_is_named() -> None:
    v = value((4, 5), "float32")
    ops = reduce(v, "subtract", (1,), 0)
    with pytest.raises(GraphError) as caught:
        check(group("rows", ops, [v]), [np.zeros((4, 5), np.float32)], lambda x: x.sum(1))
    assert caught.value.code == "graph.unsupported" and "combines elements by subtract" in str(caught.value)


@pytest.mark.parametrize("product", [False, True])
@pytest.mark.parametrize("function", ["square", "exp"])
def test_other_reductions_of_what_is_summed_on_the_side(function: str, product: bool) -> None:
    """Scalar sums what a function gives; the largest and the smallest of it are no such sum."""

    def reductions(x: Any, *w: Any) -> Any:
        y = getattr(jnp, function)(x @ w[0] if product else x)
        total, largest, smallest = (f(y, -1, keepdims=True) for f in (jnp.sum, jnp.max, jnp.min))
        return (y - largest) / (total + 1) + smallest

    random = np.random.default_rng(0)
    x, w = random.standard_normal((130, 48)).astype(np.float32), random.standard_normal((48, 96)).astype(np.float32) / 7
    check_function(reductions, (x, w) if product else (x,), 2e-6)
