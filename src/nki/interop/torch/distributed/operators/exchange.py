"""Tensors of each rank for each other one, and barriers."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from nki.interop.torch.distributed.operators.registry import begin, operator
from nki.interop.torch.distributed.operators.tensors import Tensors, bytes_of, check_list, check_sizes, fill, host_of
from nki.interop.torch.distributed.transport import Transport
from nki.interop.torch.user_location import user_line

# ---------------------------------------------------------------------------------------------------------- exchanging


@operator
def c10d_alltoall_(
    output_tensors: Tensors, input_tensors: Tensors, process_group: Any, async_op: bool = True, timeout: int = -1
) -> Any:
    """Each rank sends a tensor to every rank, and gets one from every rank; sizes may differ."""
    return output_tensors, _all_to_all("all_to_all", output_tensors, input_tensors, process_group, timeout)


@operator
def c10d_alltoall_base_(
    output: torch.Tensor,
    input: torch.Tensor,
    process_group: Any,
    output_split_sizes: list[int],
    input_split_sizes: list[int],
    async_op: bool = True,
    timeout: int = -1,
) -> Any:
    """Each rank sends every other one some rows of a tensor: equally many unless sizes are given."""
    size = dist.ProcessGroup.unbox(process_group).size()
    outputs = _rows("all_to_all_single", output, output_split_sizes, size)
    inputs = _rows("all_to_all_single", input, input_split_sizes, size)
    return _all_to_all("all_to_all_single", outputs, inputs, process_group, timeout, [output])


def _rows(name: str, tensor: torch.Tensor, sizes: list[int], size: int) -> Tensors:
    rows = tensor.shape[0] if tensor.dim() else 1
    if not sizes:
        check_sizes(name, rows, rows // size * size, size)
        sizes = [rows // size] * size
    elif len(sizes) != size or sum(sizes) != rows:
        check_sizes(name, rows, sum(sizes) if len(sizes) == size else -1, size)
    return list(tensor.split(sizes))


def _all_to_all(
    name: str, outputs: Tensors, inputs: Tensors, process_group: Any, timeout: int, written: Tensors | None = None
) -> Any:
    where = user_line()
    size = dist.ProcessGroup.unbox(process_group).size()
    sources = [host_of(tensor, name, where) for tensor in inputs]
    targets = [host_of(tensor, name, where) for tensor in outputs]
    dtype = (sources or targets)[0].dtype
    check_list(name, sources, size, dtype, where)
    check_list(name, targets, size, dtype, where)

    def run(transport: Transport) -> None:
        sizes = [target.numel() * target.element_size() for target in targets]
        found = transport.exchanged([bytes_of(source) for source in sources], sizes)
        for target, part in zip(targets, found, strict=True):
            fill(target, part)

    sends, expects = [source.numel() for source in sources], [target.numel() for target in targets]
    what = (name, str(dtype).removeprefix("torch."))
    return begin(process_group, what, run, outputs if written is None else written, timeout, sends, expects)


@operator
def c10d_barrier(
    tensor: torch.Tensor, process_group: Any, device_ids: list[int], async_op: bool = True, timeout: int = -1
) -> Any:
    """Nobody goes on before all ranks are here."""
    return begin(process_group, ("barrier",), lambda transport: None, [], timeout)
