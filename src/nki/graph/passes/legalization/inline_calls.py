"""Calls of other functions are their bodies: a model becomes one function."""

from __future__ import annotations

from collections.abc import Sequence

from nki.core.origin import Origin
from nki.core.source import Location
from nki.graph.copies import copy_region
from nki.graph.ir import Module, Op, Region, Value, walk
from nki.graph.passes.context import GraphContext
from nki.graph.passes.rewriter import Rewriter, rewrite


def inline_calls(module: Module, context: GraphContext) -> Module:
    """The model as one function."""

    def rule(r: Rewriter, op: Op) -> Sequence[Value] | None:
        name = op.attributes.get("callee" if op.name == "call" else "decomposition")
        if op.name not in ("call", "composite") or name not in module.functions:
            return None
        called = module.functions[name]
        body = copy_region(Region(called.arguments, called.body, called.results), {})
        _name_within(body, op.location.origin)
        return r.inline(body, op.operands)

    main = {module.entry: module.main}
    rewrite(Module(main, module.entry), rule)
    module.functions = main
    return module


def _name_within(body: Region, caller: Origin | None) -> None:
    """Lets the operations of a called function know the modules around the call: several calls share the function."""
    if caller is None:
        return
    for item in body.ops:
        for op in walk(item) if isinstance(item, Op) else ():
            if op.location.origin is not None:
                op.location = Location(op.location.frames, op.location.origin.within(caller))
