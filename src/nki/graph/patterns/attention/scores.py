"""The steps of attention in a model, from the weighted sum of the values back to queries and keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nki.graph.patterns import Op, Rewriter, Value, combiner
from nki.graph.patterns.attention.layouts import Dims, Seen, bound, same, unmoved

_USES = 2
"""Uses of the exponentials: their sum, and the weights. A derivative needs them too, so that they have to be made."""


@dataclass(frozen=True, slots=True)
class Mask:
    """What hides scores.

    Attributes:
        seen: truth values, or numbers that are added to the scaled scores.
        hidden: the score where a truth value is false; None for numbers.
    """

    seen: Seen
    hidden: float | None


@dataclass(frozen=True, slots=True)
class Attention:
    """The operands of one attention.

    Attributes:
        query, key, value: before all moves.
        scale: of the products of queries and keys.
        masks: in the order in which they are applied.
        empty: whether the weights of a query all of whose scores are minus infinity are zeros, not NaN.
        result: over which indices the result's dimensions run.
        weights: of the values, before all moves.
        shared: whether others need the weights, or the exponentials, so that they have to be made.
    """

    query: Seen
    key: Seen
    value: Seen
    scale: float
    masks: tuple[Mask, ...]
    empty: bool
    result: Dims
    weights: Seen
    shared: bool = False


def attention_of(r: Rewriter, op: Op, result: Dims, side: int) -> Attention | None:
    """The attention whose last product is `op` with its weights on the side `side`; None if it is something else.

    Raises:
        NotAligned: a reshape mixes indices.
    """
    operands = bound(op, result)
    if len(op.attributes["lhs_contracting_dimensions"]) != 1:
        return None
    keys = operands[side][op.attributes[("lhs", "rhs")[side] + "_contracting_dimensions"][0]]
    weights = unmoved(r, op.operands[side], operands[side])
    softmax, checked = _without_empty(r, weights, keys)
    found = None if softmax is None else _softmax_of(r, softmax, keys)
    if softmax is None or found is None or (checked is not None and not equal(checked, found[0])):
        return None
    scores, shared = found
    values = unmoved(r, op.operands[1 - side], operands[1 - side], exact=True)
    made = _products(r, scores, values, checked is not None, result, keys)
    shared = shared or not _only_here(r, op.operands[side], softmax.value)
    return None if made is None else replace(made, weights=weights, shared=shared)


def _only_here(r: Rewriter, value: Value, softmax: Value) -> bool:
    """Whether nobody else uses the weights."""
    while r.uses.get(value, 1) == 1:
        op = r.maker(value)
        if value is softmax or op is None:
            return True
        value = op.operands[2] if op.name == "select" else op.operands[0]
    return False


def equal(one: Seen, other: Seen) -> bool:
    """Whether two are the same value, with the same indices."""
    return one.value is other.value and same(one.dims, other.dims)


def _without_empty(r: Rewriter, seen: Seen, keys: Sequence[object]) -> tuple[Seen | None, Seen | None]:
    """Weights before they were set to 0 where all scores are minus infinity, and the scores that this looked at."""
    select = r.maker(seen.value, "select")
    if select is None:
        return seen, None
    condition, zero, softmax = select.operands
    reduce = _all_of(r, condition, seen.dims, keys)
    compare = None if reduce is None else r.maker(reduce.value, "compare")
    if reduce is None or compare is None or _number(r, zero) != 0:
        return None, None
    limit = _number(r, compare.operands[1])
    if _direction(compare) != "EQ" or limit is None or float(limit) != -np.inf:
        return None, None
    return unmoved(r, softmax, seen.dims), unmoved(r, compare.operands[0], reduce.dims)


def _all_of(r: Rewriter, value: Value, dims: Dims, keys: Sequence[object]) -> Seen | None:
    """What holds for all keys where a value is true, which is ``all(x)`` or ``not any(not x)``."""
    outer = unmoved(r, value, dims)
    inverted = r.maker(outer.value, "not")
    if inverted is None:
        return reduced(r, value, dims, keys, "and")
    found = reduced(r, inverted.operands[0], outer.dims, keys, "or")
    inner = None if found is None else r.maker(found.value, "not")
    return None if found is None or inner is None else unmoved(r, inner.operands[0], found.dims)


def _direction(compare: Op) -> str:
    return str(compare.attributes["comparison_direction"])


def reduced(r: Rewriter, value: Value, dims: Dims, keys: Sequence[object], name: str) -> Seen | None:
    """What is reduced over the keys, if a value is that, repeated along them."""
    seen = unmoved(r, value, dims)
    reduce = r.maker(seen.value, "reduce")
    if reduce is None or combiner(reduce) != name or len(reduce.attributes["dimensions"]) != 1:
        return None
    inner = list(seen.dims)
    inner.insert(reduce.attributes["dimensions"][0], list(keys))  # type: ignore[arg-type]
    return unmoved(r, reduce.operands[0], inner)


def _softmax_of(r: Rewriter, seen: Seen, keys: Sequence[object]) -> tuple[Seen, bool] | None:
    """The scores s of ``exp(s - max(s)) / sum(exp(s - max(s)))`` over the keys; whether others use the exponentials."""
    quotient = r.maker(seen.value, "divide")
    if quotient is None:
        return None
    powers = unmoved(r, quotient.operands[0], seen.dims)
    total = reduced(r, quotient.operands[1], seen.dims, keys, "add")
    power = r.maker(powers.value, "exponential")
    shifted = None if power is None else unmoved(r, power.operands[0], powers.dims)
    difference = None if shifted is None else r.maker(shifted.value, "subtract")
    if total is None or shifted is None or difference is None or not equal(total, powers):
        return None
    scores = unmoved(r, difference.operands[0], shifted.dims)
    largest = reduced(r, difference.operands[1], shifted.dims, keys, "maximum")
    shared = r.uses.get(powers.value, _USES) > _USES
    return (scores, shared) if largest is not None and equal(largest, scores) else None


def _products(
    r: Rewriter, scores: Seen, values: Seen, empty: bool, result: Dims, keys: Sequence[object]
) -> Attention | None:
    """Masks, the scale and the product of queries and keys."""
    masks: list[Mask] = []
    while (found := _masked(r, scores)) is not None:
        scores, mask = found
        masks.insert(0, mask)
    scores, scale = scaled(r, scores)
    product = r.maker(scores.value, "dot_general")
    if product is None or len(product.attributes["lhs_contracting_dimensions"]) != 1:
        return None
    places = zip(product.operands, bound(product, scores.dims), strict=True)
    sides = [unmoved(r, value, dims, exact=True) for value, dims in places]
    (one, first), (two, second) = (scaled(r, side, exact=True) for side in sides)
    query, key = (two, one) if _has(one, keys) else (one, two)
    return Attention(query, key, values, scale * first * second, tuple(masks), empty, result, scores)


def _has(seen: Seen, keys: Sequence[object]) -> bool:
    wanted = [part for index in keys for part in index.flat()]  # type: ignore[attr-defined]
    return all(any(part in index.flat() for dim in seen.dims for index in dim) for part in wanted)


def _masked(r: Rewriter, scores: Seen) -> tuple[Seen, Mask] | None:
    """Scores before they were masked, and by what."""
    op = r.maker(scores.value)
    if op is not None and op.name == "select":
        number = _number(r, op.operands[2])
        if number is not None:
            return unmoved(r, op.operands[1], scores.dims), Mask(unmoved(r, op.operands[0], scores.dims), float(number))
    if op is not None and op.name == "add":
        one, other = (unmoved(r, value, scores.dims) for value in op.operands)
        if _leads_to_product(r, one):
            return one, Mask(other, None)
        if _leads_to_product(r, other):
            return other, Mask(one, None)
    return None


def _leads_to_product(r: Rewriter, seen: Seen) -> bool:
    inner = _masked(r, seen)
    last = scaled(r, seen if inner is None else inner[0])[0]
    return r.maker(last.value, "dot_general") is not None


def scaled(r: Rewriter, seen: Seen, *, exact: bool = False) -> tuple[Seen, float]:
    """A value before it was multiplied by numbers, and their product; `exact` as in `unmoved`."""
    scale = 1.0
    while (op := r.maker(seen.value)) is not None and op.name in ("multiply", "divide"):
        numbers = [_number(r, value) for value in op.operands]
        if op.name == "multiply" and numbers[0] is not None:
            number, place = numbers[0], 1
        elif numbers[1] is not None:
            number, place = numbers[1], 0
        else:
            break
        scale = scale * float(number) if op.name == "multiply" else scale / float(number)
        seen = unmoved(r, op.operands[place], seen.dims, exact=exact)
    return seen, scale


_REPEATED = frozenset({"broadcast_in_dim", "reshape", "transpose"})


def _number(r: Rewriter, value: Value) -> Any:
    """The element that all elements of a constant equal, however it was moved, as a NumPy scalar, or None."""
    number, op = r.scalar_of(value), r.maker(value)
    while number is None and op is not None and op.name in _REPEATED:
        value = op.operands[0]
        number, op = r.scalar_of(value), r.maker(value)
    return number
