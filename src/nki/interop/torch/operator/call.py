"""A call of a kernel with tensors: run now, or made part of the graph that is being traced."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from nki.interop.torch.memory import DEVICE
from nki.interop.torch.operator.argument_trees import Outline, outline, rebuilt
from nki.interop.torch.operator.call_plan import make_plan
from nki.interop.torch.operator.custom_ops import operator_name
from nki.interop.torch.operator.derivative import (
    differentiable,
    differentiable_in_graph,
    planned_derivative,
    wants_gradient,
)
from nki.interop.torch.operator.mutation_check import active_watch
from nki.interop.torch.operator.run import run
from nki.kernel import Kernel
from nki.spec.sink import active_sink


def call(kernel: Kernel, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a kernel on a grid of `Kernel.grid_constant`, or None. Dynamo traces this function up to the operator."""
    if torch.compiler.is_dynamo_compiling():
        return traced(kernel, grid, args, kwargs)
    if grid is not None:
        kernel = kernel.on(grid)
    kinds = _kinds((*args, *kwargs.values()))
    if not kinds or active_sink() is not None:
        return kernel.run(args, kwargs)
    if wants_gradient(kernel, args, kwargs):
        return differentiable(kernel, args, kwargs)
    if "traced" in kinds or torch._C._len_torch_dispatch_stack() or torch._C._functorch.peek_interpreter_stack():
        return traced(kernel, None, args, kwargs)
    if active_watch() is not None:
        _foretell(kernel, args, kwargs)
    return run(kernel, args, kwargs) if DEVICE in kinds else kernel.run(args, kwargs)


def traced(kernel: Kernel, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a kernel by an operator, which every tracer of PyTorch sees."""
    tensors: list[torch.Tensor] = []
    constants: list[Any] = []
    positional = tuple([outline(value, tensors, constants) for value in args])
    named = tuple([(name, outline(value, tensors, constants)) for name, value in kwargs.items()])
    if torch.is_grad_enabled() and any([tensor.requires_grad for tensor in tensors]):
        planned_call = planned_derivative(kernel, grid, positional, named, *constants)
        if planned_call:
            name, structure = planned_call.split("|")
            return rebuilt(structure, differentiable_in_graph(name, *tensors))
    name, operator, places, structure = planned(kernel, grid, positional, named, *constants).split("|")
    written = [int(place) for place in places.split()]
    read = [tensor for place, tensor in enumerate(tensors) if place not in written]
    function = getattr(torch.ops.nki, operator)
    if written:
        if not torch.compiler.is_dynamo_compiling():
            _tell_watch(tensors, written)
        results = function(read, [tensors[place] for place in written], name)
    else:
        results = function(read, name)
    if not isinstance(results, tuple | list):
        results = (results,)
    return rebuilt(structure, results)


@torch.compiler.assume_constant_result
def planned(kernel: Kernel, grid: Any, positional: tuple[Outline, ...], named: tuple[Any, ...], *constants: Any) -> str:
    """Name of the plan, its operator, the places that are written to and the structure of the result.

    A text, because that is what Dynamo takes for a constant.
    """
    name, plan = make_plan(kernel if grid is None else kernel.on(grid), positional, named, constants)
    return "|".join([name, operator_name(plan), " ".join(map(str, plan.written)), plan.structure])


def _foretell(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Tell the watch what the kernel is going to write to."""
    tensors: list[torch.Tensor] = []
    constants: list[Any] = []
    positional = tuple([outline(value, tensors, constants) for value in args])
    named = tuple([(name, outline(value, tensors, constants)) for name, value in kwargs.items()])
    plan = make_plan(kernel, positional, named, tuple(constants))[1]
    _tell_watch(tensors, list(plan.written))


def _tell_watch(tensors: list[torch.Tensor], written: list[int]) -> None:
    watch = active_watch()
    if watch is not None:
        for place in written:
            watch.writes(tensors[place])


def _kinds(values: Iterable[Any]) -> set[str]:
    """Where the tensors of trees are: their device, or "traced" without values of their own.

    A tree may contain itself; the call refuses it with an error of its own.
    """
    kinds, seen, waiting = set(), set(), list(values)
    while waiting:
        value = waiting.pop()
        if isinstance(value, torch.Tensor):
            kinds.add(_kind(value))
        elif isinstance(value, dict | tuple | list) and id(value) not in seen:
            seen.add(id(value))
            waiting.extend(value.values() if isinstance(value, dict) else value)
    return kinds


def _kind(tensor: torch.Tensor) -> str:
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and not tensor.is_meta
    return str(tensor.device.type) if plain else "traced"
