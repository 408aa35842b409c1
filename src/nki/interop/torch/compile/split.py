"""A graph of which some operators run on the host, between programs of the device, because the user asked for that."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.fx.passes.split_module import split_module

from nki.core.errors import NkiError
from nki.interop.common.host_fallback import part_of
from nki.interop.torch.eager.provenance import note
from nki.runtime.spans import span

Segment = Callable[[list[Any]], Sequence[Any]]
"""A part that was compiled: takes a list of its arguments, which it empties, and returns a list of its results."""


class SplitGraph:
    """Programs of the device and operators on the host, in order.

    Attributes:
        name: of the graph.
        segments: the parts that were compiled, by name.
        left: for each part on the host the names of its operators.
    """

    def __init__(
        self, name: str, whole: fx.GraphModule, segments: Mapping[str, Segment], left: Mapping[str, Sequence[str]]
    ) -> None:
        self._boxed_call = True  # PyTorch hands over a list; it looks into the object's own dictionary
        self.name = name
        self.segments, self.left = segments, left
        self._whole = whole

    def __call__(self, arguments: list[Any]) -> Any:
        """Results of the graph for its arguments; the list is emptied."""
        given = iter(list(arguments))
        arguments.clear()
        made: dict[fx.Node, Any] = {}
        for node in self._whole.graph.nodes:
            inputs = fx.node.map_arg(node.args, lambda source: made[source])
            if node.op == "placeholder":
                made[node] = next(given)
            elif node.op == "get_attr":
                made[node] = getattr(self._whole, str(node.target))
            elif node.op == "call_module":
                made[node] = self._called(str(node.target), inputs)
            elif node.op == "output":
                return inputs[0]
            else:
                made[node] = node.target(*inputs)
        raise AssertionError("a graph ends with its output")

    def _called(self, part: str, inputs: Sequence[Any]) -> Any:
        module = getattr(self._whole, part)
        if part in self.left:
            for each in self.left[part]:
                note(f"torch.compile {self.name}: {each}")
            with span(f"host {', '.join(self.left[part])}", "host"):
                return module(*inputs)
        results = list(self.segments[part](list(inputs)))
        (output,) = (node for node in module.graph.nodes if node.op == "output")
        return tuple(results) if isinstance(output.args[0], tuple | list) else results[0]


def split(graph: fx.GraphModule, hosted: Mapping[fx.Node, NkiError]) -> tuple[fx.GraphModule, dict[str, list[str]]]:
    """The graph as calls of parts, and for each part on the host its operators.

    A part has what can run before the next change of places, so that there are as few parts as dependences allow.
    """
    parts: dict[fx.Node, int] = {}
    for node in graph.graph.nodes:
        if node.op == "get_attr":
            node.meta.setdefault("val", getattr(graph, str(node.target)))
        elif node.op not in ("placeholder", "output"):
            parts[node] = _part(node, parts, hosted)
    whole = split_module(graph, torch.nn.Module(), lambda node: parts[node])
    left: dict[str, list[str]] = {}
    for node in hosted:
        left.setdefault(f"submod_{parts[node]}", []).append(str(node.target))
    return whole, left


def _part(node: fx.Node, parts: Mapping[fx.Node, int], hosted: Mapping[fx.Node, NkiError]) -> int:
    sources = [source for source in node.all_input_nodes if source in parts]
    if node.target is operator.getitem and sources:
        return parts[sources[0]]
    return part_of((parts[source] for source in sources), node in hosted)
