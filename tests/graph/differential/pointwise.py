"""Operators that compute element by element."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch
from scipy import special

from tests.graph.differential import bound as bounds
from tests.graph.differential.bound import ULP, Bound, UndefinedError, lipschitz, monotone, narrowed, rounded
from tests.graph.differential.operator import (
    Attributes,
    Draw,
    NoFitError,
    enter,
    is_float,
    is_integer,
    is_number,
    is_truth,
)
from tests.graph.differential.records import FLOATS, INTEGERS, NARROW, NUMPY, Array

Made = tuple[tuple[int, ...], dict[str, Any]]

# --------------------------------------------------------------------------------------------- functions of one float


def _moderate(x: Bound, limit: float) -> bool:
    return is_float(x) and bool((np.nan_to_num(x.magnitude, posinf=0.0) <= limit).all())


def _of_float(limit: float = 1e30) -> Callable[[Draw], Made]:
    return lambda d: ((d.pick(lambda b: _moderate(b, limit)),), {})


def _unary(
    name: str, torch: str, jax: str, bound: Callable[[Bound], Bound], limit: float = 1e30, weight: float = 0.5
) -> None:
    enter(name, torch, jax, _of_float(limit), lambda a, x: bound(x), weight)


def _even(f: Callable[[Array], Array]) -> Callable[[Bound], Bound]:
    """Functions of the absolute value that grow with it."""

    def bound(x: Bound) -> Bound:
        ends = f(x.low), f(x.high)
        crosses = (x.low < 0) & (x.high > 0)
        return rounded(x.dtype, np.where(crosses, 0.0, np.fmin(*ends)), np.fmax(*ends), x.nan)

    return bound


def _step(f: Callable[[Array], Array]) -> Callable[[Bound], Bound]:
    return lambda x: monotone(x, f)


def _sigmoid(x: Array) -> Array:
    return np.asarray(special.expit(x))


def _silu(x: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.where(np.isneginf(x), np.nan, x * special.expit(x))


def _gelu(x: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.where(np.isneginf(x), np.nan, x * special.ndtr(x))


def _tanh_gelu(x: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))))


def _relative(f: Callable[[Array], Array], slope: float, units: float) -> Callable[[Bound], Bound]:
    return lambda x: lipschitz(x, f, slope, units, np.nan_to_num(np.abs(x.middle), posinf=0.0) * (4 * ULP))


def _reciprocal(x: Bound) -> Bound:
    one = Bound("float32", np.ones(()), np.ones(()), np.zeros((), bool))
    return bounds.divide(one, x, x.dtype)


def _softplus(x: Array) -> Array:
    return np.logaddexp(0.0, x)


def _elu(x: Array) -> Array:
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0.0)))


_unary("neg", "-{0}", "-{0}", lambda x: Bound(x.dtype, -x.high, -x.low, x.nan))
_unary("abs", "torch.abs({0})", "jnp.abs({0})", _even(np.abs))
_unary("square", "torch.square({0})", "jnp.square({0})", _even(np.square), 1e12)
_unary("relu", "torch.relu({0})", "jax.nn.relu({0})", _step(lambda x: np.maximum(x, 0.0)), weight=1.0)
_unary("exp", "torch.exp({0})", "jnp.exp({0})", lambda x: monotone(x, np.exp, 4.0), 60, 1.0)
_unary("tanh", "torch.tanh({0})", "jnp.tanh({0})", lambda x: monotone(x, np.tanh, 4.0), weight=1.0)
_unary("sigmoid", "torch.sigmoid({0})", "jax.nn.sigmoid({0})", lambda x: monotone(x, _sigmoid, 4.0), 80)
_unary("log", "torch.log({0})", "jnp.log({0})", lambda x: monotone(x, np.log, 4.0, (0.0, np.inf)))
_unary("sqrt", "torch.sqrt({0})", "jnp.sqrt({0})", lambda x: monotone(x, np.sqrt, 1.0, (0.0, np.inf)))
_unary("rsqrt", "torch.rsqrt({0})", "lax.rsqrt({0})",
       lambda x: monotone(x, lambda v: 1 / np.sqrt(v), 3.0, (0.0, np.inf), True), weight=0.3)  # fmt: skip
_unary("log1p", "torch.log1p({0})", "jnp.log1p({0})", lambda x: monotone(x, np.log1p, 4.0, (-1.0, np.inf)))
_unary("expm1", "torch.expm1({0})", "jnp.expm1({0})", lambda x: monotone(x, np.expm1, 6.0), 60)
_unary("erf", "torch.erf({0})", "lax.erf({0})", lambda x: monotone(x, special.erf, 4.0))
_unary("sin", "torch.sin({0})", "jnp.sin({0})", lambda x: lipschitz(x, np.sin, 1.0, 4.0, ULP), 1e4)
_unary("cos", "torch.cos({0})", "jnp.cos({0})", lambda x: lipschitz(x, np.cos, 1.0, 4.0, ULP), 1e4)
_unary("floor", "torch.floor({0})", "jnp.floor({0})", _step(np.floor), 1e6)
_unary("ceil", "torch.ceil({0})", "jnp.ceil({0})", _step(np.ceil), 1e6)
_unary("round", "torch.round({0})", "jnp.round({0})", _step(np.rint), 1e6)
_unary("reciprocal", "torch.reciprocal({0})", "1 / {0}", _reciprocal)
_unary("gelu", "torch.nn.functional.gelu({0})", "jax.nn.gelu({0}, approximate=False)",
       _relative(_gelu, 1.13, 4.0), 50, 1.0)  # fmt: skip
_unary("gelu_tanh", "torch.nn.functional.gelu({0}, approximate='tanh')", "jax.nn.gelu({0}, approximate=True)",
       _relative(_tanh_gelu, 1.13, 4.0), 50)  # fmt: skip
_unary("silu", "torch.nn.functional.silu({0})", "jax.nn.silu({0})", _relative(_silu, 1.1, 6.0), 80, 1.0)
_unary("softplus", "torch.nn.functional.softplus({0})", "jax.nn.softplus({0})", _relative(_softplus, 1.0, 4.0), 15)
_unary("elu", "torch.nn.functional.elu({0})", "jax.nn.elu({0})", _relative(_elu, 1.0, 4.0), 80)


def _sign(a: Attributes, x: Bound) -> Bound:
    """The sign of NaN is 0 in PyTorch, and NaN in JAX."""
    made = monotone(x, np.sign)
    if a["language"] == "jax":
        return made
    ends = [np.where(x.nan, f(np.nan_to_num(v), 0.0), v) for f, v in ((np.fmin, made.low), (np.fmax, made.high))]
    return Bound(x.dtype, ends[0], ends[1], np.zeros(x.shape, bool))


enter("sign", "torch.sign({0})", "jnp.sign({0})", lambda d: ((d.pick(is_float),), {"language": d.language}), _sign, 0.3)


def _clamp_draw(d: Draw) -> Made:
    return (d.pick(is_float),), {"low": d.one(-1.0, -0.5, 0.0), "high": d.one(0.5, 1.0, 3.0)}


enter("clamp", "torch.clamp({0}, {low}, {high})", "jnp.clip({0}, {low}, {high})", _clamp_draw,
      lambda a, x: monotone(x, lambda v: np.minimum(np.maximum(v, a["low"]), a["high"])))  # fmt: skip

# ------------------------------------------------------------------------------------------------------- two operands


def promoted(language: str, x: Bound, y: Bound) -> str:
    """The dtype in which a framework computes with two tensors."""
    if x.dtype == y.dtype:
        return x.dtype
    if language == "jax":
        return str(jnp.promote_types(NUMPY[x.dtype], NUMPY[y.dtype]))
    stand_ins = [torch.empty(b.shape, dtype=getattr(torch, b.dtype), device="meta") for b in (x, y)]
    return str(torch.result_type(*stand_ins)).removeprefix("torch.")


def converted(x: Bound, dtype: str) -> Bound:
    """A bound in another dtype, without a choice between wrapping and saturating: that would be undefined."""
    if x.dtype == dtype:
        return x
    if dtype == "bool":
        yes = ((x.low > 0) | (x.high < 0) | np.isnan(x.low)) & ~((x.low == 0) | (x.high == 0))
        never = (x.low == 0) & (x.high == 0) & ~x.nan
        return Bound("bool", yes.astype(float), (~never).astype(float), np.zeros(x.shape, bool))
    if dtype in FLOATS or dtype in NARROW:
        if dtype == "float8_e4m3fn" and not (x.finite and (x.magnitude < 448).all()):
            raise UndefinedError("frameworks differ beyond the largest number")
        return Bound(dtype, narrowed(x.low, dtype), narrowed(x.high, dtype), x.nan)
    least, most = np.iinfo(NUMPY[dtype]).min, np.iinfo(NUMPY[dtype]).max
    if x.is_float:
        if not x.finite or (x.low <= least).any() or (x.high >= most).any():
            raise UndefinedError("out of range")
        return Bound(dtype, np.trunc(x.low) + 0.0, np.trunc(x.high) + 0.0, x.nan)
    return wrapped(dtype, x.low, x.high)


def wrapped(dtype: str, low: Array, high: Array) -> Bound:
    """Integers as far as they go, and then round again."""
    kind = NUMPY[dtype]
    least, most = np.iinfo(kind).min, np.iinfo(kind).max
    known = low == high
    turned = np.where(known, low, 0).astype(np.int64).astype(kind).astype(np.float64)
    inside = (low >= least) & (high <= most)
    return Bound(
        dtype,
        np.where(known, turned, np.where(inside, low, least)),
        np.where(known, turned, np.where(inside, high, most)),
        np.zeros(low.shape, bool),
    )


def _computed(function: Callable[[Bound, Bound, str], Bound]) -> Callable[..., Bound]:
    def bound(a: Attributes, x: Bound, y: Bound) -> Bound:
        dtype = promoted(a["language"], x, y)
        return function(converted(x, dtype), converted(y, dtype), dtype)

    return bound


def _two_floats(d: Draw, others: tuple[str, ...] = (*FLOATS, "int32", "int8", "bool")) -> Made:
    x = d.pick(is_float)
    dtypes = others if d.chance(0.12) else (d.bounds[x].dtype,)
    return d.random.choice([(x, y := d.partner(x, dtypes)), (y, x)]), {"language": d.language}


def _divisor(d: Draw) -> Made:
    x = d.pick(is_float)
    return (x, d.fresh(d.spread(d.bounds[x].shape), d.bounds[x].dtype, "positive")), {"language": d.language}


def _extreme(f: Callable[[Array, Array], Array]) -> Callable[[Bound, Bound, str], Bound]:
    def bound(x: Bound, y: Bound, dtype: str) -> Bound:
        never = np.isnan(x.low) | np.isnan(y.low)
        low, high = (np.where(never, np.nan, f(a, b)) for a, b in ((x.low, y.low), (x.high, y.high)))
        return Bound(dtype, low, high, x.nan | y.nan)

    return bound


enter("add", "{0} + {1}", "{0} + {1}", _two_floats, _computed(bounds.add), 5.0)
enter(
    "subtract",
    "{0} - {1}",
    "{0} - {1}",
    lambda d: _two_floats(d, (*FLOATS, "int32")),
    _computed(lambda x, y, t: bounds.add(x, y, t, -1)),
    2.0,
)
enter("multiply", "{0} * {1}", "{0} * {1}", _two_floats, _computed(bounds.multiply), 5.0)
enter("divide", "{0} / {1}", "{0} / {1}", _divisor, _computed(bounds.divide), 1.5)
enter("maximum", "torch.maximum({0}, {1})", "jnp.maximum({0}, {1})", _two_floats, _computed(_extreme(np.maximum)))
enter("minimum", "torch.minimum({0}, {1})", "jnp.minimum({0}, {1})", _two_floats, _computed(_extreme(np.minimum)))


def _masked(d: Draw) -> Made:
    """Zeros and minus infinities, as attention adds them to scores."""
    x = d.pick(lambda b: is_float(b) and b.finite and len(b.shape) >= 1)
    return (x, d.fresh(d.spread(d.bounds[x].shape), d.bounds[x].dtype, "mask")), {"language": d.language}


def _three(d: Draw) -> Made:
    x = d.pick(lambda b: b.dtype == "float32")
    return (x, d.partner(x, ("float32",)), d.partner(x, ("float32",))), {}


def _fused(a: Attributes, x: Bound, y: Bound, z: Bound) -> Bound:
    return bounds.add(x, bounds.multiply(y, z, x.dtype), x.dtype)


enter("add_mask", "{0} + {1}", "{0} + {1}", _masked, _computed(bounds.add), 1.5)
enter("addcmul", "torch.addcmul({0}, {1}, {2})", "{0} + {1} * {2}", _three, _fused, 0.7)


def _with_number(d: Draw) -> Made:
    x = d.pick(is_float)
    exact = (0.5, 2.0, -1.0, 0.125, 3.0)  # frameworks differ in whether numbers are rounded to small dtypes
    return (x,), {"number": d.one(*exact, 1.7) if d.bounds[x].dtype == "float32" else d.one(*exact)}


def _number(x: Bound, value: float) -> Bound:
    rounded_value = np.float64(np.float32(value))
    return Bound(x.dtype, np.full((), rounded_value), np.full((), rounded_value), np.zeros((), bool))


enter("plus_number", "{0} + {number}", "{0} + {number}", _with_number,
      lambda a, x: bounds.add(x, _number(x, a["number"]), x.dtype))  # fmt: skip
enter("times_number", "{0} * {number}", "{0} * {number}", _with_number,
      lambda a, x: bounds.multiply(x, _number(x, a["number"]), x.dtype))  # fmt: skip
enter("number_minus", "{number} - {0}", "{number} - {0}", _with_number,
      lambda a, x: bounds.add(_number(x, a["number"]), x, x.dtype, -1))  # fmt: skip

# ------------------------------------------------------------------------------------------------ comparison, choice

_COMPARISONS: Mapping[str, str] = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}


def _compared(sign: str) -> Callable[[Bound, Bound, str], Bound]:
    def bound(x: Bound, y: Bound, dtype: str) -> Bound:
        if sign in (">", ">="):
            x, y = y, x
        nan = x.nan | y.nan
        if sign in ("==", "!="):
            may = (x.low <= y.high) & (y.low <= x.high)
            must = (x.low == x.high) & (y.low == y.high) & (x.low == y.low) & ~nan
            if sign == "!=":
                may, must = ~must, ~may
        elif sign in ("<", ">"):
            may, must = x.low < y.high, (x.high < y.low) & ~nan
        else:
            may, must = x.low <= y.high, (x.high <= y.low) & ~nan
        return Bound("bool", must.astype(float), may.astype(float), np.zeros(must.shape, bool))

    return bound


def _two_numbers(d: Draw) -> Made:
    x = d.pick(is_number)
    return (x, d.partner(x, (d.bounds[x].dtype,))), {"language": d.language}


for _name, _sign in _COMPARISONS.items():
    enter(_name, f"{{0}} {_sign} {{1}}", f"{{0}} {_sign} {{1}}", _two_numbers, _computed(_compared(_sign)), 0.3)


def _where_draw(d: Draw) -> Made:
    x = d.pick(is_number)
    y = d.partner(x, (d.bounds[x].dtype,))
    return (d.partner(x, ("bool",)), *d.random.choice([(x, y), (y, x)])), {}


enter("where", "torch.where({0}, {1}, {2})", "jnp.where({0}, {1}, {2})", _where_draw,
      lambda a, c, x, y: bounds.select(c, x, y, x.dtype), 2.0)  # fmt: skip


def _fill_draw(d: Draw) -> Made:
    x = d.pick(is_float)
    value = d.one("-1.0", "0.0", "-1e9", "float('-inf')") if d.bounds[x].dtype != "float16" else d.one("-1.0", "0.0")
    return (x, d.partner(x, ("bool",))), {"value": value}


def _filled(a: Attributes, x: Bound, c: Bound) -> Bound:
    value = narrowed(np.full((), float(a["value"].replace("float('-inf')", "-inf"))), x.dtype)
    return bounds.select(c, Bound(x.dtype, value, value, np.zeros((), bool)), x, x.dtype)


enter("masked_fill", "{0}.masked_fill({1}, {value})", "jnp.where({1}, jnp.asarray({value}, {0}.dtype), {0})",
      _fill_draw, _filled)  # fmt: skip

# ------------------------------------------------------------------------------------------------- other dtypes


def _cast_draw(d: Draw) -> Made:
    x = d.pick(lambda b: True)
    same = d.bounds[x].dtype
    choices = [t for t in (*FLOATS, *FLOATS, *FLOATS, *NARROW, *INTEGERS, "bool") if t != same]
    return (x,), {"dtype": d.random.choice(choices)}


def _pair_draw(d: Draw) -> Made:
    x = d.pick(is_float)
    return (x,), {"dtype": d.one("bfloat16", "float16", *NARROW), "back": d.bounds[x].dtype}


enter("cast", "{0}.to(torch.{dtype})", "{0}.astype(jnp.{dtype})", _cast_draw,
      lambda a, x: converted(x, a["dtype"]), 2.5)  # fmt: skip
enter("there_and_back", "{0}.to(torch.{dtype}).to(torch.{back})", "{0}.astype(jnp.{dtype}).astype(jnp.{back})",
      _pair_draw, lambda a, x: converted(converted(x, a["dtype"]), a["back"]), 1.0)  # fmt: skip


def _precision(a: Attributes, x: Bound) -> Bound:
    return converted(converted(x, a["dtype"]), x.dtype)


def _precision_draw(d: Draw) -> Made:
    dtype, bits = d.one(("bfloat16", (8, 7)), ("float16", (5, 10)))
    return (d.pick(lambda b: b.dtype == "float32"),), {"dtype": dtype, "exponent": bits[0], "mantissa": bits[1]}


enter("reduce_precision", "", "lax.reduce_precision({0}, {exponent}, {mantissa})", _precision_draw, _precision, 0.5)

# ---------------------------------------------------------------------------------------------- integers and truth


def _two_integers(d: Draw) -> Made:
    x = d.pick(is_integer)
    return (x, d.partner(x, (d.bounds[x].dtype,))), {"language": d.language}


def _integer(f: Callable[[Array, Array], Array], grows: bool) -> Callable[[Bound, Bound, str], Bound]:
    """In 64 bits, then wrapped; where something is open only functions that grow in both operands are known."""

    def bound(x: Bound, y: Bound, dtype: str) -> Bound:
        if not grows and not (x.exact and y.exact):
            raise UndefinedError("an open integer")
        ends = [f(a.astype(np.int64), b.astype(np.int64)) for a, b in ((x.low, y.low), (x.high, y.high))]
        return wrapped(dtype, ends[0].astype(float), ends[1].astype(float))

    return bound


for _name, _code, _jax, _f, _grows in (
    ("int_add", "{0} + {1}", "", np.add, True),
    ("int_subtract", "{0} - {1}", "", np.subtract, False),
    ("int_multiply", "{0} * {1}", "", np.multiply, False),
    ("int_maximum", "torch.maximum({0}, {1})", "jnp.maximum({0}, {1})", np.maximum, True),
    ("int_minimum", "torch.minimum({0}, {1})", "jnp.minimum({0}, {1})", np.minimum, True),
    ("bit_and", "{0} & {1}", "", np.bitwise_and, False),
    ("bit_or", "{0} | {1}", "", np.bitwise_or, False),
    ("bit_xor", "{0} ^ {1}", "", np.bitwise_xor, False),
):
    enter(_name, _code, _jax or _code, _two_integers, _computed(_integer(_f, _grows)), 0.3)


def _with_whole(d: Draw) -> Made:
    return (d.pick(is_integer),), {"number": d.one(1, 2, 3, 5, 7)}


def _by_number(f: Callable[[Array, Any], Array], grows: bool = True) -> Callable[..., Bound]:
    def bound(a: Attributes, x: Bound) -> Bound:
        if not grows and not x.exact:
            raise UndefinedError("an open integer")
        low, high = (f(v.astype(np.int64), a["number"]).astype(float) for v in (x.low, x.high))
        return wrapped(x.dtype, low, high)

    return bound


enter("int_plus", "{0} + {number}", "{0} + {number}", _with_whole, _by_number(np.add), 0.3)
enter("int_times", "{0} * {number}", "{0} * {number}", _with_whole, _by_number(np.multiply), 0.3)
enter("floor_divide", "{0} // {number}", "{0} // {number}", _with_whole, _by_number(np.floor_divide), 0.3)
enter("remainder", "{0} % {number}", "{0} % {number}", _with_whole, _by_number(np.remainder, False), 0.3)
enter("shift_right", "{0} >> {number}", "{0} >> {number}", _with_whole, _by_number(np.right_shift), 0.3)
enter("shift_left", "{0} << {number}", "{0} << {number}", _with_whole, _by_number(np.left_shift), 0.3)


def _two_truths(d: Draw) -> Made:
    x = d.pick(is_truth)
    return (x, d.partner(x, ("bool",))), {}


def _logic(f: Callable[[Array, Array], Array]) -> Callable[..., Bound]:
    def bound(a: Attributes, x: Bound, y: Bound) -> Bound:
        ends = [f(p.astype(int), q.astype(int)) for p in (x.low, x.high) for q in (y.low, y.high)]
        low, high = np.minimum.reduce(ends), np.maximum.reduce(ends)
        return Bound("bool", low.astype(float), high.astype(float), np.zeros(low.shape, bool))

    return bound


enter("and", "{0} & {1}", "{0} & {1}", _two_truths, _logic(np.bitwise_and), 0.3)
enter("or", "{0} | {1}", "{0} | {1}", _two_truths, _logic(np.bitwise_or), 0.3)
enter("xor", "{0} ^ {1}", "{0} ^ {1}", _two_truths, _logic(np.bitwise_xor), 0.3)
enter("not", "~{0}", "~{0}", lambda d: ((d.pick(is_truth),), {}),
      lambda a, x: Bound("bool", 1 - x.high, 1 - x.low, x.nan), 0.3)  # fmt: skip


def _tested(f: Callable[[Bound], tuple[Array, Array]]) -> Callable[..., Bound]:
    def bound(a: Attributes, x: Bound) -> Bound:
        low, high = f(x)
        return Bound("bool", low.astype(float), high.astype(float), np.zeros(x.shape, bool))

    return bound


enter("isnan", "torch.isnan({0})", "jnp.isnan({0})", _of_float(), _tested(lambda x: (np.isnan(x.low), x.nan)), 0.2)
enter("isinf", "torch.isinf({0})", "jnp.isinf({0})", _of_float(),
      _tested(lambda x: ((x.low == x.high) & np.isinf(x.low) & ~x.nan, np.isinf(x.magnitude))), 0.2)  # fmt: skip

__all__ = ["NoFitError", "converted", "promoted", "wrapped"]
