"""What a kernel does with tensors of given shapes, found by tracing and compiling it, never by running it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from nki.core.dtypes import DType
from nki.core.errors import LaunchError
from nki.core.tensor import View
from nki.driver.compile import compiled
from nki.driver.compiled import Compiled
from nki.driver.prepare import prepare
from nki.interop.torch.operator.argument_trees import Outline, fill, spelled_result, tensors_of
from nki.interop.torch.user_location import user_line
from nki.kernel import Kernel


@dataclass(frozen=True, slots=True)
class CallPlan:
    """A kernel with everything but its tensors.

    Attributes:
        kernel: the kernel, on the cores that it was launched on.
        positional, named: outlines of its arguments.
        constants: the values that outlines point to.
        results: shape and dtype of each tensor that it returns.
        written: positions of the tensors that it writes to.
        structure: words for the tree of results.
    """

    kernel: Kernel
    positional: tuple[Outline, ...]
    named: tuple[tuple[str, Outline], ...]
    constants: tuple[Any, ...]
    results: tuple[tuple[tuple[int, ...], torch.dtype], ...]
    written: tuple[int, ...]
    structure: str

    def arguments(self, tensors: list[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a call, given its tensors in order."""
        return (
            tuple(fill(tree, tensors, self.constants) for tree in self.positional),
            {name: fill(tree, tensors, self.constants) for name, tree in self.named},
        )


_PLANS: dict[str, CallPlan] = {}
"""Plans by name. Graphs hold the names, because a graph cannot hold a kernel; they stay, as
nobody tells when the last graph goes."""


def make_plan(
    kernel: Kernel,
    positional: tuple[Outline, ...],
    named: tuple[tuple[str, Outline], ...],
    constants: tuple[Any, ...],
) -> tuple[str, CallPlan]:
    """The plan of a call, and its name, which is the same in every process that compiles the same kernel.

    Raises:
        NkiError: what the trace of the kernel, its rules and its compilation raise.
        LaunchError: results that no graph can hold ("torch.result").
    """
    draft = CallPlan(kernel, positional, named, constants, (), (), "")
    made, places = compiled_plan(draft)
    views: list[View] = []
    structure = spelled_result(made.result, views, kernel.func.__name__)
    plan = replace(
        draft,
        results=tuple((tuple(view.shape), torch_dtype(view.dtype)) for view in views),
        written=tuple(sorted(places[position] for position in made.written)),
        structure=structure,
    )
    name = _name(plan, made)
    _PLANS[name] = plan
    return name, plan


def compiled_plan(plan: CallPlan) -> tuple[Compiled, list[int]]:
    """The compiled kernel of a plan, and which of its tensors each input of the kernel is. Raises like `make_plan`."""
    trees = (*plan.positional, *(tree for _, tree in plan.named))
    with torch._C._DisableTorchDispatch(), torch._C._DisableFuncTorch():
        leaves = [leaf for tree in trees for leaf in tensors_of(tree)]
        stand_ins = [torch.empty(shape, dtype=dtype, device="cpu") for _, _, shape, dtype in leaves]
        return _compiled(plan.kernel, *plan.arguments(stand_ins), stand_ins)


def plan_named(name: str) -> CallPlan:
    """The plan that a graph asks for."""
    plan = _PLANS.get(name)
    if plan is None:
        raise LaunchError(
            "torch.unknown-call",
            f"no kernel call of this process is named {name}",
            rule="a graph names kernel calls that were traced in the same process",
            fix="trace the model again, or register the kernel with nki_op, whose name is stable",
            location=user_line(),
        )
    return plan


def torch_dtype(dtype: DType) -> torch.dtype:
    """The dtype of a result."""
    found = getattr(torch, dtype.name, None)
    if not isinstance(found, torch.dtype):
        raise LaunchError(
            "result.dtype", f"torch has no dtype for {dtype}", fix="view the result as uint8 in the kernel"
        )
    return found


def _compiled(
    kernel: Kernel, args: tuple[Any, ...], kwargs: Mapping[str, Any], stand_ins: list[torch.Tensor]
) -> tuple[Compiled, list[int]]:
    """The compiled kernel, as its next call finds it, and which tensor each of its arrays is."""
    prepared = prepare(kernel, args, kwargs, mode="compiled")
    order = {id(tensor): place for place, tensor in enumerate(stand_ins)}
    return compiled(prepared), [order[id(host.original)] for host in prepared.arguments.arrays]


def _name(plan: CallPlan, made: Compiled) -> str:
    launch = plan.kernel.launch()
    facts = (made.kernel_hash, plan.positional, plan.named, plan.constants, launch.lnc, launch.eager)
    return f"{launch.name}_{hashlib.sha256(repr(facts).encode()).hexdigest()[:16]}"
