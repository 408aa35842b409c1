"""Tensors that go from all ranks to all, from all to one, and from one to all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from nki.core.errors import ArgumentError
from nki.interop.torch.distributed.operators.registry import begin, operator
from nki.interop.torch.distributed.operators.tensors import (
    Tensors,
    bytes_of,
    check_list,
    check_rank,
    check_sizes,
    fill,
    host_of,
    kinds_of,
)
from nki.interop.torch.distributed.transport import Transport
from nki.interop.torch.user_location import user_line

_NO_LIMIT = -1
"""The time limit of calls that have none of their own."""


# ----------------------------------------------------------------------------------------------------------- gathering


@operator
def c10d_allgather_(
    output_tensors: list[Tensors],
    input_tensors: Tensors,
    process_group: Any,
    async_op: bool = True,
    timeout: int = -1,
) -> Any:
    """Every rank gets the tensors of all ranks, which may have different sizes."""
    return output_tensors, _all_gather("all_gather", output_tensors, input_tensors, process_group, timeout)


@operator
def c10d_allgather_coalesced_(
    output_lists: list[Tensors], input_list: Tensors, process_group: Any, async_op: bool = True
) -> Any:
    """Gather several tensors in one call: each rank's list of outputs has one tensor for each input."""
    columns = [list(column) for column in zip(*output_lists, strict=True)]
    return _all_gather("all_gather_coalesced", columns, input_list, process_group, _NO_LIMIT)


@operator
def c10d__allgather_base_(
    output_tensor: torch.Tensor,
    input_tensor: torch.Tensor,
    process_group: Any,
    async_op: bool = True,
    timeout: int = -1,
) -> Any:
    """Every rank gets the tensors of all ranks, one behind the other."""
    parts = _outputs("all_gather_into_tensor", output_tensor, input_tensor, process_group)
    return output_tensor, _all_gather(
        "all_gather_into_tensor", parts, [input_tensor], process_group, timeout, [output_tensor]
    )


@operator
def c10d_allgather_into_tensor_coalesced_(
    outputs: Tensors, inputs: Tensors, process_group: Any, async_op: bool = True
) -> Any:
    """Gather several tensors in one call, each into one tensor."""
    name = "all_gather_into_tensor_coalesced"
    parts = [part for pair in zip(outputs, inputs, strict=True) for part in _outputs(name, *pair, process_group)]
    return _all_gather(name, parts, inputs, process_group, _NO_LIMIT, outputs)


def _outputs(name: str, whole: torch.Tensor, part: torch.Tensor, process_group: Any) -> list[Tensors]:
    """The parts of an output, as views of its memory; one list, of all ranks."""
    size = dist.ProcessGroup.unbox(process_group).size()
    check_sizes(name, whole.numel(), part.numel() * size, size)
    return [[whole] if size == 1 else _views(whole, part, size)]


