"""Allocation: ndarray, zeros and the like, with block dimensions."""

from __future__ import annotations

import operator
from math import prod
from typing import Any

import numpy as np

import nki.isa as nisa
import nki.language as nl
from nki.beta1.compiler import Allocated
from nki.beta1.errors import Beta1TypeError, refused
from nki.beta1.language.arguments import hints_only, kind_of
from nki.beta1.tensors.access import Access
from nki.beta1.tensors.memory import Memory
from nki.beta1.tensors.tensor import Tensor
from nki.beta1.tracing.session import current
from nki.core.dtypes import DType
from nki.core.nki_tensor import NkiTensor
from nki.core.tensor import MemoryRegion, contiguous_strides


class par_dim(int):  # noqa: N801 - a name of the language
    """Marks the dimension of a shape that is the partition's; those before it count blocks."""

    def __repr__(self) -> str:
        return f"par_dim({int(self)})"


def ndarray(shape: Any, dtype: Any, *, buffer: Any = None, name: str = "", **kwargs: Any) -> Tensor:
    """A new tensor with unknown contents.

    Args:
        shape: sizes; on chip the one in ``nl.par_dim`` is the partitions, by default the first.
        buffer: nl.sbuf (the default), nl.psum, nl.hbm, nl.private_hbm, nl.shared_hbm, or what an allocator of
            nki.compiler returns.
    """
    hints_only("nl.ndarray", kwargs)
    sizes, partition = sizes_of(shape)
    kind = kind_of(dtype, nl.float32)
    place = nl.sbuf if buffer is None else buffer
    region, address = (place.region, place.address) if isinstance(place, Allocated) else (place, None)
    if current("nl.ndarray").auto_alloc:
        address = None
    if not isinstance(region, MemoryRegion):
        raise refused(
            "argument",
            f"buffer is {buffer!r}",
            "use nl.sbuf, nl.psum, nl.shared_hbm or nl.private_hbm",
            kind=Beta1TypeError,
        )
    if region.is_hbm:
        return _in_hbm(sizes, kind, region, name)
    return _on_chip(sizes, partition, kind, region, name, address)


def zeros(shape: Any, dtype: Any, *, buffer: Any = None, name: str = "", **kwargs: Any) -> Tensor:
    """A new tile of zeros; arguments as for `ndarray`."""
    return full(shape, 0, dtype, buffer=buffer, name=name, **kwargs)


def ones(shape: Any, dtype: Any, *, buffer: Any = None, name: str = "", **kwargs: Any) -> Tensor:
    """A new tile of ones; arguments as for `ndarray`."""
    return full(shape, 1, dtype, buffer=buffer, name=name, **kwargs)


def full(shape: Any, fill_value: Any, dtype: Any, *, buffer: Any = None, name: str = "", **kwargs: Any) -> Tensor:
    """A new tile of one value; other arguments as for `ndarray`."""
    made = ndarray(shape, dtype, buffer=buffer, name=name, **kwargs)
    if not made.on_chip:
        raise refused(
            "hbm_tensor_with_init_value_not_supported",
            "creating an HBM tensor with an initial value is not supported",
            "create it with nl.ndarray, and store a tile of nl.full into it",
        )
    value = fill_value.item() if hasattr(fill_value, "item") else fill_value
    session = current("nl.full")
    for part in _tiles(made):
        nisa.memset(dst=part, value=int(value) if made.dtype.is_integer else value)
        session.fills.append(session.items[-1])
    return made


def zeros_like(a: Any, dtype: Any = None, *, buffer: Any = None, name: str = "", **kwargs: Any) -> Tensor:
    """A new tile of zeros with the shape of another tensor."""
    return zeros(a.shape, a.dtype if dtype is None else dtype, buffer=buffer, name=name, **kwargs)


def empty_like(a: Any, dtype: Any = None, *, buffer: Any = None, name: str = "", **kwargs: Any) -> Tensor:
    """A new tile with unknown contents, and the shape of another tensor."""
    return ndarray(a.shape, a.dtype if dtype is None else dtype, buffer=buffer, name=name, **kwargs)


