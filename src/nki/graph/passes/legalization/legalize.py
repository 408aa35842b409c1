"""Models in the same few operations and types: no 64-bit elements, no calls, nothing that others spell out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from nki.core import dtypes
from nki.core.dtypes import DType
from nki.graph.copies import copy_region
from nki.graph.errors import unsupported
from nki.graph.ir import Module, Op, Region, TensorType, Value
from nki.graph.passes.context import GraphContext
from nki.graph.passes.fold import fold_wide
from nki.graph.passes.legalization.complex_pairs import without_complex
from nki.graph.passes.legalization.decompose import DECOMPOSITIONS
from nki.graph.passes.legalization.decompose_chlo import expand
from nki.graph.passes.legalization.decompose_index import signed_indices
from nki.graph.passes.legalization.decompose_scales import scales
from nki.graph.passes.legalization.empty_tensors import without_elements
from nki.graph.passes.legalization.narrow_constants import Uses, narrowed, uses_of
from nki.graph.passes.rewriter import Rewriter, rewrite

NARROW: Mapping[DType, DType] = {dtypes.int64: dtypes.int32, dtypes.uint64: dtypes.uint32}
"""What becomes of elements that no device has."""


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


def inline_calls(module: Module, context: GraphContext) -> Module:
    """The model as one function."""

    def rule(r: Rewriter, op: Op) -> Sequence[Value] | None:
        name = op.attributes.get("callee" if op.name == "call" else "decomposition")
        if op.name not in ("call", "composite") or name not in module.functions:
            return None
        called = module.functions[name]
        body = Region(called.arguments, called.body, called.results)
        return r.inline(copy_region(body, {}), op.operands)

    main = {module.entry: module.main}
    rewrite(Module(main, module.entry), rule)
    module.functions = main
    return module


def split_complex(module: Module, context: GraphContext) -> Module:
    """The model with pairs in the place of complex numbers, and generator states that stay 32-bit words.

    Raises:
        GraphError: what `without_complex` raises.
    """
    return without_complex(rewrite(module, _wide_words))


def fold_narrowed(module: Module, context: GraphContext) -> Module:
    """The model with constants of 64 bits computed before they lose bits."""
    return fold_wide(module, context, NARROW)


def _wide_words(r: Rewriter, op: Op) -> Sequence[Value] | None:
    """Generator states of 64-bit words that are made of 32-bit ones stay 32-bit words, the low one first."""
    if op.name == "bitcast_convert":
        inner = r.maker(op.operands[0], "bitcast_convert")
        if inner is not None and inner.operands[0].type == op.results[0].type:
            return inner.operands
    if op.name != "rng_bit_generator" or op.operands[0].type.dtype is not dtypes.uint64:
        return None
    state = op.operands[0]
    maker = r.maker(state, "bitcast_convert")
    if maker is None:
        return None
    words = maker.operands[0]
    flat = r.reshape(words, (words.type.size,))
    after, bits = r.op(op.name, [flat], [flat.type, op.results[1].type], op.attributes)
    back = r.reshape(after, words.type.shape)
    return [r.one("bitcast_convert", [back], state.type), bits]


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
