"""Kernels for dot_general against JAX on the CPU: shapes, orders of dimensions, dtypes and epilogues."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from nki.core.dtypes import as_dtype
from nki.core.errors import NkiError
from nki.graph.emit.dot import emit_dot
from nki.target.load import load_target
from tests.graph.emit.harness import Array, constant, group, like, op, run, run_both

_TOLERANCE = {"float32": 1e-6, "bfloat16": 2.0**-8, "float16": 2.0**-11}

Dims = tuple[int, ...]


def _array(shape: Dims, dtype: str, seed: int = 0) -> Array:
    random = np.random.default_rng([seed, *shape])
    return random.standard_normal(shape).astype(as_dtype(dtype).numpy)


def _dot(left: Any, right: Any, shape: Dims, dtype: str, batch: tuple[Dims, Dims], over: tuple[Dims, Dims]) -> Any:
    return op(
        "dot_general",
        (left, right),
        shape,
        dtype,
        lhs_batching_dimensions=batch[0],
        rhs_batching_dimensions=batch[1],
        lhs_contracting_dimensions=over[0],
        rhs_contracting_dimensions=over[1],
    )


def _near(found: Array, wanted: Array, tolerance: float) -> None:
    assert found.shape == wanted.shape
    scale = max(float(np.abs(wanted.astype(np.float64)).max()), 1e-30)
    np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), atol=tolerance * scale, rtol=0)


CASES: list[tuple[Dims, Dims, tuple[Dims, Dims], tuple[Dims, Dims], str]] = [
    ((5, 7), (7, 3), ((), ()), ((1,), (0,)), "float32"),
    ((1, 300), (300, 530), ((), ()), ((1,), (0,)), "bfloat16"),
    ((130, 300), (300, 530), ((), ()), ((1,), (0,)), "float32"),
    ((16, 257), (530, 257), ((), ()), ((1,), (1,)), "bfloat16"),
    ((300, 130), (140, 300), ((), ()), ((0,), (1,)), "float32"),
    ((130, 300), (300,), ((), ()), ((1,), (0,)), "float32"),
    ((300,), (300,), ((), ()), ((0,), (0,)), "float32"),
    ((3,), (5,), ((), ()), ((), ()), "float32"),
    ((2, 3, 20, 16), (2, 3, 30, 16), ((0, 1), (0, 1)), ((3,), (3,)), "float32"),
    ((2, 20, 3, 16), (2, 30, 3, 16), ((0, 2), (0, 2)), ((3,), (3,)), "float16"),
    ((2, 3, 20, 16), (3, 16, 40), ((), ()), ((1, 3), (0, 1)), "float32"),
    ((4, 1, 20, 16), (4, 16, 40, 3), ((0,), (0,)), ((3,), (1,)), "bfloat16"),
    ((4, 5, 1, 16), (4, 5, 16, 1), ((0, 1), (0, 1)), ((3,), (2,)), "float32"),
    ((4, 5, 6), (6, 5, 4), ((), ()), ((0, 1, 2), (2, 1, 0)), "float32"),
    ((20, 9000), (9000, 40), ((), ()), ((1,), (0,)), "float32"),
    ((20, 40000), (40000, 8), ((), ()), ((1,), (0,)), "float32"),
]


@pytest.mark.parametrize(("left", "right", "batch", "over", "dtype"), CASES)
@pytest.mark.parametrize("target", ["trn2", "trn1"])
def test_product(
    left: Dims, right: Dims, batch: tuple[Dims, Dims], over: tuple[Dims, Dims], dtype: str, target: str
) -> None:
    a, b = _array(left, dtype), _array(right, dtype, 1)
    numbers = [jnp.asarray(x.astype(np.float32)) for x in (a, b)]
    wanted = np.asarray(lax.dot_general(*numbers, (over, batch), precision="highest"))
    x, y = like(a), like(b)
    made = group("dot", [_dot(x, y, wanted.shape, dtype, batch, over)], [x, y])
    (found,) = run_both(made, [a, b], target) if target == "trn2" else run(made, [a, b], target=target)
    sizes = np.asarray(lax.dot_general(*map(jnp.abs, numbers), (over, batch)))  # what rounding is relative to
    assert found.shape == wanted.shape
    error = np.abs(found.astype(np.float64) - wanted)
    assert (error <= 1e-6 * sizes + _TOLERANCE[dtype] * np.abs(wanted)).all()


def test_integers_are_exact() -> None:
    random = np.random.default_rng(3)
    a, b = (random.integers(-128, 128, shape).astype(np.int8) for shape in ((9, 200), (200, 11)))
    x, y = like(a), like(b)
    made = group("dot", [_dot(x, y, (9, 11), "int32", ((), ()), ((1,), (0,)))], [x, y])
    np.testing.assert_array_equal(run_both(made, [a, b])[0], a.astype(np.int32) @ b.astype(np.int32))


@pytest.mark.parametrize(("dtype", "terms"), [("int32", 4), ("int8", 5000)])
def test_integers_that_would_be_wrong_are_refused(dtype: str, terms: int) -> None:
    x, y = like(np.zeros((2, terms), as_dtype(dtype).numpy)), like(np.zeros((terms, 2), as_dtype(dtype).numpy))
    made = group("dot", [_dot(x, y, (2, 2), "int32", ((), ()), ((1,), (0,)))], [x, y])
    with pytest.raises(NkiError) as caught:
        emit_dot(made, load_target("trn2"))
    assert caught.value.code == "graph.unsupported"
    assert "dot_general" in str(caught.value)


def test_epilogue_with_reshapes_and_broadcasts() -> None:
    rows, inner, columns = 6 * 50, 96, 640
    arrays = [_array(s, "float32", n) for n, s in enumerate([(rows, inner), (inner, columns), (columns,), (6, 50)])]
    x, w, b, s = (like(array) for array in arrays)
    dot = _dot(x, w, (rows, columns), "float32", ((), ()), ((1,), (0,)))
    wide = op("broadcast_in_dim", (b,), (rows, columns), "float32", broadcast_dimensions=(1,))
    biased = op("add", (*dot.results, *wide.results), (rows, columns), "float32")
    active = op("tanh", biased.results, (rows, columns), "float32")
    split = op("reshape", active.results, (6, 50, columns), "float32")
    scale = op("broadcast_in_dim", (s,), (6, 50, columns), "float32", broadcast_dimensions=(0, 1))
    scaled = op("multiply", (*split.results, *scale.results), (6, 50, columns), "float32")
    made = group(
        "dot", [dot, wide, biased, active, split, scale, scaled], [x, w, b, s], (*scaled.results, *biased.results)
    )
    found = run_both(made, arrays)
    sums = arrays[0] @ arrays[1] + arrays[2]
    _near(found[0], np.tanh(sums).reshape(6, 50, columns) * arrays[3][:, :, None], 1e-5)
    _near(found[1], sums, 2e-6)


def test_causal_mask_from_one_iota() -> None:
    shape = (2, 3, 150, 150)
    q, k = _array((2, 3, 150, 32), "float32"), _array((2, 3, 150, 32), "float32", 1)
    mask = np.random.default_rng(0).random((2, 1, 1, 150)) > 0.3
    x, y, m = like(q), like(k), like(mask)
    dot = _dot(x, y, shape, "float32", ((0, 1), (0, 1)), ((3,), (3,)))
    count = op("iota", (), (150,), "int32", iota_dimension=0)
    row = op("broadcast_in_dim", count.results, shape, "int32", broadcast_dimensions=(2,))
    column = op("broadcast_in_dim", count.results, shape, "int32", broadcast_dimensions=(3,))
    seen = op("compare", (*row.results, *column.results), shape, "bool", comparison_direction="GE")
    wide = op("broadcast_in_dim", (m,), shape, "bool", broadcast_dimensions=(0, 1, 2, 3))
    both = op("and", (*seen.results, *wide.results), shape, "bool")
    low = constant(np.broadcast_to(np.float32(-1e9), shape))
    chosen = op("select", (*both.results, *dot.results, *low.results), shape, "float32")
    made = group("dot", [dot, count, row, column, seen, wide, both, low, chosen], [x, y, m])
    (found,) = run_both(made, [q, k, mask])
    visible = np.tri(150, dtype=bool) & mask
    wanted = np.einsum("bhsd,bhtd->bhst", q, k)
    assert (found[~np.broadcast_to(visible, shape)] == -1e9).all()
    np.testing.assert_allclose(np.where(visible, found, 0), np.where(visible, wanted, 0), atol=2e-5)


_OPERANDS = [(1, 0, 0), (1, 0, 1), (1, 1, 0), (0, 1, 0), (0, 0, 1), (0, 0, 0), (1, 1, 1)]
"""Where an operand of the epilogue has the sizes of the product, else 1."""


@pytest.mark.parametrize("shape", [(3, 4, 512), (2, 129, 257), (4, 1, 300), (129, 2, 1), (2, 3, 513), (1, 1, 5)])
def test_operands_of_the_epilogue_that_are_repeated_in_any_dimension(shape: Dims) -> None:
    """Blocks of the product that have one batch, row or column start where the operands' elements for it are."""
    batches, rows, columns = shape
    q, k = _array((batches, rows, 8), "float32"), _array((batches, columns, 8), "float32", 1)
    some = [_array(tuple(s if on else 1 for s, on in zip(shape, each, strict=True)), "float32", n + 2)
            for n, each in enumerate(_OPERANDS)]  # fmt: skip
    x, y, *others = (like(array) for array in (q, k, *some))
    dot = _dot(x, y, shape, "float32", ((0,), (0,)), ((2,), (2,)))
    made = [dot]
    for other in others:
        wide = op("broadcast_in_dim", (other,), shape, "float32", broadcast_dimensions=(0, 1, 2))
        made += [wide, op("add", (made[-1].results[0], *wide.results), shape, "float32")]
    counts = op("iota", (), (batches,), "float32", iota_dimension=0)
    number = op("broadcast_in_dim", counts.results, shape, "float32", broadcast_dimensions=(0,))
    last = op("multiply", (made[-1].results[0], *number.results), shape, "float32")
    (found,) = run_both(group("dot", [*made, counts, number, last], [x, y, *others]), [q, k, *some])
    sums = np.einsum("brk,bck->brc", q, k, dtype=np.float64) + sum(array.astype(np.float64) for array in some)
    _near(found, sums * np.arange(batches)[:, None, None], 1e-6)
