"""Parts of a model that kernels compute which were written for them; which ones, the context says."""

from __future__ import annotations

from collections.abc import Sequence

from nki.graph.ir import Module, Op, Value
from nki.graph.passes.context import GraphContext
from nki.graph.passes.rewriter import Rewriter, rewrite


def patterns(module: Module, context: GraphContext) -> Module:
    """The model with calls of kernels in place of what the context's patterns find; the first that finds comes first.

    Raises:
        NkiError: what the patterns raise.
    """

    def rule(r: Rewriter, op: Op) -> Sequence[Value] | None:
        for pattern in context.patterns:
            values = pattern.replaced(r, op, context)
            if values is not None:
                context.replaced.append((pattern.name, str(op.location)))
                return values
        return None

    return rewrite(module, rule) if context.patterns else module
