"""Tensors of the device as bytes of the host, and what calls must not get."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from nki.core.errors import ArgumentError
from nki.core.source import Location
from nki.interop.torch.memory import DEVICE, on_cpu
from nki.interop.torch.user_location import user_line

Tensors = list[torch.Tensor]


# ------------------------------------------------------------------------------------------------------------ tensors


def host_of(tensor: torch.Tensor, name: str, where: Location) -> torch.Tensor:
    """The memory of a tensor of the device, as a CPU tensor."""
    if tensor.device.type != DEVICE:
        raise ArgumentError(
            "torch.mixed-devices",
            f"{name} gets tensors on {DEVICE} and on {tensor.device}",
            rule="all tensors of a call are on one device",
            fix=f'move all of them: tensor.to("{DEVICE}")',
            location=where,
        )
    if tensor.layout is not torch.strided:
        raise ArgumentError(
            "distributed.sparse",
            f"{name} gets a tensor of the layout {tensor.layout}",
            rule="collectives take dense tensors",
            fix="call to_dense()",
            location=where,
        )
    return on_cpu(tensor) if tensor.numel() else torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """The elements of a CPU tensor in their order, as bytes; its own memory if it is contiguous."""
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return plain.view(-1).view(torch.uint8) if plain.numel() else torch.empty(0, dtype=torch.uint8)


def from_bytes(data: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The elements that bytes are."""
    if data.storage_offset() % dtype.itemsize:
        data = data.clone()
    return data.view(dtype) if data.numel() else torch.empty(0, dtype=dtype)


def fill(target: torch.Tensor, data: torch.Tensor) -> None:
    """Write bytes into a CPU tensor of any strides."""
    if target.numel():
        target.copy_(from_bytes(data, target.dtype).view(target.shape))


def kind_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Shape and dtype, as ranks compare them."""
    return (*tensor.shape, str(tensor.dtype).removeprefix("torch."))


def kinds_of(tensors: Sequence[torch.Tensor]) -> tuple[Any, ...]:
    """Shapes and dtypes."""
    return tuple(kind_of(tensor) for tensor in tensors)


def check_sizes(name: str, whole: int, parts: int, size: int) -> None:
    """Refuse a tensor that is not as large as its parts together.

    Raises:
        ArgumentError: "distributed.sizes".
    """
    if whole != parts:
        raise ArgumentError(
            "distributed.sizes",
            f"{name} gets a tensor of {whole} elements and parts of {parts} elements for {size} ranks",
            rule="all ranks have parts of one size, which together are the other tensor",
            source="torch.distributed",
            fix="pad the tensor, or use lists of tensors",
            location=user_line(),
        )


def check_rank(name: str, rank: int, size: int) -> None:
    """Refuse a rank that a group does not have.

    Raises:
        ArgumentError: "distributed.rank".
    """
    if not 0 <= rank < size:
        raise ArgumentError(
            "distributed.rank",
            f"{name} names rank {rank} of a group of {size}",
            rule=f"this group has the ranks 0 to {size - 1}",
            source="torch.distributed",
            fix="name a rank of the group",
            location=user_line(),
        )


def check_list(name: str, parts: Sequence[torch.Tensor], size: int, dtype: torch.dtype, where: Location) -> None:
    """Refuse lists of another length than the group, and other dtypes."""
    dtypes = {str(part.dtype) for part in parts}
    if len(parts) != size or dtypes - {str(dtype)}:
        raise ArgumentError(
            "distributed.list",
            f"{name} gets {len(parts)} tensors of {', '.join(sorted(dtypes)) or 'nothing'} "
            f"among {size} ranks, for {dtype}",
            rule="a list has one tensor for each rank of the group, and all have one dtype",
            source="torch.distributed",
            fix="give a tensor for each rank",
            location=where,
        )
