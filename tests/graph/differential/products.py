"""Products: any sum order, with operands, batches and layouts of all kinds; convolutions."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import torch

from tests.graph.differential.bound import MOST as LARGEST
from tests.graph.differential.bound import ULP, Bound, UndefinedError, add, rounded, wide
from tests.graph.differential.operator import (
    DEPTHS,
    FREE,
    MOST,
    ROWS,
    Attributes,
    Draw,
    NoFitError,
    broadcast,
    enter,
    is_float,
)
from tests.graph.differential.records import Array
from tests.graph.differential.rows import softmax

Made = tuple[tuple[int, ...], dict[str, Any]]

WORK = 1 << 25
"""Multiplications of a product, at the most."""


def product(a: Array, b: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(np.matmul(a, b))


def matmul(x: Bound, y: Bound, dtype: str) -> Bound:
    """The product of the middles, with the errors of the operands and of the sum."""
    if not (x.finite and y.finite):
        return _with_infinities(x, y, dtype)
    a, b, ra, rb = x.middle, y.middle, x.radius, y.radius
    centre, size = product(a, b), product(x.magnitude, y.magnitude)
    slack = size * ((x.shape[-1] + 1) * ULP / 2)
    if ra.any():
        slack = slack + product(ra, y.magnitude)
    if rb.any():
        slack = slack + product(x.magnitude, rb)
    result = rounded(dtype, centre - slack, centre + slack, np.zeros(centre.shape, bool))
    return wide(result, size + slack > LARGEST)


def _with_infinities(x: Bound, y: Bound, dtype: str) -> Bound:
    if not (x.exact and y.exact):
        raise UndefinedError("infinities in an open product")
    clean = [np.where(np.isfinite(v.low), v.low, 0.0) for v in (x, y)]
    made = matmul(*(Bound(v.dtype, c, c, np.zeros(c.shape, bool)) for v, c in zip((x, y), clean, strict=True)), dtype)
    with np.errstate(all="ignore"):
        terms_nan = product(np.isnan(x.low) * 1.0, np.ones(y.shape)) + product(np.ones(x.shape), np.isnan(y.low) * 1.0)
        xi, yi = ([np.isposinf(v.low) * 1.0, np.isneginf(v.low) * 1.0] for v in (x, y))
        signs = [[(v.low > 0) * 1.0, (v.low < 0) * 1.0, (v.low == 0) * 1.0] for v in (x, y)]
        zero = product(xi[0] + xi[1], signs[1][2]) + product(signs[0][2], yi[0] + yi[1])
        up = sum(
            product(p, q)
            for p, q in ((xi[0], signs[1][0]), (xi[1], signs[1][1]), (signs[0][0], yi[0]), (signs[0][1], yi[1]))
        )
        down = sum(
            product(p, q)
            for p, q in ((xi[0], signs[1][1]), (xi[1], signs[1][0]), (signs[0][1], yi[0]), (signs[0][0], yi[1]))
        )
    nan = (terms_nan > 0) | (zero > 0) | ((up > 0) & (down > 0))
    value = np.where(nan, np.nan, np.where(up > 0, np.inf, np.where(down > 0, -np.inf, 0.0)))
    special = nan | (up > 0) | (down > 0)
    open_ = np.isinf(made.low) | np.isinf(made.high)
    result = Bound(
        dtype, np.where(special, value, made.low), np.where(special, value, made.high), np.where(special, nan, made.nan)
    )
    return wide(result, open_ & ~nan)


def transposed(x: Bound) -> Bound:
    return Bound(x.dtype, *(np.swapaxes(v, -1, -2) for v in (x.low, x.high, x.nan)))


def _check(d: Draw, rows: tuple[int, ...], inner: int, columns: int) -> None:
    if prod(rows) * columns > MOST or prod(rows) * columns * inner > WORK:
        raise NoFitError


def _columns(d: Draw, rows: tuple[int, ...], inner: int) -> int:
    fitting = [n for n in FREE if prod(rows) * n <= MOST and prod(rows) * n * inner <= WORK and n * inner <= MOST]
    if not fitting:
        raise NoFitError
    return int(d.random.choice(fitting))


def _batches(d: Draw, batch: tuple[int, ...]) -> tuple[int, ...]:
    """Those of the other operand: the same, some of them one, or none."""
    if d.chance(0.4):
        return batch
    return () if d.chance(0.6) else tuple(n if d.chance(0.7) else 1 for n in batch)


def _matmul_draw(d: Draw) -> Made:
    x = d.pick(lambda b: is_float(b) and len(b.shape) >= 2)
    bound = d.bounds[x]
    there = [n for n, b in enumerate(d.bounds) if b.dtype == bound.dtype and _multiplies(bound.shape, b.shape)]
    if there and d.chance(0.5):
        y = d.random.choice(there[-5:])
    else:
        columns = _columns(d, bound.shape[:-1], bound.shape[-1])
        y = d.fresh((*_batches(d, bound.shape[:-2]), bound.shape[-1], columns), bound.dtype)
    batch = broadcast(bound.shape[:-2], d.bounds[y].shape[:-2])
    assert batch is not None
    _check(d, (*batch, bound.shape[-2]), bound.shape[-1], d.bounds[y].shape[-1])
    return (x, y), {}


def _multiplies(x: tuple[int, ...], y: tuple[int, ...]) -> bool:
    return len(y) >= 2 and x[-1] == y[-2] and broadcast(x[:-2], y[:-2]) is not None


def _left_draw(d: Draw) -> Made:
    """The value is the right operand."""
    y = d.pick(lambda b: is_float(b) and len(b.shape) >= 2)
    *batch, inner, columns = d.bounds[y].shape
    rows = d.random.choice([n for n in ROWS if prod(batch) * n * max(columns, inner) <= MOST] or [1])
    _check(d, (*batch, rows), inner, columns)
    return (d.fresh((*_batches(d, tuple(batch)), rows, inner), d.bounds[y].dtype), y), {}


def _scores_draw(d: Draw) -> Made:
    x = d.pick(lambda b: is_float(b) and len(b.shape) >= 2)
    bound = d.bounds[x]

    def fits(b: Bound) -> bool:
        same = len(b.shape) >= 2 and b.dtype == bound.dtype and b.shape[-1] == bound.shape[-1]
        return same and broadcast(b.shape[:-2], bound.shape[:-2]) is not None

    there = [n for n, b in enumerate(d.bounds) if fits(b)]
    y = d.random.choice(there)
    if d.chance(0.4):
        rows = _columns(d, bound.shape[:-1], bound.shape[-1])
        y = d.fresh((*_batches(d, bound.shape[:-2]), rows, bound.shape[-1]), bound.dtype)
    batch = broadcast(bound.shape[:-2], d.bounds[y].shape[:-2])
    assert batch is not None
    _check(d, (*batch, bound.shape[-2]), bound.shape[-1], d.bounds[y].shape[-2])
    return (x, y), {}


def _linear_draw(d: Draw) -> Made:
    x = d.pick(lambda b: is_float(b) and len(b.shape) >= 2)
    bound = d.bounds[x]
    columns = _columns(d, bound.shape[:-1], bound.shape[-1])
    w = d.fresh((columns, bound.shape[-1]), bound.dtype)
    return (x, w, d.fresh((columns,), bound.dtype)), {}


def _linear(a: Attributes, x: Bound, w: Bound, b: Bound) -> Bound:
    """The bias is added before the result is rounded, or after."""
    made = matmul(x, transposed(w), "float32")
    with np.errstate(all="ignore"):
        low, high = made.low + b.low, made.high + b.high
        slack = (made.magnitude + b.magnitude) * ULP
    if not (made.finite and b.finite):
        raise UndefinedError("infinities")
    once = rounded(x.dtype, low, high, made.nan | b.nan, slack=slack)
    if x.dtype == "float32":
        return once
    first = rounded(x.dtype, made.low, made.high, made.nan)
    twice = rounded(x.dtype, first.low + b.low, first.high + b.high, made.nan | b.nan)
    return Bound(x.dtype, np.fmin(once.low, twice.low), np.fmax(once.high, twice.high), once.nan)


enter(
    "matmul", "torch.matmul({0}, {1})", "jnp.matmul({0}, {1})", _matmul_draw, lambda a, x, y: matmul(x, y, x.dtype), 5.0
)
enter("matmul_left", "{0} @ {1}", "{0} @ {1}", _left_draw, lambda a, x, y: matmul(x, y, x.dtype), 1.0)
enter("scores", "{0} @ {1}.transpose(-1, -2)", "{0} @ jnp.swapaxes({1}, -1, -2)", _scores_draw,
      lambda a, x, y: matmul(x, transposed(y), x.dtype), 3.0)  # fmt: skip
enter("linear", "torch.nn.functional.linear({0}, {1}, {2})", "", _linear_draw, _linear, 2.5)


def _added_draw(d: Draw) -> Made:
    x = d.pick(lambda b: b.dtype == "float32" and len(b.shape) == 3 and b.finite)
    batch, rows, inner = d.bounds[x].shape
    columns = _columns(d, (batch, rows), inner)
    bias = d.fresh(d.spread((batch, rows, columns)), "float32")
    return (bias, x, d.fresh((batch, inner, columns), "float32")), {"beta": d.one(1.0, 0.5), "alpha": d.one(1.0, 0.25)}


def _added(a: Attributes, z: Bound, x: Bound, y: Bound) -> Bound:
    made = matmul(x, y, "float32")
    if not (made.finite and z.finite):
        raise UndefinedError("infinities")
    slack = (made.magnitude + z.magnitude) * (2 * ULP)
    ends = (a["beta"] * k + a["alpha"] * v for k, v in ((z.low, made.low), (z.high, made.high)))
    low, high = ends
    return rounded("float32", low, high, np.zeros(low.shape, bool), slack=slack)


enter("baddbmm", "torch.baddbmm({0}, {1}, {2}, beta={beta}, alpha={alpha})", "{beta} * {0} + {alpha} * ({1} @ {2})",
      _added_draw, _added, 1.0)  # fmt: skip


def _mask(d: Draw, shape: tuple[int, ...]) -> tuple[int, ...]:
    """PyTorch wants two dimensions."""
    spread = d.spread(shape)
    return (1,) * (2 - len(spread)) + spread


def _attention_draw(d: Draw) -> Made:
    q = d.pick(lambda b: b.dtype == "float32" and len(b.shape) in (3, 4) and b.finite and b.shape[-1] <= 128)
    *batch, rows, inner = d.bounds[q].shape
    keys = d.one(*[n for n in (1, 3, 32, 127, 128, 129, 256, 512, 513, 600) if prod(batch) * rows * n <= MOST] or [1])
    k, v = (d.fresh((*batch, keys, inner), "float32") for _ in range(2))
    kind = d.random.random()
    if kind < 0.3:
        return (q, k, v, d.fresh(_mask(d, (*batch, rows, keys)), "float32")), {"mask": "{3}", "causal": False}
    if kind < 0.5:
        return (q, k, v, d.fresh(_mask(d, (*batch, rows, keys)), "bool")), {"mask": "{3}", "causal": False}
    return (q, k, v), {"mask": "None", "causal": kind > 0.75}


def _attention(a: Attributes, q: Bound, k: Bound, v: Bound, *mask: Bound) -> Bound:
    scale = float(np.float32(1 / np.sqrt(q.shape[-1])))
    scores = matmul(q, transposed(k), "float32")
    low, high = scores.low * scale, scores.high * scale
    scores = rounded("float32", low, high, scores.nan, 4.0)
    rows, keys = scores.shape[-2:]
    allowed = np.tril(np.ones((rows, keys), bool)) if a["causal"] else np.ones((), bool)
    if mask and mask[0].dtype == "bool":
        allowed = mask[0].low > 0
        if not np.broadcast_to(allowed, scores.shape).any(-1).all():
            raise UndefinedError("rows without a key")
    elif mask:
        scores = add(scores, mask[0], "float32")
    hidden = [np.where(allowed, x, -np.inf) for x in (scores.low, scores.high)]
    weights = softmax({"axis": len(scores.shape) - 1}, Bound("float32", *hidden, scores.nan))
    return matmul(weights, v, "float32")


enter("attention", "torch.nn.functional.scaled_dot_product_attention({0}, {1}, {2}, {mask}, is_causal={causal})", "",
      _attention_draw, _attention, 2.0)  # fmt: skip

# ------------------------------------------------------------------------------------- sums over any axis, any order


def _einsum_draw(d: Draw) -> Made:
    x = d.pick(lambda b: is_float(b) and 2 <= len(b.shape) <= 4)
    shape = d.bounds[x].shape
    letters = "abcd"[: len(shape)]
    kinds = {letter: d.one("batch", "kept", "summed") for letter in letters}
    if "summed" not in kinds.values():
        kinds[d.random.choice(letters)] = "summed"
    sizes = dict(zip(letters, shape, strict=True))
    new = "n"
    sizes[new] = d.one(*DEPTHS)
    other = [k for k in letters if kinds[k] != "kept"] + [new]
    result = [k for k in letters if kinds[k] != "summed"] + [new]
    d.random.shuffle(other)
    d.random.shuffle(result)
    if prod(sizes[k] for k in result) > MOST or prod(sizes.values()) > WORK:
        raise NoFitError
    y = d.fresh(tuple(sizes[k] for k in other), d.bounds[x].dtype)
    pair = f"{letters},{''.join(other)}->{''.join(result)}"
    return (x, y), {"code": pair}


def _einsum(a: Attributes, x: Bound, y: Bound) -> Bound:
    if not (x.finite and y.finite):
        raise UndefinedError("infinities")
    code = a["code"]
    left, result = code.split(",")[0], code.split("->")[1]
    terms = prod(n for n, k in zip(x.shape, left, strict=True) if k not in result)
    centre = _summed(code, x.middle, y.middle)
    size = _summed(code, x.magnitude, y.magnitude)
    slack = size * ((terms + 1) * ULP / 2)
    slack = slack + _summed(code, x.radius, y.magnitude) if x.radius.any() else slack
    slack = slack + _summed(code, x.magnitude, y.radius) if y.radius.any() else slack
    return wide(rounded(x.dtype, centre - slack, centre + slack, np.zeros(centre.shape, bool)), size > LARGEST)


def _summed(code: str, x: Array, y: Array) -> Array:
    return np.asarray(torch.einsum(code, torch.from_numpy(np.array(x)), torch.from_numpy(np.array(y))).numpy())


enter("einsum", "torch.einsum('{code}', {0}, {1})", "jnp.einsum('{code}', {0}, {1})", _einsum_draw, _einsum, 2.0)

# ------------------------------------------------------------------------------------------------------- convolutions


def _conv_draw(d: Draw) -> Made:
    x = d.pick(lambda b: is_float(b) and len(b.shape) == 4 and min(b.shape[2:]) >= 3 and b.shape[1] <= 256 and b.finite)
    n, channels, height, width = d.bounds[x].shape
    groups = d.random.choice([g for g in (1, 1, 2, 4, channels) if channels % g == 0])
    made = groups * d.one(1, 2, 3) if groups > 1 else d.one(1, 3, 16, 127, 129)
    size, stride, pad = d.one(1, 3, 2), d.one(1, 1, 2), d.one(0, 1)
    if n * made * height * width > MOST or n * made * height * width * channels // groups * size**2 > WORK:
        raise NoFitError
    dtype = d.bounds[x].dtype
    weight = d.fresh((made, channels // groups, size, size), dtype)
    return (x, weight, d.fresh((made,), dtype)), {"stride": stride, "pad": pad, "groups": groups}


def _conv(a: Attributes, x: Bound, w: Bound, b: Bound) -> Bound:
    def run(p: Array, q: Array) -> Array:
        made = torch.nn.functional.conv2d(
            torch.from_numpy(np.array(p)), torch.from_numpy(np.array(q)), None,
            a["stride"], a["pad"], 1, a["groups"],
        )  # fmt: skip
        return np.asarray(made.numpy())

    if not (x.finite and w.finite and b.finite):
        raise UndefinedError("infinities")
    centre, size = run(x.middle, w.middle), run(x.magnitude, w.magnitude)
    slack = size * ((prod(w.shape[1:]) + 1) * ULP / 2)
    slack = slack + run(x.radius, w.magnitude) if x.radius.any() else slack
    slack = slack + run(x.magnitude, w.radius) if w.radius.any() else slack
    plain = rounded("float32", centre - slack, centre + slack, np.zeros(centre.shape, bool))
    bias = Bound(b.dtype, *(v[:, None, None] for v in (b.low, b.high, b.nan)))
    more = (plain.magnitude + bias.magnitude) * ULP
    once = rounded(x.dtype, plain.low + bias.low, plain.high + bias.high, plain.nan | bias.nan, slack=more)
    if x.dtype == "float32":
        return once
    first = rounded(x.dtype, plain.low, plain.high, plain.nan)
    twice = rounded(x.dtype, first.low + bias.low, first.high + bias.high, once.nan)
    return Bound(x.dtype, np.fmin(once.low, twice.low), np.fmax(once.high, twice.high), once.nan)


_JAX_CONV = (
    "lax.conv_general_dilated({0}, {1}, ({stride}, {stride}), (({pad}, {pad}), ({pad}, {pad})), "
    "feature_group_count={groups}) + {2}[:, None, None]"
)
enter(
    "conv2d",
    "torch.nn.functional.conv2d({0}, {1}, {2}, {stride}, {pad}, 1, {groups})",
    _JAX_CONV,
    _conv_draw,
    _conv,
    2.0,
)

PRODUCTS = frozenset(("baddbmm", "attention", "matmul", "matmul_left", "scores", "linear", "einsum", "conv2d"))
"""The operators above."""
