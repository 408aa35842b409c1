"""Operations whose results nobody uses go away."""

from __future__ import annotations

from collections.abc import Sequence

from nki.graph.ir import Module, Op
from nki.graph.passes.context import GraphContext
from nki.graph.passes.needed import drop_unneeded


def dce(module: Module, context: GraphContext) -> Module:
    """The model without what does not reach its results, and without functions that nothing calls."""
    for function in module.functions.values():
        drop_unneeded(function)
    _drop_functions(module)
    return module


def _drop_functions(module: Module) -> None:
    reached: set[str] = set()
    pending = [module.entry]
    while pending:
        name = pending.pop()
        if name in reached or name not in module.functions:
            continue
        reached.add(name)
        pending += called(module.functions[name].body)
    for name in [name for name in module.functions if name not in reached]:
        del module.functions[name]


def called(items: Sequence[object]) -> list[str]:
    """Names of the functions that operations call."""
    names: list[str] = []
    for item in items:
        if isinstance(item, Op):
            for key in ("callee", "decomposition"):
                if isinstance(item.attributes.get(key), str):
                    names.append(item.attributes[key])
            names += item.attributes.get("called_computations", ())
            for region in item.regions:
                names += called(region.ops)
    return names
