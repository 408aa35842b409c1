"""Examples of nc_matmul, nc_matmul_mx and nc_transpose."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import nki.isa as family
import nki.language as nl
from nki.isa.copy import tensor_copy
from nki.spec.engine import engine, matmul_perf_mode
from tests.isa.examples.quantize import MxArray, mx_array
from tests.isa.registry import Breaks, Legal
from tests.isa.tiles import dma_load as load
from tests.isa.tiles import store

bf16, f16 = ml_dtypes.bfloat16, np.float16
e4m3, e4m3fn, e5m2 = ml_dtypes.float8_e4m3, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
f32 = np.float32
DOUBLE_ROW = matmul_perf_mode.double_row
NEW = ("trn2", "trn3")
TRN3 = ("trn3",)


def small(*shapes: Any, dtype: Any = f32, second: Any = None, most: int = 3) -> Any:
    """Two operands of small integers: exact in every dtype, and so are their products and sums."""

    def make() -> tuple[Any, ...]:
        r = np.random.default_rng(5)
        kinds = (dtype, second or dtype)
        return tuple(r.integers(-most, most + 1, s).astype(k) for s, k in zip(shapes, kinds, strict=True))

    return make


def product(a: Any, b: Any) -> np.ndarray:
    """The flattened matmul, term by term in integers."""
    a, b = (v.astype(np.float64).astype(np.int64).reshape(v.shape[0], -1) for v in (a, b))
    total = np.zeros((a.shape[1], b.shape[1]), np.int64)
    for row_a, row_b in zip(a, b, strict=True):
        total += np.outer(row_a, row_b)
    return total.astype(f32)


def doubled(a: Any, b: Any) -> np.ndarray:
    """Sum over the partition and over the first free dimension."""
    return np.einsum("ktm,ktn->mn", a.astype(f32), b.reshape(*b.shape[:2], -1).astype(f32))


def matmul(
    out: Any,
    dtype: Any = "float32",
    cast: Any = (None, None),
    dst: Any = lambda t: t,
    left: Any = lambda t: t,
    right: Any = lambda t: t,
    **options: Any,
) -> Any:
    """A kernel with one nc_matmul of its two arguments, or of views of them."""

    def kernel(a: Any, b: Any) -> Any:
        stationary, moving = load(a, cast[0]), load(b, cast[1])
        result = nl.ndarray(out, dtype, buffer=nl.psum)
        family.nc_matmul(dst=dst(result), stationary=left(stationary), moving=right(moving), **options)
        return store(dst(result))

    return kernel


def accumulated(*modes: Any) -> Any:
    """The same product added several times."""

    def kernel(a: Any, b: Any) -> Any:
        stationary, moving = load(a), load(b)
        result = nl.ndarray((48, 80), nl.float32, buffer=nl.psum)
        for step, mode in enumerate(modes):
            if step and mode is False:
                store(result)  # else the products before would be lost, which is told
            family.nc_matmul(result, stationary, moving, accumulate=mode)
        return store(result)

    return kernel


def side_by_side(a: Any, b: Any) -> Any:
    """Two matmuls of 32 columns in their own column tiles."""
    stationary, moving = load(a), load(b)
    result = nl.ndarray((64, 80), nl.float32, buffer=nl.psum)
    for tile in range(2):
        columns = nl.ds(32 * tile, 32)
        family.nc_matmul(
            result[columns, :], stationary[:, columns], moving, tile_position=(0, 32 * tile), tile_size=(128, 32)
        )
    return store(result)


def gathered(index_of: str, **options: Any) -> Any:
    """Operands read or written through an index tensor."""

    def kernel(a: Any, b: Any, index: Any) -> Any:
        views = {"stationary": load(a), "moving": load(b)}
        views["dst"] = nl.ndarray((32, 40), nl.float32, buffer=nl.psum)
        result, offsets = views["dst"], load(index)
        views[index_of] = views[index_of].indirect(offsets, 40 if index_of != "stationary" else 32)
        family.nc_matmul(**views, **options)
        return store(result)

    return kernel


def index_args(dtype: Any = bf16, columns: int = 40) -> Any:
    """Offsets that reverse the columns, in the order in which the Tensor engine takes them: down 32 partitions."""

    def make() -> tuple[Any, ...]:
        a, b = small((32, 32), (32, 40), dtype=dtype)()
        offsets = np.zeros((32, 2), np.uint16)
        for position in range(columns):
            offsets[position % 32, position // 32] = columns - 1 - position
        return a, b, offsets

    return make


def apart(a: Any, b: Any, index: Any) -> Any:
    """An index on other partitions than its operand."""
    stationary, moving = load(a), load(b, address=(0, 0))
    offsets = load(index, address=(32, 4096))
    result = nl.ndarray((32, 40), nl.float32, buffer=nl.psum)
    family.nc_matmul(result, stationary, moving.indirect(offsets[0:32, :], 40))
    return store(result)


def identity_args(dtype: Any, shape: Any = (64, 48), columns: int | None = None) -> Any:
    """Random bits without regard to what they mean, and an identity matrix."""

    def make() -> tuple[Any, ...]:
        r = np.random.default_rng(8)
        size = np.dtype(dtype).itemsize
        bits = r.integers(0, 256, (*shape[:-1], shape[-1] * size), np.uint8).view(dtype)
        return bits, np.eye(shape[0], columns or shape[0]).astype(dtype)

    return make


def bits_of(values: Any) -> np.ndarray:
    return np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")


def transposed_bits(a: Any, *_: Any) -> np.ndarray:
    flat = bits_of(a).reshape(a.shape[0], -1)
    return np.array([[flat[p, f] for p in range(flat.shape[0])] for f in range(flat.shape[1])])


def move(dtype: Any, step: int = 1, **options: Any) -> Any:
    """is_transpose, returned as the bytes that PSUM holds."""

    def kernel(a: Any, eye: Any) -> Any:
        data, identity = load(a), load(eye)
        result = nl.ndarray((data.shape[1], data.shape[0], step), dtype, buffer=nl.psum)
        family.nc_matmul(result[:, :, 0], data, identity, is_transpose=True, **options)
        return raw(result)

    return kernel


def raw(tile: Any) -> Any:
    """An HBM tensor with the bits of a tile, as unsigned integers."""
    kind = {1: nl.uint16, 2: nl.uint16, 4: nl.uint32}[tile.dtype.itemsize]
    flat = tile.reshape((tile.shape[0], tile.size // tile.shape[0]))
    return store(flat.view(kind))


def transpose(
    out: Any, dtype: Any = None, buffer: Any = nl.psum, view: Any = lambda t: t, source: Any = nl.sbuf, **options: Any
) -> Any:
    """A kernel with one nc_transpose, returned as bits."""

    def kernel(a: Any) -> Any:
        data = load(a)
        if source is nl.psum:
            staged = nl.ndarray(a.shape, a.dtype, buffer=nl.psum)
            tensor_copy(dst=staged, src=data)
            data = staged
        result = nl.ndarray(out, dtype or a.dtype, buffer=buffer)
        family.nc_transpose(dst=view(result), data=data, **options)
        return raw(result) if view(result) is result else store(view(result))

    return kernel


def bits_args(dtype: Any, shape: Any = (64, 48)) -> Any:
    def make() -> tuple[Any, ...]:
        return identity_args(dtype, shape)()[:1]

    return make


def numbers_args(dtype: Any = f32, shape: Any = (64, 48)) -> Any:
    def make() -> tuple[Any, ...]:
        return small(shape, shape, dtype=dtype)()[:1]

    return make


SHAPES = ((64, 48), (64, 80))
BASE = matmul((48, 80))

MATMUL = [
    Legal("nc_matmul", BASE, small(*SHAPES), product),
    Legal("nc_matmul", BASE, small(*SHAPES, dtype=bf16), product),
    Legal("nc_matmul", BASE, small(*SHAPES, dtype=f16, second=bf16), product),
    Legal("nc_matmul", BASE, small(*SHAPES, dtype=e5m2, second=e4m3), product),
    Legal("nc_matmul", BASE, small(*SHAPES, dtype=e4m3fn, second=bf16), product, TRN3),
    Legal("nc_matmul", matmul((48, 80), cast=("tfloat32", "tfloat32")), small(*SHAPES), product),
    Legal("nc_matmul", matmul((48, 80), cast=("tfloat32", None)), small(*SHAPES), product),
    Legal("nc_matmul", matmul((128, 512)), small((128, 128), (128, 512), dtype=bf16), product),
    Legal("nc_matmul", matmul((1, 1)), small((1, 1), (1, 1)), product),
    Legal("nc_matmul", matmul((6, 512)), small((3, 2, 3), (3, 4, 8, 16)), product),
    Legal("nc_matmul", matmul((6, 2, 5)), small((3, 6), (3, 5, 2)), lambda a, b: product(a, b).reshape(6, 2, 5)),
    Legal("nc_matmul", matmul((48, 80), "bfloat16"), small(*SHAPES, most=1), product, TRN3),
    Legal("nc_matmul", matmul((4, 4096)), small((3, 4), (3, 4096), dtype=bf16), product, TRN3),
    Legal("nc_matmul", matmul((4, 8192), "bfloat16"), small((3, 4), (3, 8192), dtype=bf16), product, TRN3),
    Legal("nc_matmul", matmul((48, 80), is_moving_onezero=True), small(*SHAPES, dtype=bf16), product),
    Legal("nc_matmul", accumulated(False, True, None), small(*SHAPES), lambda a, b: 3 * product(a, b)),
    Legal("nc_matmul", accumulated(None, None, False), small(*SHAPES), product),
    Legal("nc_matmul", matmul((48, 80), tile_position=(64, 0), tile_size=(64, 128)), small(*SHAPES), product),
    Legal("nc_matmul", matmul((48, 80), tile_position=(0, 64), tile_size=(128, 64)), small(*SHAPES), product),
    Legal("nc_matmul", matmul((48, 80), tile_position=(0, 0)), small(*SHAPES), product),
    Legal("nc_matmul", side_by_side, small((64, 64), (64, 80)), product, NEW),
    Legal("nc_matmul", matmul((48, 80), perf_mode=matmul_perf_mode.none), small(*SHAPES), product),
    Legal(
        "nc_matmul",
        matmul((24, 40), perf_mode=DOUBLE_ROW),
        small((64, 2, 24), (64, 2, 40), dtype=e5m2, second=e4m3),
        doubled,
        NEW,
    ),
    Legal(
        "nc_matmul",
        matmul((128, 512), perf_mode=DOUBLE_ROW),
        small((128, 2, 128), (128, 2, 8, 64), dtype=e4m3fn),
        doubled,
        TRN3,
    ),
    Legal("nc_matmul", move(nl.float32), identity_args(f32), transposed_bits, NEW),
    Legal("nc_matmul", move(nl.bfloat16), identity_args(bf16), transposed_bits, NEW),
    Legal("nc_matmul", move(nl.float16, accumulate=False), identity_args(f16), transposed_bits, NEW),
    Legal("nc_matmul", move(nl.float8_e4m3, 2), identity_args(e4m3), transposed_bits, NEW),
    Legal("nc_matmul", move(nl.float8_e4m3fn, 2), identity_args(e4m3fn), transposed_bits, TRN3),
    Legal(
        "nc_matmul",
        matmul((48, 64), is_transpose=True),
        lambda: (small(*SHAPES)()[0], np.eye(64, dtype=f32)),
        lambda a, eye: a.T,
    ),
    Legal("nc_matmul", gathered("moving"), index_args(), lambda a, b, i: product(a, b[:, ::-1]), TRN3),
    Legal("nc_matmul", gathered("dst"), index_args(), lambda a, b, i: product(a, b)[:, ::-1], TRN3),
    Legal("nc_matmul", gathered("stationary"), index_args(columns=32), lambda a, b, i: product(a[:, ::-1], b), TRN3),
    Breaks(
        "nc_matmul.double-row-target",
        matmul((24, 40), perf_mode=DOUBLE_ROW),
        small((64, 2, 24), (64, 2, 40), dtype=e5m2),
        "trn1",
    ),
    Breaks(
        "nc_matmul.double-row-dtype",
        matmul((24, 40), perf_mode=DOUBLE_ROW),
        small((64, 2, 24), (64, 2, 40), dtype=bf16),
    ),
    Breaks(
        "nc_matmul.double-row-shape",
        matmul((24, 40), perf_mode=DOUBLE_ROW),
        small((64, 3, 16), (64, 2, 40), dtype=e5m2),
    ),
    Breaks(
        "nc_matmul.double-row-shape", matmul((24, 40), perf_mode=DOUBLE_ROW), small((64, 48), (64, 2, 40), dtype=e5m2)
    ),
    Breaks(
        "nc_matmul.double-row-mode",
        matmul((24, 40), perf_mode=DOUBLE_ROW, tile_position=(0, 0), tile_size=(128, 64)),
        small((64, 2, 24), (64, 2, 40), dtype=e5m2),
    ),
    Breaks("nc_matmul.input-dtype", BASE, small(*SHAPES, dtype=np.int32)),
    Breaks("nc_matmul.input-dtype", BASE, small(*SHAPES, dtype=e4m3fn)),
    Breaks("nc_matmul.mixed-float32", BASE, small(*SHAPES, dtype=f32, second=bf16)),
    Breaks("nc_matmul.mixed-float32", matmul((48, 80), cast=(None, "tfloat32")), small(*SHAPES, dtype=f16, second=f32)),
    Breaks("nc_matmul.mixed-float8", BASE, small(*SHAPES, dtype=e4m3, second=e4m3fn), "trn3"),
    Breaks("nc_matmul.dst-dtype", matmul((48, 80), "bfloat16"), small(*SHAPES)),
    Breaks("nc_matmul.dst-dtype", matmul((48, 80), "float16"), small(*SHAPES), "trn3"),
    Breaks("nc_matmul.dst-dtype", move(nl.float32), identity_args(bf16)),
    Breaks("nc_matmul.transpose-moving", matmul((48, 80), is_transpose=True), small(*SHAPES)),
    Breaks("nc_matmul.dst-step", move(nl.float8_e4m3), identity_args(e4m3)),
    Breaks("nc_matmul.transpose-accumulate", move(nl.bfloat16, accumulate=True), identity_args(bf16)),
    Breaks("nc_matmul.indirect-target", gathered("moving"), index_args()),
    Breaks(
        "nc_matmul.indirect-transpose",
        matmul((32, 32), "bfloat16", is_transpose=True, right=lambda t: t.indirect(t.view(nl.uint16), 32)),
        lambda: (small((32, 32), (32, 32), dtype=bf16)()[0], np.eye(32).astype(bf16)),
        "trn3",
    ),
    Breaks("nc_matmul.indirect-dtype", gathered("moving"), index_args(f32), "trn3"),
    Breaks(
        "nc_matmul.indirect-tiling",
        gathered("moving", tile_position=(32, 0), tile_size=(32, 128)),
        index_args(),
        "trn3",
    ),
    Breaks("nc_matmul.indirect-start", apart, index_args(), "trn3"),
    Breaks("nc_matmul.contraction", matmul((48, 80), left=lambda t: t[0:32, :]), small(*SHAPES)),
    Breaks("nc_matmul.stationary-size", matmul((128, 80)), small((64, 129), (64, 80))),
    Breaks("nc_matmul.moving-size", matmul((48, 513)), small((64, 48), (64, 513))),
    Breaks("nc_matmul.moving-size", matmul((48, 4096)), small((2, 48), (2, 4097)), "trn3"),
    Breaks("nc_matmul.dst-shape", matmul((48, 81)), small(*SHAPES)),
    Breaks("nc_matmul.dst-shape", matmul((80, 48)), small(*SHAPES)),
    Breaks("nc_matmul.tile-both", matmul((48, 80), tile_size=(64, 128)), small(*SHAPES)),
    Breaks("nc_matmul.tile-both", matmul((48, 80), tile_position=(0, 0), tile_size=(64,)), small(*SHAPES)),
    Breaks("nc_matmul.tile-size", matmul((48, 80), tile_position=(0, 0), tile_size=(96, 128)), small(*SHAPES)),
    Breaks(
        "nc_matmul.tile-size",
        matmul((16, 80), tile_position=(0, 0), tile_size=(32, 64)),
        small((32, 16), (32, 80)),
        "trn1",
    ),
    Breaks("nc_matmul.tile-position", matmul((48, 80), tile_position=(32, 0), tile_size=(64, 128)), small(*SHAPES)),
    Breaks("nc_matmul.tile-position", matmul((48, 80), tile_position=(128, 0), tile_size=(64, 128)), small(*SHAPES)),
    Breaks("nc_matmul.tile-fit", matmul((48, 80), tile_position=(0, 0), tile_size=(32, 128)), small(*SHAPES)),
    Breaks("nc_matmul.tile-fit", matmul((48, 80), tile_position=(0, 0), tile_size=(128, 32)), small(*SHAPES)),
    Breaks("nc_matmul.dst-bank", matmul((48, 1024), dst=lambda t: t[:, 480:560]), small(*SHAPES)),
    Breaks("nc_matmul.dst-bank", matmul((48, 1600), dst=lambda t: t[:, 0:1600:20]), small(*SHAPES)),
]


# --- nc_matmul_mx


def mx(
    out: Any,
    dtype: Any = "float32",
    scale_dtype: Any = None,
    left: Any = lambda t: t,
    right: Any = lambda t: t,
    left_scale: Any = lambda t: t,
    right_scale: Any = lambda t: t,
    times: int = 1,
    **options: Any,
) -> Any:
    """A kernel with one nc_matmul_mx; the arguments are words of four values, and scales in their quadrants."""

    def kernel(a: MxArray, a_scale: Any, b: MxArray, b_scale: Any) -> Any:
        stationary, moving = (load(v.words).view(v.dtype) for v in (a, b))
        scales = [load(v) if scale_dtype is None else load(v).view(scale_dtype) for v in (a_scale, b_scale)]
        result = nl.ndarray(out, dtype, buffer=nl.psum)
        for step in range(times):
            if step and options.get("accumulate") is False:
                store(result)  # else the product before would be lost, which is told
            family.nc_matmul_mx(
                result,
                left(stationary),
                right(moving),
                left_scale(scales[0]),
                right_scale(scales[1]),
                **options,
            )
        return store(result)

    return kernel


def mx_args(
    partitions: int = 64,
    columns: tuple[int, int] = (24, 40),
    kinds: Any = ("float8_e4m3fn", "float8_e5m2"),
    offset: int = 0,
) -> Any:
    """Operands with their scales, the scales at row `offset` of each quadrant, everything else NaN."""

    def make() -> tuple[Any, ...]:
        r = np.random.default_rng(21)
        made: list[Any] = []
        for kind, count in zip(kinds, columns, strict=True):
            made += mx_array(r, kind, partitions, count, offset)
        return tuple(made)

    return make


def mx_product(offset: int = 0, times: int = 1) -> Any:
    """The definition, element by element: value times 2 to the power of the scale of its group."""

    def reference(a: MxArray, a_scale: Any, b: MxArray, b_scale: Any) -> np.ndarray:
        left, right = a.dequantized(a_scale, offset), b.dequantized(b_scale, offset)
        return np.asarray(np.einsum("pmq,pnq->mn", left, right) * times, np.float64)

    return reference


def mx_gathered(index_of: tuple[str, ...], **options: Any) -> Any:
    """Pairs of data and scale read through one index."""

    def kernel(a: MxArray, a_scale: Any, b: MxArray, b_scale: Any, index: Any) -> Any:
        views = {
            "stationary": load(a.words).view(a.dtype),
            "stationary_scale": load(a_scale),
            "moving": load(b.words).view(b.dtype),
            "moving_scale": load(b_scale),
        }
        offsets = load(index)
        for name in index_of:
            views[name] = views[name].indirect(offsets, views[name].shape[1])
        result = nl.ndarray((24, 24), nl.float32, buffer=nl.psum)
        family.nc_matmul_mx(result, **views, **options)
        return store(result)

    return kernel


def mx_index_args() -> tuple[Any, ...]:
    offsets = np.zeros((64, 1), np.uint16)
    for position in range(24):
        offsets[position, 0] = offsets[32 + position, 0] = 23 - position
    return (*mx_args(columns=(24, 24))(), offsets)


def mx_gathered_product(reverse: int) -> Any:
    """Reversed columns of one operand reverse that dimension of the result."""

    def reference(*arguments: Any) -> np.ndarray:
        return np.flip(mx_product()(*arguments[:4]), reverse)

    return reference


def mx_apart(a: MxArray, a_scale: Any, b: MxArray, b_scale: Any, index: Any) -> Any:
    """An index that does not start at a quadrant."""
    stationary, moving = load(a.words).view(a.dtype), load(b.words).view(b.dtype)
    offsets = load(index, address=(16, 8192))
    result = nl.ndarray((24, 24), nl.float32, buffer=nl.psum)
    family.nc_matmul_mx(
        result, stationary.indirect(offsets, 24), moving, load(a_scale).indirect(offsets, 24), load(b_scale)
    )
    return store(result)


def mx_quadrant(side: str) -> Any:
    """Data in the second half of its tile, scales in the first."""

    def kernel(a: MxArray, a_scale: Any, b: MxArray, b_scale: Any) -> Any:
        half = nl.ds(64, 32)
        views = {
            "stationary": load(a.words).view(a.dtype)[half, :],
            "stationary_scale": load(a_scale)[half, :],
            "moving": load(b.words).view(b.dtype)[half, :],
            "moving_scale": load(b_scale)[half, :],
        }
        if side:
            views[f"{side}_scale"] = load(a_scale if side == "stationary" else b_scale)[0:32, :]
        result = nl.ndarray((24, 40), nl.float32, buffer=nl.psum)
        family.nc_matmul_mx(result, **views)
        return store(result)

    return kernel


def mx_half(a: MxArray, a_scale: Any, b: MxArray, b_scale: Any) -> np.ndarray:
    left, right = a.dequantized(a_scale)[64:96], b.dequantized(b_scale)[64:96]
    return np.asarray(np.einsum("pmq,pnq->mn", left, right), np.float64)


MX_BASE = mx((24, 40))

MX = [
    Legal("nc_matmul_mx", MX_BASE, mx_args(), mx_product(), TRN3),
    Legal("nc_matmul_mx", MX_BASE, mx_args(32), mx_product(), TRN3),
    Legal("nc_matmul_mx", MX_BASE, mx_args(128, kinds=("float4_e2m1fn", "float8_e5m2")), mx_product(), TRN3),
    Legal("nc_matmul_mx", MX_BASE, mx_args(96, kinds=("float4_e2m1fn", "float4_e2m1fn")), mx_product(), TRN3),
    Legal("nc_matmul_mx", mx((24, 40), scale_dtype=nl.float8_e8m0fnu), mx_args(), mx_product(), TRN3),
    Legal("nc_matmul_mx", mx((24, 40), "bfloat16"), mx_args(), mx_product(), TRN3, rtol=2.0**-8, atol=1e-6),
    Legal("nc_matmul_mx", mx((24, 40), times=3), mx_args(), mx_product(times=3), TRN3),
    Legal("nc_matmul_mx", mx((24, 40), times=3, accumulate=False), mx_args(), mx_product(), TRN3),
    Legal(
        "nc_matmul_mx",
        mx((24, 40), left_scale=lambda t: t[4:, :], right_scale=lambda t: t[4:, :]),
        mx_args(128, offset=4),
        mx_product(4),
        TRN3,
    ),
    Legal(
        "nc_matmul_mx",
        mx((24, 40), left_scale=lambda t: t[12:48, :], right_scale=lambda t: t[12:60, :]),
        mx_args(64, offset=12),
        mx_product(12),
        TRN3,
    ),
    Legal(
        "nc_matmul_mx",
        mx((24, 40), left_scale=lambda t: t[8:12, :], right_scale=lambda t: t[8:12, :]),
        mx_args(32, offset=8),
        mx_product(8),
        TRN3,
    ),
    Legal("nc_matmul_mx", mx((24, 40), tile_position=(64, 0), tile_size=(64, 128)), mx_args(), mx_product(), TRN3),
    Legal("nc_matmul_mx", mx_quadrant(""), mx_args(128), mx_half, TRN3),
    Legal(
        "nc_matmul_mx",
        mx_gathered(("moving", "moving_scale")),
        mx_index_args,
        mx_gathered_product(1),
        TRN3,
    ),
    Legal(
        "nc_matmul_mx",
        mx_gathered(("stationary", "stationary_scale")),
        mx_index_args,
        mx_gathered_product(0),
        TRN3,
    ),
    Breaks(
        "nc_matmul_mx.partitions",
        mx((24, 40), left=lambda t: t[0:16, :], right=lambda t: t[0:16, :]),
        mx_args(),
        "trn3",
    ),
    Breaks("nc_matmul_mx.stationary-even", mx((23, 40)), mx_args(columns=(23, 40)), "trn3"),
    Breaks("nc_matmul_mx.contraction", mx((24, 40), right=lambda t: t[0:32, :]), mx_args(), "trn3"),
    Breaks("nc_matmul_mx.stationary-size", mx((128, 40)), mx_args(columns=(130, 40)), "trn3"),
    Breaks("nc_matmul_mx.moving-size", mx((2, 4096)), mx_args(32, columns=(2, 4098)), "trn3"),
    Breaks("nc_matmul_mx.dst-shape", mx((24, 42)), mx_args(), "trn3"),
    Breaks("nc_matmul_mx.tile-both", mx((24, 40), tile_position=(64, 0)), mx_args(), "trn3"),
    Breaks("nc_matmul_mx.tile-size", mx((24, 40), tile_position=(0, 0), tile_size=(64, 64)), mx_args(), "trn3"),
    Breaks("nc_matmul_mx.tile-position", mx((24, 40), tile_position=(32, 0), tile_size=(64, 128)), mx_args(), "trn3"),
    Breaks("nc_matmul_mx.tile-fit", mx((24, 40), tile_position=(0, 0), tile_size=(32, 128)), mx_args(), "trn3"),
    Breaks("nc_matmul_mx.indirect-stationary", mx_gathered(("stationary",)), mx_index_args, "trn3"),
    Breaks("nc_matmul_mx.indirect-moving", mx_gathered(("moving_scale",)), mx_index_args, "trn3"),
    Breaks(
        "nc_matmul_mx.indirect-tiling",
        mx_gathered(("moving", "moving_scale"), tile_position=(64, 0), tile_size=(64, 128)),
        mx_index_args,
        "trn3",
    ),
    Breaks("nc_matmul_mx.indirect-start", mx_apart, mx_index_args, "trn3"),
    Breaks("nc_matmul_mx.stationary-scale-shape", mx((24, 40), left_scale=lambda t: t[0:35, :]), mx_args(), "trn3"),
    Breaks("nc_matmul_mx.stationary-scale-offset", mx((24, 40), left_scale=lambda t: t[2:, :]), mx_args(), "trn3"),
    Breaks("nc_matmul_mx.stationary-scale-offset", mx((24, 40), left_scale=lambda t: t[16:, :]), mx_args(), "trn3"),
    Breaks("nc_matmul_mx.stationary-scale-quadrant", mx_quadrant("stationary"), mx_args(128), "trn3"),
    Breaks("nc_matmul_mx.moving-scale-shape", mx((24, 40), right_scale=lambda t: t[:, 0:39]), mx_args(), "trn3"),
    Breaks("nc_matmul_mx.moving-scale-offset", mx((24, 40), right_scale=lambda t: t[6:, :]), mx_args(), "trn3"),
    Breaks("nc_matmul_mx.moving-scale-quadrant", mx_quadrant("moving"), mx_args(128), "trn3"),
]


# --- nc_transpose


def flat_transpose(a: Any) -> np.ndarray:
    return np.moveaxis(a.reshape(a.shape[0], -1), 0, 1)


TRANSPOSE = [
    Legal("nc_transpose", transpose((48, 64)), bits_args(f32), transposed_bits, NEW),
    Legal("nc_transpose", transpose((48, 64)), bits_args(bf16), transposed_bits, NEW),
    Legal("nc_transpose", transpose((48, 64)), bits_args(np.int32), transposed_bits, NEW),
    Legal("nc_transpose", transpose((128, 128)), bits_args(f16, (128, 128)), transposed_bits, NEW),
    Legal("nc_transpose", transpose((48, 64)), bits_args(f32, (64, 6, 8)), transposed_bits, NEW),
    Legal("nc_transpose", transpose((48, 64, 2), view=lambda t: t[:, :, 0]), numbers_args(e4m3), flat_transpose, NEW),
    Legal("nc_transpose", transpose((48, 64), engine=engine.tensor), bits_args(bf16), transposed_bits, NEW),
    Legal("nc_transpose", transpose((48, 64), view=lambda t: t[:, 0:64]), numbers_args(), flat_transpose),
    Legal("nc_transpose", transpose((48, 64), view=lambda t: t[:, 0:64]), numbers_args(bf16), flat_transpose),
    Legal(
        "nc_transpose",
        transpose((48, 64), "float32", view=lambda t: t[:, 0:64]),
        numbers_args(bf16),
        flat_transpose,
        ("trn1",),
    ),
    Legal("nc_transpose", transpose((24, 32), buffer=nl.sbuf), bits_args(f32, (32, 24)), transposed_bits),
    Legal("nc_transpose", transpose((32, 32), buffer=nl.sbuf), bits_args(np.uint16, (32, 4, 8)), transposed_bits),
    Legal("nc_transpose", transpose((24, 32), engine=engine.vector), bits_args(bf16, (32, 24)), transposed_bits),
    Legal("nc_transpose", transpose((24, 32), source=nl.psum), bits_args(f32, (32, 24)), transposed_bits),
    Legal(
        "nc_transpose",
        transpose((24, 32), buffer=nl.sbuf, view=lambda t: t[:, 0:32]),
        numbers_args(e5m2, (32, 24)),
        flat_transpose,
    ),
    Breaks("nc_transpose.engine-memory", transpose((48, 64), buffer=nl.sbuf, engine=engine.tensor), numbers_args()),
    Breaks("nc_transpose.engine-memory", transpose((48, 64), source=nl.psum, engine=engine.tensor), numbers_args()),
    Breaks("nc_transpose.dtype", transpose((48, 64), "float32"), numbers_args(bf16)),
    Breaks("nc_transpose.dtype", transpose((48, 64), "float16"), numbers_args(bf16), "trn1"),
    Breaks("nc_transpose.input-dtype", transpose((48, 64)), numbers_args(np.int32), "trn1"),
    Breaks("nc_transpose.shape", transpose((64, 48)), numbers_args()),
    Breaks("nc_transpose.size", transpose((128, 64)), numbers_args(shape=(64, 129))),
    Breaks("nc_transpose.size", transpose((48, 64), buffer=nl.sbuf), numbers_args()),
    Breaks("nc_transpose.size", transpose((48, 16), engine=engine.vector), numbers_args(shape=(16, 48))),
    Breaks("nc_transpose.dst-step", transpose((48, 64)), numbers_args(e5m2)),
    Breaks("nc_transpose.dst-step", transpose((48, 130), view=lambda t: t[:, 1:129:2]), numbers_args(e5m2)),
    Breaks("nc_transpose.dst-bank", transpose((48, 1024), view=lambda t: t[:, 480:544]), numbers_args()),
]

EXAMPLES = [*MATMUL, *MX, *TRANSPOSE]
