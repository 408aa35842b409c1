"""Numbers of a graph, which the host computes before each run of a program, in the precision that Python has.

A learning rate or a temperature that changes between calls is an argument of float64 without a dimension. What a graph
computes of such numbers alone, such as ``1 - rate``, would lose digits in float32, which Python keeps.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx

_SYMBOLS = (torch.SymFloat, torch.SymInt, torch.SymBool)


class Scalars:
    """A graph without what it computes of numbers alone.

    Attributes:
        device: the graph that is left. It has arguments for what the host computes, after those of its own.
    """

    def __init__(self, graph: fx.GraphModule) -> None:
        self._holders = [node for node in graph.graph.nodes if node.op == "placeholder"]
        self._numbers = _numbers(graph)
        (output,) = (node for node in graph.graph.nodes if node.op == "output")
        self._results: Sequence[Any] = output.args[0] if isinstance(output.args[0], tuple | list) else [output.args[0]]
        self._returned = {place: node for place, node in enumerate(self._results) if self._is_returned(node)}
        left = [node for node in graph.graph.nodes if node not in self._numbers and node.op != "output"]
        needed = {source: None for node in left for source in node.all_input_nodes if self._crosses(source)}
        self._crossing = list(needed)
        self.device = self._left(graph)
        self._taken = self._in_order([*self._crossing, *self._returned.values()])

    def _is_returned(self, node: Any) -> bool:
        return isinstance(node, fx.Node) and node in self._numbers and (node.op != "placeholder" or _is_symbol(node))

    def _crosses(self, node: fx.Node) -> bool:
        """Whether the program takes a number from the host; symbols of sizes are numbers in the program."""
        return node in self._numbers and bool(node.all_input_nodes) and not _is_symbol(node)

    def _left(self, graph: fx.GraphModule) -> fx.GraphModule:
        made = fx.Graph()
        copies: dict[fx.Node, fx.Node] = {}
        for node in (*self._holders, *self._crossing):
            copies[node] = made.placeholder(node.name)
            copies[node].meta = dict(node.meta)
        others = [node for node in graph.graph.nodes if node not in self._numbers]
        kept = {source for node in others for source in (*_symbols_of(node), *_constants_of(node))}
        for node in graph.graph.nodes:
            if node.op == "output":
                left = [None if place in self._returned else value for place, value in enumerate(self._results)]
                made.output(fx.node.map_arg(left, copies.__getitem__)).meta = dict(node.meta)
            elif node not in copies and (node not in self._numbers or node in kept):
                copies[node] = made.node_copy(node, copies.__getitem__)
        for node in list(made.nodes):
            if node.op == "placeholder" and _is_symbol(node) and not node.users:
                node.meta["val"] = 0  # nothing in the program depends on it
        return fx.GraphModule(graph, made)

    def _in_order(self, wanted: Sequence[fx.Node]) -> list[fx.Node]:
        """What has to be computed for some numbers, what is needed first coming first."""
        found: dict[fx.Node, None] = {}

        def visit(node: fx.Node) -> None:
            for source in node.all_input_nodes:
                visit(source)
            if node.op != "placeholder":
                found[node] = None

        for node in wanted:
            visit(node)
        return list(found)

    def run(self, arguments: Sequence[Any]) -> tuple[list[Any], Mapping[int, Any]]:
        """The arguments of the program, and the results of the graph that it does not compute, by their places."""
        made: dict[fx.Node, Any] = dict(zip(self._holders, arguments, strict=True))
        with torch.no_grad():
            for node in self._taken:
                args, kwargs = (fx.node.map_arg(given, made.__getitem__) for given in (node.args, node.kwargs))
                function: Any = node.target
                made[node] = function(*args, **kwargs)
        given = [*arguments, *(made[node] for node in self._crossing)]
        return given, {place: made[node] for place, node in self._returned.items()}


def scalars_of(graph: fx.GraphModule) -> Scalars | None:
    """What the host computes of a graph; None if that is nothing, or all of it."""
    numbers = _numbers(graph)
    others = [node for node in graph.graph.nodes if node.op == "call_function" and node not in numbers]
    return Scalars(graph) if numbers and others else None


def _numbers(graph: fx.GraphModule) -> frozenset[fx.Node]:
    found: set[fx.Node] = set()
    for node in graph.graph.nodes:
        value = node.meta.get("val")
        if node.op == "placeholder":
            number = _is_symbol(node) or _is_scalar(value, torch.float64)
        elif node.op == "call_function" and _is_plain(node.target):
            made = isinstance(value, _SYMBOLS) or _is_scalar(value, None)
            number = made and all(source in found for source in node.all_input_nodes)
        else:
            number = False
        if number:
            found.add(node)
    return frozenset(found) if any(node.op == "placeholder" for node in found) else frozenset()


def _symbols_of(node: fx.Node) -> set[fx.Node]:
    """The symbols that a node depends on, directly or by other symbols."""
    found: set[fx.Node] = set()
    waiting = [source for source in node.all_input_nodes if _is_symbol(source)] if node.op != "output" else []
    while waiting:
        source = waiting.pop()
        if source not in found:
            found.add(source)
            waiting.extend(source.all_input_nodes)
    return found


def _constants_of(node: fx.Node) -> list[fx.Node]:
    return [source for source in node.all_input_nodes if source.op == "call_function" and not source.all_input_nodes]


def _is_symbol(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), _SYMBOLS)


def _is_scalar(value: Any, dtype: torch.dtype | None) -> bool:
    if not isinstance(value, torch.Tensor) or value.dim() or value.device.type != "cpu":
        return False
    return dtype is None or value.dtype == dtype


def _is_plain(target: Any) -> bool:
    """Whether a function is one of PyTorch's or Python's that only computes."""
    if isinstance(target, torch._ops.OpOverload):
        drawn = torch.Tag.nondeterministic_seeded in target.tags
        return target.namespace in ("aten", "prims") and not drawn and not target._schema.is_mutable
    return getattr(target, "__module__", "") in ("_operator", "math", "torch") and target is not operator.getitem
