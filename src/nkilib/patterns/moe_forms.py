"""Mixtures of experts without an order of choices: weights gathered for each choice, or all experts for all tokens::

y[t] = sum over k of weight[t, k] * mlp[expert[t, k]](x[t])     batched products, `transformers`
y[t] = sum over e of weight[t, e] * mlp[e](x[t])                products of all, as JAX writes it
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

import nki.language as nl
from nki.graph.patterns import Op, Rewriter, TensorType, Value, combiner, unconverted
from nki.graph.patterns.attention.layouts import Index, NotAligned, Seen, bound, flat, of_shape, unmoved
from nkilib.patterns.matching import activation
from nkilib.patterns.tables import Table


@dataclass(frozen=True, slots=True)
class Mixture:
    """What a kernel for all experts gets.

    Attributes:
        x: (tokens, features).
        gate_up, down: (experts, features, 2, inner) and (experts, inner, features).
        affinities: (tokens, experts), float32.
    """

    x: Value
    gate_up: Value
    down: Value
    affinities: Value
    activation: str


def affinities(r: Rewriter, weights: Value, experts: Value, count: int) -> Value:
    """(tokens, experts): the sum of the weights with which a token chose an expert."""
    shape = (*weights.type.shape, count)
    chosen = Table(r, experts).number().over(shape, (0, 1))
    wide = Table(r, weights).number(nl.float32).over(shape, (0, 1))
    return wide.where(chosen.compared("EQ", np.arange(count)), 0).sum(1).value


def before_reshape(r: Rewriter, value: Value) -> Value:
    """A value before reshapes, and conversions that lose nothing."""
    while (op := r.maker(unconverted(r, value), "reshape")) is not None:
        value = op.operands[0]
    return unconverted(r, value)


def gated(r: Rewriter, value: Value) -> tuple[str, Value, Value] | None:
    """The activation, what it is of, and its factor."""
    op = r.maker(value, "multiply")
    for one, up in (op.operands, op.operands[::-1]) if op is not None else ():
        function = activation(r, one)
        if function is not None:
            return function[0], function[1], unconverted(r, up)
    return None


def halves(r: Rewriter, gate: Value, up: Value) -> Value | None:
    """The matrix whose columns are those of the gate, then as many others."""
    first, second = (r.maker(each, "slice") for each in (gate, up))
    if first is None or second is None or first.operands[0] is not second.operands[0]:
        return None
    shape = first.operands[0].type.shape
    half = shape[-1] // 2
    starts = [tuple(each.attributes["start_indices"]) for each in (first, second)]
    ends = [tuple(each.attributes["limit_indices"]) for each in (first, second)]
    right = len(shape) == 2 and starts == [(0, 0), (0, half)] and ends == [(shape[0], half), shape]
    return first.operands[0] if right and shape[-1] % 2 == 0 else None


# ------------------------------------------------------------------------------------------------------------- batched


def batched(r: Rewriter, op: Op) -> Mixture | None:
    """The sum over choices of what experts make whose weights were gathered for each choice."""
    inner = r.maker(op.operands[0], "reduce") if op.name == "convert" else op
    if inner is None or combiner(inner) != "add" or tuple(inner.attributes["dimensions"]) != (1,):
        return None
    tokens, choices, *rest = inner.operands[0].type.shape
    weighted = r.maker(before_reshape(r, inner.operands[0]), "multiply")
    for result, weight in (weighted.operands, weighted.operands[::-1]) if weighted is not None and rest else ():
        wide = r.maker(unconverted(r, weight), "broadcast_in_dim")
        last = _gathered_product(r, result)
        if wide is None or last is None or wide.operands[0].type.size != tokens * choices:
            continue
        if wide.attributes["broadcast_dimensions"][0] != 0:
            continue
        function = gated(r, before_reshape(r, last[0]))
        both = None if function is None else halves(r, function[1], function[2])
        first = None if both is None else _gathered_product(r, both)
        if function is None or first is None or first[2] is not last[2]:
            continue
        x = _repeated(r, first[0], choices)
        if x is not None:
            weights = r.reshape(wide.operands[0], (tokens, choices))
            return _of_choices(r, x, weights, (first[1], last[1]), first[2], function[0])
    return None


def _gathered_product(r: Rewriter, value: Value) -> tuple[Value, Value, Value] | None:
    """x (choices, n, 1), all weights (experts, m, n) and numbers of experts, of products of each choice with one."""
    product = r.maker(before_reshape(r, value), "dot_general")
    if product is None or tuple(product.attributes["lhs_batching_dimensions"]) != (0,):
        return None
    a = product.attributes
    gather, x = r.maker(product.operands[0], "gather"), product.operands[1]
    sides = tuple(a["lhs_contracting_dimensions"]), tuple(a["rhs_contracting_dimensions"])
    plain = tuple(a["rhs_batching_dimensions"]) == (0,) and sides == ((2,), (1,)) and x.type.shape[2:] == (1,)
    if gather is None or not plain:
        return None
    b, stack = gather.attributes, gather.operands[0]
    whole = tuple(b["slice_sizes"]) == (1, *stack.type.shape[1:]) and tuple(b["collapsed_slice_dims"]) == (0,)
    column = gather.operands[1].type.shape == (x.type.shape[0], 1) and b["index_vector_dim"] == 1
    right = whole and column and tuple(b["start_index_map"]) == (0,) and tuple(b["offset_dims"]) == (1, 2)
    return (x, stack, gather.operands[1]) if right else None


def _repeated(r: Rewriter, value: Value, choices: int) -> Value | None:
    """The tokens whose rows a value repeats, once for each choice."""
    wide = r.maker(before_reshape(r, value), "broadcast_in_dim")
    if wide is None or tuple(wide.attributes["broadcast_dimensions"]) != (0, 2):
        return None
    x, shape = wide.operands[0], wide.results[0].type.shape
    return x if len(shape) == 3 and shape[1] == choices and x.type.shape == (shape[0], shape[2]) else None


def _of_choices(
    r: Rewriter, x: Value, weights: Value, stacks: tuple[Value, Value], indices: Value, function: str
) -> Mixture:
    """A gather takes the nearest expert that there is."""
    both, down = stacks
    experts, columns, features = both.type.shape
    numbers = r.convert(r.reshape(indices, weights.type.shape), nl.int32)
    least, most = (r.full(number, numbers.type) for number in (0, experts - 1))
    inside = r.same("minimum", r.same("maximum", numbers, least), most)
    gate_up = r.reshape(_turned(r, both, (0, 2, 1)), (experts, features, 2, columns // 2))
    return Mixture(x, gate_up, _turned(r, down, (0, 2, 1)), affinities(r, weights, inside, experts), function)


def _turned(r: Rewriter, value: Value, order: Sequence[int]) -> Value:
    """A transposed tensor; a constant is transposed when the model is compiled."""
    array = r.constant_of(value)
    return r.transpose(value, order) if array is None else r.constant(np.ascontiguousarray(array.transpose(order)))


# --------------------------------------------------------------------------------------------------------------- dense


def dense(r: Rewriter, op: Op) -> Mixture | None:
    """The sum over experts of what all of them make of all tokens, if an operation is its last product."""
    if op.name != "dot_general" or len(op.results[0].type.shape) != 2:
        return None
    for side in (0, 1):
        try:
            found = _dense(r, op, side)
        except NotAligned:
            continue
        if found is not None:
            return found
    return None


def _dense(r: Rewriter, op: Op, side: int) -> Mixture | None:
    operands = bound(op, of_shape(op.results[0].type.shape))
    made, weights = (unmoved(r, op.operands[place], operands[place]) for place in (side, 1 - side))
    last = _with_stack(r, made, weights)
    function = None if last is None else gated(r, last[0].value)
    if last is None or function is None:
        return None
    inner, down = last
    pairs = [_with_stack(r, unmoved(r, value, inner.dims), weights) for value in function[1:]]
    if any(pair is None for pair in pairs):
        return None
    (x, gate), (other, up) = (pair for pair in pairs if pair is not None)
    shared = set(_order(weights)) & set(_order(down))
    tokens = [index for index in _order(weights) if index not in shared]
    if x.value is not other.value or len(shared) != 1 or len(tokens) != 1:
        return None
    (token,), (expert,) = tokens, shared
    middle = [index for index in _order(inner) if index not in (token, expert)]
    features = [index for index in _order(down) if index not in (expert, *middle)]
    parts = [_matrices(r, x, stack, (token, expert), middle) for x, stack in ((x, gate), (other, up))]
    if any(part is None for part in parts) or len(middle) != 1 or len(features) != 1:
        return None
    (rows, one), (_, two) = (part for part in parts if part is not None)
    stack = _ordered(r, down, [expert, *middle, *features])
    share = _ordered(r, weights, [token, expert])
    if stack is None or share is None:
        return None
    return Mixture(rows, _side_by_side(r, one, two), stack, r.convert(share, nl.float32), function[0])


def _with_stack(r: Rewriter, seen: Seen, weights: Seen) -> tuple[Seen, Seen] | None:
    """The operand of a product that has tokens, and the other one, which has none."""
    product = r.maker(seen.value, "dot_general")
    if product is None:
        return None
    one, other = (
        unmoved(r, value, dims) for value, dims in zip(product.operands, bound(product, seen.dims), strict=True)
    )
    counts = [len(set(_order(each)) - set(_order(weights))) for each in (one, other)]
    return (one, other) if counts[0] < counts[1] else (other, one)


def _order(seen: Seen) -> list[Index]:
    return [index for dim in flat(seen.dims) for index in dim]


def _matrices(
    r: Rewriter, x: Seen, stack: Seen, outer: tuple[Index, Index], middle: Sequence[Index]
) -> tuple[Value, Value] | None:
    """(tokens, features) and (experts, features, inner)."""
    token, expert = outer
    features = [index for index in _order(x) if index is not token]
    rows = _ordered(r, x, [token, *features])
    matrices = _ordered(r, stack, [expert, *features, *middle])
    return None if rows is None or matrices is None or len(features) != 1 else (rows, matrices)


def _ordered(r: Rewriter, seen: Seen, wanted: Sequence[Index]) -> Value | None:
    """A value with a dimension for each of these indices, if it has them all, and no other one."""
    order = _order(seen)
    if len(order) != len(wanted) or set(order) != set(wanted):
        return None
    value = r.reshape(seen.value, [index.size for index in order])
    return _turned(r, value, [order.index(index) for index in wanted])


def _side_by_side(r: Rewriter, one: Value, two: Value) -> Value:
    """(experts, features, 2, inner)."""
    experts, features, inner = one.type.shape
    arrays = [r.constant_of(each) for each in (one, two)]
    first, second = arrays
    if first is not None and second is not None:
        return r.constant(np.stack([first, second], 2))
    parts = [r.reshape(each, (experts, features, 1, inner)) for each in (one, two)]
    kind = TensorType((experts, features, 2, inner), one.type.dtype)
    return r.one("concatenate", parts, kind, dimension=2)
