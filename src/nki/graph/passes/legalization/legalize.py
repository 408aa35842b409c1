"""Models in the same few operations and types: no 64-bit elements, no calls, nothing that others spell out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nki.graph.errors import unsupported
from nki.graph.ir import Module, Op, TensorType, Value
from nki.graph.passes.context import GraphContext
from nki.graph.passes.legalization.decompose import DECOMPOSITIONS
from nki.graph.passes.legalization.decompose_chlo import expand
from nki.graph.passes.legalization.decompose_index import signed_indices
from nki.graph.passes.legalization.decompose_scales import scales
from nki.graph.passes.legalization.empty_tensors import without_elements
from nki.graph.passes.legalization.narrow_constants import NARROW, Uses, narrowed, uses_of
from nki.graph.passes.rewriter import Rewriter, rewrite


def legalize(module: Module, context: GraphContext) -> Module:
    """The model with elements narrowed and operations decomposed; its functions are inlined already.

    Raises:
        GraphError: "graph.unsupported" for bitcasts of 64-bit elements; "graph.range" for constants that 32 bits do not
            hold.
    """
    for function in module.functions.values():
        for value in function.arguments:
            _narrow(value)
    uses = uses_of(module)
    for op in module.walk():
        _narrow_op(op, uses)
    return rewrite(module, _decompose)


def _narrow(value: Value) -> None:
    narrow = NARROW.get(value.type.dtype)
    if narrow is not None:
        value.type = TensorType(value.type.shape, narrow)


def _narrow_op(op: Op, uses: Uses) -> None:
    if op.name == "bitcast_convert":
        kinds = [op.operands[0].type.dtype, op.results[0].type.dtype]
        if any(kind in NARROW for kind in kinds) and kinds[0].bits != kinds[1].bits:
            raise unsupported(op, "64-bit elements are narrowed, so their bits cannot be seen", "use 32-bit integers")
    for value in op.results:
        _narrow(value)
    for region in op.regions:
        for value in region.arguments:
            _narrow(value)
    array = op.attributes.get("value")
    if op.name == "constant" and isinstance(array, np.ndarray):
        kind = op.results[0].type.dtype
        if array.dtype != kind.numpy:
            op.attributes = {**op.attributes, "value": narrowed(op, array, kind, uses)}


def _decompose(r: Rewriter, op: Op) -> Sequence[Value] | None:
    instead = without_elements(r, op)
    if instead is None:
        instead = scales(r, op) or signed_indices(r, op)
    if instead is not None:
        return instead
    spelled_out = DECOMPOSITIONS.get(op.name)
    if spelled_out is not None:
        return spelled_out(r, op)
    return expand(r, op) if op.name.startswith("chlo.") else None
