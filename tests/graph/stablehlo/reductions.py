"""Cases of reductions: over dimensions, over windows, and their reversal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

from tests.graph.stablehlo.draw import BOOL, F32, FLOATS, INTEGERS, Array, Case, Draw, is_float, lowered, type_of
from tests.graph.stablehlo.pointwise import Generator

Function = Callable[..., Any]
_BITS = (*INTEGERS, BOOL)

_ROUNDED = {2: 2.0**-8, 4: 1e-6}
"""Of sums: what the order of the additions changes, relative to the largest result, by bytes of an element."""


def neutral(name: str, dtype: np.dtype[Any]) -> Any:
    """What changes nothing."""
    if name in ("add", "or", "xor"):
        return dtype.type(0)
    if name == "multiply":
        return dtype.type(1)
    if name == "and":
        return dtype.type(1) if dtype == BOOL else dtype.type(-1 if dtype.kind == "i" else np.iinfo(dtype).max)
    if is_float(dtype):
        return dtype.type(-np.inf if name == "maximum" else np.inf)
    if dtype == BOOL:
        return dtype.type(name == "minimum")
    info = np.iinfo(dtype)
    return dtype.type(info.min if name == "maximum" else info.max)


FUNCTIONS: Mapping[str, Function] = {
    "add": lax.add,
    "multiply": lax.mul,
    "maximum": lax.max,
    "minimum": lax.min,
    "and": lax.bitwise_and,
    "or": lax.bitwise_or,
    "xor": lax.bitwise_xor,
}


def operand(draw: Draw, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Numbers whose reduction is finite and says something."""
    if name == "multiply" and is_float(dtype):
        return draw.unit(shape, dtype, 0.8, 1.2) * np.where(draw.random.random(shape) < 0.5, -1, 1).astype(dtype)
    if name == "add" and is_float(dtype):
        numbers = draw.array(shape, dtype, False)
        if draw.chance(0.15) and numbers.size:
            numbers.reshape(-1)[draw.below(numbers.size)] = draw.one(np.inf, -np.inf, np.nan)
        return numbers
    numbers = draw.array(shape, dtype)
    if is_float(dtype):  # JAX's vectorized extremes lose some NaN
        numbers = np.where(np.isnan(numbers.astype(np.float32)), dtype.type(1), numbers)
    return numbers


def _reduce(name: str, kinds: tuple[Any, ...]) -> Generator:
    def make(draw: Draw) -> Case:
        dtype, shape = draw.one(*kinds), draw.shape(1)
        dims = draw.some(len(shape), 1)
        x = operand(draw, name, shape, dtype)
        start = neutral(name, dtype)  # another one may count several times, as StableHLO says
        function = FUNCTIONS[name]
        scaled = _ROUNDED[dtype.itemsize] * 8 if is_float(dtype) and name in ("add", "multiply") else 0.0
        note = f"{type_of(x)} over {dims} from {start}"
        if draw.chance(0.2):
            given = np.asarray(start)
            return lowered(
                lambda a, b: lax.reduce(a, b, function, dims), x, given, scaled=scaled, note=note, signs=False
            )
        if draw.chance(0.3) and dtype != BOOL:
            return lowered(
                lambda a: lax.reduce(lax.max(lax.neg(a), a), jnp.asarray(start, a.dtype), function, dims),
                x, scaled=scaled, note=f"{note}, max(-a, a)", signs=False,
            )  # fmt: skip
        return lowered(
            lambda a: lax.reduce(a, jnp.asarray(start, a.dtype), function, dims),
            x,
            scaled=scaled,
            note=note,
            signs=False,
        )

    return make


def _argument(function: Function) -> Generator:
    def make(draw: Draw) -> Case:
        dtype, shape = draw.one(*FLOATS, *INTEGERS), draw.shape(1, 3)
        x = draw.array(shape, dtype)
        if draw.chance(0.5):
            x = np.round(draw.unit(shape, F32, -3, 3)).astype(dtype) if dtype.kind != "u" else x
        dim = draw.below(len(shape))
        return lowered(lambda a: function(a, dim, jnp.int32), x, note=f"{type_of(x)} dim {dim}")

    return make


