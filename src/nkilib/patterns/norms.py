"""Norms of rows: RMS norm and layer norm, which stand between the layers of a transformer.

The kernels are `nkilib.core.rmsnorm.rms_norm` and `nkilib.core.layernorm.layer_norm`.
"""

from __future__ import annotations

from nki.graph.patterns import Match, Op, Pattern, Rewriter
from nkilib.core.layernorm import layer_norm
from nkilib.core.rmsnorm import rms_norm
from nkilib.errors import KernelLimit
from nkilib.patterns.matching import norm


def match_rms(r: Rewriter, op: Op) -> Match | None:
    """The RMS norm that a product with its weight ends."""
    found = norm(r, op) if op.name == "multiply" else None
    return None if found is None else Match((found.x, found.weight), op.results, {"eps": found.eps})


def match_layer(r: Rewriter, op: Op) -> Match | None:
    """The layer norm that the sum with its bias ends, or the conversion of that."""
    if op.name not in ("add", "convert"):
        return None
    found = norm(r, op)
    (result,) = op.results
    if found is None or found.bias is None or found.x.type.dtype is not result.type.dtype:
        return None
    assert found.kind == "LAYER_NORM"
    return Match((found.x, found.weight, found.bias), op.results, {"eps": found.eps})


RMS_NORM = Pattern("norm_rms", match_rms, rms_norm, choose="faster", refuses=(KernelLimit,))
LAYER_NORM = Pattern("norm_layer", match_layer, layer_norm, choose="faster", refuses=(KernelLimit,))
