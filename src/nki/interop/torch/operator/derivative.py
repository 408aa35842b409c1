"""Calls of kernels whose authors said what the derivative is (`Kernel.defvjp`), as nodes of PyTorch's autograd."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily

from nki.core.errors import ExecutionError, LaunchError
from nki.driver.derivative import DifferentiableCall
from nki.frontend.values import leaves_of
from nki.interop.torch.operator.argument_trees import Outline, fill, outline, rebuilt, spelled_result, tensors_of
from nki.interop.torch.operator.call_plan import CallPlan
from nki.interop.torch.operator.mutation_check import MutationWatch, watching
from nki.interop.torch.user_location import user_line
from nki.kernel import Kernel

_DERIVATIVES = (torch._C._functorch.TransformType.Grad, torch._C._functorch.TransformType.Jvp)


def wants_gradient(kernel: Kernel, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether a call is one for autograd: it has a derivative, and somebody may ask for it."""
    if kernel.derivative is None or not torch.is_grad_enabled():
        return False
    levels = torch._C._functorch.get_interpreter_stack() or ()
    if any(level.key() in _DERIVATIVES for level in levels):
        return True  # which level of a transformation asks is known to the node alone
    leaves = leaves_of((*args, *kwargs.values()))
    return any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves)


def differentiable(kernel: Kernel, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The call as a node of autograd.

    Raises:
        NkiError: what the kernel, and the functions of its derivative, raise.
        LaunchError: a kernel that writes to its arguments ("torch.no-backward").
    """
    call = _Call(DifferentiableCall(kernel, args, kwargs))
    leaves = _Node.apply(call, *call.call.arrays)
    return rebuilt(call.structure, leaves)


class _Call:
    """One call: what the steps of its node have to know of each other.

    Attributes:
        call: the kernel's call; its arrays that are no tensors have no gradient.
        structure: words for the tree of results.
    """

    def __init__(self, call: DifferentiableCall) -> None:
        self.call = call
        self.structure = ""
        self._results: list[tuple[torch.Size, torch.dtype]] = []
        self._residuals: Outline = ()
        self._constants: list[Any] = []
        self._places: list[int] = []

    def forward(self, arrays: Sequence[Any]) -> tuple[torch.Tensor, ...]:
        """The tensors of the result, and those that are kept and are neither among them nor among the arguments."""
        with watching(_ArgumentWatch(self.call, arrays)):
            result, residuals = self.call.forward(arrays)
        leaves: list[torch.Tensor] = []
        self.structure = spelled_result(result, leaves, self.call.name)
        self._results = [(leaf.shape, leaf.dtype) for leaf in leaves]
        kept: list[torch.Tensor] = []
        self._residuals = outline(residuals, kept, self._constants)
        known = [*arrays, *leaves]
        for tensor in kept:
            place = next((place for place, each in enumerate(known) if each is tensor), len(known))
            if place == len(known):
                known.append(tensor)
            self._places.append(place)
        return tuple(known[len(arrays) :])

    def saved(self, arrays: Sequence[Any], outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """What the backward needs, of what the node got and gave."""
        known = [*arrays, *outputs]
        return [known[place] for place in self._places]

    def backward(self, saved: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor | None]) -> list[Any]:
        """The gradient of each array; `gradients` are those of what `forward` returned."""
        count = len(self._results)
        if any(gradient is not None for gradient in gradients[count:]):
            raise _twice(self.call.name)
        given = [
            _zeros(result, gradients) if gradient is None else gradient.contiguous()
            for gradient, result in zip(gradients, self._results, strict=False)
        ]
        residuals = fill(self._residuals, saved, self._constants)
        return self.call.backward(residuals, rebuilt(self.structure, given))


class _Node(torch.autograd.Function):
    """The node: arrays to the tensors of the result, and those that only the backward needs."""

    generate_vmap_rule = True

    @staticmethod
    def forward(call: _Call, *arrays: Any) -> Any:
        return call.forward(arrays)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
        call, *arrays = inputs
        ctx.call = call
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*call.saved(arrays, output))

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise _no_backward(
            ctx.call.call.name,
            "is differentiated in forward mode",
            "the derivative of a kernel is a backward function",
            "use torch.func.grad or torch.func.vjp",
        )

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> Any:
        if all(gradient is None for gradient in gradients):
            return (None,) * (1 + len(ctx.call.call.arrays))
        return (None, *ctx.call.backward(ctx.saved_tensors, gradients))


class _ArgumentWatch(MutationWatch):
    """Refuses a kernel that writes to the arguments of a call which is differentiated."""

    def __init__(self, call: DifferentiableCall, arrays: Sequence[Any]) -> None:
        super().__init__(call.name, call.function, {"arrays": list(arrays)}, frozenset())

    def refusal(self, key: str) -> LaunchError:
        return _no_backward(
            self.name,
            "writes to an argument, and is called with a tensor that requires a gradient",
            "a kernel that has a derivative returns its results and writes to none of its arguments",
            "write to a tensor of the kernel and return it, or call it under torch.no_grad()",
        )


def _no_backward(name: str, problem: str, rule: str, fix: str) -> LaunchError:
    return LaunchError("torch.no-backward", f"{name} {problem}", rule=rule, fix=fix, location=user_line())


def _zeros(result: tuple[torch.Size, torch.dtype], gradients: Sequence[torch.Tensor | None]) -> torch.Tensor | None:
    """The gradient of a result that nothing depends on; None for integers, which have none."""
    shape, dtype = result
    like = next(gradient for gradient in gradients if gradient is not None)
    return like.new_zeros(shape, dtype=dtype) if dtype.is_floating_point else None


def _twice(name: str) -> ExecutionError:
    return ExecutionError(
        "torch.double-backward",
        f"the derivative of {name} is differentiated, which depends on what its forward function computed and kept",
        rule="a second derivative goes through results and arguments of the kernel, and through nothing else",
        source="torch.autograd.Function",
        fix="keep arguments and results alone among the residuals, and compute the rest in backward",
        location=user_line(),
    )


_PLANS: dict[str, CallPlan] = {}
"""Calls in graphs by name, which hold no kernel; they stay, as nobody tells when the last graph goes."""

_NUMBERS = itertools.count(1)
"""Numbers those names."""


@torch.compiler.assume_constant_result
def planned_derivative(
    kernel: Kernel, grid: Any, positional: tuple[Outline, ...], named: tuple[Any, ...], *constants: Any
) -> str:
    """Name of a call in a graph and the structure of its result, which Dynamo takes for constants; else nothing."""
    kernel = kernel if grid is None else kernel.on(grid)
    if kernel.derivative is None:
        return ""
    draft = CallPlan(kernel, positional, named, constants, (), (), "")
    trees = (*positional, *(tree for _, tree in named))
    leaves = [leaf for tree in trees for leaf in tensors_of(tree)]
    with unset_fake_temporarily(), FakeTensorMode(), torch.no_grad():
        tensors = [torch.empty(shape, dtype=dtype) for _, _, shape, dtype in leaves]
        call = _Call(DifferentiableCall(kernel, *draft.arguments(tensors)))
        call.forward(call.call.arrays)
    name = f"{kernel.func.__name__}_{next(_NUMBERS)}"
    _PLANS[name] = draft
    return f"{name}|{call.structure}"


@torch.compiler.allow_in_graph
def differentiable_in_graph(name: str, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """A call that `planned_derivative` named, which Dynamo leaves in its graph as it is, and which autograd sees."""
    plan = _PLANS[name]
    leaves: list[torch.Tensor] = []
    args, kwargs = plan.arguments(list(tensors))
    spelled_result(differentiable(plan.kernel, args, kwargs), leaves, plan.kernel.func.__name__)
    return tuple(leaves)
