"""Reductions: for all ranks, for one, and of a part for each."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from nki.core.errors import LaunchError
from nki.core.source import Location
from nki.interop.torch.distributed.operators.registry import begin, operator
from nki.interop.torch.distributed.operators.tensors import (
    Tensors,
    bytes_of,
    check_list,
    check_rank,
    check_sizes,
    from_bytes,
    host_of,
    kinds_of,
)
from nki.interop.torch.distributed.reductions import Reduction
from nki.interop.torch.distributed.transport import Transport
from nki.interop.torch.user_location import user_line

_LARGE = 1 << 16
"""Bytes from which a sum is divided among the ranks, so that nobody gets all that all others have."""


# --------------------------------------------------------------------------------------------------------- reductions


def _reduction(boxed: Any, where: Location, *dtypes: torch.dtype) -> Reduction:
    number = boxed.op()
    name = dist.ReduceOp.RedOpType(number).name.lower()
    found = Reduction(name, _factor(where) if name == "premul_sum" else 1.0)
    for dtype in dtypes:
        found.check(dtype, where)
    return found


def _factor(where: Location) -> float:
    """The factor of a premul_sum: the operator gets none, so that it is read where PyTorch's Python was given it."""
    frame = sys._getframe(1)
    while frame is not None:
        operation = frame.f_locals.get("op")
        if isinstance(operation, dist.ReduceOp) and operation == dist.ReduceOp.PREMUL_SUM:
            factor = operation.__getstate__()[1]
            return float(factor)
        frame = frame.f_back  # type: ignore[assignment]
    raise LaunchError(
        "distributed.reduction",
        "a premul_sum comes from a call that does not say its factor",
        rule="the factor is read from the call of torch.distributed that was given it",
        fix="multiply before, and use ReduceOp.SUM",
        location=where,
    )


def _reduced(transport: Transport, tensors: Sequence[torch.Tensor], reduction: Reduction) -> list[torch.Tensor]:
    """The reductions of tensors of all ranks, for all of them."""
    return [_reduced_alone(transport, tensor, reduction) for tensor in tensors]