def _several(draw: Draw) -> Case:
    """Two operands reduced at once: their sums and largest values."""
    shape = draw.shape(1, 3)
    a, b = draw.array(shape, F32, False), draw.array(shape, F32, False)
    dims = draw.some(len(shape), 1)

    def both(x: Any, y: Any) -> Any:
        return lax.reduce(
            (x, y),
            (x.dtype.type(0), y.dtype.type(-np.inf)),
            lambda p, q: (lax.add(p[0], q[0]), lax.max(p[1], q[1])),
            dims,
        )

    return lowered(both, a, b, scaled=4e-6, note=f"{type_of(a)} over {dims}")


def _rows(draw: Draw) -> Case:
    """Chains of reductions and elementwise operations, as in normalizations."""
    shape, dtype = draw.shape(2, 3), draw.one(*FLOATS)
    x = draw.array(shape, dtype, False)
    dims = tuple(range(draw.below(len(shape), 1), len(shape))) if draw.chance(0.7) else draw.some(len(shape), 1)
    form = draw.one("softmax", "normalized", "logsumexp", "mean")
    note = f"{form} {type_of(x)} over {dims}"
    tolerance = 2.0**-6 if dtype != F32 else 1e-5
    functions: Mapping[str, Function] = {
        "softmax": lambda a: jax.nn.softmax(a, dims),
        "normalized": lambda a: (a - a.mean(dims, keepdims=True)) * lax.rsqrt(a.var(dims, keepdims=True) + 1e-2),
        "logsumexp": lambda a: jax.nn.logsumexp(a, dims),
        "mean": lambda a: a.mean(dims),
    }
    return lowered(functions[form], x, scaled=tolerance, note=note)


# ------------------------------------------------------------------------------------------------------------ windows


def _windows(draw: Draw, rank: int, images: bool) -> dict[str, Any]:
    sizes = [draw.one(1, 2, 3, 4) for _ in range(rank)]
    strides = [draw.one(1, 1, 2, 3) for _ in range(rank)]
    spread = draw.one(True, False)
    base = [draw.one(1, 1, 2) if spread else 1 for _ in range(rank)]
    apart = [draw.one(1, 1, 2) if spread else 1 for _ in range(rank)]
    padding = [(draw.below(3), draw.below(3)) if draw.chance(0.6) else (0, 0) for _ in range(rank)]
    if images and rank > 2:
        for d in (0, 1) if draw.chance(0.6) else (0, rank - 1):
            sizes[d], strides[d], base[d], apart[d], padding[d] = 1, 1, 1, 1, (0, 0)
    return {
        "window_dimensions": tuple(sizes), "window_strides": tuple(strides), "padding": tuple(padding),
        "base_dilation": tuple(base), "window_dilation": tuple(apart),
    }  # fmt: skip


def _image(draw: Draw, rank: int) -> tuple[int, ...]:
    return tuple(draw.one(1, 2, 3, 4, 5, 6, 9, 12) for _ in range(rank))


def _reduce_window(name: str, kinds: tuple[Any, ...]) -> Generator:
    def make(draw: Draw) -> Case:
        rank, dtype = draw.one(1, 2, 3, 4, 4), draw.one(*kinds)
        window, shape = _windows(draw, rank, True), list(_image(draw, rank))
        for d in range(rank):  # at least one window fits
            need = (window["window_dimensions"][d] - 1) * window["window_dilation"][d] + 1
            shape[d] = max(shape[d], need)
        x = operand(draw, name, tuple(shape), dtype)
        scaled = _ROUNDED[dtype.itemsize] * 8 if is_float(dtype) and name in ("add", "multiply") else 0.0
        start, function = neutral(name, dtype), FUNCTIONS[name]
        return lowered(
            lambda a: lax.reduce_window(a, jnp.asarray(start, a.dtype), function, **window),
            x, scaled=scaled, note=f"{type_of(x)} {list(window.values())} from {start}", signs=False,
        )  # fmt: skip

    return make


