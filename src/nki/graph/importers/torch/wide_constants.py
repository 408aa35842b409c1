"""Constants of 64 bits that a graph computes: by PyTorch itself where 32 bits on the way would make them others."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import fx
from torch._subclasses.fake_tensor import unset_fake_temporarily

from nki.graph.importers.torch.builder import Builder
from nki.graph.importers.torch.location import location_of
from nki.graph.importers.torch.types import device_dtype, host_array
from nki.graph.ir import TensorType, Value

_MOST = 1 << 24
"""Elements of a tensor that is computed ahead."""

_LIMITS = {torch.int64: torch.iinfo(torch.int32), torch.float64: torch.finfo(torch.float32)}


class Known:
    """What depends on constants alone in one graph.

    Args:
        graph: whose nodes have values in ``meta["val"]``.
    """

    def __init__(self, graph: fx.GraphModule) -> None:
        self._graph = graph
        self._values: dict[fx.Node, Any] = {}
        self._wide: set[fx.Node] = set()
        with unset_fake_temporarily(), torch.no_grad():
            for node in graph.graph.nodes:
                self._look_at(node)

    def is_wide(self, node: fx.Node) -> bool:
        """Whether numbers beyond 32 bits are among the elements of a constant, or were on the way to it."""
        return node in self._wide

    def constant(self, b: Builder, node: fx.Node) -> Value:
        """The elements of such a constant. Those of integers keep 64 bits: what uses them decides whether they may.

        Raises:
            GraphError: "graph.range" for floats beyond float32.
        """
        b.location = location_of(node)
        tensor = self._values[node]
        with unset_fake_temporarily():
            kind = TensorType(tuple(tensor.shape), device_dtype(tensor.dtype, b.location))
            if tensor.dtype != torch.int64:
                return b.constant(host_array(tensor, kind.dtype, b.location), kind.dtype, kind.shape)
            array = tensor.contiguous().numpy()
        if array.size and (array == array.flat[0]).all():
            array = np.broadcast_to(array.reshape(-1)[0], array.shape)
        return b.one("constant", (), kind, value=array)

    def _look_at(self, node: fx.Node) -> None:
        fake = node.meta.get("val")
        if node.op == "get_attr":
            fake = attribute(self._graph, str(node.target))
        if not isinstance(fake, torch.Tensor) or not self._is_known(node):
            return
        after_wide = any(each in self._wide for each in node.all_input_nodes)
        wide = after_wide or (fake.dtype in _LIMITS and _exceeds(self._value(node)))
        if wide and isinstance(self._value(node), torch.Tensor):
            self._wide.add(node)

    def _is_known(self, node: fx.Node) -> bool:
        """Remembers in `_values` that a node depends on constants alone; its value follows when it is asked for."""
        fake = node.meta.get("val")
        if isinstance(fake, torch.Tensor) and fake.numel() > _MOST:
            return False
        if node.op == "get_attr":
            known = isinstance(attribute(self._graph, str(node.target)), torch.Tensor)
        else:
            known = _is_pure(node) and all(each in self._values for each in node.all_input_nodes)
        if known:
            self._values.setdefault(node, _LATER)
        return known

    def _value(self, node: fx.Node) -> Any:
        if self._values[node] is _LATER:
            self._values[node] = self._computed(node)
        return self._values[node]

    def _computed(self, node: fx.Node) -> Any:
        if node.op == "get_attr":
            return attribute(self._graph, str(node.target)).detach().cpu()
        arguments = fx.map_arg(node.args, self._value)
        named = {**fx.map_arg(node.kwargs, self._value)}
        if "device" in named:
            named["device"] = torch.device("cpu")
        target: Any = node.target
        try:
            return target(*arguments, **named)
        except (RuntimeError, TypeError):  # the converter of this operator tells what is wrong with it
            return None


_LATER = object()


def _exceeds(value: Any) -> bool:
    if not isinstance(value, torch.Tensor) or not value.numel():
        return False
    limits = _LIMITS[value.dtype]
    finite = value[value.isfinite()] if value.dtype == torch.float64 else value
    return bool(finite.numel() and (finite.min() < limits.min or finite.max() > limits.max))


def _is_pure(node: fx.Node) -> bool:
    """Whether an operator has the same tensors as results whenever it has the same arguments."""
    if node.op != "call_function" or any(isinstance(each, torch.SymInt | torch.SymFloat) for each in _plain(node)):
        return False
    if node.target is operator.getitem:
        return True
    target = node.target
    return (
        isinstance(target, torch._ops.OpOverload)
        and target.namespace in ("aten", "prims")
        and not target._schema.is_mutable
        and torch.Tag.nondeterministic_seeded not in target.tags
        and "empty" not in target._schema.name
    )


def _plain(node: fx.Node) -> Sequence[Any]:
    found: list[Any] = []
    for argument in (*node.args, *node.kwargs.values()):
        found += argument if isinstance(argument, tuple | list) else [argument]
    return found


def attribute(graph: fx.GraphModule, name: str) -> Any:
    """A tensor that a graph carries, or a graph that it calls; `name` has dots where modules are inside of modules."""
    owner: Any = graph
    for part in name.split("."):
        owner = getattr(owner, part)
    return owner