def _views(whole: torch.Tensor, part: torch.Tensor, size: int) -> Tensors:
    if whole.is_contiguous():
        flat = whole.view(-1)
        return list(flat.split(part.numel())) if part.numel() else [whole] * size
    if whole.dim() and whole.shape[0] % size == 0:
        return list(whole.split(whole.shape[0] // size))
    raise ArgumentError(
        "distributed.sizes",
        f"an output of shape {tuple(whole.shape)} is not contiguous, and its first dimension is not {size} parts",
        rule="the parts of all ranks are parts of the output's memory",
        fix="allocate a contiguous output",
        location=user_line(),
    )


def _all_gather(
    name: str,
    outputs: Sequence[Tensors],
    inputs: Tensors,
    process_group: Any,
    timeout: int,
    written: Tensors | None = None,
) -> Any:
    where = user_line()
    size = dist.ProcessGroup.unbox(process_group).size()
    sources = [host_of(tensor, name, where) for tensor in inputs]
    targets = [[host_of(tensor, name, where) for tensor in parts] for parts in outputs]
    for source, parts in zip(sources, targets, strict=True):
        check_list(name, parts, size, source.dtype, where)

    def run(transport: Transport) -> None:
        for source, parts in zip(sources, targets, strict=True):
            data, sizes = bytes_of(source), [part.numel() * part.element_size() for part in parts]
            longest = max(sizes)
            if longest == data.numel():
                padded = data
            else:
                padded = torch.zeros(longest, dtype=torch.uint8)
                padded[: data.numel()] = data
            found = transport.gathered(padded)
            for at, part in enumerate(parts):
                fill(part, found[at * longest : at * longest + sizes[at]])

    sends = [sum(source.numel() for source in sources)] * size
    expects = [sum(parts[at].numel() for parts in targets) for at in range(size)]
    dtypes = [str(tensor.dtype).removeprefix("torch.") for tensor in inputs]
    tensors = written if written is not None else [tensor for parts in outputs for tensor in parts]
    return begin(process_group, (name, *dtypes), run, tensors, timeout, sends, expects)


@operator
def c10d_gather_(
    output_tensors: list[Tensors],
    input_tensors: Tensors,
    process_group: Any,
    root_rank: int,
    async_op: bool = True,
    timeout: int = -1,
) -> Any:
    """The root gets the tensors of all ranks."""
    where = user_line()
    unboxed = dist.ProcessGroup.unbox(process_group)
    size, root = unboxed.size(), unboxed.rank() == root_rank
    check_rank("gather", root_rank, size)
    source = host_of(input_tensors[0], "gather", where)
    targets = [host_of(tensor, "gather", where) for tensor in output_tensors[0]] if root else []
    if root:
        check_list("gather", targets, size, source.dtype, where)

    def run(transport: Transport) -> None:
        data, sizes = bytes_of(source), [target.numel() * target.element_size() for target in targets] or [0] * size
        parts = [data if at == root_rank else data[:0] for at in range(size)]
        for target, found in zip(targets, transport.exchanged(parts, sizes), strict=False):
            fill(target, found)

    sends = [source.numel() if at == root_rank else 0 for at in range(size)]
    expects = [target.numel() for target in targets] or [0] * size
    what = ("gather", root_rank, str(source.dtype).removeprefix("torch."))
    return begin(process_group, what, run, output_tensors[0] if root else [], timeout, sends, expects)


@operator
def c10d_scatter_(
    output_tensors: Tensors,
    input_tensors: list[Tensors],
    process_group: Any,
    root_rank: int,
    async_op: bool = True,
    timeout: int = -1,
) -> Any:
    """Each rank gets one of the tensors of the root."""
    where = user_line()
    unboxed = dist.ProcessGroup.unbox(process_group)
    size, root = unboxed.size(), unboxed.rank() == root_rank
    check_rank("scatter", root_rank, size)
    target = host_of(output_tensors[0], "scatter", where)
    sources = [host_of(tensor, "scatter", where) for tensor in input_tensors[0]] if root else []
    if root:
        check_list("scatter", sources, size, target.dtype, where)

    def run(transport: Transport) -> None:
        parts = [bytes_of(source) for source in sources] or [torch.empty(0, dtype=torch.uint8)] * size
        sizes = [target.numel() * target.element_size() if at == root_rank else 0 for at in range(size)]
        fill(target, transport.exchanged(parts, sizes)[root_rank])

    sends = [source.numel() for source in sources] or [0] * size
    expects = [target.numel() if at == root_rank else 0 for at in range(size)]
    what = ("scatter", root_rank, str(target.dtype).removeprefix("torch."))
    return output_tensors, begin(process_group, what, run, output_tensors, timeout, sends, expects)


@operator
def c10d_broadcast_(
    tensors: Tensors,
    process_group: Any,
    root_rank: int,
    root_tensor: int,
    async_op: bool = True,
    timeout: int = -1,
) -> Any:
    """Every rank gets the tensors of the root."""
    where = user_line()
    check_rank("broadcast", root_rank, dist.ProcessGroup.unbox(process_group).size())
    hosts = [host_of(tensor, "broadcast", where) for tensor in tensors]

    def run(transport: Transport) -> None:
        for host in hosts:
            data = bytes_of(host) if transport.rank == root_rank else torch.empty_like(bytes_of(host))
            transport.broadcast(data, root_rank)
            if transport.rank != root_rank:
                fill(host, data)

    return tensors, begin(process_group, ("broadcast", root_rank, *kinds_of(tensors)), run, tensors, timeout)
