"""Moving tensors between HBM and the engines in pieces that fit: what the kernels of this library are written with.

A kernel says which piece of the result it makes next; these functions cut tensors into pieces, also where a size is no
multiple of anything, load them so that the contracted dimension lies on partitions, and sum products in PSUM. All of it
is `nki.language` and `nki.isa`, and everything returned is an ordinary tensor.

A **panel** is a matrix in SBUF whose rows are contracted: a list of tiles of at most 128 rows, one below the other.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any, TypeVar

import nki.isa as nisa
import nki.language as nl

T = TypeVar("T")

Panel = list[Any]
"""Tiles ``(rows <= 128, columns)`` in SBUF that follow each other along the rows."""

_TRANSPOSED_BYTES = 2
"""Size of the elements that DMA transposes."""

_TOGETHER_BYTES = 4096
"""Of a partition, that one transfer transposes, unless a single tile has more."""


# ------------------------------------------------------------------------------------------------------------- pieces


def spans(total: int, step: int, *, shared: bool = False) -> list[slice]:
    """Slices that cover ``range(total)`` in order; the last one may be shorter.

    Args:
        step: elements of a slice.
        shared: among the cores of the launch: each gets whole slices that follow each other, as evenly as possible.
    """
    found = [slice(start, min(start + step, total)) for start in range(0, total, step)]
    return share(found) if shared else found


def share(pieces: Sequence[Any]) -> list[Any]:
    """What this core does of pieces that all cores of the launch do together."""
    cores, core = nl.num_programs(0), nl.program_id(0)
    first = len(pieces) * core // cores
    return list(pieces[first : len(pieces) * (core + 1) // cores])


def interleaved(works: Sequence[Generator[None, None, T]]) -> list[T]:
    """Several generators in turns, each to its next ``yield``; what they return.

    Engines issue in the order in which a kernel is written, but for what the compiler moves. Work whose every step
    waits for the one before leaves them idle; with a ``yield`` after each such step, other work fills the gaps.
    """
    made: dict[int, T] = {}
    while len(made) < len(works):
        for number, work in enumerate(works):
            if number not in made:
                try:
                    next(work)
                except StopIteration as ended:
                    made[number] = ended.value
    return [made[number] for number in range(len(works))]


def size(piece: slice) -> int:
    """Elements of a slice."""
    return int(piece.stop - piece.start)


def ceil_div(count: int, of: int) -> int:
    """How many pieces of a size cover a number of elements."""
    return -(-count // of)


# -------------------------------------------------------------------------------------------------------- new tensors


def sbuf(shape: Sequence[int], dtype: Any) -> Any:
    """A new tile in SBUF with unknown contents; the first dimension lies on partitions."""
    return nl.ndarray(tuple(shape), dtype=dtype, buffer=nl.sbuf)


def psum(shape: Sequence[int], dtype: Any = nl.float32) -> Any:
    """A new tile in PSUM with unknown contents; a product's result is at most 2 KiB of a partition."""
    return nl.ndarray(tuple(shape), dtype=dtype, buffer=nl.psum)


def result(shape: Sequence[int], dtype: Any) -> Any:
    """A new tensor in HBM, which the kernel returns; all cores of the launch see the same one."""
    return nl.ndarray(tuple(shape), dtype=dtype, buffer=nl.shared_hbm)


def filled(shape: Sequence[int], dtype: Any, value: float) -> Any:
    """A new tile in SBUF, every element the value."""
    tile = sbuf(shape, dtype)
    nisa.memset(dst=tile, value=value)
    return tile


def copied(tile: Any, dtype: Any = nl.float32) -> Any:
    """A tile of SBUF or PSUM in a new tile of SBUF, by the Scalar engine; itself if it is in SBUF with that dtype."""
    if nl.is_sbuf(tile.buffer) and tile.dtype == dtype:
        return tile
    made = sbuf(tile.shape, dtype)
    nisa.activation(dst=made, op=nl.copy, data=tile)
    return made


# ---------------------------------------------------------------------------------------------------------- transfers


def copy(into: Any, source: Any) -> None:
    """A transfer between HBM and SBUF of as many elements.

    Its descriptors are written before the program runs, which starts it soonest (nki-dge.rst, ``none``). A block of the
    core would write them one by one while it runs, which bounds kernels whose transfers have many short runs. Where the
    address depends on the run, the compiler chooses.
    """
    known = not (into.is_indirect() or source.is_indirect())
    nisa.dma_copy(dst=into, src=source, dge_mode=nisa.dge_mode.none if known else nisa.dge_mode.unknown)


def copy_selected(into: Any, source: Any) -> None:
    """A transfer from a place in HBM that a register or a number in SBUF selects, of the same dtype.

    The queue of the Scalar engine starts it where a block of the core writes descriptors: that block works while the
    engine computes (nki-dge.rst, ``hwdge``), and does not hold up the transfers of other queues.
    """
    if nisa.get_nc_version() >= nisa.nc_version.gen3:
        nisa.dma_copy(dst=into, src=source, dge_mode=nisa.dge_mode.hwdge, engine=nisa.engine.scalar)
    else:
        nisa.dma_copy(dst=into, src=source)


def load(source: Any, dtype: Any = None) -> Any:
    """A piece of HBM in a new tile of the same shape; dimension 0, at most 128, goes to partitions.

    Args:
        dtype: of the tile; by default the source's. Another one is converted on the way.
    """
    shape = tuple(source.shape) if len(source.shape) > 1 else (source.shape[0], 1)
    tile = sbuf(shape, dtype or source.dtype)
    copy(tile, source.reshape(shape) if len(source.shape) == 1 else source)
    return tile


