"""The operators ``nki::call_N`` and ``nki::update_N``: one call of a kernel with N results, as graphs hold it.

A graph cannot hold a kernel, so the operators take the name of a plan. `update` has a list of tensors that the kernel
writes to. Results are counted because PyTorch puts no operator into functional form that returns a list.
"""

from __future__ import annotations

from typing import Any

import torch

from nki.core.errors import LaunchError
from nki.interop.torch.operator.argument_trees import spelled_result
from nki.interop.torch.operator.call_plan import CallPlan, plan_named
from nki.interop.torch.operator.require_backward import require_backward
from nki.interop.torch.operator.run import run
from nki.interop.torch.user_location import user_line

_DEFINED: dict[str, Any] = {}
"""The operators that PyTorch was told of, which it keeps for ever; one for each number of results."""


def operator_name(plan: CallPlan) -> str:
    """The operator for a plan, defined if this is the first of its kind."""
    name = f"{'update' if plan.written else 'call'}_{len(plan.results)}"
    if name not in _DEFINED:
        _DEFINED[name] = _define(name, len(plan.results), bool(plan.written))
    return name


def _define(name: str, count: int, writes: bool) -> Any:
    returns = "Tensor" if count == 1 else f"({', '.join(['Tensor'] * count)})"
    if writes:
        made = torch.library.custom_op(
            f"nki::{name}",
            _run_update,
            mutates_args=("written",),
            schema=f"(Tensor[] read, Tensor(a!)[] written, str call) -> {returns}",
        )
        made.register_fake(_shape_update)
        made.register_vmap(_refuse_batch)
    else:
        made = torch.library.custom_op(
            f"nki::{name}", _run_call, mutates_args=(), schema=f"(Tensor[] read, str call) -> {returns}"
        )
        made.register_fake(_shape_call)
        made.register_vmap(_one_after_the_other)
    require_backward(made, "say what the derivative is, with kernel.defvjp(forward, backward)")
    return made


def _run_call(read: list[torch.Tensor], call: str) -> Any:
    return _run(plan_named(call), read)


def _run_update(read: list[torch.Tensor], written: list[torch.Tensor], call: str) -> Any:
    plan = plan_named(call)
    rest, changed = iter(read), iter(written)
    total = len(read) + len(written)
    return _run(plan, [next(changed if place in plan.written else rest) for place in range(total)])


def _run(plan: CallPlan, tensors: list[torch.Tensor]) -> Any:
    args, kwargs = plan.arguments(tensors)
    leaves: list[torch.Tensor] = []
    structure = spelled_result(run(plan.kernel, args, kwargs), leaves, plan.kernel.func.__name__)
    found = tuple((tuple(leaf.shape), leaf.dtype) for leaf in leaves)
    if structure != plan.structure or found != plan.results:
        raise LaunchError(
            "torch.changed",
            f"{plan.kernel.func.__name__} returned {found}, but {plan.results} when the graph was traced",
            rule="a kernel in a graph returns what it returned when the graph was traced",
            fix="compile the model again: torch.compiler.reset()",
            location=user_line(),
        )
    return _given(leaves)


def _one_after_the_other(info: Any, in_dims: tuple[Any, ...], read: list[torch.Tensor], call: str) -> Any:
    """`torch.vmap`: nothing is known of a kernel that would allow one call for all elements of the batch."""
    operator = getattr(torch.ops.nki, operator_name(plan_named(call)))
    rows = []
    for element in range(info.batch_size):
        rows.append(operator([_element(each, dim, element) for each, dim in zip(read, in_dims[0], strict=True)], call))
    if isinstance(rows[0], torch.Tensor):
        return torch.stack(rows), 0
    results = tuple(torch.stack(each) for each in zip(*rows, strict=True)) if rows[0] is not None else None
    return results, None if results is None else (0,) * len(results)


def _element(tensor: torch.Tensor, dim: int | None, number: int) -> torch.Tensor:
    return tensor if dim is None else tensor.select(dim, number)


def _refuse_batch(
    info: Any, in_dims: tuple[Any, ...], read: list[torch.Tensor], written: list[torch.Tensor], call: str
) -> Any:
    raise LaunchError(
        "torch.vmap",
        f"{plan_named(call).kernel.func.__name__} writes to an argument, and is called under torch.vmap",
        rule="vmap calls a kernel once for each element of the batch, and what it writes would not be in the batch",
        fix="return the result from the kernel, or give the kernel a batch dimension",
        location=user_line(),
    )


def _shape_call(read: list[torch.Tensor], call: str) -> Any:
    return _shaped(plan_named(call), read)


def _shape_update(read: list[torch.Tensor], written: list[torch.Tensor], call: str) -> Any:
    return _shaped(plan_named(call), [*read, *written])


def _shaped(plan: CallPlan, tensors: list[torch.Tensor]) -> Any:
    device = tensors[0].device if tensors else torch.device("cpu")
    return _given([torch.empty(shape, dtype=dtype, device=device) for shape, dtype in plan.results])


def _given(leaves: list[torch.Tensor]) -> Any:
    """In the form that an operator returns."""
    if not leaves:
        return None
    return leaves[0] if len(leaves) == 1 else tuple(leaves)