def _cumulative(draw: Draw) -> Case:
    """The windows of cumulative functions: as long as the dimension, over its beginning."""
    name, dtype = draw.one("add", "maximum", "minimum", "multiply"), draw.one(*FLOATS, np.dtype("int32"))
    shape = draw.shape(1, 3)
    dim = draw.below(len(shape))
    size, back = shape[dim], draw.chance(0.3)
    x = operand(draw, name, shape, dtype)
    if is_float(dtype):
        x = np.where(np.isfinite(x.astype(np.float64)), x, dtype.type(1))
    window = tuple(size if d == dim else 1 for d in range(len(shape)))
    edge = (0, size - 1) if back else (size - 1, 0)
    padding = tuple(edge if d == dim else (0, 0) for d in range(len(shape)))
    ones = (1,) * len(shape)
    scaled = _ROUNDED[dtype.itemsize] * 16 if is_float(dtype) and name in ("add", "multiply") else 0.0
    return lowered(
        lambda a: lax.reduce_window(
            a, jnp.asarray(neutral(name, dtype), a.dtype), FUNCTIONS[name], window, ones, padding
        ),
        x, scaled=scaled, note=f"{name} {type_of(x)} dim {dim}",
    )  # fmt: skip


def _scan(draw: Draw) -> Case:
    function = draw.one(lax.cumsum, lax.cummax, lax.cummin, lax.cumprod, lax.cumlogsumexp)
    shape, dtype = draw.shape(1, 3), draw.one(F32, np.dtype("int32"))
    if function is lax.cumlogsumexp:
        dtype = F32
    dim, back = draw.below(len(shape)), draw.chance(0.3)
    x = draw.unit(shape, dtype, -2, 2) if is_float(dtype) else draw.array(shape, dtype, False, top=4)
    return lowered(
        lambda a: function(a, axis=dim, reverse=back), x, scaled=1e-5, note=f"{function.__name__} {type_of(x)}"
    )


def _select_and_scatter(draw: Draw) -> Case:
    """What the gradient of a maximum over windows is."""
    rank, dtype = draw.one(1, 2, 3, 4, 4), draw.one(F32, F32, np.dtype(ml_dtypes.bfloat16))
    window, shape = _windows(draw, rank, True), list(_image(draw, rank))
    for d in range(rank):
        shape[d] = max(shape[d], window["window_dimensions"][d])
    window["padding"] = [
        (min(a, n - 1), min(b, n - 1)) for (a, b), n in zip(window["padding"], window["window_dimensions"], strict=True)
    ]
    x = np.round(draw.unit(shape, F32, -9, 9)).astype(dtype) if draw.chance(0.4) else draw.unit(shape, dtype)
    sizes, strides, padding = window["window_dimensions"], window["window_strides"], window["padding"]

    def pooled(a: Any) -> Any:
        return lax.reduce_window(a, np.asarray(-np.inf, a.dtype), lax.max, sizes, strides, padding)

    out = jax.eval_shape(pooled, x).shape
    cotangent = draw.unit(out, dtype)
    function = lambda a, b: jax.vjp(pooled, a)[1](b)[0]  # noqa: E731
    note = f"{type_of(x)} {sizes} {strides} {padding}"
    return lowered(function, x, cotangent, scaled=_ROUNDED[dtype.itemsize] * 4, note=note)


REDUCTIONS: Mapping[str, Generator] = {
    "reduce add": _reduce("add", (*FLOATS, *INTEGERS)),
    "reduce multiply": _reduce("multiply", (*FLOATS, *INTEGERS)),
    "reduce maximum": _reduce("maximum", (*FLOATS, *INTEGERS, BOOL)),
    "reduce minimum": _reduce("minimum", (*FLOATS, *INTEGERS, BOOL)),
    "reduce and": _reduce("and", _BITS),
    "reduce or": _reduce("or", _BITS),
    "reduce xor": _reduce("xor", _BITS),
    "reduce argmax": _argument(lax.argmax),
    "reduce argmin": _argument(lax.argmin),
    "reduce of two operands": _several,
    "reduce in chains": _rows,
    "reduce_window add": _reduce_window("add", (*FLOATS, np.dtype("int32"))),
    "reduce_window multiply": _reduce_window("multiply", (F32, np.dtype("int32"))),
    "reduce_window maximum": _reduce_window("maximum", (*FLOATS, *INTEGERS)),
    "reduce_window minimum": _reduce_window("minimum", (*FLOATS, *INTEGERS)),
    "reduce_window cumulative": _cumulative,
    "cumulative scans": _scan,
    "select_and_scatter": _select_and_scatter,
}
"""By the name of the operation and what it combines with."""
