"""What an allocation must satisfy on a target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from nki.core.dtypes import DType, as_dtype, unsupported
from nki.core.errors import ArgumentError, NkiError, TensorError
from nki.core.shown import one_line, shown
from nki.core.tensor import MemoryRegion
from nki.spec.program import Program
from nki.target.model import Target

_SBUF, _PSUM = MemoryRegion.sbuf, MemoryRegion.psum


def checked_shape(shape: Any, region: MemoryRegion) -> tuple[int, ...]:
    """Positive ints, at least two on chip."""
    if type(shape) is tuple and len(shape) == 2:  # as most are
        rows, columns = shape
        if type(rows) is int and type(columns) is int and rows > 0 and columns > 0:
            return shape
    least = 2 if region.on_chip else 1
    if type(shape) is tuple and len(shape) >= least and all([type(size) is int and size > 0 for size in shape]):
        return shape
    result = _sizes(shape)
    if any(size < 1 for size in result):
        raise TensorError(
            "tensor.empty",
            f"shape {tuple(result)} holds no element",
            fix="use sizes of at least 1",
            rule="all sizes are positive",
        )
    if len(result) < least:
        raise TensorError(
            "tensor.rank",
            f"shape {tuple(result)} has {len(result)} dimension{'' if len(result) == 1 else 's'} in {region}",
            rule="on-chip tensors have a partition dimension and at least one free dimension",
            fix=f"use ({', '.join(str(s) for s in result) or '1'}, 1)",
        )
    return tuple(result)


def _sizes(shape: Any) -> list[int]:
    """What somebody wrote as a shape, as ints of any sign."""
    sizes = (shape,) if isinstance(shape, int | np.integer) else shape
    if not isinstance(sizes, Sequence) or isinstance(sizes, str):
        raise ArgumentError(
            "tensor.shape",
            f"a shape is a tuple of ints, not {shown(shape)}",
            fix="write for example (128, 512)",
        )
    result = []
    for size in sizes:
        if not isinstance(size, int | np.integer) or isinstance(size, bool):
            raise ArgumentError(
                "tensor.shape",
                f"size {size!r} in shape {tuple(sizes)} is a {type(size).__name__}",
                fix="use ints; divide with // instead of /",
            )
        result.append(int(size))
    return result


def checked_dtype(dtype: Any) -> DType:
    """A dtype that exists on the device."""
    found = dtype if type(dtype) is DType else as_dtype(dtype)
    if not found.device:
        raise unsupported(found, f"nl.{found.removesuffix('64')}32")
    return found


_REGION_NAMES = ("hbm", *MemoryRegion.__members__)


def checked_region(region: Any) -> MemoryRegion:
    """A memory region, never a string."""
    if isinstance(region, MemoryRegion):
        return region
    raise ArgumentError(
        "tensor.buffer",
        f"buffer is {shown(region)}",
        rule="a buffer is one of nl.sbuf, nl.psum, nl.hbm, nl.private_hbm, nl.shared_hbm",
        fix=f"write buffer=nl.{region}" if region in _REGION_NAMES else "write buffer=nl.sbuf",
    )


def checked_name(name: Any) -> str:
    """A string; None is no name."""
    if name is None or isinstance(name, str):
        return name or ""
    raise ArgumentError("tensor.name", f"name is {shown(name)}", rule="a name is a string", fix=f'write name="{name}"')


def _raise(error: TensorError) -> None:
    raise error


def check_fit(
    shape: tuple[int, ...],
    dtype: DType,
    region: MemoryRegion,
    address: tuple[int, int] | None,
    target: Target,
    exceeded: Callable[[TensorError], None] = _raise,
) -> None:
    """One tensor must fit its memory; whether all fit together is the allocator's question.

    `exceeded` gets the error ``tensor.capacity`` if a partition of the memory holds less than the tensor takes of it.
    Calls and `nki check` refuse that. `nki.simulate` gives the tensor what it asks for, and warns: the official
    simulator checks no capacity (nki/deep-dives/nki_simulator.rst).
    """
    if address is None and (region is _SBUF or region is _PSUM):
        memory = target.psum if region is _PSUM else target.sbuf
        if shape[0] <= target.partitions and prod(shape[1:]) * dtype.itemsize <= memory.bytes_per_partition:
            return  # as most do
    if not region.on_chip:
        if address is not None:
            raise TensorError(
                "tensor.address",
                "address is given for an HBM tensor",
                fix="omit address",
                rule="only SBUF and PSUM tensors have an explicit address",
            )
        return
    _check_partitions(shape, region, (address or (0, 0))[0], target)
    _check_capacity(shape, dtype, region, (address or (0, 0))[1], target, exceeded)
    if region is MemoryRegion.psum and address is not None and target.psum.allocations_start_at_bank:
        _check_bank(address, target.psum.bank_bytes)


def _check_partitions(shape: tuple[int, ...], region: MemoryRegion, partition: int, target: Target) -> None:
    if partition + shape[0] <= target.partitions:
        return
    raise TensorError(
        "tensor.partitions",
        f"shape {shape} in {region} spans {shape[0]} partitions"
        + (f" from partition {partition}" if partition else ""),
        rule=f"{region} has {target.partitions} partitions",
        source="nki/guides/architecture/trainium_inferentia2_arch.rst",
        facts={"partitions": shape[0], "limit": target.partitions},
        fix=f"start at partition {target.partitions - shape[0]} or lower"
        if shape[0] <= target.partitions
        else f"tile dimension 0 in pieces of {target.partitions}, or keep the tensor in HBM",
    )


def _check_capacity(
    shape: tuple[int, ...],
    dtype: DType,
    region: MemoryRegion,
    byte: int,
    target: Target,
    exceeded: Callable[[TensorError], None],
) -> None:
    memory = target.psum if region is MemoryRegion.psum else target.sbuf
    row, limit = prod(shape[1:]) * dtype.itemsize, memory.bytes_per_partition
    if byte + row <= limit:
        return
    exceeded(
        TensorError(
            "tensor.capacity",
            f"shape {shape} of {dtype} takes {row} bytes of each {region} partition"
            + (f" from byte {byte}" if byte else ""),
            rule=f"one {region} partition of {target.name} holds {limit} bytes",
            source="nki/guides/architecture/trainium_inferentia2_arch.rst",
            facts={"bytes": row, "limit": limit},
            fix=f"start at byte {limit - row} or lower" if row <= limit else "use smaller tiles",
        )
    )


def _check_bank(address: tuple[int, int], bank: int) -> None:
    partition, byte = address
    if byte % bank == 0:
        return
    raise TensorError(
        "tensor.bank",
        f"address {address} starts inside a PSUM bank",
        rule=f"PSUM tensors start at a bank, a multiple of {bank} bytes",
        source="nki/migration/index.rst",
        fix=f"write address=({partition}, {byte - byte % bank})",
    )


def check_tensors(program: Program, target: Target) -> None:
    """A kernel's tensors are checked when they are allocated; this checks those of a program that came another way.

    Raises:
        TensorError: at the tensor, see `checked_shape` and `check_fit`; "tensor.capacity" also for the device's memory.
    """
    for buffer in (*program.inputs, *program.body.all_buffers()):
        try:
            checked_shape(buffer.shape, buffer.region)
            check_fit(buffer.shape, buffer.dtype, buffer.region, buffer.address, target)
        except NkiError as error:
            error.location = buffer.location
            raise
        if not buffer.on_chip and buffer.nbytes > target.hbm.bytes:
            raise TensorError(
                "tensor.capacity",
                f"{buffer.name or 'a tensor'} of shape {tuple(buffer.shape)} has {buffer.nbytes:,} bytes",
                rule=f"a device of {target.name} has {target.hbm.bytes:,} bytes of memory",
                fix="use a smaller shape",
                location=buffer.location,
            )


def checked_address(address: Any) -> tuple[int, int] | None:
    """``(partition, byte offset)`` or None."""
    if address is None:
        return None
    try:
        partition, byte = (int(part.__index__()) for part in address)
    except (TypeError, ValueError, AttributeError):
        raise ArgumentError(
            "tensor.address",
            f"address is {one_line(repr(address))}",
            fix="write address=(0, byte_offset)",
            rule="an address is (start partition, byte offset in the partition)",
        ) from None
    if partition < 0 or byte < 0:
        raise TensorError("tensor.address", f"address {address} is negative", fix="use non-negative numbers")
    return partition, byte
