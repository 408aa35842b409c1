"""Operators over axes: reductions, softmax, norms, sorts, running sums, pooling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tests.graph.differential import bound as bounds
from tests.graph.differential.bound import LEAST, ULP, Bound, UndefinedError, monotone, rounded, total, wide
from tests.graph.differential.moves import on_ends
from tests.graph.differential.operator import MOST, Attributes, Draw, NoFitError, enter, is_float, is_integer
from tests.graph.differential.pointwise import wrapped
from tests.graph.differential.records import Array

Made = tuple[tuple[int, ...], dict[str, Any]]


def _axes(d: Draw, fits: Callable[[Bound], bool] = is_float) -> Made:
    x = d.pick(lambda b: fits(b) and len(b.shape) >= 1)
    rank = len(d.bounds[x].shape)
    if d.chance(0.6):
        axes: tuple[int, ...] = (rank - 1,)
    else:
        axes = tuple(k for k in range(rank) if d.chance(0.5)) or (d.random.randrange(rank),)
    return (x,), {"axes": axes, "keep": d.one(True, True, False)}


def _an_axis(d: Draw) -> Made:
    x = d.pick(lambda b: is_float(b) and len(b.shape) >= 1)
    rank = len(d.bounds[x].shape)
    return (x,), {"axis": d.one(rank - 1, rank - 1, d.random.randrange(rank))}


# ------------------------------------------------------------------------------------------------------- reductions


def _count(a: Attributes, x: Bound) -> int:
    return int(np.prod([x.shape[k] for k in a["axes"]]))


def _value(number: float, dtype: str) -> Bound:
    made = np.full((), number)
    return Bound(dtype, made, made, np.zeros((), bool))


def _in_float32(x: Bound) -> Bound:
    return Bound("float32", x.low, x.high, x.nan)


def _as(x: Bound, dtype: str) -> Bound:
    return rounded(dtype, x.low, x.high, x.nan)


def _mean(a: Attributes, x: Bound) -> Bound:
    made = total(_in_float32(x), a["axes"], a["keep"])
    return _as(bounds.divide(made, _value(_count(a, x), "float32"), "float32"), x.dtype)


def _extreme(f: Any) -> Callable[..., Bound]:
    def bound(a: Attributes, x: Bound) -> Bound:
        axes, keep = a["axes"], a["keep"]
        ends = [f.reduce(v, axis=axes, keepdims=keep) for v in (x.low, x.high)]
        return Bound(x.dtype, *ends, x.nan.any(axes, keepdims=keep))

    return bound


def _squares(x: Bound, axes: tuple[int, ...]) -> tuple[Bound, Bound]:
    """What is left without the mean, and the sum of its squares."""
    mean = _mean({"axes": axes, "keep": True}, _in_float32(x))
    rest = bounds.add(_in_float32(x), mean, "float32", -1)
    ends = np.square(rest.low), np.square(rest.high)
    crosses = (rest.low < 0) & (rest.high > 0)
    square = rounded("float32", np.where(crosses, 0.0, np.fmin(*ends)), np.fmax(*ends), rest.nan)
    return rest, total(square, axes, True)


def _variance(a: Attributes, x: Bound) -> Bound:
    if _count(a, x) < 2 or not x.finite:
        raise UndefinedError("a variance of one")
    made = bounds.divide(_squares(x, a["axes"])[1], _value(_count(a, x) - 1, "float32"), "float32")
    made = _as(made, x.dtype)
    if a["keep"]:
        return made
    return Bound(x.dtype, *(v.squeeze(a["axes"]) for v in (made.low, made.high, made.nan)))


def _whole_sum(a: Attributes, x: Bound) -> Bound:
    low, high = (v.sum(a["axes"], keepdims=a["keep"]) for v in (x.low, x.high))
    return wrapped("int32", low, high)


def _small_whole(x: Bound) -> bool:
    return is_integer(x) and bool((x.magnitude < 1 << 12).all())


_REDUCED = "jnp.{f}({{0}}, axis={{axes}}, keepdims={{keep}})"
_TORCH = "torch.{f}({{0}}, dim={{axes}}, keepdim={{keep}})"
for _name, _f, _jax, _bound, _weight in (
    ("sum", "sum", "sum", lambda a, x: total(x, a["axes"], a["keep"]), 2.0),
    ("mean", "mean", "mean", _mean, 1.5),
    ("amax", "amax", "max", _extreme(np.maximum), 1.0),
    ("amin", "amin", "min", _extreme(np.minimum), 0.5),
):
    enter(_name, _TORCH.format(f=_f), _REDUCED.format(f=_jax), _axes, _bound, _weight)
enter("variance", "torch.var({0}, dim={axes}, keepdim={keep})", "jnp.var({0}, axis={axes}, keepdims={keep}, ddof=1)",
      _axes, _variance, 0.7)  # fmt: skip
enter("whole_sum", "torch.sum({0}, dim={axes}, keepdim={keep}).to(torch.int32)",
      "jnp.sum({0}.astype(jnp.int32), axis={axes}, keepdims={keep})", lambda d: _axes(d, _small_whole),
      _whole_sum, 0.7)  # fmt: skip


def _truth_axis(d: Draw) -> Made:
    x = d.pick(lambda b: b.dtype == "bool" and len(b.shape) >= 1)
    return (x,), {"axis": d.random.randrange(len(d.bounds[x].shape))}


enter("any", "torch.any({0}, {axis})", "jnp.any({0}, {axis})", _truth_axis,
      lambda a, x: Bound("bool", x.low.max(a["axis"]), x.high.max(a["axis"]), x.nan.any(a["axis"])), 0.4)  # fmt: skip
enter("all", "torch.all({0}, {axis})", "jnp.all({0}, {axis})", _truth_axis,
      lambda a, x: Bound("bool", x.low.min(a["axis"]), x.high.min(a["axis"]), x.nan.any(a["axis"])), 0.4)  # fmt: skip


def _log_sum(a: Attributes, x: Bound) -> Bound:
    if not x.finite:
        raise UndefinedError("infinities")
    axis = a["axis"]
    most = x.middle.max(axis, keepdims=True)
    centre = np.log(np.exp(x.middle - most).sum(axis)) + most.squeeze(axis)
    slack = x.radius.max(axis) + (x.magnitude.max(axis) * 2 + 8 + x.shape[axis] / 2) * ULP
    return rounded(x.dtype, centre - slack, centre + slack, np.zeros(centre.shape, bool))


enter("logsumexp", "torch.logsumexp({0}, {axis})", "jax.nn.logsumexp({0}, {axis})", _an_axis, _log_sum, 0.7)


def _length(a: Attributes, x: Bound) -> Bound:
    ends = np.square(x.low), np.square(x.high)
    crosses = (x.low < 0) & (x.high > 0)
    square = rounded("float32", np.where(crosses, 0.0, np.fmin(*ends)), np.fmax(*ends), x.nan)
    summed = total(square, a["axes"], a["keep"])
    return _as(monotone(summed, np.sqrt, 2.0, (0.0, np.inf)), x.dtype)


enter("length", "torch.linalg.vector_norm({0}, dim={axes}, keepdim={keep})",
      "jnp.sqrt(jnp.sum(jnp.square({0}), axis={axes}, keepdims={keep}))", _axes, _length, 0.6)  # fmt: skip

# -------------------------------------------------------------------------------------------------- softmax and norms


def _weights(a: Attributes, x: Bound) -> tuple[Array, Array, Array, Array]:
    """Softmax of the middle, its relative error, what is left without the maximum, and where nothing is known."""
    axis = a["axis"]
    with np.errstate(all="ignore"):
        radius = np.where(np.isfinite(x.magnitude), x.radius, 0.0)
        unknown = ((x.low != x.high) & np.isinf(x.magnitude) & ~np.isnan(x.low)) | (x.nan & ~np.isnan(x.low))
        rest = x.middle - x.middle.max(axis, keepdims=True)
        powers = np.exp(rest)
        made = powers / powers.sum(axis, keepdims=True)
        far = np.where(np.isfinite(rest), np.abs(rest), 0.0)
        error = radius + radius.max(axis, keepdims=True) * 1.0 + (far + 8 + x.shape[axis] / 2) * ULP
        near = np.minimum(far, 20.0).max(axis, keepdims=True) * ULP
        return made, np.expm1(np.minimum(error + near, 700.0)), rest, unknown.any(axis, keepdims=True)


def softmax(a: Attributes, x: Bound) -> Bound:
    made, error, _, unknown = _weights(a, x)
    with np.errstate(all="ignore"):
        slack = made * error + LEAST
        result = rounded(x.dtype, np.maximum(made - slack, 0.0), made + slack, np.isnan(made))
    return wide(result, unknown)


def _log_softmax(a: Attributes, x: Bound) -> Bound:
    made, _, rest, unknown = _weights(a, x)
    with np.errstate(all="ignore"):
        total_ = np.log(np.exp(rest).sum(a["axis"], keepdims=True))
        centre = rest - total_
        radius = np.where(np.isfinite(x.magnitude), x.radius, 0.0)
        shared = radius.max(a["axis"], keepdims=True)
        size = np.where(np.isfinite(centre), np.abs(centre) + np.abs(total_), 0.0) + np.abs(total_)
        size = np.where(np.isfinite(size), size, 0.0)
        slack = radius + shared + (size + 8 + x.shape[a["axis"]] / 2) * ULP
        del made
        result = rounded(x.dtype, centre - slack, centre + slack, np.isnan(centre))
    return wide(result, unknown)


enter("softmax", "torch.softmax({0}, {axis})", "jax.nn.softmax({0}, {axis})", _an_axis, softmax, 3.0)
enter("log_softmax", "torch.log_softmax({0}, {axis})", "jax.nn.log_softmax({0}, {axis})", _an_axis, _log_softmax, 0.7)


def _norm_draw(d: Draw) -> Made:
    x = d.pick(lambda b: is_float(b) and len(b.shape) >= 1 and b.shape[-1] > 2 and b.finite)
    size, dtype = d.bounds[x].shape[-1], d.bounds[x].dtype
    return (x, d.fresh((size,), dtype), d.fresh((size,), dtype)), {"size": size}


def _layer_norm(a: Attributes, x: Bound, w: Bound, b: Bound) -> Bound:
    axes = (len(x.shape) - 1,)
    rest, squares = _squares(x, axes)
    variance = bounds.divide(squares, _value(x.shape[-1], "float32"), "float32")
    return _scaled(x.dtype, rest, variance, w, b)


def _scaled(dtype: str, rest: Bound, variance: Bound, w: Bound, b: Bound | None) -> Bound:
    safe = bounds.add(variance, _value(1e-5, "float32"), "float32")
    scale = monotone(safe, lambda v: 1 / np.sqrt(v), 4.0, (0.0, np.inf), True)
    made = bounds.multiply(bounds.multiply(rest, scale, "float32", 1.0), _in_float32(w), "float32", 1.0)
    if b is not None:
        with np.errstate(all="ignore"):
            slack = (made.magnitude + np.abs(b.middle)) * ULP
        summed = bounds.add(made, _in_float32(b), "float32")
        made = rounded("float32", summed.low, summed.high, summed.nan, slack=slack)
    return _as(made, dtype)


def _rms_norm(a: Attributes, x: Bound, w: Bound) -> Bound:
    ends = np.square(x.low), np.square(x.high)
    crosses = (x.low < 0) & (x.high > 0)
    square = rounded("float32", np.where(crosses, 0.0, np.fmin(*ends)), np.fmax(*ends), x.nan)
    mean = _mean({"axes": (len(x.shape) - 1,), "keep": True}, square)
    return _scaled(x.dtype, _in_float32(x), mean, w, None)


enter("layer_norm", "torch.nn.functional.layer_norm({0}, ({size},), {1}, {2})", "", _norm_draw, _layer_norm, 2.0)


def _rms_draw(d: Draw) -> Made:
    x = d.pick(lambda b: b.dtype == "float32" and len(b.shape) >= 1 and b.shape[-1] > 2 and b.finite)
    size = d.bounds[x].shape[-1]
    return (x, d.fresh((size,), "float32")), {}


enter("rms_norm", "{0} * torch.rsqrt({0}.square().mean(-1, keepdim=True) + 1e-5) * {1}",
      "{0} * lax.rsqrt(jnp.mean(jnp.square({0}), -1, keepdims=True) + 1e-5) * {1}", _rms_draw, _rms_norm,
      1.5)  # fmt: skip


def _groups_draw(d: Draw) -> Made:
    x = d.pick(lambda b: b.dtype == "float32" and len(b.shape) in (3, 4) and b.finite and b.size // b.shape[0] > 8)
    channels = d.bounds[x].shape[1]
    groups = d.random.choice([g for g in (1, 2, 3, 4, 8, channels) if channels % g == 0])
    if d.bounds[x].size // d.bounds[x].shape[0] // groups < 3:
        raise NoFitError
    return (x, d.fresh((channels,), "float32"), d.fresh((channels,), "float32")), {"groups": groups}


def _group_norm(a: Attributes, x: Bound, w: Bound, b: Bound) -> Bound:
    shape = (x.shape[0], a["groups"], -1)
    rest, squares = _squares(Bound(x.dtype, *(v.reshape(shape) for v in (x.low, x.high, x.nan))), (2,))
    count = rest.shape[2]
    variance = bounds.divide(squares, _value(count, "float32"), "float32")
    spread = (1, x.shape[1], *(1 for _ in x.shape[2:]))

    def of(v: Array) -> Array:
        whole = np.broadcast_to(v.reshape(spread), x.shape)
        return whole.reshape(rest.shape)

    weight, bias = (Bound(v.dtype, of(v.low), of(v.high), of(v.nan)) for v in (w, b))
    made = _scaled(x.dtype, rest, variance, weight, bias)
    return Bound(x.dtype, *(v.reshape(x.shape) for v in (made.low, made.high, made.nan)))


enter("group_norm", "torch.nn.functional.group_norm({0}, {groups}, {1}, {2})", "", _groups_draw, _group_norm, 1.0)


def _batch_draw(d: Draw) -> Made:
    x = d.pick(lambda b: b.dtype == "float32" and len(b.shape) in (2, 3, 4))
    size = (d.bounds[x].shape[1],)
    means, weights, biases = (d.fresh(size, "float32") for _ in range(3))
    return (x, means, d.fresh(size, "float32", "positive"), weights, biases), {}


def _batch_norm(a: Attributes, x: Bound, m: Bound, v: Bound, w: Bound, b: Bound) -> Bound:
    """Also where it is one product and one sum: ``x * scale + (bias - mean * scale)``."""
    shape = (x.shape[1], *(1 for _ in x.shape[2:]))
    m, v, w, b = (Bound(p.dtype, *(k.reshape(shape) for k in (p.low, p.high, p.nan))) for p in (m, v, w, b))
    made = _scaled(x.dtype, bounds.add(x, m, x.dtype, -1), v, w, b)
    with np.errstate(all="ignore"):
        scale = np.abs(w.middle) / np.sqrt(v.middle)
        slack = (x.magnitude + np.abs(m.middle)) * scale * (6 * ULP) + made.magnitude * (4 * ULP)
        slack = np.where(np.isfinite(slack), slack, 0.0)
    return rounded(x.dtype, made.low, made.high, made.nan, slack=slack)


enter("batch_norm", "torch.nn.functional.batch_norm({0}, {1}, {2}, {3}, {4})", "", _batch_draw, _batch_norm, 1.0)

# ------------------------------------------------------------------------------------------------ order, running sums


def _ordered(x: Bound) -> None:
    if x.nan.any():
        raise UndefinedError("an order of NaN")


def _sorted(a: Attributes, x: Bound) -> Bound:
    _ordered(x)
    return Bound(x.dtype, np.sort(x.low, a["axis"]), np.sort(x.high, a["axis"]), x.nan)


def _largest_draw(d: Draw) -> Made:
    x = d.pick(lambda b: b.dtype == "float32" and len(b.shape) >= 1)
    return (x,), {"count": d.random.randint(1, min(d.bounds[x].shape[-1], d.one(1, 3, 8, 9)))}


def _largest(a: Attributes, x: Bound) -> Bound:
    _ordered(x)
    low, high = (np.flip(np.sort(v, -1), -1)[..., : a["count"]] for v in (x.low, x.high))
    return Bound(x.dtype, low, high, np.zeros(low.shape, bool))


def _decided(x: Bound, axis: int) -> None:
    """Neighbours in the order are apart."""
    _ordered(x)
    order = np.argsort(x.middle, axis)
    low, high = (np.take_along_axis(v, order, axis) for v in (x.low, x.high))
    low, high = np.moveaxis(low, axis, 0), np.moveaxis(high, axis, 0)
    if (high[:-1] >= low[1:]).any():
        raise UndefinedError("a tie")


def _largest_places(a: Attributes, x: Bound) -> Bound:
    _decided(x, len(x.shape) - 1)
    places = np.flip(np.argsort(x.middle, -1), -1)[..., : a["count"]].astype(float)
    return Bound("int32", places, places, np.zeros(places.shape, bool))


def _order(a: Attributes, x: Bound) -> Bound:
    _decided(x, a["axis"])
    places = np.argsort(x.middle, a["axis"]).astype(float)
    return Bound("int32", places, places, np.zeros(places.shape, bool))


def _place_of_most(a: Attributes, x: Bound) -> Bound:
    _ordered(x)
    best = np.argmax(x.middle, a["axis"])
    at = np.expand_dims(best, a["axis"])
    least = np.take_along_axis(x.low, at, a["axis"])
    others = x.high.copy()
    np.put_along_axis(others, at, -np.inf, a["axis"])
    if (others >= least).any():
        raise UndefinedError("a tie")
    return Bound("int32", best.astype(float), best.astype(float), np.zeros(best.shape, bool))


enter("sort", "torch.sort({0}, {axis}).values", "jnp.sort({0}, {axis})", _an_axis, _sorted, 0.7)
enter("argsort", "torch.argsort({0}, {axis}).to(torch.int32)", "jnp.argsort({0}, {axis})", _an_axis, _order, 0.3)
enter("argmax", "torch.argmax({0}, {axis}).to(torch.int32)", "jnp.argmax({0}, {axis})", _an_axis, _place_of_most, 0.7)
enter("topk", "torch.topk({0}, {count}).values", "lax.top_k({0}, {count})[0]", _largest_draw, _largest, 0.6)
enter("topk_places", "torch.topk({0}, {count}).indices.to(torch.int32)", "lax.top_k({0}, {count})[1]",
      _largest_draw, _largest_places, 0.4)  # fmt: skip


def _running(a: Attributes, x: Bound) -> Bound:
    if not x.finite:
        raise UndefinedError("running sums of infinities")
    low, high = np.cumsum(x.low, a["axis"]), np.cumsum(x.high, a["axis"])
    slack = np.cumsum(x.magnitude, a["axis"]) * (x.shape[a["axis"]] * ULP / 2)
    return rounded(x.dtype, low, high, x.nan, slack=slack)


def _running_draw(d: Draw) -> Made:
    (x,), attributes = _an_axis(d)
    if d.bounds[x].dtype != "float32":
        raise NoFitError
    return (x,), attributes


enter("cumsum", "torch.cumsum({0}, {axis})", "jnp.cumsum({0}, {axis})", _running_draw, _running, 0.8)


def _running_most(a: Attributes, x: Bound) -> Bound:
    _ordered(x)
    ends = (np.maximum.accumulate(v, a["axis"]) for v in (x.low, x.high))
    return Bound(x.dtype, *ends, x.nan)


enter("cummax", "torch.cummax({0}, {axis}).values", "lax.cummax({0}, {axis})", _running_draw, _running_most, 0.4)


def _loop(a: Attributes, x: Bound) -> Bound:
    half = _value(0.5, x.dtype)
    made = x
    for _ in range(a["count"]):
        made = bounds.add(bounds.multiply(monotone(made, np.tanh, 4.0), half, x.dtype), x, x.dtype)
    return made


enter("loop", "", "lax.fori_loop(0, {count}, lambda i, c: jnp.tanh(c) * 0.5 + {0}, {0})",
      lambda d: ((d.pick(lambda b: b.dtype == "float32"),), {"count": d.one(1, 2, 3)}), _loop, 0.4)  # fmt: skip

# ----------------------------------------------------------------------------------------------------------- windows


def _image(x: Bound) -> bool:
    return is_float(x) and len(x.shape) == 4 and min(x.shape[2:]) >= 4 and x.size <= MOST and x.finite


def _window(d: Draw) -> Made:
    x = d.pick(_image)
    size = d.one(2, 3)
    return (x,), {"size": size, "stride": d.one(1, 2, size), "pad": d.one(0, 1)}


_MAX_POOL = "torch.nn.functional.max_pool2d({0}, {size}, {stride}, {pad})"
_AVG_POOL = "torch.nn.functional.avg_pool2d({0}, {size}, {stride}, {pad})"


def _max_pool(a: Attributes, x: Bound) -> Bound:
    low, high = (_apply(_MAX_POOL, a, v) for v in (x.low, x.high))
    return Bound(x.dtype, low, high, np.zeros(low.shape, bool))


def _avg_pool(a: Attributes, x: Bound) -> Bound:
    low, high, size = (_apply(_AVG_POOL, a, v) for v in (x.low, x.high, x.magnitude))
    return rounded(x.dtype, low, high, np.zeros(low.shape, bool), 2.0, size * (a["size"] ** 2 * ULP / 2))


def _apply(code: str, a: Attributes, values: Array) -> Array:
    return np.asarray(eval(code.format("x", **a), {"torch": torch, "x": torch.from_numpy(np.array(values))}).numpy())


_JAX_POOL = (
    "lax.reduce_window({{0}}, jnp.asarray({start}, {{0}}.dtype), lax.{f}, (1, 1, {{size}}, {{size}}), "
    "(1, 1, {{stride}}, {{stride}}), ((0, 0), (0, 0), ({{pad}}, {{pad}}), ({{pad}}, {{pad}})))"
)
enter("max_pool", _MAX_POOL, _JAX_POOL.format(start="-jnp.inf", f="max"), _window, _max_pool, 0.6)
enter("avg_pool", _AVG_POOL, "", _window, _avg_pool, 0.6)

_NEAREST = "torch.nn.functional.interpolate({0}, scale_factor=2, mode='nearest')"
enter("nearest", _NEAREST, "", lambda d: ((d.pick(lambda b: _image(b) and b.size <= MOST // 8),), {}),
      lambda a, x: Bound(x.dtype, _apply(_NEAREST, a, x.low), _apply(_NEAREST, a, x.high),
                         _apply(_NEAREST, a, x.nan.astype(float)) > 0), 0.3)  # fmt: skip

# ------------------------------------------------------------------------------------------------------ scattered sums


def _scattered_draw(d: Draw) -> Made:
    x = d.pick(lambda b: b.dtype == "float32" and len(b.shape) >= 1 and b.size < MOST // 8 and b.finite)
    shape = d.bounds[x].shape
    count = d.one(1, 3, 5, 129)
    if int(np.prod(shape[1:])) * count > MOST:
        raise NoFitError
    return (x, d.fresh((count,), "int32", "index", shape[0]), d.fresh((count, *shape[1:]), "float32")), {"count": count}


_SCATTERED = "torch.index_add({0}, 0, {1}.to(torch.int64), {2})"


def _scattered(a: Attributes, x: Bound, index: Bound, y: Bound) -> Bound:
    places = index.low.astype(np.int64)
    made = on_ends("torch.index_add({0}.double(), 0, {1}, {2}.double())", a, x, places, y)
    size = x.magnitude.copy()
    np.add.at(size, places, y.magnitude)
    return rounded(x.dtype, made.low, made.high, made.nan > 0, slack=size * (a["count"] * ULP / 2))


enter("index_add", _SCATTERED, "{0}.at[{1}].add({2})", _scattered_draw, _scattered, 0.7)
