"""Primitives of PyTorch that its own decompositions leave in a graph."""

from __future__ import annotations

from nki.graph.importers.torch.builder import Builder
from nki.graph.importers.torch.table import Call, Operand, converts, in_dtype, wide
from nki.graph.ir import Value


@converts("prims.fma.default")
def _fma(b: Builder, call: Call, x: Operand, y: Operand, z: Operand) -> Value:
    """``x * y + z``; the product is rounded to float32, as no engine keeps more of it."""
    first, second, third = (wide(b, in_dtype(b, operand, call.dtype)) for operand in (x, y, z))
    return b.convert(b.add(b.multiply(first, second), third), call.dtype)