def sizes_of(shape: Any) -> tuple[tuple[int, ...], int]:
    """The sizes, and which of them `par_dim` marks, by default the first. Raises Beta1Error."""
    given = tuple(shape) if isinstance(shape, list | tuple) else (shape,)
    try:
        sizes = tuple(operator.index(size) for size in given)
    except TypeError:
        raise refused("argument", f"a shape is {shape!r}", "write a tuple of ints", kind=Beta1TypeError) from None
    marked = [at for at, size in enumerate(given) if isinstance(size, par_dim)]
    return sizes, marked[0] if marked else 0


def _in_hbm(sizes: tuple[int, ...], kind: DType, region: MemoryRegion, name: str) -> Tensor:
    """A tensor of HBM; a shared one is the same tensor in all programs of a grid."""
    session = current("nl.ndarray")
    if region is not MemoryRegion.shared_hbm:
        return Tensor.of(nl.ndarray(sizes, kind, region, name))
    if session.program in session.inside or session.tracer.in_device_loop:
        raise refused(
            "shared_hbm_must_in_kernel_level",
            f"a shared_hbm tensor {list(sizes)} is created in a loop",
            "create it before the loop; one for each trip has a dimension more: (trips, ...)",
            rule="shared_hbm tensors are created at the top level of the kernel",
        )
    if session.made == len(session.shared):
        session.shared.append(Tensor.of(nl.ndarray(sizes, kind, region, name)))
    session.made += 1
    return session.shared[session.made - 1]


def _on_chip(
    sizes: tuple[int, ...], partition: int, kind: DType, region: MemoryRegion, name: str, address: Any
) -> Tensor:
    current("nl.ndarray")
    blocks, tile = sizes[:partition], sizes[partition:]
    check_partitions(tile)
    tile = tile if len(tile) > 1 else (*tile, 1)
    if not blocks and address is None:
        made = nl.ndarray(tile, kind, region, name)
        memory = Memory.of(made)
    else:
        memory = _separate(blocks, tile, kind, region, name, address)
    return Tensor(memory, Access.of_whole(memory.sizes))


def _separate(
    blocks: tuple[int, ...], tile: tuple[int, ...], kind: DType, region: MemoryRegion, name: str, address: Any
) -> Memory:
    """Blocks that are tensors of their own, made when they are first used."""
    free, tracer = prod(tile[1:]), current("nl.ndarray").tracer
    home = tracer.body

    def make(block: tuple[int, ...]) -> NkiTensor:
        own = "_".join([name, *map(str, block)]) if name else ""
        place = None if address is None else address(block, tile[0], free * kind.itemsize)
        with tracer.allocating_in(home):
            return nl.ndarray(tile, kind, region, own, place)

    def together() -> NkiTensor:
        with tracer.allocating_in(home):
            return nl.ndarray((tile[0], prod(blocks), *tile[1:]), kind, region, name)

    steps = (*(0,) * len(blocks), free, *contiguous_strides(tile)[1:])
    one = together if address is None else None
    return Memory((*blocks, *tile), steps, 0, kind, region, len(blocks), None, make, one, name=name)


def check_partitions(tile: tuple[int, ...]) -> None:
    """Raise Beta1Error if a tile has more partitions than the target."""
    most = current("nl.ndarray").tracer.target.partitions
    if tile[0] > most:
        raise refused(
            "num_partition_exceed_arch_limit",
            f"number of partitions {tile[0]} exceeds the architecture limitation of {most}",
            f"split the dimension into blocks: (blocks, nl.par_dim({most}), ...)",
            facts={"partitions": tile[0], "most": most},
        )


def _tiles(tensor: Tensor) -> list[NkiTensor]:
    """The tensors that hold all blocks."""
    memory = tensor.memory
    if memory.whole is not None:
        return [memory.whole]
    assert memory.partition is not None and memory.make is not None, "separate blocks are on chip"
    for block in np.ndindex(memory.sizes[: memory.partition]):
        if block not in memory.blocks:
            memory.blocks[block] = memory.make(block)
    return list(memory.blocks.values())
