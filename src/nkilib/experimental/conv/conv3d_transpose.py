"""Transposed convolution of volumes, what decoders enlarge them with::

    out[b, co, o] = act(bias[co] + sum of filters[k, ci, co] * x[b, ci, i] over all k, ci, i with
                        o = i * stride + (K - 1 - k) * dilation - padding)

for depth, height and width alike. Filters come with their taps in reverse order, as a convolution of the input with
zeros between its elements wants them.

Layouts: x_in (B, C_in, D, H, W), out (B, C_out, D_out, H_out, W_out), where D_out is ``(D - 1) * stride + dilation *
(K - 1) - 2 * padding + 1``. Dtypes: bfloat16, float16 or float32; sums are float32 and round once. Limits: none but
those of HBM; few input channels leave rows of the Tensor engine empty.

Plan: no zero between elements is multiplied. Outputs are made phase by phase (`phases`), each an ordinary convolution
whose taps are views of a block of the input in SBUF, summed up in PSUM, and Scalar puts them, with bias and activation,
in their places among those of the other phases, so that DMA stores whole rows. The Tensor engine bounds it.

Source: nki/library/api/conv3d-transpose.rst; Dumoulin and Visin, "A guide to convolution arithmetic", 2016.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import nki
import nki.language as nl
from nkilib import limits, streaming
from nkilib.core.utils.common_types import ActFnType
from nkilib.experimental.conv.implicit_gemm import finish, summed
from nkilib.experimental.conv.phases import Phase, TransposedAxis
from nkilib.experimental.conv.planes import back_to, padded_plane
from nkilib.streaming import size, spans

_FLOATS = (nl.bfloat16, nl.float16, nl.float32)

_BLOCK_BYTES = 48 * 1024
_FILTER_BYTES = 64 * 1024
"""Bytes of a partition for a block of the input, and for the filter."""

_LAYOUTS = ("KDHW_CI_CO", "KDHW_CO_CI")


@nki.jit
def conv3d_transpose(
    x_in: nl.NkiTensor,
    filters: nl.NkiTensor,
    bias: nl.NkiTensor | None = None,
    stride: tuple[int, int, int] = (1, 1, 1),
    padding: tuple[int, int, int] = (0, 0, 0),
    dilation: tuple[int, int, int] = (1, 1, 1),
    activation_fn: ActFnType | None = None,
    lnc_shard: bool = False,
    filter_shape: str = "KDHW_CI_CO",
    sbm: Any = None,
    use_auto_allocation: bool = False,
) -> nl.NkiTensor:
    """Transposed convolution of a batch of volumes.

    Args:
        x_in: ``(B, C_in, D, H, W)``, bfloat16, float16 or float32.
        filters: in the same dtype, taps in reverse order; ``(K_d, K_h, K_w, C_in, C_out)``, or with the last two
            exchanged.
        bias: ``(C_out,)`` in the same dtype.
        stride, dilation: of depth, height and width, at least 1.
        padding: outputs that are left out at both ends, of depth, height and width.
        activation_fn: of the results.
        lnc_shard: two cores share the output channels; otherwise batches and rows.
        filter_shape: "KDHW_CI_CO" or "KDHW_CO_CI".
        sbm, use_auto_allocation: of no effect, as the compiler allocates memory; it is told.

    Returns:
        ``(B, C_out, D_out, H_out, W_out)`` in the same dtype.

    Raises:
        KernelLimit: shapes, dtypes, a step below 1, negative padding, or no output at all.
    """
    told = "the compiler allocates memory"
    limits.without_effect("conv3d_transpose", told, sbm=sbm, use_auto_allocation=use_auto_allocation or None)
    limits.one_of("filter_shape", filter_shape, _LAYOUTS)
    channels = ("C_in", "C_out") if filter_shape == _LAYOUTS[0] else ("C_out", "C_in")
    sizes = limits.shape("x_in", x_in, ("B", "C_in", "D", "H", "W"))
    limits.shape("filters", filters, ("K_d", "K_h", "K_w", *channels), sizes)
    limits.dtype("x_in", x_in, _FLOATS)
    limits.same_dtype(x_in=x_in, filters=filters, bias=bias)
    if bias is not None:
        limits.shape("bias", bias, ("C_out",), sizes)
    if activation_fn is not None:
        limits.one_of("activation_fn", activation_fn, tuple(ActFnType))
    deep, high, wide = (
        _axis(name, sizes[name], sizes[f"K_{name.lower()}"], *steps)
        for name, *steps in zip("DHW", stride, padding, dilation, strict=True)
    )
    shape = sizes["B"], sizes["C_out"], deep.outputs, high.outputs, wide.outputs
    out = streaming.result(shape, x_in.dtype)
    made = _Transposed(x_in, filters, bias, out, deep, high, wide, activation_fn, filter_shape == _LAYOUTS[1])
    made.write(by_channels=lnc_shard)
    return out


def _axis(name: str, length: int, taps: int, stride: int, padding: int, dilation: int) -> TransposedAxis:
    limits.need(stride >= 1, f"stride of {name}", stride, "a stride is at least 1", "pass 1 for every position")
    limits.need(dilation >= 1, f"dilation of {name}", dilation, "a dilation is at least 1", "pass 1 for neighbours")
    limits.need(padding >= 0, f"padding of {name}", padding, "padding is not negative", "pad the result instead")
    axis = TransposedAxis(length, taps, stride, padding, dilation)
    limits.between(f"outputs of {name}", axis.outputs, 1, 1 << 30, "padding leaves some of them")
    return axis


@dataclass(frozen=True, eq=False)
class _Block:
    """Steps of height and width of one batch, whose outputs of all phases are made from what is in SBUF together."""

    batch: int
    rows: slice
    columns: slice


@dataclass(frozen=True, eq=False)
class _Transposed:
    """A transposed convolution whose arguments were checked; the fields are these arguments."""

    x: Any
    filters: Any
    bias: Any
    out: Any
    depth: TransposedAxis
    height: TransposedAxis
    width: TransposedAxis
    activation: ActFnType | None
    swapped: bool

    def write(self, *, by_channels: bool) -> None:
        """All outputs. Cores share the output channels, or else blocks."""
        blocks = self._blocks()
        for channels in streaming.share(self._groups()) if by_channels else self._groups():
            filters = _Filters(self, channels)
            for block in blocks if by_channels else streaming.share(blocks):
                slabs = _Slabs(self, block)
                for step in range(self.depth.steps):
                    slabs.read(step)
                    for phase in self.depth.phases:
                        if step < phase.count:
                            self._plane(block, phase, step, filters, slabs)

    def _groups(self) -> list[slice]:
        """Output channels whose filter is in SBUF together, a multiple of 128 unless that is too many."""
        whole = nl.tile_size.gemm_stationary_fmax
        taps = self.depth.taps * self.height.taps * self.width.taps
        each = taps * len(self.parts) * self.x.dtype.itemsize
        return spans(
            self.out.shape[1], max(1, min(whole, _FILTER_BYTES // each), _FILTER_BYTES // each // whole * whole)
        )

    @property
    def parts(self) -> list[slice]:
        """Input channels of one product."""
        return spans(self.x.shape[1], nl.tile_size.pmax)

    def _blocks(self) -> list[_Block]:
        """As many rows and columns as have room, for all depths that a step reads, and the next one."""
        planes = size(self.depth.reach(slice(0, 1))) + 1
        room = _BLOCK_BYTES // (len(self.parts) * planes * self.x.dtype.itemsize)
        columns = min(self.width.steps, nl.tile_size.psum_bank_fmax)
        while columns > 1 and size(self.width.reach(slice(0, columns))) * size(self.height.reach(slice(0, 1))) > room:
            columns = streaming.ceil_div(columns, 2)
        rows = streaming.ceil_div(self.height.steps, nl.num_programs(0))
        while rows > 1 and size(self.width.reach(slice(0, columns))) * size(self.height.reach(slice(0, rows))) > room:
            rows = streaming.ceil_div(rows, 2)
        return [
            _Block(batch, down, across)
            for batch in range(self.x.shape[0])
            for down in spans(self.height.steps, rows)
            for across in spans(self.width.steps, columns)
        ]

    def _plane(self, block: _Block, phase: Phase, step: int, filters: _Filters, slabs: _Slabs) -> None:
        """Outputs of a block at one depth, as many rows at a time as one bank of PSUM holds of a phase."""
        depth = phase.first + step * self.depth.stride
        across = self.width.written(block.columns)
        for rows in _within(block.rows, max(1, nl.tile_size.psum_bank_fmax // size(block.columns))):
            down = self.height.written(rows)
            for part in filters.parts:
                tile = streaming.sbuf((size(part), size(down), size(across)), self.out.dtype)
                for high, wide in self._pairs():
                    self._phase(tile, (phase, high, wide), rows, block.columns, filters.of(part), slabs)
                channels = slice(filters.channels.start + part.start, filters.channels.start + part.stop)
                streaming.store(self.out[block.batch, channels, depth, down, across], tile)

    def _pairs(self) -> Iterator[tuple[Phase, Phase]]:
        return ((high, wide) for high in self.height.phases for wide in self.width.phases)

    def _phase(
        self, tile: Any, phases: tuple[Phase, ...], rows: slice, columns: slice, filters: _Part, slabs: _Slabs
    ) -> None:
        """The outputs of one phase into their places in a tile of those of all phases."""
        deep, high, wide = phases
        down = slice(rows.start, min(rows.stop, high.count))
        across = slice(columns.start, min(columns.stop, wide.count))
        if size(down) <= 0 or size(across) <= 0:
            return
        products = [
            (filters.rows((d, h, w), number), slab)
            for d, forward in deep.taps
            for h, lower in high.taps
            for w, right in wide.taps
            for number, slab in enumerate(slabs.views(forward, _shifted(down, lower), _shifted(across, right)))
        ]
        place = tile[:, high.first :: self.height.stride, wide.first :: self.width.stride]
        total = summed(products, (tile.shape[0], size(down), size(across)))
        finish(total, self.activation, filters.bias, into=place)


def _within(outer: slice, step: int) -> list[slice]:
    return [_shifted(piece, outer.start) for piece in spans(size(outer), step)]


def _shifted(piece: slice, by: int) -> slice:
    return slice(piece.start + by, piece.stop + by)


class _Filters:
    """The filter's rows and the bias of some output channels, in SBUF."""

    def __init__(self, made: _Transposed, channels: slice) -> None:
        self.channels = channels
        self._made = made
        self.parts = spans(size(channels), nl.tile_size.gemm_stationary_fmax)
        self._tiles = [self._load(part) for part in made.parts]

    def of(self, part: slice) -> _Part:
        """Those of some of the channels."""
        bias: Any = 0.0
        if self._made.bias is not None:
            start = self.channels.start
            bias = streaming.load(self._made.bias[start + part.start : start + part.stop], nl.float32)
        return _Part(self._tiles, self._made, part, bias)

    def _load(self, part: slice) -> Any:
        """Some input channels on partitions: (channels, taps, output channels)."""
        every = self._made.filters
        *taps, first, second = every.shape
        rows = every.reshape((taps[0] * taps[1] * taps[2], first, second))
        if not self._made.swapped:
            return streaming.load(rows[:, part, self.channels].permute((1, 0, 2)))
        tile = streaming.sbuf((size(part), rows.shape[0], size(self.channels)), every.dtype)
        for tap in range(rows.shape[0]):
            for some in spans(size(self.channels), nl.tile_size.pmax):
                source = rows[tap, _shifted(some, self.channels.start), part]
                streaming.transpose(streaming.load(source), into=tile[:, tap, some])
        return tile


