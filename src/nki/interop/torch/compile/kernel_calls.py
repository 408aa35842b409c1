"""Kernels in a graph that is compiled as a whole: nodes ``nki::call_N`` and ``nki::update_N`` become custom calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch._library.custom_ops import OPDEFS
from torch._ops import OpOverload, OpOverloadPacket
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch._subclasses.functional_tensor import dispatch_functionalize
from torch.overrides import TorchFunctionMode

from nki.core.tensor import View, whole
from nki.graph.importers.torch.builder import Builder
from nki.graph.importers.torch.table import Call, Converter, refused
from nki.graph.ir import TensorType, Value
from nki.graph.references import TARGET, Reference, register
from nki.interop.common.backend_config import BackendConfig
from nki.interop.torch.operator.call_plan import CallPlan, compiled_plan, plan_named
from nki.interop.torch.operator.nki_op import BODIES
from nki.spec.program import Program


def bodies() -> dict[Any, Any]:
    """Operators made with `nki_op` that only read, with what they do: decompositions of the graph.

    A body may write to tensors that it makes, as for kernels with output pointers; the graph is without such writes.
    """
    return {op: dispatch_functionalize(body) for op, body in BODIES.items() if not op._schema.is_mutable}


def open_writers(graph: torch.fx.GraphModule) -> None:
    """Put what operators do that write to arguments in their place; AOT autograd makes a function of the result.

    The same for operators that only read and call one that writes to tensors of theirs.
    """
    for node in graph.graph.nodes:
        body = BODIES.get(node.target) if node.op == "call_function" else None
        if body is not None and (node.target._schema.is_mutable or _calls_writer(node, body)):
            node.target = _opened(body)
    graph.recompile()


class _Opening(TorchFunctionMode):
    """Puts what operators made with `nki_op` do in their place, where they are called.

    Attributes:
        found: whether one of them writes to its arguments.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found = False

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        overload = func.default if isinstance(func, OpOverloadPacket) and "default" in func.overloads() else func
        body = BODIES.get(overload) if isinstance(overload, OpOverload) else None
        if body is None or _has_backward(overload):
            return func(*args, **(kwargs or {}))
        self.found = self.found or overload._schema.is_mutable
        with self:
            return body(*args, **(kwargs or {}))


def _opened(body: Callable[..., Any]) -> Callable[..., Any]:
    def opened(*args: Any, **kwargs: Any) -> Any:
        with _Opening():
            return body(*args, **kwargs)

    return opened


def _calls_writer(node: torch.fx.Node, body: Callable[..., Any]) -> bool:
    """Whether what an operator does calls one that writes: it is tried with tensors that have no values.

    One with a backward of its own has to stay an operator until there is a derivative, so it does not count.
    """
    if _has_backward(node.target):
        return False
    opening = _Opening()
    with unset_fake_temporarily(), FakeTensorMode(), torch.no_grad(), opening:
        args, kwargs = (torch.fx.node.map_arg(given, _without_values) for given in (node.args, node.kwargs))
        body(*args, **kwargs)
    return opening.found


def _has_backward(operator: OpOverload) -> bool:
    return OPDEFS[operator._schema.name]._backward_fn is not None


def _without_values(source: torch.fx.Node) -> Any:
    value = source.meta["example_value"] if "example_value" in source.meta else source.meta["val"]
    if not isinstance(value, torch.Tensor):
        return value
    sizes, strides = (tuple(map(int, each)) for each in (value.shape, value.stride()))
    return torch.empty_strided(sizes, strides, dtype=value.dtype, device=value.device)


class Kernels:
    """The kernels of one graph, which it keeps until the graph is compiled."""

    def __init__(self) -> None:
        self.references: list[Reference] = []

    def converters(self, graph: torch.fx.GraphModule) -> dict[str, Converter]:
        """Converters for the calls in a graph, and in those that it calls."""
        graphs = [each for each in graph.modules() if isinstance(each, torch.fx.GraphModule)]
        names = {str(node.target) for each in graphs for node in each.graph.nodes if node.op == "call_function"}
        found: dict[str, Converter] = {name: self._call for name in names if name.startswith("nki.call_")}
        return {**found, "auto_functionalized": self._update, "auto_functionalized_v2": self._exported_update}

    def _call(self, b: Builder, call: Call, read: Sequence[Value], name: str) -> Any:
        results = self._called(b, name, list(read), ())
        return results if len(results) != 1 else results[0]

    def _update(self, b: Builder, call: Call, operator: Any, *arguments: Any) -> Any:
        """The functional form of a call that writes: its results, then the new values of what it writes to."""
        if not str(operator).startswith("nki.update_"):
            raise refused(
                b,
                Call(str(operator), call.types, call.used, call.seeds),
                "an operator that writes to its arguments, in a subgraph or inside of an operator with a backward",
                "call the kernel itself or wrap_nki(kernel) there, or return the new value instead",
                *arguments,
            )
        read, written, name = arguments
        places = plan_named(name).written
        total, rest, changed = len(read) + len(written), iter(read), iter(written)
        tensors = [next(changed if place in places else rest) for place in range(total)]
        results = self._called(b, name, tensors, places)
        count = len(results) - len(places)
        return (*(results[:count] or (None,)), list(results[count:]))

    def _exported_update(
        self, b: Builder, call: Call, operator: Any, read: Any, name: Any, count: Any = None, *rest: Any
    ) -> Any:
        """The functional form in exported programs: it says which bases are written to, and returns all of them."""
        *places, bases = rest or ([],)
        if not str(operator).startswith("nki.update_") or len(places) != count:
            raise refused(
                b,
                Call(str(operator), call.types, call.used, call.seeds),
                "an operator that writes to a part of a tensor, or that is not made with nki_op",
                "write to a tensor of its own, and copy that",
            )
        results = list(self._update(b, call, operator, read, [bases[place] for place in places], name))
        new = dict(zip(places, results.pop(), strict=True))
        return (*results, *(new.get(place, base) for place, base in enumerate(bases)))

    def _called(self, b: Builder, name: str, tensors: list[Value], written: Sequence[int]) -> tuple[Value, ...]:
        plan = plan_named(name)
        compiled, places = compiled_plan(plan)
        programs = tuple(_with_written(program, places, written) for program in compiled.programs)
        reference = register(f"{compiled.kernel_hash}{'w' if written else ''}", _kernel_name(plan), programs)
        self.references.append(reference)
        first = programs[0]
        types = [TensorType(view.shape, view.dtype) for view in first.outputs[: len(plan.results)]]
        types += [tensors[place].type for place in written]
        names = tuple(buffer.name for buffer in first.inputs), tuple(view.buffer.name for view in first.outputs)
        config = BackendConfig(reference.key, *names, reference.name, (), False)
        attributes = {
            "call_target_name": TARGET,
            "backend_config": config.encoded(),
            "has_side_effect": False,
            "api_version": 2,
        }
        return b.emit("custom_call", [tensors[place] for place in places], types, attributes)


def _kernel_name(plan: CallPlan) -> str:
    return plan.kernel.func.__name__


def _with_written(program: Program, places: Sequence[int], written: Sequence[int]) -> Program:
    """The program with the tensors that it writes in place as further results."""
    position = {place: number for number, place in enumerate(places)}
    more: list[View] = [whole(program.inputs[position[place]]) for place in written]
    return replace(program, outputs=[*program.outputs, *more]) if more else program
