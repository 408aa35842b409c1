"""What the matchers of this folder share: products with weights, factors, norms and activations of a model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isclose, prod

import numpy as np

from nki.graph.patterns import Op, Rewriter, Value, combiner, lossless, match_rms_norm, unconverted

_SAME = 1e-2
"""How far a number may be from the one that a formula has: bfloat16 rounds it."""


def bare(r: Rewriter, value: Value) -> Value:
    """A value before conversions to wider floats and reshapes that keep its last dimension."""
    while (op := r.maker(value)) is not None and op.name in ("convert", "reshape"):
        source = op.operands[0]
        kept = source.type.dtype.is_float and lossless(source.type.dtype, value.type.dtype)
        if not (kept if op.name == "convert" else last(source) == last(value)):
            break
        value = source
    return value


def last(value: Value) -> int:
    """The size of the last dimension; 1 for a scalar."""
    return value.type.shape[-1] if value.type.shape else 1


def rows(r: Rewriter, value: Value) -> Value:
    """A value as a matrix of its last dimension."""
    return r.reshape(value, (prod(value.type.shape[:-1]), last(value)))


def row(r: Rewriter, value: Value) -> Value:
    """A vector as a matrix of one row."""
    return r.reshape(value, (1, value.type.size))


def repeated(r: Rewriter, value: Value) -> Value | None:
    """The vector that is the last dimension of a value in all of its rows."""
    wide = r.maker(value, "broadcast_in_dim")
    if wide is None or tuple(wide.attributes["broadcast_dimensions"]) != (len(value.type.shape) - 1,):
        return None
    vector = wide.operands[0]
    return unconverted(r, vector) if last(vector) == last(value) else None


def unrepeated(r: Rewriter, value: Value) -> tuple[Value, list[int]]:
    """What a value is repeated from, without dimensions of size 1, and the places of its dimensions in the value."""
    places: list[int | None] = [n if size > 1 else None for n, size in enumerate(value.type.shape)]
    while (op := r.maker(value)) is not None:
        if op.name == "broadcast_in_dim":
            inner = [places[dim] for dim in op.attributes["broadcast_dimensions"]]
        elif op.name == "transpose":
            inner = [places[op.attributes["permutation"].index(dim)] for dim in range(len(places))]
        elif op.name == "reshape":
            kept = [place for place in places if place is not None]
            sizes = [size for size in op.operands[0].type.shape if size > 1]
            if sizes != [size for size in value.type.shape if size > 1] or len(kept) != len(sizes):
                break
            inner = [kept.pop(0) if size > 1 else None for size in op.operands[0].type.shape]
        else:
            break
        value = op.operands[0]
        places = [place if size > 1 else None for place, size in zip(inner, value.type.shape, strict=True)]
    found = r.reshape(value, [size for size in value.type.shape if size > 1])
    return found, [place for place in places if place is not None]


# ---------------------------------------------------------------------------------------------------------- products


@dataclass(frozen=True, slots=True)
class Linear:
    """``x @ weight + bias`` over the last dimension of x.

    Attributes:
        weight: as the model has it.
        turned: whether that is (results, features) and not (features, results).
    """

    x: Value
    weight: Value
    turned: bool
    bias: Value | None = None

    def matrix(self, r: Rewriter) -> Value:
        """The weight as (features, results); a constant is turned when the model is compiled."""
        if not self.turned:
            return self.weight
        array = r.constant_of(self.weight)
        return r.transpose(self.weight, (1, 0)) if array is None else r.constant(array.T)


def linear(r: Rewriter, op: Op | None) -> Linear | None:
    """The product that an operation ends: itself, the conversion of its sums, or the sum with a bias."""
    if op is not None and op.name in ("convert", "reshape"):
        inner = linear(r, r.maker(op.operands[0]))
        return inner if op.name == "convert" or last(op.operands[0]) == last(op.results[0]) else None
    if op is not None and op.name == "add":
        for side, other in ((0, 1), (1, 0)):
            bias = repeated(r, unconverted(r, op.operands[side]))
            found = None if bias is None else linear(r, r.maker(op.operands[other]))
            if found is not None and found.bias is None:
                return Linear(found.x, found.weight, found.turned, bias)
        return None
    return None if op is None else _product(op)


def _product(op: Op) -> Linear | None:
    if op.name != "dot_general" or op.attributes["lhs_batching_dimensions"]:
        return None
    x, weight = op.operands
    contracted = tuple(op.attributes["lhs_contracting_dimensions"]), tuple(op.attributes["rhs_contracting_dimensions"])
    if len(weight.type.shape) != 2 or contracted[0] != (len(x.type.shape) - 1,) or len(contracted[1]) != 1:
        return None
    return Linear(x, weight, contracted[1] == (1,))


def of_linear(r: Rewriter, value: Value) -> Linear | None:
    """The product that makes a value."""
    return linear(r, r.maker(unconverted(r, value)))


def ends(r: Rewriter, op: Op) -> bool:
    """Whether a product is complete with an operation: nothing that `linear` looks through comes next."""
    (result,) = op.results
    user = r.user(result)
    if user is None:
        return True
    if user.name == "convert":
        return user.results[0].type.dtype.itemsize >= result.type.dtype.itemsize
    if user.name != "add":
        return True
    other = r.now(user.operands[1] if user.operands[0] is result else user.operands[0])
    return repeated(r, unconverted(r, other)) is None


# ----------------------------------------------------------------------------------------------------------- factors


@dataclass(frozen=True, slots=True)
class Factors:
    """``number * values[0] * values[1] * ...``."""

    number: float
    values: tuple[Value, ...]


def factors(r: Rewriter, value: Value) -> Factors:
    """What is multiplied, however it is grouped and in whatever order."""
    value = unconverted(r, value)
    number = r.scalar_of(value)
    if number is not None:
        return Factors(float(number), ())
    op = r.maker(value, "multiply")
    if op is None:
        return Factors(1.0, (value,))
    one, other = (factors(r, each) for each in op.operands)
    return Factors(one.number * other.number, (*one.values, *other.values))


def plus_number(r: Rewriter, value: Value) -> Iterator[tuple[Value, float]]:
    """``value = other + number``: the other, and the number."""
    op = r.maker(unconverted(r, value), "add")
    for side in (0, 1) if op is not None else ():
        assert op is not None
        number = r.scalar_of(unconverted(r, op.operands[side]))
        if number is not None:
            yield op.operands[1 - side], float(number)


def mean(r: Rewriter, value: Value) -> Value | None:
    """What a value is the mean of, over the last dimension; it has one element for each row."""
    value = same_size(r, value)
    divided = r.maker(value, "divide")
    if divided is not None:
        count, total = r.scalar_of(divided.operands[1]), divided.operands[0]
        scale = None if not count else 1 / float(count)
    else:
        found = factors(r, value)
        total, scale = (found.values[0], found.number) if len(found.values) == 1 else (value, None)
    return None if scale is None else _mean_of(r, total, scale)


def _mean_of(r: Rewriter, total: Value, scale: float) -> Value | None:
    """What a value sums up over the last dimension, if that times `scale` is its mean."""
    reduce = r.maker(same_size(r, total), "reduce")
    if reduce is None or combiner(reduce) != "add":
        return None
    source = reduce.operands[0]
    whole = tuple(reduce.attributes["dimensions"]) == (len(source.type.shape) - 1,)
    return source if whole and isclose(scale * last(source), 1.0, rel_tol=_SAME) else None


def per_row(r: Rewriter, value: Value) -> Value | None:
    """What is repeated along the last dimension of a value."""
    wide = r.maker(unconverted(r, value), "broadcast_in_dim")
    if wide is None:
        return None
    shape, narrow = wide.results[0].type.shape, wide.operands[0]
    places = tuple(wide.attributes["broadcast_dimensions"])
    if len(shape) - 1 in places and last(narrow) != 1:
        return None
    source = same_size(r, narrow)
    return source if source.type.size == prod(shape[:-1]) else None


def same_size(r: Rewriter, value: Value) -> Value:
    """A value before conversions and dimensions of size 1 that were added or dropped."""
    while (op := r.maker(unconverted(r, value))) is not None and op.name in ("reshape", "broadcast_in_dim"):
        if op.operands[0].type.size != value.type.size:
            break
        value = op.operands[0]
    return unconverted(r, value)


# ------------------------------------------------------------------------------------------------------------- norms


@dataclass(frozen=True, slots=True)
class Norm:
    """A norm of the rows of x: "RMS_NORM", or "LAYER_NORM", which has a bias."""

    kind: str
    x: Value
    weight: Value
    bias: Value | None
    eps: float


def norm(r: Rewriter, op: Op | None) -> Norm | None:
    """The norm that an operation ends: the product with its weight, the sum with its bias, or a conversion of them."""
    if op is not None and op.name in ("convert", "reshape"):
        return norm(r, r.maker(op.operands[0])) if last(op.operands[0]) == last(op.results[0]) else None
    if op is not None and op.name == "multiply":
        found = match_rms_norm(r, op)
        if found is None:
            return None
        x, weight = found.inputs
        return Norm("RMS_NORM", x, weight, None, float(found.facts["epsilon"]))
    return None if op is None else _layer_norm(r, op)


def _layer_norm(r: Rewriter, op: Op) -> Norm | None:
    """``(x - mean(x)) * rsqrt(variance(x) + eps) * weight + bias``."""
    if op.name != "add":
        return None
    for side in (0, 1):
        bias = repeated(r, unconverted(r, op.operands[side]))
        if bias is None:
            continue
        weight, root, below = None, None, None
        for value in factors(r, op.operands[1 - side]).values:
            narrow = per_row(r, value)
            weight = weight or repeated(r, value)
            root = root or (None if narrow is None else r.maker(narrow, "rsqrt"))
            below = below or r.maker(value, "subtract")
        if weight is None or root is None or below is None:
            continue
        for variance, eps in plus_number(r, root.operands[0]):
            x = _centred(r, below)
            if x is not None and _is_variance(r, variance, below, x):
                return Norm("LAYER_NORM", bare(r, x), weight, bias, eps)
    return None


def _centred(r: Rewriter, below: Op) -> Value | None:
    """x of ``x - mean(x)``."""
    x, middle = below.operands[0], per_row(r, below.operands[1])
    source = None if middle is None else mean(r, middle)
    return x if source is not None and unconverted(r, source) is unconverted(r, x) else None


def _is_variance(r: Rewriter, value: Value, below: Op, x: Value) -> bool:
    """``mean((x - mean(x))**2)``, or ``mean(x**2) - mean(x)**2``, perhaps no less than 0."""
    value = same_size(r, value)
    clipped = r.maker(value, "maximum")
    if clipped is not None and any(r.scalar_of(each) == 0 for each in clipped.operands):
        value = next(each for each in clipped.operands if r.scalar_of(each) is None)
    difference = r.maker(value, "subtract")
    if difference is not None:
        square, middle = mean(r, difference.operands[0]), factors(r, difference.operands[1])
        twice = len(middle.values) == 2 and middle.values[0] is middle.values[1] and middle.number > 0
        source = _mean_of(r, middle.values[0], middle.number**0.5) if twice else None
        return source is not None and unconverted(r, source) is unconverted(r, x) and _is_square(r, square, x)
    return _is_square(r, mean(r, value), below.results[0])


def _is_square(r: Rewriter, value: Value | None, of: Value) -> bool:
    found = () if value is None else factors(r, value).values
    return len(found) == 2 and all(each is unconverted(r, of) for each in found)


# ------------------------------------------------------------------------------------------------------- activations


def activation(r: Rewriter, value: Value) -> tuple[str, Value] | None:
    """A name of `nkilib.core.utils.common_types.ActFnType`, and what the function is of."""
    value = unconverted(r, value)
    op = r.maker(value, "maximum")
    if op is not None:
        side = 0 if r.scalar_of(op.operands[1]) == 0 else 1
        return ("ReLU", unconverted(r, op.operands[side])) if r.scalar_of(op.operands[1 - side]) == 0 else None
    found = factors(r, value)
    if len(found.values) != 2:
        return None
    for x, weight in (found.values, found.values[::-1]):
        name = _weighted_by(r, x, weight, found.number)
        if name is not None:
            return name, x
    return None


def _weighted_by(r: Rewriter, x: Value, weight: Value, number: float) -> str | None:
    """The name of ``number * x * weight``, where the weight is a function of x."""
    logistic = r.maker(weight, "logistic")
    if logistic is not None and number == 1.0:
        return "SiLU" if unconverted(r, logistic.operands[0]) is x else None
    for inner, one in plus_number(r, weight) if number == 0.5 else ():
        if one != 1.0:
            continue
        maker = r.maker(unconverted(r, inner))
        if maker is not None and maker.name.endswith("erf") and _is_scaled(r, maker.operands[0], x, 2**-0.5):
            return "GELU"
        if maker is not None and maker.name == "tanh" and _is_gelu_polynomial(r, maker.operands[0], x):
            return "GELU_Tanh_Approx"
    return None


def _is_scaled(r: Rewriter, value: Value, x: Value, number: float) -> bool:
    divided = r.maker(unconverted(r, value), "divide")
    divisor = None if divided is None else r.scalar_of(divided.operands[1])
    if divided is not None and divisor:
        inner = factors(r, divided.operands[0])
        found = Factors(inner.number / float(divisor), inner.values)
    else:
        found = factors(r, value)
    return found.values == (x,) and isclose(found.number, number, rel_tol=_SAME)


def _is_gelu_polynomial(r: Rewriter, value: Value, x: Value) -> bool:
    """``sqrt(2 / pi) * (x + 0.044715 * x**3)``."""
    found = factors(r, value)
    if len(found.values) != 1 or not isclose(found.number, np.sqrt(2 / np.pi), rel_tol=_SAME):
        return False
    total = r.maker(found.values[0], "add")
    for side in (0, 1) if total is not None else ():
        assert total is not None
        cube = factors(r, total.operands[1 - side])
        first = unconverted(r, total.operands[side]) is x
        if first and cube.values == (x, x, x) and isclose(cube.number, 0.044715, rel_tol=_SAME):
            return True
    return False
