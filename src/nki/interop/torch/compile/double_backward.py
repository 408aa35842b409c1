"""A compiled function can be differentiated once; a second derivative is refused.

PyTorch gives the gradients of a compiled function no way back to its arguments unless the backward graph happens to
keep one of them, so that a second derivative would be missing without a word.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch
from torch.autograd.function import FunctionCtx

from nki.core.errors import ExecutionError
from nki.interop.torch.user_location import user_line

_NODE = "CompiledFunctionBackward"

_DEPTH = 4
"""How many views may lie between a result and the node that computes it."""


class _Way(torch.autograd.Function):
    """Nothing, but with a way back to all arguments; it keeps none of their memory."""

    @staticmethod
    def forward(ctx: FunctionCtx, *arguments: torch.Tensor) -> torch.Tensor:
        return torch.empty(0)

    @staticmethod
    def backward(ctx: FunctionCtx, *gradients: torch.Tensor) -> NoReturn:
        _refuse()


class _Gradient(torch.autograd.Function):
    """A gradient as it is, which depends on the arguments."""

    @staticmethod
    def forward(ctx: FunctionCtx, gradient: torch.Tensor, way: torch.Tensor) -> torch.Tensor:
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: FunctionCtx, *gradients: torch.Tensor) -> NoReturn:
        _refuse()


def _refuse() -> NoReturn:
    raise ExecutionError(
        "torch.double-backward",
        'torch.compile(backend="neuron") does not support double backward: a gradient of a compiled function is '
        "differentiated",
        rule="the derivative of a compiled function is a program, which has no derivative of its own",
        source="torch.compile, aot_autograd",
        fix="call the function itself where a second derivative is needed, without torch.compile",
        location=user_line(),
    )


def differentiable_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """A compiled function whose gradients refuse to be differentiated."""

    def called(*arguments: Any) -> Any:
        results = function(*arguments)
        if torch.is_grad_enabled():
            _watch(arguments, results if isinstance(results, tuple | list) else (results,))
        return results

    return called


def _watch(arguments: Sequence[Any], results: Sequence[Any]) -> None:
    node = next(filter(None, map(_node_of, results)), None)
    if node is None:
        return
    way = _Way.apply(*(each for each in arguments if isinstance(each, torch.Tensor) and each.requires_grad))

    def follow(gradients: tuple[Any, ...], _: Any) -> tuple[Any, ...] | None:
        if not torch.is_grad_enabled():  # which it is where create_graph=True asks for a second derivative
            return None
        return tuple(None if each is None else _Gradient.apply(each, way) for each in gradients)

    node.register_hook(follow)


def _node_of(result: Any) -> Any:
    """The node of the graph of derivatives that is the compiled function's."""
    node = result.grad_fn if isinstance(result, torch.Tensor) else None
    for _ in range(_DEPTH):
        if node is None or type(node).__name__ == _NODE:
            return node
        node = node.next_functions[0][0] if node.next_functions else None
    return None
