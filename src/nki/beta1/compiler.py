"""``neuronxcc.nki.compiler``: addresses that a kernel chooses itself, and settings of the old compiler."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from math import prod
from typing import Any

from nki.beta1.errors import refused
from nki.core.tensor import MemoryRegion
from nki.language import tile_size

Block = tuple[int, ...]
Address = Callable[[Block, int, int], tuple[int, int]]
"""A function that gives a block its place, of its index, partitions and bytes in each: first partition, and byte."""

AUTO_ALLOC = "__nki_force_auto_alloc__"
"""The attribute of a function whose own addresses are ignored."""

AS_WRITTEN = "__nki_skip_middle_end_transformations__"
"""The attribute of a function in whose program the compiler puts no copies of tensors that do not fit."""


class Allocated:
    """What ``buffer=`` takes: a memory region and an address for each block."""

    def __init__(self, region: MemoryRegion, address: Address) -> None:
        self.region = region
        self.address = address


class _Sbuf:
    """Addresses in SBUF."""

    @staticmethod
    def alloc(func: Callable[[Block, int, int], tuple[int, int]]) -> Allocated:
        """Addresses that a function gives.

        Args:
            func: called with the indices of a block, its partitions, and the bytes in each of them; returns the first
                partition and the byte.
        """

        def address(block: Block, rows: int, size: int) -> tuple[int, int]:
            found = _asked(func, block, rows, size)
            partition, byte = _numbers(found, "ncc.sbuf.alloc", ("start_partition", "byte"))
            return partition, byte

        return Allocated(MemoryRegion.sbuf, address)

    @staticmethod
    def mod_alloc(
        *,
        base_addr: int,
        base_partition: int = 0,
        num_par_tiles: Sequence[int] = (),
        num_free_tiles: Sequence[int] = (),
    ) -> Allocated:
        """Addresses that repeat: blocks are taken modulo the numbers of tiles."""

        def address(block: Block, rows: int, size: int) -> tuple[int, int]:
            return (
                base_partition + _modulo(block, num_par_tiles) * rows,
                base_addr + _modulo(block, num_free_tiles) * size,
            )

        return Allocated(MemoryRegion.sbuf, address)

    @staticmethod
    def auto_alloc() -> MemoryRegion:
        """SBUF, where the compiler chooses."""
        return MemoryRegion.sbuf


class _Psum:
    """Banks of PSUM."""

    @staticmethod
    def alloc(func: Callable[[Block, int, int], tuple[int, int, int]]) -> Allocated:
        """Banks that a function gives: it returns bank, first partition and byte, of which the last two are 0."""

        def address(block: Block, rows: int, size: int) -> tuple[int, int]:
            bank, partition, byte = _numbers(
                _asked(func, block, rows, size), "ncc.psum.alloc", ("bank", "start_partition", "byte")
            )
            return partition, bank * tile_size.psum_bank_fmax_bytes + byte

        return Allocated(MemoryRegion.psum, address)

    @staticmethod
    def mod_alloc(
        *,
        base_bank: int,
        base_addr: int = 0,
        base_partition: int = 0,
        num_bank_tiles: Sequence[int] = (),
        num_par_tiles: Sequence[int] = (),
        num_free_tiles: Sequence[int] = (),
    ) -> Allocated:
        """Banks that repeat: blocks are taken modulo the numbers of tiles."""

        def address(block: Block, rows: int, size: int) -> tuple[int, int]:
            bank = base_bank + _modulo(block, num_bank_tiles)
            byte = base_addr + _modulo(block, num_free_tiles) * size
            return (
                base_partition + _modulo(block, num_par_tiles) * rows,
                bank * tile_size.psum_bank_fmax_bytes + byte,
            )

        return Allocated(MemoryRegion.psum, address)

    @staticmethod
    def auto_alloc() -> MemoryRegion:
        """PSUM, where the compiler chooses."""
        return MemoryRegion.psum


sbuf = _Sbuf()
psum = _Psum()


def skip_middle_end_transformations(func: Any = None) -> Any:
    """Leave out what the compiler puts into a program on its own: a kernel that does not fit on the chip is refused.

    Of the old compiler's transformations spilling is the one that is here for kernels of the first NKI alone.
    """
    return _marked(func, skip_middle_end_transformations, AS_WRITTEN)


def enable_stack_allocator(func: Any = None, log_level: int = 50) -> Any:
    """Choose addresses as the old compiler's stack allocator did; here the allocator is the one of all kernels."""
    return _same if func is None else func


def force_auto_alloc(func: Any = None) -> Any:
    """Ignore the addresses that a kernel chooses: the compiler chooses all of them."""
    return _marked(func, force_auto_alloc, AUTO_ALLOC)


def multi_buffer(factor: int = 2) -> str:
    """A hint for a loop, of how many trips overlap; trips are unrolled here, and overlap as far as memory allows."""
    return f"multi_buffer({factor})"


def no_reorder() -> str:
    """A hint for a loop, to keep the order of its instructions."""
    return "no_reorder"


@contextmanager
def allocation_scope() -> Iterator[None]:
    """A scope of the old compiler's allocator; it changes nothing here."""
    yield


def _asked(func: Callable[..., Any], block: Block, rows: int, size: int) -> Any:
    """What a function of the kernel says of a block; it takes its arguments by name, as the documents have them."""
    given = {"idx": block, "pdim_size": rows, "fdim_size": size}
    try:
        inspect.signature(func).bind(**given)
    except TypeError:
        return func(block, rows, size)
    return func(**given)


def _same(func: Any) -> Any:
    return func


def _marked(func: Any, decorator: Callable[..., Any], attribute: str) -> Any:
    """A kernel or its function, marked for the front end; the decorator itself if it was called with nothing."""
    if func is None:
        return decorator
    setattr(getattr(func, "func", func), attribute, True)
    return func


def _modulo(block: Block, tiles: Sequence[int]) -> int:
    sizes = tuple(tiles) or (1,) * len(block)
    if len(sizes) != len(block):
        raise refused(
            "allocation",
            f"{len(sizes)} numbers of tiles for {len(block)} block dimensions",
            "give a number for each block dimension, or none",
        )
    places = [at % size for at, size in zip(block, sizes, strict=True)]
    return sum(place * prod(sizes[axis + 1 :]) for axis, place in enumerate(places))


def _numbers(found: Any, function: str, names: Sequence[str]) -> list[int]:
    """What a function of the kernel returned, or what one was given. Raises Beta1Error."""
    given = found if isinstance(found, tuple | list) else (found,)
    if len(given) == len(names):
        with suppress(TypeError, ValueError):
            numbers = [int(each) for each in given]
            if numbers == list(given):
                return numbers
    raise refused("allocation", f"the function of {function} returned {found!r}", f"return ({', '.join(names)}), ints")
