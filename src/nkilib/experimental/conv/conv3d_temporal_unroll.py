"""Convolution of volumes with few output channels: all depths of the output in one product.

Math as in `conv3d`. A product there has as many rows as output channels, and with few of them the Tensor engine stands
mostly empty. Here a product has a row for each output channel *and depth*: an input plane, seen through one tap of
height and width, meets the filters of all depths of the output that read it at once, zeros where one does not.

Layouts: as in `conv3d`. Dtypes: bfloat16, float16 or float32. Limits: none; more than 128 rows are several products.

Plan: DMA loads the filter once; Vector puts it, for each input plane, beside itself for all depths of the output. The
Tensor engine sums up over planes and taps in PSUM, Scalar adds the bias and applies the activation on the way out. The
Tensor engine bounds it, by about ``D / (D_out * K_d)`` of what `conv3d` needs.

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
    """Some depths and channels of the output, whose product is at most 128 of them."""

    def __init__(self, made: Convolution, depths: slice, channels: slice) -> None:
        self._made, self._depths, self._channels = made, depths, channels
        self._parts = spans(made.x.shape[1], nl.tile_size.pmax)
        reach = made.space.depth.reach(depths)
        inside = range(max(0, reach.start), min(reach.stop, made.space.depth.size))
        self._planes = {plane: found for plane in inside if (found := self._readers(plane))}
        self._filters = {
            (plane, part.start): self._beside(plane, part) for part in self._parts for plane in self._planes
        }

    def write(self, *, by_rows: bool) -> None:
        """All outputs of these depths and channels."""
        bias = self._bias()
        blocks = view_blocks(self._made, len(self._planes) + 1)
        if by_rows:
            blocks = [half for block in blocks if (half := _share_of_rows(block)) is not None]
        for block in blocks if by_rows else streaming.share(blocks):
            slabs = {key: self._slab(block, *key) for key in self._filters}
            self._outputs(block, slabs, bias)

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

    def _beside(self, plane: int, part: slice) -> Any:
        """The filters of all depths for a plane: (input channels, taps of height and width, channels and depths)."""
        rows = self._loaded(part)
        shape = (size(part), rows.shape[2], size(self._channels), size(self._depths))
        tile = streaming.filled(shape, rows.dtype, 0.0)
        for depth, tap in self._planes[plane]:
            nisa.tensor_copy(dst=tile[:, :, :, depth], src=rows[:, tap])
        return tile.reshape((*shape[:2], shape[2] * shape[3]))

    def _loaded(self, part: slice) -> Any:
        """The filter's rows of some input channels: (channels, taps of depth, those of height and width, channels)."""
        every = self._made.filters
        deep, high, wide, inner, outer = every.shape
        rows = every.reshape((deep, high * wide, inner, outer))[:, :, part, self._channels]
        return streaming.load(rows.permute((2, 0, 1, 3)))

    def _bias(self) -> Any:
        """As a column, each channel as often as there are depths; or 0."""
        if self._made.bias is None:
            return 0.0
        count = size(self._channels)
        column = streaming.sbuf((count * size(self._depths), 1), nl.float32)
        source = self._made.bias[self._channels].reshape((count, 1)).broadcast(1, size(self._depths))
        streaming.copy(column, source)
        return column

    def _slab(self, block: Block, plane: int, first: int) -> Any:
        part = next(each for each in self._parts if each.start == first)
        return padded_plane(self._made.x, block.batch, plane, part, *reached(self._made.space, block))

    def _outputs(self, block: Block, slabs: dict[tuple[int, int], Any], bias: Any) -> None:
        """Those of a block, as many rows at a time as one bank of PSUM holds."""
        made, bank = self._made, nl.tile_size.psum_bank_fmax
        wide = min(size(block.columns), bank)
        for rows in spans(size(block.rows), max(1, bank // wide)):
            for columns in spans(size(block.columns), wide):
                count = size(self._channels) * size(self._depths)
                shape = (count, size(rows), size(columns))
                tile = streaming.sbuf(shape, made.out.dtype)
                finish(summed(self._products(rows, columns, slabs), shape), made.activation, bias, into=tile)
                down = slice(block.rows.start + rows.start, block.rows.start + rows.stop)
                across = slice(block.columns.start + columns.start, block.columns.start + columns.stop)
                streaming.store(made.out[block.batch, self._channels, self._depths, down, across], tile)

    def _products(self, rows: slice, columns: slice, slabs: dict[tuple[int, int], Any]) -> list[tuple[Any, Any]]:
        space = self._made.space
        taps = [(h, w) for h in range(space.height.taps) for w in range(space.width.taps)]
        found = []
        for key, slab in slabs.items():
            for number, (h, w) in enumerate(taps):
                down = strided(rows, space.height.stride, h * space.height.dilation)
                across = strided(columns, space.width.stride, w * space.width.dilation)
                found.append((self._filters[key][:, number], slab[:, down, across]))
        return found


def _share_of_rows(block: Block) -> Block | None:
    """This core's part of the rows of a block; None if there is none."""
    mine = streaming.share(list(range(block.rows.start, block.rows.stop)))
    return Block(block.batch, slice(mine[0], mine[-1] + 1), block.columns) if mine else None
