"""Complex numbers are pairs of tensors of float32, and states of random generators are words of 32 bits."""

from __future__ import annotations

from collections.abc import Sequence

from nki.core import dtypes
from nki.graph.ir import Module, Op, Value
from nki.graph.passes.context import GraphContext
from nki.graph.passes.legalization.complex_pairs import without_complex
from nki.graph.passes.rewriter import Rewriter, rewrite


def split_complex(module: Module, context: GraphContext) -> Module:
    """The model with pairs in the place of complex numbers, and generator states that stay 32-bit words.

    Raises:
        GraphError: what `without_complex` raises.
    """
    return without_complex(rewrite(module, _wide_words))


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