@dataclass(frozen=True, eq=False)
class _Part:
    """Filters of at most 128 output channels, and their bias as a column, or 0."""

    tiles: list[Any]
    made: _Transposed
    part: slice
    bias: Any

    def rows(self, tap: tuple[int, int, int], number: int) -> Any:
        """Of one tap and one piece of the input channels."""
        d, h, w = tap
        return self.tiles[number][:, (d * self.made.height.taps + h) * self.made.width.taps + w, self.part]


class _Slabs:
    """Planes of the input of a block with zeros around them, each as long as an output reads it."""

    def __init__(self, made: _Transposed, block: _Block) -> None:
        self._made, self._block = made, block
        self._planes: dict[int, list[Any]] = {}
        self._step = 0

    def read(self, step: int) -> None:
        """Load what outputs of a step of depth read; what is behind is forgotten."""
        reach, length = self._made.depth.reach(slice(step, step + 1)), self._made.depth.size
        wanted = range(max(0, reach.start), min(length, reach.stop))
        self._step = step
        self._planes = {
            at: self._planes.get(at) or [self._load(at, part) for part in self._made.parts] for at in wanted
        }

    def views(self, forward: int, rows: slice, columns: slice) -> list[Any]:
        """What a tap reads of the plane `forward` of the step, by pieces of channels; nothing where there are zeros."""
        made, block = self._made, self._block
        down = back_to(rows, made.height.reach(block.rows))
        across = back_to(columns, made.width.reach(block.columns))
        return [slab[:, down, across] for slab in self._planes.get(self._step + forward, [])]

    def _load(self, plane: int, part: slice) -> Any:
        made, block = self._made, self._block
        rows, columns = made.height.reach(block.rows), made.width.reach(block.columns)
        return padded_plane(made.x, block.batch, plane, part, rows, columns)
