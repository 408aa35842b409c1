"""Parts of a model that kernels compute which were written for them; which ones, the context says."""

from __future__ import annotations

from functools import partial

from nki.graph.ir import Module
from nki.graph.passes.context import GraphContext
from nki.graph.passes.needed import drop_unneeded
from nki.graph.passes.rewriter import rewrite


def patterns(module: Module, context: GraphContext) -> Module:
    """The model with calls of kernels in place of what the context's patterns find.

    The first pattern sees all of the model before the second one does, so that a larger part can come before those that
    it is made of.

    Raises:
        NkiError: what the patterns raise.
    """
    for pattern in context.patterns:
        before = len(context.replaced)
        module = rewrite(module, partial(pattern.replaced, context=context))
        if len(context.replaced) > before:  # what nobody needs any more is no use of a value
            for function in module.functions.values():
                drop_unneeded(function)
    return module
