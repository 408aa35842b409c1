"""Kernels that move elements against NumPy: bits of any dtype, any permutation, padding, addresses of the run."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from jax import lax

from nki.graph.errors import GraphError
from nki.graph.ir import Group, Op, Value
from tests.graph.emit.harness import Array, check, constant, group, instructions, like, op, value

DTYPES = (np.float32, ml_dtypes.bfloat16, np.int32, np.uint8, np.bool_)
TARGETS = ("trn1", "trn2", "trn3")


def numbers(dtype: type, *shape: int) -> Array:
    """Bits that any arithmetic on the way would change: NaN, infinities and large integers among them."""
    rng = np.random.default_rng(1)
    if dtype == np.bool_:
        return rng.random(shape) < 0.5
    kind = np.dtype(dtype)
    if kind.kind in "iu":
        edges: Any = np.iinfo(dtype)
        return rng.integers(edges.min, edges.max, shape, endpoint=True).astype(kind)
    made: Array = rng.standard_normal(shape).astype(kind)
    if made.size > 4:
        made.flat[1], made.flat[3] = np.inf, np.nan
    return made


def single(made: Op, *inputs: Value) -> Group:
    """A group of one operation."""
    return group("move", [made], inputs)


PERMUTATIONS = [
    ((37, 50), (1, 0)), ((3, 128, 64), (0, 2, 1)), ((2, 3, 33, 40), (0, 3, 2, 1)), ((2, 5, 33, 40), (0, 2, 1, 3)),
    ((40, 3, 34), (2, 1, 0)), ((2, 3, 4, 5, 6, 7), (5, 1, 3, 0, 4, 2)), ((70, 3, 4, 33), (3, 2, 1, 0)),
    ((2, 3, 64, 3, 4, 33), (0, 5, 3, 1, 4, 2)), ((130, 140), (1, 0)),
]  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("shape", "order"), PERMUTATIONS)
def test_transpose(shape: tuple[int, ...], order: tuple[int, ...], target: str) -> None:
    for dtype in DTYPES[:4] if target == "trn2" else DTYPES[:3:2]:
        x = numbers(dtype, *shape)
        v = like(x)
        wanted = tuple(shape[d] for d in order)
        made = single(op("transpose", [v], wanted, v.type.dtype, permutation=order), v)
        check(made, [x], lambda x: x.transpose(order), target=target, compiled=dtype == np.float32)


def test_large_transposes_are_one_transfer() -> None:
    v = value((4, 256, 8, 128), "bfloat16")
    made = single(op("transpose", [v], (4, 128, 8, 256), "bfloat16", permutation=(0, 3, 2, 1)), v)
    assert instructions(made) == ["dma_transpose"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_views(dtype: type) -> None:
    x, y = numbers(dtype, 10, 20, 30), numbers(dtype, 10, 5, 30)
    v, w = like(x), like(y)
    kind = v.type.dtype
    part = op("slice", [v], (3, 10, 7), kind, start_indices=(1, 0, 2), limit_indices=(9, 20, 28), strides=(3, 2, 4))
    check(single(part, v), [x], lambda x: x[1:9:3, 0:20:2, 2:28:4])
    check(single(op("reverse", [v], x.shape, kind, dimensions=(0, 2)), v), [x], lambda x: x[::-1, :, ::-1])
    check(single(op("reshape", [v], (200, 30), kind), v), [x], lambda x: x.reshape(200, 30))
    wide = op("broadcast_in_dim", [v], (10, 4, 20, 30), kind, broadcast_dimensions=(0, 2, 3))
    check(single(wide, v), [x], lambda x: np.broadcast_to(x[:, None], (10, 4, 20, 30)))
    joined = op("concatenate", [v, w, v], (10, 45, 30), kind, dimension=1)
    check(single(joined, v, w), [x, y], lambda x, y: np.concatenate([x, y, x], 1))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("low", "high", "inner"),
    [
        ((1, 2, 0), (0, 3, 4), (0, 0, 0)),
        ((0, -1, -3), (2, -2, 1), (0, 0, 0)),
        ((1, 0, -3), (0, 1, -2), (1, 2, 3)),
        ((0, -5, 0), (-4, 0, 0), (2, 0, 1)),
        ((0, 0, 0), (0, 0, 0), (0, 0, 0)),
    ],
)
def test_pad(dtype: type, low: tuple[int, ...], high: tuple[int, ...], inner: tuple[int, ...]) -> None:
    x, number = numbers(dtype, 10, 20, 30), np.asarray(numbers(dtype))
    v, w = like(x), like(number)
    expected = np.asarray(lax.pad(x, number, [*zip(low, high, inner, strict=True)]))
    padding = {"edge_padding_low": low, "edge_padding_high": high, "interior_padding": inner}
    check(single(op("pad", [v, w], expected.shape, v.type.dtype, **padding), v, w), [x, number], lambda *_: expected)


def test_pad_with_a_constant() -> None:
    x = numbers(np.float32, 6, 7)
    v, zero = like(x), constant(np.float32(-np.inf))
    padding = {"edge_padding_low": (2, 0), "edge_padding_high": (0, 1), "interior_padding": (0, 0)}
    made = op("pad", [v, zero.results[0]], (8, 8), "float32", **padding)
    check(group("move", [zero, made], [v]), [x], lambda x: np.pad(x, ((2, 0), (0, 1)), constant_values=-np.inf))


@pytest.mark.parametrize("dtype", (np.float32, np.uint8))
@pytest.mark.parametrize("starts", [(0, 0, 0), (3, 5, 7), (-4, 100, 2), (9, 19, 29)])
def test_addresses_of_the_run(dtype: type, starts: tuple[int, ...]) -> None:
    """Start indices are brought into their limits, as the specification says."""
    x, update = numbers(dtype, 10, 20, 30), numbers(dtype, 3, 20, 4)
    indices = [np.asarray(start, np.int32) for start in starts]
    v, w, places = like(x), like(update), [like(i) for i in indices]

    def box(sizes: tuple[int, ...]) -> tuple[slice, ...]:
        firsts = [min(max(s, 0), size - n) for s, size, n in zip(starts, x.shape, sizes, strict=True)]
        return tuple(slice(f, f + n) for f, n in zip(firsts, sizes, strict=True))

    part = op("dynamic_slice", [v, *places], (2, 7, 30), v.type.dtype, slice_sizes=(2, 7, 30))
    check(single(part, v, *places), [x, *indices], lambda x, *_: x[box((2, 7, 30))])

    def updated(x: Array, update: Array, *_: Array) -> Array:
        result = x.copy()
        result[box(update.shape)] = update
        return result

    changed = op("dynamic_update_slice", [v, w, *places], x.shape, v.type.dtype)
    check(single(changed, v, w, *places), [x, update, *indices], updated, target="trn3")


def test_computations_are_refused() -> None:
    v = value((4,), "float32")
    with pytest.raises(GraphError) as caught:
        check(single(op("add", [v, v], (4,), "float32"), v), [np.zeros(4, np.float32)], lambda x: x + x)
    assert caught.value.code == "graph.unsupported"
