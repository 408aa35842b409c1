"""Calls of other functions are their bodies: a model becomes one function."""

from __future__ import annotations

from collections.abc import Sequence

from nki.graph.copies import copy_region
from nki.graph.ir import Module, Op, Region, Value
from nki.graph.passes.context import GraphContext
from nki.graph.passes.rewriter import Rewriter, rewrite


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
