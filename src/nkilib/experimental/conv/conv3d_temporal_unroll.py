"""Convolution of volumes with few output channels: all depths of the output in one product.

Math as in `conv3d`. A product there has as many rows as output channels, and with few of them the Tensor engine stands
mostly empty. Here a product has a row for each output channel, depth *and several rows of the output*: a row of an
input plane, seen through one tap of width, meets the filters of all of them that read it at once, zeros where one does
not.

Layouts: as in `conv3d`. Dtypes: bfloat16, float16 or float32. Limits: none; more than 128 rows are several products.

Plan: DMA loads the filter once; Vector puts it, for each input plane, beside itself for all depths and rows. The Tensor
engine sums up over planes and taps in PSUM, Scalar adds the bias and applies the activation on the way out. The Tensor
engine bounds it, with ``D / (D_out * K_d)`` of the products of `conv3d`, and where r rows share one with
``(r + K_h - 1) / (r * K_h)`` of those.

Source: nki/library/api/conv3d-temporal-unroll.rst.
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib import limits, streaming
from nkilib.core.utils.common_types import ActFnType
from nkilib.experimental.conv.conv3d import axis
from nkilib.experimental.conv.geometry import Space
from nkilib.experimental.conv.implicit_gemm import Block, Convolution, finish, reached, strided, summed, view_blocks
from nkilib.experimental.conv.planes import padded_plane
from nkilib.streaming import size, spans

_FLOATS = (nl.bfloat16, nl.float16, nl.float32)

_FILTER_BYTES = 48 * 1024
"""Of a partition, for filters beside each other."""

_COLUMN_TILE = 32
"""Columns of the Tensor engine that the published kernel gives to each depth of the output."""

_LEAST_CHANNELS = 64
"""Input channels from which on it keeps filters."""


def should_use_temporal_unroll(C_out: int, D_out: int, C_in: int, K_d: int, W_out: int) -> bool:
    """Whether the published documentation advises `conv3d_temporal_unroll` for a shape.

    Args:
        C_out, D_out: output channels and depths; up to four depths of up to 32 channels share a product there.
        C_in: input channels, more than 64.
        K_d: taps of depth, which the advice does not depend on.
        W_out: output width, more than a bank of PSUM holds.
    """
    fits = C_out <= _COLUMN_TILE and 1 < D_out <= nl.tile_size.pmax // _COLUMN_TILE and K_d >= 1
    return bool(fits and C_in > _LEAST_CHANNELS and W_out > nl.tile_size.psum_bank_fmax)


@nki.jit
def conv3d_temporal_unroll(
    x_in: nl.NkiTensor,
    filters: nl.NkiTensor,
    bias: nl.NkiTensor | None = None,
    stride: tuple[int, int, int] = (1, 1, 1),
    padding: tuple[int, int, int, int, int, int] = (0, 0, 0, 0, 0, 0),
    dilation: tuple[int, int, int] = (1, 1, 1),
    activation_fn: ActFnType | None = None,
    lnc_shard: bool = False,
) -> nl.NkiTensor:
    """Convolution of a batch of volumes, with all depths of the output at once.

    Args:
        x_in: ``(B, C_in, D, H, W)``, bfloat16, float16 or float32.
        filters: ``(K_d, K_h, K_w, C_in, C_out)`` in the same dtype.
        bias: ``(C_out,)`` in the same dtype.
        stride, dilation: of depth, height and width, at least 1.
        padding: zeros before and after, of depth, of height, of width.
        activation_fn: of the results.
        lnc_shard: cores share the rows of each volume; otherwise whole blocks of batches and rows.

    Returns:
        ``(B, C_out, D_out, H_out, W_out)`` in the same dtype.

    Raises:
        KernelLimit: shapes, dtypes, a step below 1, negative padding, or no output at all.
    """
    sizes = limits.shape("x_in", x_in, ("B", "C_in", "D", "H", "W"))
    limits.shape("filters", filters, ("K_d", "K_h", "K_w", "C_in", "C_out"), sizes)
    limits.dtype("x_in", x_in, _FLOATS)
    limits.same_dtype(x_in=x_in, filters=filters, bias=bias)
    if bias is not None:
        limits.shape("bias", bias, ("C_out",), sizes)
    if activation_fn is not None:
        limits.one_of("activation_fn", activation_fn, tuple(ActFnType))
    pairs = list(zip(padding[0::2], padding[1::2], strict=True))
    axes = [
        axis(name, sizes[name], sizes[f"K_{name.lower()}"], step, pair, apart)
        for name, step, pair, apart in zip("DHW", stride, pairs, dilation, strict=True)
    ]
    space = Space(*axes)
    out = streaming.result((sizes["B"], sizes["C_out"], *space.outputs), x_in.dtype)
    made = Convolution(x_in, filters, bias, out, space, activation_fn)
    together = max(1, nl.tile_size.gemm_stationary_fmax // sizes["C_out"])
    for depths in spans(space.depth.outputs, together):
        for channels in spans(sizes["C_out"], nl.tile_size.gemm_stationary_fmax):
            _Unrolled(made, depths, channels).write(by_rows=lnc_shard)
    return out


class _Unrolled:
    """Some depths and channels of the output, whose product is at most 128 of them, times as many rows as have room."""

    def __init__(self, made: Convolution, depths: slice, channels: slice) -> None:
        self._made, self._depths, self._channels = made, depths, channels
        self._parts = spans(made.x.shape[1], nl.tile_size.pmax)
        reach = made.space.depth.reach(depths)
        inside = range(max(0, reach.start), min(reach.stop, made.space.depth.size))
        self._planes = {plane: found for plane in inside if (found := self._readers(plane))}
        self._keys = [(plane, part.start) for part in self._parts for plane in self._planes]
        self._filters: dict[int, dict[tuple[int, int], Any]] = {}

    def write(self, *, by_rows: bool) -> None:
        """All outputs of these depths and channels."""
        bias: dict[int, Any] = {}
        blocks = view_blocks(self._made, len(self._planes) + 1, int(nl.tile_size.psum_bank_fmax))
        for block in self._by_rows(blocks) if by_rows else streaming.share(blocks):
            slabs = {key: self._slab(block, *key) for key in self._keys}
            for start, together, count in self._groups(block):
                if together not in bias:
                    bias[together] = self._bias(together)
                self._outputs(block, slabs, start, together, count, bias[together])

    def _readers(self, plane: int) -> list[tuple[int, int]]:
        """Which depths of the output, counted from the first of these, read a plane, each through which tap."""
        axis = self._made.space.depth
        outputs = range(self._depths.start, self._depths.stop)
        return [
            (output - self._depths.start, tap)
            for output in outputs
            for tap in range(axis.taps)
            if axis.position(output, tap) == plane
        ]

    def _groups(self, block: Block) -> list[tuple[int, int, int]]:
        """Rows of a block: the first one, how many share a product, and how many such groups share a bank of PSUM."""
        rows, bank = size(block.rows), nl.tile_size.psum_bank_fmax
        most = min(rows, self._most)
        whole, rest = divmod(rows, most)
        found = [
            (part.start * most, most, size(part))
            for part in spans(whole, max(1, bank // min(size(block.columns), bank)))
        ]
        return [*found, (whole * most, rest, 1)] if rest else found

    @property
    def _most(self) -> int:
        """Rows that share a product at most: of 128 results, and as many as there is room for filters."""
        space, each = self._made.space, size(self._channels) * size(self._depths)
        most = max(1, nl.tile_size.gemm_stationary_fmax // each)
        one = len(self._keys) * space.width.taps * each * self._made.x.dtype.itemsize
        while most > 1 and one * most * space.height.reached(most) > _FILTER_BYTES:
            most -= 1
        return most

    def _beside(self, plane: int, part: slice, together: int) -> Any:
        """The filters of all depths and rows for a plane, zeros where one does not read it.

        Returns:
            (input channels, positions of rows, taps of width, output channels and depths and rows).
        """
        rows, space = self._loaded(part), self._made.space
        wide, channels, depths = space.width.taps, size(self._channels), size(self._depths)
        shape = (size(part), space.height.reached(together), wide, channels, depths, together)
        tile = streaming.filled(shape, rows.dtype, 0.0)
        position, tap_step, channel_step = wide * channels * depths * together, channels * depths * together, depths
        along = space.height.stride * position + 1  # from the place of one row to that of the next, a position on
        for depth, tap in self._planes[plane]:
            for high in range(space.height.taps):
                place = high * space.height.dilation * position + depth * together
                pattern = [
                    [shape[1] * position, shape[0]],
                    [along, together],
                    [tap_step, wide],
                    [channel_step * together, channels],
                ]
                source = rows[:, tap, high].expand_dim(1).broadcast(1, together)
                nisa.tensor_copy(dst=tile.ap(pattern=pattern, offset=place), src=source)
        return tile.reshape((*shape[:3], channels * depths * together))

    def _loaded(self, part: slice) -> Any:
        """The filter's rows of some input channels: (channels, taps of depth, of height, of width, channels)."""
        rows = self._made.filters[:, :, :, part, self._channels]
        return streaming.load(rows.permute((3, 0, 1, 2, 4)))

    def _bias(self, together: int) -> Any:
        """As a column, each channel as often as there are depths and rows; or 0."""
        if self._made.bias is None:
            return 0.0
        count, times = size(self._channels), size(self._depths) * together
        column = streaming.sbuf((count * times, 1), nl.float32)
        streaming.copy(column, self._made.bias[self._channels].reshape((count, 1)).broadcast(1, times))
        return column

    def _slab(self, block: Block, plane: int, first: int) -> Any:
        part = next(each for each in self._parts if each.start == first)
        return padded_plane(self._made.x, block.batch, plane, part, *reached(self._made.space, block))

    def _outputs(
        self, block: Block, slabs: dict[tuple[int, int], Any], start: int, together: int, count: int, bias: Any
    ) -> None:
        """Some groups of rows of a block."""
        made, rows = self._made, count * together
        down = slice(block.rows.start + start, block.rows.start + start + rows)
        for columns in spans(size(block.columns), nl.tile_size.psum_bank_fmax):
            results = size(self._channels) * size(self._depths) * together
            shape = (results, count, size(columns))
            tile = streaming.sbuf(shape, made.out.dtype)
            products = self._products(slabs, start, together, count, columns)
            finish(summed(products, shape), made.activation, bias, into=tile)
            across = slice(block.columns.start + columns.start, block.columns.start + columns.stop)
            place = made.out[block.batch, self._channels, self._depths, down, across]
            streaming.store(place.reshape_dim(2, (count, together)).permute((0, 1, 3, 2, 4)), tile)

    def _products(
        self, slabs: dict[tuple[int, int], Any], start: int, together: int, count: int, columns: slice
    ) -> list[tuple[Any, Any]]:
        space, found = self._made.space, []
        if together not in self._filters:
            parts = {part.start: part for part in self._parts}
            self._filters[together] = {(p, first): self._beside(p, parts[first], together) for p, first in self._keys}
        step = together * space.height.stride
        for key, slab in slabs.items():
            for position in range(space.height.reached(together)):
                first = start * space.height.stride + position
                down = slice(first, first + (count - 1) * step + 1, step)
                for w in range(space.width.taps):
                    across = strided(columns, space.width.stride, w * space.width.dilation)
                    found.append((self._filters[together][key][:, position, w], slab[:, down, across]))
        return found

    def _by_rows(self, blocks: list[Block]) -> list[Block]:
        """This core's blocks of each volume, or its rows of them where there are fewer than cores."""
        found = []
        for batch in range(self._made.x.shape[0]):
            own = [block for block in blocks if block.batch == batch]
            if len(own) >= nl.num_programs(0):
                found += streaming.share(own)
            else:
                found += [half for block in own if (half := _share_of_rows(block)) is not None]
        return found


def _share_of_rows(block: Block) -> Block | None:
    """This core's part of the rows of a block; None if there is none."""
    mine = streaming.share(list(range(block.rows.start, block.rows.stop)))
    return Block(block.batch, slice(mine[0], mine[-1] + 1), block.columns) if mine else None
