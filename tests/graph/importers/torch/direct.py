"""Operators that tracing usually takes apart, or makes others of: called by their overloads in a graph made by hand."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule

aten = torch.ops.aten

Direct = tuple[Any, ...]
"""An overload, its arguments, and those that have to be named, if there are any."""


def exact() -> list[Direct]:
    """Those whose values are PyTorch's."""
    generator = torch.Generator().manual_seed(5)
    x, y = torch.randn(4, 6, generator=generator), torch.randn(4, 6, generator=generator)
    n, shift = torch.tensor([[1, -7, 12], [0, 5, 255]]), torch.tensor([[1, 2, 3], [0, 4, 1]])
    three, z = torch.tensor(3), torch.complex(x, y)
    return [
        (aten.real.default, (z,)), (aten.imag.default, (z,)), (aten.conj_physical.default, (z,)),
        (aten.resolve_conj.default, (z,)), (aten.resolve_neg.default, (x,)),
        (aten.__lshift__.Tensor, (n, shift)), (aten.__rshift__.Tensor, (n, shift)),
        (aten.bitwise_left_shift.Tensor, (n, shift)), (aten.bitwise_left_shift.Tensor_Scalar, (n, 2)),
        (aten.bitwise_right_shift.Tensor, (n, shift)), (aten.bitwise_right_shift.Tensor_Scalar, (n, 2)),
        (aten.bitwise_xor.Scalar, (n, 5)),
        (aten.bitwise_left_shift.Scalar_Tensor, (3, shift)), (aten.bitwise_right_shift.Scalar_Tensor, (77, shift)),
        (aten.bitwise_and.Scalar_Tensor, (5, n)), (aten.bitwise_or.Scalar_Tensor, (5, n)),
        (aten.bitwise_xor.Scalar_Tensor, (5, n)), (aten._unsafe_index.Tensor, (x, [three - shift.clamp(max=3), None])),
        (aten.alias.default, (x,)), (aten.contiguous.default, (x,)), (aten.lift_fresh_copy.default, (x,)),
        (aten.all.dims, (x > 0, [0])), (aten.any.dims, (x > 0, [0, 1], True)),
        (aten.as_strided.default, (x, [3, 8], [8, 1])),
        (aten.copysign.Scalar, (x, -1.0)), (aten.div.Scalar_mode, (x, 0.3), {"rounding_mode": "floor"}),
        (aten.linear.default, (x, y, y[:, 0])),
        (aten.remainder.Scalar_Tensor, (7, three + shift)),
        (aten.reshape.default, (x, [3, -1])),
        (torch.ops.prims.convert_element_type.default, (x, torch.bfloat16)),
        (aten.sub.Scalar, (x, 2, 3)), (aten.t.default, (x,)), (aten.transpose.int, (x, 0, -1)),
    ]  # fmt: skip


def without_values() -> list[Direct]:
    """Those of which only shapes and dtypes are known."""
    x = torch.zeros(2, 3)
    return [
        (aten.empty_like.default, (x,)), (aten.empty_permuted.default, ([2, 3], [1, 0])),
        (aten.empty_strided.default, ([2, 3], [1, 2])), (aten.new_empty.default, (x, [5])),
        (aten.new_empty_strided.default, (x, [2, 2], [1, 2])),
    ]  # fmt: skip


def random() -> list[Direct]:
    """Those whose values are drawn."""
    x = torch.full((64, 64), 0.25)
    return [
        (aten.bernoulli.default, (x,)), (aten.bernoulli.p, (x, 0.25)), (aten.native_dropout.default, (x, 0.75, True)),
        (aten.rand.default, ([64, 64],)), (aten.rand_like.default, (x,)),
    ]  # fmt: skip


def graph_of(calls: Sequence[Direct]) -> tuple[GraphModule, list[torch.Tensor]]:
    """One graph of all calls, and its inputs: every tensor among their arguments."""
    graph, results = Graph(), []
    inputs: list[torch.Tensor] = []
    with FakeTensorMode() as mode:

        def placed(value: Any) -> tuple[Any, Any]:
            """A node and a fake tensor in the place of a tensor."""
            if isinstance(value, torch.Tensor):
                node = graph.placeholder(f"x{len(inputs)}")
                inputs.append(value)
                node.meta["val"] = mode.from_tensor(value)
                return node, node.meta["val"]
            if isinstance(value, list) and any(isinstance(item, torch.Tensor) for item in value):
                nodes, fakes = zip(*map(placed, value), strict=True)
                return list(nodes), list(fakes)
            return value, value

        arguments = [[placed(value) for value in values] for _, values, *_ in calls]
        for (overload, _, *named), pairs in zip(calls, arguments, strict=True):
            names: dict[str, Any] = dict(*named)
            node = graph.call_function(overload, tuple(pair[0] for pair in pairs), names)
            node.meta["val"] = overload(*(pair[1] for pair in pairs), **names)
            results.append(node)
    outputs = []
    for node in results:
        fake = node.meta["val"]
        if isinstance(fake, torch.Tensor):
            outputs.append(node)
            continue
        for number, part in enumerate(fake):
            item = graph.call_function(operator.getitem, (node, number))
            item.meta["val"] = part
            outputs.append(item)
    graph.output(tuple(outputs))
    return GraphModule({}, graph), inputs
