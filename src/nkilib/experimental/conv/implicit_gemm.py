"""Convolution as a product: ``out[co, p] = sum over taps and ci of filter[tap, ci, co] * in[ci, position(p, tap)]``.

The contracted dimension, taps and input channels, lies on partitions, where the filter's rows lie already. Many
channels: a block of the input stays in SBUF with its zeros around it, and each tap is a view of it. Few channels:
several taps are stacked on the partitions, each loaded from where it reads, so that the rows of the Tensor engine are
filled. The sum over all taps is made in PSUM; Scalar adds the bias and applies the activation on the way out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib import streaming
from nkilib.core.mlp.projections import FUNCTIONS
from nkilib.core.utils.common_types import ActFnType
from nkilib.experimental.conv.geometry import Space
from nkilib.experimental.conv.planes import back_to, padded_plane

_INPUT_BYTES = 1 << 16
_FILTER_BYTES = 1 << 16
"""Bytes of a partition for blocks of the input, and for the filter."""

_STACKED_CHANNELS = 64
"""Up to so many input channels, taps are stacked on partitions."""


@dataclass
class Convolution:
    """A convolution whose arguments were checked.

    Attributes:
        x: ``(B, C_in, D, H, W)`` in HBM.
        filters: ``(taps * C_in, C_out)`` in HBM.
        bias: ``(C_out,)`` in HBM, or None.
        out: ``(B, C_out, D_out, H_out, W_out)`` in HBM.
        space: where what is read.
        activation: of the results, or None.
    """

    x: Any
    filters: Any
    bias: Any
    out: Any
    space: Space
    activation: ActFnType | None

    @property
    def stacked(self) -> bool:
        """Whether several taps share a product. A stride would load element by element."""
        taps = len(self.space.taps())
        return self.x.shape[1] <= _STACKED_CHANNELS and taps > 1 and self.space.width.stride == 1


@dataclass(eq=False)
class Block:
    """Outputs of one batch that are made from what is in SBUF together; equal to itself alone."""

    batch: int
    rows: slice
    columns: slice


def convolve(made: Convolution, by_channels: bool) -> None:
    """All outputs. Cores share the output channels, or else batches and rows."""
    pieces = _Stacked(made) if made.stacked else _Views(made)
    groups = list(_groups(made, len(pieces.contracted)))
    blocks = pieces.blocks()
    for group in streaming.share(groups) if by_channels else groups:
        filters = _Filters(made, group, pieces.contracted)
        for block in blocks if by_channels else streaming.share(blocks):
            for depth in range(made.space.depth.outputs):
                pieces.read(block, depth)
                _outputs(made, block, depth, filters, pieces)


def _groups(made: Convolution, pieces: int) -> Iterator[slice]:
    """Output channels whose filter is in SBUF together, a multiple of 128."""
    channels, whole = made.filters.shape[1], nl.tile_size.gemm_stationary_fmax
    fit = _FILTER_BYTES // (pieces * made.filters.dtype.itemsize) // whole * whole
    yield from streaming.spans(channels, max(whole, fit))


class _Filters:
    """The filter's rows and the bias of some output channels, loaded on first use; too large ones every time."""

    def __init__(self, made: Convolution, group: slice, contracted: list[slice]) -> None:
        self.channels = group
        self._made, self._contracted = made, contracted
        kept = len(contracted) * streaming.size(group) * made.filters.dtype.itemsize <= _FILTER_BYTES
        self._tiles = [self._load(number) for number in range(len(contracted))] if kept else None
        self._bias = {part.start: self._column(part) for part in self.parts()} if made.bias is not None else {}

    def parts(self) -> list[slice]:
        """Output channels of one product, within the group."""
        return streaming.spans(streaming.size(self.channels), nl.tile_size.gemm_stationary_fmax)

    def rows(self, number: int, part: slice) -> Any:
        """The tile of a piece of the contracted dimension."""
        return (self._load(number) if self._tiles is None else self._tiles[number])[:, part]

    def bias(self, part: slice) -> Any:
        """As a column, or 0."""
        return self._bias.get(part.start, 0.0)

    def _load(self, number: int) -> Any:
        return streaming.load(self._made.filters[self._contracted[number], self.channels])

    def _column(self, part: slice) -> Any:
        first = self.channels.start
        return streaming.load(self._made.bias[first + part.start : first + part.stop], nl.float32)


