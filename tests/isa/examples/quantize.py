"""Examples of quantize_mx, and MX operands made by hand for everyone who needs some."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

import nki.isa.quantize as family
import nki.language as nl
from nki.isa.copy import memset
from nki.isa.dma import dma_copy
from tests.isa.registry import Breaks, Legal

bf16 = ml_dtypes.bfloat16
TRN3 = ("trn3",)
LARGEST = {"float8_e4m3fn": (8, 448.0), "float8_e5m2": (15, 57344.0)}


class MxArray(NamedTuple):
    """Packed values as a kernel gets them, words of four, and the name of their x4 dtype."""

    words: Any
    dtype: str

    def values(self) -> np.ndarray:
        """float64 ``(P, F, 4)``, decoded nibble by nibble or byte by byte."""
        kind = getattr(ml_dtypes, self.dtype.removesuffix("_x4"))
        bits = self.words.dtype.itemsize * 2
        lanes = [((self.words >> (bits * lane)) & ((1 << bits) - 1)).astype(np.uint8) for lane in range(4)]
        return np.stack(lanes, -1).view(kind).astype(np.float64)

    def dequantized(self, scale: np.ndarray, offset: int = 0) -> np.ndarray:
        """float64 ``(P, F, 4)``: every value times two to the power of its scale."""
        result = self.values()
        for p in range(result.shape[0]):
            quadrant, group = divmod(p // 8, 4)
            row = scale[32 * quadrant + group + offset].view(np.uint8).astype(np.float64)
            result[p] *= np.where(row == 255, np.nan, 2.0 ** (row - 127))[:, None]
        return result


def mx_array(r: Any, kind: str, partitions: int, columns: int, offset: int = 0) -> tuple[MxArray, np.ndarray]:
    """Operands whose products and sums are exact in float32; scales at row `offset` of each quadrant, elsewhere NaN."""
    element = getattr(ml_dtypes, kind)
    values = r.choice([-3, -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 3], (partitions, columns, 4))
    codes = values.astype(element).view(np.uint8).astype(np.uint32)
    bits = 4 if kind == "float4_e2m1fn" else 8
    words = sum(codes[:, :, lane] << np.uint32(bits * lane) for lane in range(4))
    scale = np.full((partitions, columns), 255, np.uint8)
    for quadrant in range(partitions // 32):
        first = 32 * quadrant + offset
        scale[first : first + 4] = r.integers(126, 130, (4, columns))
    return MxArray(words.astype(f"u{bits // 2}"), f"{kind}_x4"), scale


def reference(values: np.ndarray, kind: str, reserve: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Bytes of the elements ``(P, F)`` and of the scales ``(P/8, F/4)``, group by group from the definition.

    `reserve` is how many powers of two stay free above the largest value of a group.
    """
    emax, largest = LARGEST[kind]
    element = getattr(ml_dtypes, kind)
    partitions, count = values.shape
    data = np.zeros((partitions, count), np.uint8)
    scales = np.zeros((partitions // 8, count // 4), np.uint8)
    for g in range(partitions // 8):
        for f in range(count // 4):
            where = (slice(8 * g, 8 * g + 8), slice(4 * f, 4 * f + 4))
            group = values[where].astype(np.float64)
            amax = float(np.max(np.abs(group)))
            exponent = max(math.frexp(amax)[1] - 1 - (emax - reserve), -127) if amax > 0 else -127
            scaled = np.clip(group / math.ldexp(1.0, exponent), -largest, largest)
            data[where] = scaled.astype(np.float32).astype(element).view(np.uint8)
            scales[g, f] = exponent + 127
    return data, scales


def quantize(
    kind: str = "float8_e4m3fn",
    scale_shape: Any = None,
    scale_dtype: Any = "uint8",
    view: Any = lambda t: t,
    dst_shape: Any = None,
    src_view: Any = lambda t: t,
    fill: int = 77,
    issue: str = "quantize_mx",
) -> Any:
    """A kernel with one instruction; returns the words and the whole scale tensor, which held `fill` before."""

    def kernel(a: Any) -> Any:
        src = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
        dma_copy(dst=src, src=a)
        data = src_view(src)
        count = data.size // data.shape[0] // 4
        dst = nl.ndarray(dst_shape or (data.shape[0], count), f"{kind}_x4", buffer=nl.sbuf)
        scales = nl.ndarray(scale_shape or (data.shape[0], count), scale_dtype, buffer=nl.sbuf)
        memset(scales.view(nl.uint8), fill)
        getattr(family, issue)(dst=dst, src=data, dst_scale=view(scales))
        return out(dst.view(nl.uint32)), out(scales.view(nl.uint8))

    return kernel


def out(tile: Any) -> Any:
    result = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
    dma_copy(dst=result, src=tile)
    return result


def spread(dtype: Any = bf16, shape: Any = (64, 48)) -> Any:
    """Values over many magnitudes, with zeros and one group of zeros."""

    def make() -> tuple[Any, ...]:
        r = np.random.default_rng(3)
        wide = r.standard_normal(shape) * np.exp2(r.integers(-9, 9, shape))
        wide[0:8].reshape(8, -1)[:, 0:4] = 0
        wide[9] = 0
        return (wide.astype(dtype),)

    return make


def expected(
    kind: str = "float8_e4m3fn", rows: int | None = None, offset: int = 0, fill: int = 77, reserve: int = 1
) -> Any:
    """Words, and scales at their rows of a tensor that keeps everything else."""

    def both(a: Any) -> tuple[np.ndarray, np.ndarray]:
        data, scales = reference(a.reshape(a.shape[0], -1), kind, reserve)
        tensor = np.full((rows or a.shape[0], scales.shape[1]), fill, np.uint8)
        for g, row in enumerate(scales):
            tensor[32 * (g // 4) + g % 4 + offset] = row
        return data.view(np.uint32), tensor

    return both


def other_quadrant(issue: str) -> Any:
    """Data in the second quadrant, scales in the first."""

    def kernel(a: Any) -> Any:
        src = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
        dma_copy(dst=src, src=a)
        dst = nl.ndarray((128, a.shape[1] // 4), nl.float8_e4m3fn_x4, buffer=nl.sbuf)
        scales = nl.ndarray((128, a.shape[1] // 4), nl.uint8, buffer=nl.sbuf)
        getattr(family, issue)(dst[32:64, :], src[32:64, :], scales[0:4, :])
        return out(scales)

    return kernel


def by_index(issue: str) -> Any:
    def kernel(a: Any, index: Any) -> Any:
        src = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
        dma_copy(dst=src, src=a)
        offsets = nl.ndarray(index.shape, index.dtype, buffer=nl.sbuf)
        dma_copy(dst=offsets, src=index)
        dst = nl.ndarray((64, 12), nl.float8_e4m3fn_x4, buffer=nl.sbuf)
        scales = nl.ndarray((64, 12), nl.uint8, buffer=nl.sbuf)
        getattr(family, issue)(dst, src.indirect(offsets, 48), scales)
        return out(scales)

    return kernel


SAMPLE = "quantize_mx_sample"


def breaking(issue: str) -> list[Breaks]:
    """Each rule, broken by itself."""
    return [
        Breaks(f"{issue}.partitions", quantize(issue=issue, src_view=lambda t: t[0:48, :]), spread(), "trn3"),
        Breaks(
            f"{issue}.src-size",
            quantize(issue=issue, dst_shape=(64, 12), scale_shape=(64, 12)),
            spread(shape=(64, 46)),
            "trn3",
        ),
        Breaks(f"{issue}.dst-shape", quantize(issue=issue, dst_shape=(64, 11)), spread(), "trn3"),
        Breaks(f"{issue}.dst-scale-shape", quantize(issue=issue, view=lambda t: t[:, 0:11]), spread(), "trn3"),
        Breaks(f"{issue}.dst-scale-shape", quantize(issue=issue, scale_shape=(8, 12)), spread(), "trn3"),
        Breaks(f"{issue}.dst-scale-offset", quantize(issue=issue, view=lambda t: t[3:, :]), spread(), "trn3"),
        Breaks(f"{issue}.dst-scale-quadrant", other_quadrant(issue), spread(shape=(128, 16)), "trn3"),
        Breaks(f"{issue}.indirect", by_index(issue), lambda: (*spread()(), np.zeros((64, 3), np.uint16)), "trn3"),
    ]


EXAMPLES = [
    Legal("quantize_mx", quantize(), spread(), expected(), TRN3),
    Legal("quantize_mx", quantize("float8_e5m2"), spread(), expected("float8_e5m2"), TRN3),
    Legal("quantize_mx", quantize(), spread(np.float16), expected(), TRN3),
    Legal("quantize_mx", quantize(), spread(shape=(128, 16)), expected(), TRN3),
    Legal("quantize_mx", quantize(), spread(shape=(32, 16)), expected(), TRN3),
    Legal("quantize_mx", quantize(scale_shape=(4, 4)), spread(shape=(32, 16)), expected(rows=4), TRN3),
    Legal("quantize_mx", quantize(scale_dtype="float8_e8m0fnu"), spread(), expected(), TRN3),
    Legal("quantize_mx", quantize(), spread(shape=(64, 3, 2, 8)), expected(), TRN3),
    Legal("quantize_mx", quantize(view=lambda t: t[4:, :]), spread(shape=(128, 16)), expected(offset=4), TRN3),
    Legal("quantize_mx", quantize(view=lambda t: t[12:48, :]), spread(), expected(offset=12), TRN3),
    Legal(
        "quantize_mx",
        quantize(scale_shape=(16, 4), view=lambda t: t[8:12, :]),
        spread(shape=(32, 16)),
        expected(rows=16, offset=8),
        TRN3,
    ),
    Legal(SAMPLE, quantize(issue=SAMPLE), spread(), expected(reserve=0), TRN3),
    Legal(SAMPLE, quantize("float8_e5m2", issue=SAMPLE), spread(np.float16), expected("float8_e5m2", reserve=0), TRN3),
    *breaking("quantize_mx"),
    *breaking(SAMPLE),
]
