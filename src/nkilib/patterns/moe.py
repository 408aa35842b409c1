"""Mixtures of experts, as `transformers` computes them: choices sorted by expert, products of groups, weighted sums::

    y[t] = sum over k of weight[t, k] * mlp[expert[t, k]](x[t])
    mlp[e](x) = (activation(x @ gate[e]) * (x @ up[e])) @ down[e]

Who chooses the experts, and how, does not matter. Other forms are in `moe_forms`. The kernels are `nkilib.core.moe_tkg`
for few tokens, where weights are streamed past all of them, and `nkilib.core.moe_cte` for many, in blocks of tokens of
one expert.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import nki
from nki.graph.patterns import Match, Op, Pattern, Rewriter, Value, combiner, unconverted
from nkilib.core.moe.moe_cte.moe_cte_utils import SkipMode
from nkilib.core.moe_cte import MoECTEImplementation, MoECTESpec, moe_cte
from nkilib.core.moe_tkg import moe_tkg
from nkilib.core.utils.common_types import ActFnType, ExpertAffinityScaleMode
from nkilib.errors import KernelLimit
from nkilib.patterns.moe_forms import Mixture, affinities, batched, before_reshape, dense, gated, halves
from nkilib.patterns.routing import Order, are_ends, function_of, is_identity, is_inverse, members, order_of, source_of
from nkilib.patterns.tables import Table

_FEW = 128
"""Tokens that lie on partitions together: up to so many, all experts are computed for all of them."""

_BLOCK = 256
"""Tokens of an expert at once, from which on the Tensor engine is at its peak."""


@nki.jit
def few_tokens(x: Any, gate_up: Any, down: Any, affinities: Any, experts: Any, rank: Any, activation: str) -> Any:
    """`moe_tkg` with all experts."""
    return moe_tkg(
        x,
        gate_up,
        down,
        affinities,
        experts,
        True,
        rank,
        expert_affinities_scaling_mode=ExpertAffinityScaleMode.POST_SCALE,
        activation_fn=ActFnType[activation],
    )


@nki.jit
def many_tokens(x: Any, gate_up: Any, down: Any, affinities: Any, places: Any, experts: Any, activation: str) -> Any:
    """`moe_cte` of blocks, places of which that nobody has are -1."""
    spec, skip = MoECTESpec(MoECTEImplementation.shard_on_block), SkipMode(skip_token=True)
    block = places.shape[0] // experts.shape[0]
    function = ActFnType[activation]
    return moe_cte(
        x, affinities, gate_up, down, places, experts, block, spec, skip_dma=skip, activation_function=function
    )


@dataclass(frozen=True, slots=True)
class _Routed:
    """A mixture of experts.

    Attributes:
        x: (tokens, features).
        gate_up, down: of all experts, (experts, features, 2, inner) and (experts, inner, features).
        weights, experts: (tokens, choices).
        ends: of each expert's choices in the order.
    """

    x: Value
    gate_up: Value
    down: Value
    weights: Value
    experts: Value
    order: Order
    ends: Value
    activation: str


def match_few(r: Rewriter, op: Op) -> Match | None:
    """The mixture of experts whose sum over the choices of each token an operation is, for few tokens."""
    found = _routed(r, op)
    if found is not None and found.x.type.shape[0] > _FEW:
        return None
    every = _every(r, found) if found is not None else (batched(r, op) or dense(r, op))
    if every is None:
        return None
    experts, rank = r.constant(np.zeros((every.x.type.shape[0], 1), np.int32)), r.constant(np.zeros((1, 1), np.int32))
    tensors = (every.x, every.gate_up, every.down, every.affinities, experts, rank)
    return _match(op, every.activation, tensors)


def _every(r: Rewriter, found: _Routed) -> Mixture:
    shares = affinities(r, found.weights, found.experts, found.ends.type.size)
    return Mixture(found.x, found.gate_up, found.down, shares, found.activation)


def match_many(r: Rewriter, op: Op) -> Match | None:
    """The same for many tokens."""
    found = _routed(r, op)
    if found is None or found.x.type.shape[0] <= _FEW:
        return None
    every, (places, experts) = _every(r, found), _blocks(r, found)
    shares = r.reshape(every.affinities, (every.affinities.type.size, 1))
    return _match(op, found.activation, (found.x, found.gate_up, found.down, shares, places, experts))


def _match(op: Op, activation: str, tensors: Sequence[Value]) -> Match:
    kind = op.results[0].type
    facts = {"activation": activation}

    def finish(r: Rewriter, values: Sequence[Value]) -> Sequence[Value]:
        return (r.convert(r.reshape(values[0], kind.shape), kind.dtype),)

    return Match(tuple(tensors), op.results, facts, finish)


# ------------------------------------------------------------------------------------------------------- what is there


def _routed(r: Rewriter, op: Op) -> _Routed | None:
    back, pair = _last_gather(r, op)
    inverse = None if back is None else next(source_of(r, back.operands[1], lambda op: op.name == "scatter"), None)
    sort = None if inverse is None else next(source_of(r, inverse.operands[1], lambda op: op.name == "sort"), None)
    order = None if sort is None else order_of(r, sort.results[-1])
    if back is None or inverse is None or order is None or not is_inverse(r, inverse.results[0], order):
        return None
    if not _gathers_rows(back) or not is_identity(_table(r, back.operands[1], inverse.results[0])):
        return None
    weighted = r.maker(unconverted(r, back.operands[0]), "multiply")
    for result, weight in (weighted.operands, weighted.operands[::-1]) if weighted is not None else ():
        chosen, narrow = _weights(r, weight, order), unconverted(r, result)
        found = None if chosen is None else _experts(r, narrow, order, pair)
        if chosen is not None and found is not None:
            x, gate_up, down, ends, function = found
            weights, experts = r.reshape(chosen, pair), r.reshape(order.experts, pair)
            return _Routed(x, gate_up, down, weights, experts, order, ends, function)
    return None


def _last_gather(r: Rewriter, op: Op) -> tuple[Op | None, tuple[int, int]]:
    """What puts the results of choices where they were, if an operation is their sum, and tokens and choices of each.

    A conversion that comes next is the operation that counts. There is no sum of single choices.
    """
    user = r.user(op.results[0]) if op.name in ("gather", "reduce") else None
    inner = r.maker(op.operands[0]) if op.name == "convert" else op
    if inner is None or (user is not None and user.name == "convert"):
        return None, (0, 0)
    if inner.name == "gather":
        return inner, (inner.results[0].type.shape[0], 1)
    if combiner(inner) != "add" or tuple(inner.attributes["dimensions"]) != (1,):
        return None, (0, 0)
    total = inner.operands[0]
    tokens, choices, *_ = total.type.shape
    return r.maker(before_reshape(r, total), "gather"), (tokens, choices)


def _table(r: Rewriter, value: Value, source: Value) -> Any:
    return function_of(r, value, source, source.type.size)


def _gathers_rows(gather: Op) -> bool:
    """Whether whole rows of a matrix, or elements of a vector, are gathered by one number each."""
    a, shape = gather.attributes, gather.operands[0].type.shape
    rows = tuple(a["slice_sizes"]) == (1, *shape[1:]) and tuple(a["collapsed_slice_dims"]) == (0,)
    plain = tuple(a["start_index_map"]) == (0,) and not a.get("operand_batching_dims")
    column = gather.operands[1].type.shape == (gather.results[0].type.shape[0], 1) and a["index_vector_dim"] == 1
    return rows and plain and column


def _weights(r: Rewriter, value: Value, order: Order) -> Value | None:
    """The weights of choices, if a value has them in the order of experts, repeated along rows."""
    wide = r.maker(unconverted(r, value), "broadcast_in_dim")
    if wide is None or tuple(wide.attributes["broadcast_dimensions"])[:1] != (0,):
        return None
    gather = r.maker(before_reshape(r, wide.operands[0]), "gather")
    if gather is None or not _gathers_rows(gather) or gather.operands[0].type.shape != order.places.type.shape:
        return None
    return gather.operands[0] if is_identity(_table(r, gather.operands[1], order.places)) else None


def _experts(
    r: Rewriter, value: Value, order: Order, pair: tuple[int, int]
) -> tuple[Value, Value, Value, Value, str] | None:
    """Tokens, weights of experts, ends of groups and the activation, if a value is what experts make of choices."""
    last = _grouped(r, value)
    function = None if last is None else gated(r, unconverted(r, last.x))
    both = None if function is None else halves(r, function[1], function[2])
    first = None if both is None else _grouped(r, both)
    if last is None or function is None or first is None or first.ends is not last.ends:
        return None
    x = _tokens(r, first.x, order, pair)
    if x is None or not are_ends(r, first.ends, order):
        return None
    inner, features = last.flat.type.shape[0], last.flat.type.shape[1] // last.ends.type.size
    return x, first.weight(r, 2, inner), last.weight(r, features), first.ends, function[0]


def _tokens(r: Rewriter, value: Value, order: Order, pair: tuple[int, int]) -> Value | None:
    """The tokens whose rows a value has in the order of experts."""
    gather = r.maker(unconverted(r, value), "gather")
    if gather is None or not _gathers_rows(gather) or gather.operands[0].type.shape[0] != pair[0]:
        return None
    table = _table(r, gather.operands[1], order.places)
    right = table is not None and np.array_equal(table, np.arange(pair[0] * pair[1]) // pair[1])
    return gather.operands[0] if right else None


@dataclass(frozen=True, slots=True)
class _Grouped:
    """Products of rows with the weights of their groups.

    Attributes:
        flat: (features, groups * columns).
        ends: of groups of rows.
    """

    x: Value
    flat: Value
    ends: Value

    def weight(self, r: Rewriter, *columns: int) -> Value:
        """(groups, features, *columns); a constant is turned when the model is compiled."""
        features, groups = self.flat.type.shape[0], self.ends.type.size
        shape = (features, groups, self.flat.type.shape[1] // groups)
        array = r.constant_of(self.flat)
        if array is None:
            turned = r.transpose(r.reshape(self.flat, shape), (1, 0, 2))
        else:
            turned = r.constant(np.ascontiguousarray(array.reshape(shape).swapaxes(0, 1)))
        return r.reshape(turned, (groups, features, *columns))


def _grouped(r: Rewriter, value: Value) -> _Grouped | None:
    """``sum over g of (all products of rows, where a row is of group g, else 0)``."""
    reduce = r.maker(_narrowed(r, value), "reduce")
    if reduce is None or combiner(reduce) != "add" or tuple(reduce.attributes["dimensions"]) != (1,):
        return None
    select = r.maker(unconverted(r, reduce.operands[0]), "select")
    wide = None if select is None else r.maker(select.operands[0], "broadcast_in_dim")
    if select is None or wide is None or r.scalar_of(select.operands[2]) != 0:
        return None
    ends = members(r, wide.operands[0]) if tuple(wide.attributes["broadcast_dimensions"]) == (0, 1) else None
    product = r.maker(before_reshape(r, select.operands[1]), "dot_general")
    if ends is None or product is None or product.attributes["lhs_batching_dimensions"]:
        return None
    a, (x, flat) = product.attributes, product.operands
    sides = tuple(a["lhs_contracting_dimensions"]), tuple(a["rhs_contracting_dimensions"])
    rows, groups, columns = select.results[0].type.shape
    plain = sides == ((1,), (0,)) and x.type.shape[:1] == (rows,) and flat.type.shape[1:] == (groups * columns,)
    return _Grouped(x, flat, ends) if plain else None


def _narrowed(r: Rewriter, value: Value) -> Value:
    """A value before conversions, also of sums to fewer bits."""
    while (op := r.maker(value, "convert")) is not None and op.operands[0].type.dtype.is_float:
        value = op.operands[0]
    return value


# -------------------------------------------------------------------------------------------------- what is handed over


def _blocks(r: Rewriter, found: _Routed) -> tuple[Value, Value]:
    """For each place of all blocks the token, or -1, and the expert of each block."""
    choices, experts = found.order.places.type.size, found.ends.type.size
    count = -(-max(choices - experts + 1, 1) // _BLOCK) + experts - 1
    line, whole = (count, experts), (count, _BLOCK)
    ends = Table(r, found.ends).number()
    starts = ends.after_zero()
    blocks = (ends - starts + (_BLOCK - 1)) // _BLOCK
    upto = (blocks.over((experts, experts), (1,)) * np.tri(experts)).sum(1)  # of this expert and those before it
    past = upto.over(line, (1,)).compared("LT", np.arange(count)[:, None] + 1)
    expert = past.number().sum(1)
    mine = expert.over(line, (0,)).compared("EQ", np.arange(experts))
    first = starts - (upto - blocks) * _BLOCK
    base, stop = (each.over(line, (1,)).where(mine, 0).sum(1).over(whole, (0,)) for each in (first, ends))
    place = base + np.arange(count * _BLOCK).reshape(whole)
    inside = place.compared("LT", stop)
    token = (
        (Table(r, found.order.places) // found.weights.type.shape[1]).taken(place.where(inside, 0)).where(inside, -1)
    )
    return token.shaped(count * _BLOCK).value, expert.least(experts - 1).shaped(count, 1).value


MOE_TKG = Pattern("moe_tkg", match_few, few_tokens, choose="faster", refuses=(KernelLimit,))
MOE_CTE = Pattern("moe_cte", match_many, many_tokens, choose="faster", refuses=(KernelLimit,))