def _outputs(made: Convolution, block: Block, depth: int, filters: _Filters, pieces: Any) -> None:
    """Those of a block at one depth: of each bank of PSUM all channels, so that what is moved serves them all."""
    bank = nl.tile_size.psum_bank_fmax
    wide = min(streaming.size(block.columns), bank)
    for rows in streaming.spans(streaming.size(block.rows), max(1, bank // wide)):
        for columns in streaming.spans(streaming.size(block.columns), wide):
            moving = pieces.moving(rows, columns)
            for part in filters.parts():
                shape = (streaming.size(part), streaming.size(rows), streaming.size(columns))
                products = [(filters.rows(number, part), tile) for number, tile in moving]
                tile = _summed(products, shape, made, filters.bias(part))
                channels = slice(filters.channels.start + part.start, filters.channels.start + part.stop)
                place = made.out[block.batch, channels, depth, _moved(rows, block.rows), _moved(columns, block.columns)]
                streaming.store(place, tile)


def _moved(inner: slice, outer: slice) -> slice:
    return slice(outer.start + inner.start, outer.start + inner.stop)


def _summed(products: list[tuple[Any, Any]], shape: tuple[int, ...], made: Convolution, bias: Any) -> Any:
    """The sum of products with bias and activation, in SBUF."""
    tile = streaming.sbuf(shape, made.out.dtype)
    finish(summed(products, shape), made.activation, bias, into=tile)
    return tile


def summed(products: list[tuple[Any, Any]], shape: tuple[int, ...]) -> Any:
    """The sum of products ``(stationary, moving)`` in PSUM; zeros in SBUF where there is no product at all."""
    if not products:
        return streaming.filled(shape, nl.float32, 0.0)
    total = streaming.psum(shape)
    for number, (stationary, moving) in enumerate(products):
        nisa.nc_matmul(dst=total, stationary=stationary, moving=moving, accumulate=number > 0)
    return total


def finish(total: Any, activation: ActFnType | None, bias: Any, into: Any) -> None:
    """``into = activation(total + bias)``, where the bias is a column or 0."""
    function = nl.copy if activation is None else FUNCTIONS[activation]
    nisa.activation(dst=into, op=function, data=total, bias=bias)
    if activation is ActFnType.SquaredReLU:
        nisa.tensor_tensor(dst=into, data1=into, data2=into, op=nl.multiply)


def view_blocks(made: Convolution, planes: int, widest: int | None = None) -> list[Block]:
    """Blocks with as many rows and columns as have room for some planes of the input and the zeros around them.

    Args:
        widest: columns at most, so that there is room for more rows; None for all.
    """
    space, parts = made.space, streaming.spans(made.x.shape[1], nl.tile_size.pmax)
    room = _INPUT_BYTES // (len(parts) * planes * made.x.dtype.itemsize)
    columns = min(space.width.outputs, widest or space.width.outputs)
    while columns > 1 and space.width.reached(columns) * space.height.reached(1) > room:
        columns = -(-columns // 2)
    rows = max(1, min(space.height.outputs, room // space.width.reached(columns)))
    while rows > 1 and space.height.reached(rows) * space.width.reached(columns) > room:
        rows -= 1
    return [
        Block(batch, down, across)
        for batch in range(made.x.shape[0])
        for down in streaming.spans(space.height.outputs, rows)
        for across in streaming.spans(space.width.outputs, columns)
    ]


def reached(space: Space, block: Block) -> tuple[slice, slice]:
    """Rows and columns of the input, zeros around it included, that the outputs of a block read."""
    return space.height.reach(block.rows), space.width.reach(block.columns)


class _Views:
    """Blocks of the input with zeros around them, of which each tap reads a view."""

    def __init__(self, made: Convolution) -> None:
        self._made = made
        channels = made.x.shape[1]
        self._parts = streaming.spans(channels, nl.tile_size.pmax)
        self._taps = made.space.taps()
        self.contracted = [
            slice(tap * channels + part.start, tap * channels + part.stop)
            for tap in range(len(self._taps))
            for part in self._parts
        ]
        self._slabs: dict[tuple[Block, int], list[Any]] = {}

    def blocks(self) -> list[Block]:
        """As many rows and columns as have room, for all depths that an output reads, and the next one."""
        return view_blocks(self._made, self._made.space.depth.taps + 1)

    def read(self, block: Block, depth: int) -> None:
        """Load what outputs of a depth read; what is behind is forgotten."""
        axis = self._made.space.depth
        wanted = {axis.position(depth, tap) for tap in range(axis.taps)}
        self._block, self._depth = block, depth
        kept = {key: slab for key, slab in self._slabs.items() if key[0] == block and key[1] in wanted}
        for position in sorted(wanted):
            if 0 <= position < axis.size and (block, position) not in kept:
                kept[block, position] = [self._slab(block, position, part) for part in self._parts]
        self._slabs = kept

    def _slab(self, block: Block, position: int, part: slice) -> Any:
        space, x = self._made.space, self._made.x
        return padded_plane(x, block.batch, position, part, *reached(space, block))

    def moving(self, rows: slice, columns: slice) -> list[tuple[int, Any]]:
        """The views of all taps, by their pieces of the contracted dimension; without those that read zeros alone."""
        space, found = self._made.space, []
        for number, (d, h, w) in enumerate(self._taps):
            slabs = self._slabs.get((self._block, space.depth.position(self._depth, d)))
            down = strided(rows, space.height.stride, h * space.height.dilation)
            across = strided(columns, space.width.stride, w * space.width.dilation)
            for place, slab in enumerate(slabs or []):
                found.append((number * len(self._parts) + place, slab[:, down, across]))
        return found


def strided(outputs: slice, stride: int, offset: int) -> slice:
    """Positions that outputs read, of which the first output reads `offset`."""
    first = outputs.start * stride + offset
    return slice(first, first + (streaming.size(outputs) - 1) * stride + 1, stride)


class _Stacked:
    """Taps on partitions, as many as fill them, each loaded from where it reads."""

    def __init__(self, made: Convolution) -> None:
        self._made = made
        channels = made.x.shape[1]
        together = nl.tile_size.pmax // channels
        taps = made.space.taps()
        self._groups = [taps[part] for part in streaming.spans(len(taps), together)]
        self.contracted = [
            slice(part.start * channels, part.stop * channels) for part in streaming.spans(len(taps), together)
        ]
        self._tiles: list[tuple[int, Any]] = []

    def blocks(self) -> list[Block]:
        """As many rows and columns as have room for all groups of taps."""
        space, made = self._made.space, self._made
        room = max(1, _INPUT_BYTES // (len(self._groups) * made.x.dtype.itemsize))
        columns = min(space.width.outputs, room)
        rows = max(1, min(space.height.outputs, room // columns))
        return [
            Block(batch, down, across)
            for batch in range(made.x.shape[0])
            for down in streaming.spans(space.height.outputs, rows)
            for across in streaming.spans(space.width.outputs, columns)
        ]

    def read(self, block: Block, depth: int) -> None:
        """Load what each tap reads for outputs of a depth."""
        made = [(number, self._tile(block, depth, group)) for number, group in enumerate(self._groups)]
        self._tiles = [(number, tile) for number, tile in made if tile is not None]

    def _tile(self, block: Block, depth: int, group: list[tuple[int, int, int]]) -> Any:
        space, x = self._made.space, self._made.x
        channels = x.shape[1]
        shape = (len(group) * channels, streaming.size(block.rows), streaming.size(block.columns))
        loads = []
        for number, (d, h, w) in enumerate(group):
            position = space.depth.position(depth, d)
            rows, columns = space.height.inside(block.rows, h), space.width.inside(block.columns, w)
            if 0 <= position < space.depth.size and streaming.size(rows) > 0 and streaming.size(columns) > 0:
                loads.append((number, position, rows, columns, h, w))
        if not loads:
            return None
        whole = len(loads) == len(group) and all(load[2:4] == (block.rows, block.columns) for load in loads)
        tile = streaming.sbuf(shape, x.dtype) if whole else streaming.filled(shape, x.dtype, 0.0)
        for number, position, rows, columns, h, w in loads:
            own = slice(number * channels, (number + 1) * channels)
            place = tile[own, back_to(rows, block.rows), back_to(columns, block.columns)]
            first = space.width.position(columns.start, w)
            down = strided(rows, space.height.stride, space.height.position(0, h))
            source = x[block.batch, :, position, down, first : first + streaming.size(columns)]
            streaming.copy(place, source)
        return tile

    def moving(self, rows: slice, columns: slice) -> list[tuple[int, Any]]:
        """The tiles of all groups of taps, by their pieces of the contracted dimension."""
        return [(number, tile[:, rows, columns]) for number, tile in self._tiles]