def store(target: Any, tile: Any) -> None:
    """A tile into a piece of HBM of as many elements."""
    copy(target, tile)


def load_repeated(row: Any, partitions: int, dtype: Any = None) -> Any:
    """One row of HBM, of any shape, on every one of the partitions: ``(partitions, elements)``."""
    elements = 1
    for count in row.shape:
        elements *= count
    tile = sbuf((partitions, elements), dtype or row.dtype)
    copy(tile, row.reshape((1, elements)).broadcast(0, partitions))
    return tile


def load_panel(source: Any, dtype: Any = None) -> Panel:
    """A matrix ``(rows, columns)`` of HBM as it is, its rows on partitions, by one transfer for each tile."""
    return [load(source[rows, :], dtype) for rows in spans(source.shape[0], nl.tile_size.pmax)]


def load_transposed(source: Any, dtype: Any = None) -> Panel:
    """A matrix ``(columns, rows)`` of HBM as the panel ``(rows, columns)``.

    Elements of 2 bytes are transposed by DMA where the target can, others by the Tensor engine.
    """
    wanted = dtype or source.dtype
    if wanted == source.dtype and wanted.itemsize == _TRANSPOSED_BYTES and _transposes_by_dma():
        return _by_dma(source)
    columns, rows = source.shape
    panel = [sbuf((size(part), columns), wanted) for part in spans(rows, nl.tile_size.pmax)]
    for part in spans(columns, nl.tile_size.pmax):
        tile = load(source[part, :], dtype)
        for below, piece in zip(spans(rows, nl.tile_size.pmax), panel, strict=True):
            transpose(tile[:, below], into=piece[:, part])
    return panel


def _transposes_by_dma() -> bool:
    return bool(nisa.get_nc_version() >= nisa.nc_version.gen3)


def _by_dma(source: Any) -> Panel:
    """Several tiles by one transfer, as long as a partition gets few of them: each transfer has a fixed time."""
    pmax, (columns, rows) = nl.tile_size.pmax, source.shape
    step = max(1, _TOGETHER_BYTES // (columns * source.dtype.itemsize)) * pmax
    whole = rows - rows % pmax
    panel = []
    for part in [*spans(whole, step), *spans(rows, pmax)[whole // pmax :]]:
        height = min(pmax, size(part))
        piece = source[:, part].reshape_dim(1, (size(part) // height, height))
        tiles = sbuf((height, size(part) // height, columns), source.dtype)
        known = nisa.dge_mode.unknown if source.is_indirect() else nisa.dge_mode.none
        nisa.dma_transpose(dst=tiles, src=piece, dge_mode=known)
        panel += [tiles[:, number, :] for number in range(tiles.shape[1])]
    return panel


# ------------------------------------------------------------------------------------------------------ Tensor engine


def transpose(tile: Any, into: Any = None) -> Any:
    """A tile ``(rows, columns)``, at most 128 x 128, with rows and columns exchanged, by the Tensor engine.

    Args:
        into: where it goes in SBUF, of any dtype; by default a new tile of the tile's dtype.
    """
    rows, columns = tile.shape
    target = sbuf((columns, rows), tile.dtype) if into is None else into
    wide = tile.dtype.itemsize == 1 and _transposes_by_dma()  # 1-byte elements arrive in slots of 2 bytes
    moved = psum((columns, rows, 2) if wide else (columns, rows), tile.dtype)
    moved = moved[:, :, 0] if wide else moved
    nisa.nc_transpose(dst=moved, data=tile, engine=nisa.engine.tensor)
    nisa.tensor_copy(dst=target, src=moved)
    return target


def leave(target: Any, sums: Any, turn: int) -> None:
    """Sums out of PSUM into a tile of SBUF, by Vector if `turn` is even, by Scalar if it is odd: so both have work."""
    if turn % 2:
        nisa.activation(dst=target, op=nl.copy, data=sums)
    else:
        nisa.tensor_copy(dst=target, src=sums)


def contract(stationary: Panel, moving: Panel, into: Any, *, first: bool = True) -> Any:
    """``into = stationary.T @ moving`` in PSUM, summed over all tiles of both panels.

    Args:
        stationary: panel of at most 128 columns, the rows of the result.
        moving: panel of the same rows, of at most 512 columns in float32.
        into: ``(columns of stationary, columns of moving)`` in PSUM.
        first: whether the sum begins here; otherwise it is added to what is there.
    """
    for place, (left, right) in enumerate(zip(stationary, moving, strict=True)):
        nisa.nc_matmul(dst=into, stationary=left, moving=right, accumulate=not first or place > 0)
    return into


def columns_of(panel: Panel, columns: slice) -> Panel:
    """A part of the columns of a panel, as a view."""
    return [tile[:, columns] for tile in panel]


def blocks(rows: int, columns: int, *, shared: bool = False) -> Iterator[tuple[slice, slice]]:
    """Pieces of a result ``(rows, columns)`` that one bank of PSUM holds each, row by row.

    Args:
        shared: rows are divided among the cores of the launch.
    """
    for down in spans(rows, nl.tile_size.pmax, shared=shared):
        for across in spans(columns, nl.tile_size.psum_bank_fmax):
            yield down, across
