"""Which nodes of a graph of PyTorch have no way to the device, found without stopping at the first one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import fx

from nki.core.errors import NkiError
from nki.graph.errors import GraphError
from nki.graph.importers.torch.builder import Builder
from nki.graph.importers.torch.import_graph import ImportState, convert, plain
from nki.graph.importers.torch.location import location_of
from nki.graph.importers.torch.table import CONVERTERS, Converter
from nki.graph.importers.torch.types import tensor_type
from nki.graph.ir import Value


def refusals(graph: fx.GraphModule, more: Mapping[str, Converter] | None = None) -> dict[fx.Node, NkiError]:
    """Why nodes cannot be converted, by node, in the order of the graph.

    A node that takes what the device cannot hold, such as complex numbers, is among them.

    Args:
        more: converters for operators that are not ATen's, by name.
    """
    state = ImportState(Builder(), {**CONVERTERS, **(more or {})}, graph)
    found: dict[fx.Node, NkiError] = {}
    for node in graph.graph.nodes:
        if node.op == "output":
            continue
        try:
            _check_inputs(state, node)
            if node.op == "placeholder":
                state.made[node] = _stand_in(node)
            else:
                convert(state, node)
        except GraphError as error:
            if node.op != "placeholder":
                found[node] = error
            _leave_out(state, node)
    return found


def at_line(graph: fx.GraphModule, error: NkiError) -> dict[fx.Node, NkiError]:
    """The nodes at the line that an error names: those that the compiler refuses after they were converted."""
    nodes = [node for node in graph.graph.nodes if node.op == "call_function"]
    frames = error.location.frames
    return {node: error for node in nodes if frames and location_of(node).frames == frames}


def _check_inputs(state: ImportState, node: fx.Node) -> None:
    for source in node.all_input_nodes:
        if source not in state.made:
            _stand_in(source)  # raises what the device cannot hold


def _leave_out(state: ImportState, node: fx.Node) -> None:
    """Values for what somebody else computes, if the device can hold them."""
    try:
        state.made[node] = _stand_in(node)
    except GraphError:
        state.made.pop(node, None)


def _stand_in(node: fx.Node) -> Any:
    fake, where = node.meta.get("val"), location_of(node)
    if isinstance(fake, tuple | list):
        return [
            Value(tensor_type(each, where)) if isinstance(each, torch.Tensor) else plain(each, where) for each in fake
        ]
    return Value(tensor_type(fake, where)) if isinstance(fake, torch.Tensor) else plain(fake, where)
