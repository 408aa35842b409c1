"""Results of products in the order in which they are needed, by reading the left operand in that order."""

from __future__ import annotations

from collections.abc import Sequence

from nki.graph.ir import Module, Op, Value
from nki.graph.passes.context import GraphContext
from nki.graph.passes.rewriter import Rewriter, rewrite


def reorder(module: Module, context: GraphContext) -> Module:
    """The model with transposes of a product's rows as transposes of its left operand, which kernels read through."""
    return rewrite(module, _rule)


def _rule(r: Rewriter, op: Op) -> Sequence[Value] | None:
    product = r.maker(op.operands[0], "dot_general") if op.name == "transpose" else None
    if product is None or r.uses.get(product.results[0]) != 1:
        return None
    a, left = product.attributes, product.operands[0]
    batch, contracted = a["lhs_batching_dimensions"], a["lhs_contracting_dimensions"]
    free = [dim for dim in range(len(left.type.shape)) if dim not in (*batch, *contracted)]
    first, end = len(batch), len(batch) + len(free)
    permutation = tuple(op.attributes["permutation"])
    rest = [dim for dim in range(len(permutation)) if not first <= dim < end]
    if any(permutation[dim] != dim for dim in rest):
        return None
    there = list(range(len(left.type.shape)))
    for place, dim in zip(free, permutation[first:end], strict=True):
        there[place] = free[dim - first]
    turned = r.transpose(left, there)
    return r.op("dot_general", [turned, product.operands[1]], [op.results[0].type], a)
