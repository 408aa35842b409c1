"""Attention of a prompt and the projection of its heads to hidden states, without a move between them::

    out = concatenate(softmax(scale * q @ k.T) @ v of all heads) @ weight + bias

The kernels are `nkilib.core.attention.attention_cte`, which writes features before queries, and
`nkilib.core.output_projection.output_projection_cte`, which wants them so.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

import nki
from nki.graph.patterns import Match, NearMiss, Op, Pattern, Rewriter, Value, known
from nki.graph.patterns.attention.match import recognise
from nkilib.core.attention.attention_cte import attention_cte
from nkilib.core.output_projection.output_projection_cte import output_projection_cte
from nkilib.errors import KernelLimit
from nkilib.patterns.attention_prefill import batched, check
from nkilib.patterns.matching import ends, last, linear, row

_MOST_MOVES = 8

_MOST = 1 << 24
"""Elements of a result whose moves are followed, element by element."""


@nki.jit
def projected_attention(
    q: Any, k: Any, v: Any, weight: Any, *bias: Any, scale: float, causal: bool, rows: str, heads: int
) -> Any:
    """`output_projection_cte` of what `attention_cte` makes of `heads` heads of each sequence; see `prefill`."""
    made = attention_cte(q, k, v, scale, causal, tp_q="q" in rows, tp_k="k" in rows, tp_out=True)
    batch, features, queries = made.shape
    return output_projection_cte(made.reshape((batch // heads, heads, features, queries)), weight, *bias)


def match(r: Rewriter, op: Op) -> Match | None:
    """The projection whose last operation this is, of an attention's result."""
    product = linear(r, op) if len(op.results) == 1 and op.name in ("dot_general", "convert", "add") else None
    source = None if product is None or not ends(r, op) else _source(r, product.x)
    found = None if source is None else recognise(r, source[0])
    if product is None or source is None or found is None or found.facts["causal"] is None:
        return None
    q, k, v, *masks = found.inputs
    check(found, q, masks)
    dims = {name: str(found.facts[f"{name}_dims"]) for name in ("q", "k", "v", "out")}
    sizes = dict(zip(dims["q"] + dims["v"], (*q.type.shape, *v.type.shape), strict=True))
    shared = [letter for letter in dims["out"] if letter in dims["k"] and letter not in "qf"]
    groups = [letter for letter in dims["out"] if letter not in shared and letter not in "qf"]
    heads = _heads(r, found, source[1], product.x, ([*shared, *groups, "q", "f"], dims["out"], sizes))
    dtypes = {value.type.dtype for value in (q, k, v, product.weight, op.results[0])}
    if heads is None or len(dtypes) > 1:
        raise NearMiss("what is projected is not all heads of a query beside each other in one dtype")
    rows = "".join(name for name in "qk" if dims[name].index(name) < dims[name].index("d"))
    tensors = [
        batched(r, q, dims["q"], [*shared, *groups], "qd" if "q" in rows else "dq"),
        batched(r, k, dims["k"], shared, "kd" if "k" in rows else "dk"),
        batched(r, v, dims["v"], shared, "kf"),
        product.matrix(r),
        *([] if product.bias is None else [row(r, product.bias)]),
    ]
    facts = {"scale": found.facts["scale"], "causal": True, "rows": rows, "heads": heads}
    shape = op.results[0].type.shape
    return Match(tuple(tensors), op.results, facts, lambda r, values: (r.reshape(values[0], shape),))


def _source(r: Rewriter, value: Value) -> tuple[Op, list[Op]] | None:
    """The product that a value is moved from, and the moves, the last one first."""
    moves: list[Op] = []
    while (op := r.maker(value)) is not None and len(moves) < _MOST_MOVES:
        if op.name == "dot_general":
            return op, moves
        if op.name not in ("convert", "reshape", "transpose"):
            return None
        moves.append(op)
        value = op.operands[0]
    return None


def _heads(
    r: Rewriter, found: Match, moves: list[Op], x: Value, layout: tuple[list[str], str, dict[str, int]]
) -> int | None:
    """Heads that lie beside each other in `x`, in the order of the kernel's batch; None if it is another layout."""
    order, out, sizes = layout
    shape = [sizes[letter] for letter in order]
    queries, features = shape[-2:]
    if prod(shape) > _MOST:
        raise NearMiss(f"{prod(shape)} elements, whose moves are followed up to {_MOST}")
    heads = last(x) // features
    numbers = np.arange(prod(shape), dtype=np.int32).reshape(shape).transpose([order.index(letter) for letter in out])
    assert found.finish is not None, "the result of attention is moved to where the model has it"
    made = known(r, found.finish(r, [r.constant(np.ascontiguousarray(numbers))])[0])
    if made is None or last(x) % features or prod(shape[:-2]) % heads:
        return None
    for op in reversed(moves):
        if op.name == "transpose":
            made = made.transpose(op.attributes["permutation"])
        elif op.name == "reshape":
            made = made.reshape(op.results[0].type.shape)
    wanted = np.arange(prod(shape), dtype=np.int32).reshape(-1, heads, queries, features).swapaxes(1, 2)
    return heads if np.array_equal(made.reshape(-1), wanted.reshape(-1)) else None


ATTENTION_OUTPUT = Pattern("attention_output", match, projected_attention, choose="faster", refuses=(KernelLimit,))