def _reduced_alone(transport: Transport, tensor: torch.Tensor, reduction: Reduction) -> torch.Tensor:
    size = transport.size
    flat = bytes_of(tensor).view(-1)
    width = tensor.element_size()
    if flat.numel() < _LARGE or size == 1:
        parts = transport.gathered(flat).split(flat.numel()) if flat.numel() else []
        return reduction.of([from_bytes(part, tensor.dtype) for part in parts]) if parts else tensor.reshape(-1)
    share = -(-tensor.numel() // size) * width
    pieces = [flat[at * share : (at + 1) * share] for at in range(size)]
    mine = pieces[transport.rank].numel()
    parts = transport.exchanged(pieces, [mine] * size)
    own = torch.zeros(share, dtype=torch.uint8)
    own[:mine] = bytes_of(reduction.of([from_bytes(part, tensor.dtype) for part in parts]))
    return from_bytes(transport.gathered(own)[: flat.numel()], tensor.dtype)


@operator
def c10d_allreduce_(
    tensors: Tensors, process_group: Any, reduce_op: Any, sparse_indices: Any, async_op: bool = True, timeout: int = -1
) -> Any:
    """Every rank gets the reduction of the tensors of all ranks."""
    return tensors, _all_reduce("all_reduce", tensors, process_group, reduce_op, timeout)


@operator
def c10d_allreduce_coalesced_(
    tensors: Tensors, process_group: Any, reduce_op: Any, async_op: bool = True, timeout: int = -1
) -> Any:
    """Reduce several tensors in one call."""
    return _all_reduce("all_reduce_coalesced", tensors, process_group, reduce_op, timeout)


def _all_reduce(name: str, tensors: Tensors, process_group: Any, reduce_op: Any, timeout: int) -> Any:
    where = user_line()
    hosts = [host_of(tensor, name, where) for tensor in tensors]
    reduction = _reduction(reduce_op, where, *(tensor.dtype for tensor in tensors))

    def run(transport: Transport) -> None:
        for host, result in zip(hosts, _reduced(transport, hosts, reduction), strict=True):
            host.copy_(result.view(host.shape))

    return begin(process_group, (name, *reduction, *kinds_of(tensors)), run, tensors, timeout)


@operator
def c10d_reduce_(
    tensors: Tensors,
    process_group: Any,
    reduce_op: Any,
    root_rank: int,
    root_tensor: int,
    async_op: bool = True,
    timeout: int = -1,
) -> Any:
    """The root gets the reduction of the tensors of all ranks."""
    where = user_line()
    check_rank("reduce", root_rank, dist.ProcessGroup.unbox(process_group).size())
    hosts = [host_of(tensor, "reduce", where) for tensor in tensors]
    reduction = _reduction(reduce_op, where, *(tensor.dtype for tensor in tensors))

    def run(transport: Transport) -> None:
        for host in hosts:
            parts = _to_root(transport, bytes_of(host), root_rank)
            if transport.rank == root_rank and host.numel():
                host.copy_(reduction.of([from_bytes(part, host.dtype) for part in parts]).view(host.shape))

    return begin(process_group, ("reduce", *reduction, root_rank, *kinds_of(tensors)), run, tensors, timeout)


def _to_root(transport: Transport, data: torch.Tensor, root: int) -> list[torch.Tensor]:
    """What the ranks have, on the root; all have as much."""
    size, empty = transport.size, data[:0]
    mine = data.numel() if transport.rank == root else 0
    return transport.exchanged([data if at == root else empty for at in range(size)], [mine] * size)


@operator
def c10d_reduce_scatter_(
    output_tensors: Tensors,
    input_tensors: list[Tensors],
    process_group: Any,
    reduce_op: Any,
    async_op: bool = True,
    timeout: int = -1,
) -> Any:
    """Each rank gets the reduction of one tensor of every rank's list."""
    work = _reduce_scatter("reduce_scatter", output_tensors, input_tensors, process_group, reduce_op, timeout)
    return output_tensors, work


@operator
def c10d__reduce_scatter_base_(
    output_tensor: torch.Tensor,
    input_tensor: torch.Tensor,
    process_group: Any,
    reduce_op: Any,
    async_op: bool = True,
    timeout: int = -1,
) -> Any:
    """Each rank gets the reduction of its part of every rank's tensor."""
    parts = _parts("reduce_scatter_tensor", input_tensor, output_tensor, process_group)
    return output_tensor, _reduce_scatter(
        "reduce_scatter_tensor", [output_tensor], [parts], process_group, reduce_op, timeout
    )


@operator
def c10d_reduce_scatter_tensor_coalesced_(
    outputs: Tensors, inputs: Tensors, process_group: Any, reduce_op: Any, async_op: bool = True, timeout: int = -1
) -> Any:
    """Reduce and scatter several tensors in one call."""
    name = "reduce_scatter_tensor_coalesced"
    parts = [_parts(name, whole, out, process_group) for whole, out in zip(inputs, outputs, strict=True)]
    return _reduce_scatter(name, outputs, parts, process_group, reduce_op, timeout)


def _parts(name: str, whole: torch.Tensor, part: torch.Tensor, process_group: Any) -> Tensors:
    """A tensor in as many parts as there are ranks, in the order of its elements."""
    size = dist.ProcessGroup.unbox(process_group).size()
    check_sizes(name, whole.numel(), part.numel() * size, size)
    return list(whole.reshape(-1).split(part.numel())) if part.numel() else [whole] * size


def _reduce_scatter(
    name: str, outputs: Tensors, inputs: Sequence[Tensors], process_group: Any, reduce_op: Any, timeout: int
) -> Any:
    where = user_line()
    targets = [host_of(tensor, name, where) for tensor in outputs]
    sources = [[host_of(tensor, name, where) for tensor in parts] for parts in inputs]
    reduction = _reduction(reduce_op, where, *(tensor.dtype for tensor in outputs))
    size = dist.ProcessGroup.unbox(process_group).size()
    for target, parts in zip(targets, sources, strict=True):
        check_list(name, parts, size, target.dtype, where)
    rank = dist.ProcessGroup.unbox(process_group).rank()
    for target, parts in zip(targets, sources, strict=True):
        check_sizes(name, parts[rank].numel(), target.numel(), size)

    def run(transport: Transport) -> None:
        for target, parts in zip(targets, sources, strict=True):
            found = transport.exchanged(
                [bytes_of(part) for part in parts], [target.numel() * target.element_size()] * size
            )
            if target.numel():
                target.copy_(reduction.of([from_bytes(part, target.dtype) for part in found]).view(target.shape))

    sends = [sum(parts[at].numel() for parts in sources) for at in range(size)]
    expects = [sum(target.numel() for target in targets)] * size
    dtypes = [str(tensor.dtype).removeprefix("torch.") for tensor in outputs]
    return begin(process_group, (name, *reduction, *dtypes), run, outputs, timeout, sends, expects)
