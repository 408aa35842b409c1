"""What depends on constants of 64 bits alone is computed with 64 bits, before they lose half of them."""

from __future__ import annotations

from nki.graph.ir import Module
from nki.graph.passes.context import GraphContext
from nki.graph.passes.fold import fold_wide
from nki.graph.passes.legalization.narrow_constants import NARROW


def fold_narrowed(module: Module, context: GraphContext) -> Module:
    """The model with constants of 64 bits computed before they lose bits."""
    return fold_wide(module, context, NARROW)
