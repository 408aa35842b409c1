"""Control flow of PyTorch in graphs that the backend compiles, against PyTorch on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._higher_order_ops import scan, while_loop
from torch.utils._pytree import tree_leaves

import nki.interop.torch  # noqa: F401
from nki.graph.errors import GraphError
from nki.interop.torch import compiled_graphs
from tests.interop.torch.kernels import product

Function = Callable[..., Any]

X = torch.linspace(-1, 2, 64).reshape(8, 8)
W = torch.linspace(1, -1, 64).reshape(8, 8)


def compiled(function: Function) -> Function:
    torch.compiler.reset()
    return torch.compile(function, backend="neuron", fullgraph=True)


def branches(x: torch.Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda x: (x.sin(), x + W), lambda x: (x.cos(), x * 2), (x,))


def until(x: torch.Tensor) -> Any:
    return while_loop(lambda i, x: x.sum() < 100, lambda i, x: (i + 1, (x @ W).abs() + 1), (torch.tensor(0), x))


def choosing(x: torch.Tensor) -> Any:
    def body(i: torch.Tensor, x: torch.Tensor) -> Any:
        return i + 1, torch.cond(i > 2, lambda x: x * 2, lambda x: x + 1, (x,))

    return while_loop(lambda i, x: i < 5, body, (torch.tensor(0), x))


def recurrent(x: torch.Tensor) -> Any:
    return scan(lambda c, row: (torch.tanh(c @ W + row), (c * row).sum()), torch.zeros(8), x)


def with_kernels(x: torch.Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda x: product(x, W), lambda x: product(x, x) + 1, (x,))


def in_trips(x: torch.Tensor) -> Any:
    return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, product(x, W)), (torch.tensor(0), x))


@pytest.mark.parametrize("function", [branches, until, choosing, recurrent, with_kernels, in_trips])
@pytest.mark.parametrize("sign", [1, -1])
def test_it_is_part_of_one_program(function: Function, sign: int) -> None:
    before = {graph.name for graph in compiled_graphs()}
    found, wanted = compiled(function)(sign * X), function(sign * X)
    assert len({graph.name for graph in compiled_graphs()} - before) == 1
    for one, two in zip(tree_leaves(found), tree_leaves(wanted), strict=True):
        assert one.dtype == two.dtype
        torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-5)


def test_branches_have_a_derivative() -> None:
    for start in (X, -X):
        gradients = []
        for function in (branches, compiled(branches)):
            x = start.clone().requires_grad_()
            (function(x)[0] * W).sum().backward()
            gradients.append(x.grad)
        torch.testing.assert_close(gradients[1], gradients[0])


def test_random_numbers_in_a_branch_but_not_in_a_loop() -> None:
    def drawn(x: torch.Tensor) -> Any:
        return torch.cond(x.sum() > 0, torch.rand_like, lambda x: torch.rand_like(x) + 2, (x,))

    for x, low in ((X, 0), (-X, 2)):
        found = compiled(drawn)(x)
        assert low <= found.min() < found.max() < low + 1
    with pytest.raises(GraphError, match="the same in each trip"):
        compiled(lambda x: while_loop(lambda x: x.sum() < 9, lambda x: (x + torch.rand_like(x),), (X,)))(X)


def test_numbers_through_a_loop_are_refused_at_their_line() -> None:
    with pytest.raises(GraphError, match="make it a tensor") as caught:
        compiled(lambda x: while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (0, x)))(X)
    assert caught.value.location.frame is not None and caught.value.location.frame.file == __file__


def test_constants_of_a_function_are_constants_of_the_program() -> None:
    found = compiled(lambda x: torch.stack([torch.tensor(2.5), x.sum()]) + torch.tensor([1, 2]))(X)
    torch.testing.assert_close(found, torch.stack([torch.tensor(3.5), X.sum() + 2]))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent_layers_if_dynamo_may_trace_them(kind: type[nn.RNNBase]) -> None:
    layer, x = kind(4, 5), torch.linspace(-1, 1, 24).reshape(3, 2, 4)
    gradients = []
    with torch._dynamo.config.patch(allow_rnn=True):
        for function in (layer, compiled(layer)):
            layer.zero_grad()
            result = function(x)[0]
            result.square().sum().backward()
            gradients.append([result.detach(), *(p.grad for p in layer.parameters())])
    for one, two in zip(*gradients, strict=True):
        torch.testing.assert_close(two, one)
