"""References of what moves bits between elements and partitions, and of MX quantization: index by index, bit by bit."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki.core.dtypes import DType, float8_e4m3fn, float8_e5m2
from tests.isa.properties.cases import State
from tests.isa.properties.compare import Bits, Expected
from tests.isa.properties.formats import FORMATS, bits_of, stored

Results = dict[str, Expected]


def nc_n_gather(a: Any, state: State) -> Results:
    """Every partition by its own indices."""
    rows = zip(a.data.bits, a.indices.storage.tolist(), strict=True)
    return {"dst": Bits(np.array([[row[i] for i in wanted] for row, wanted in rows]))}


def local_gather(a: Any, state: State) -> Results:
    """Groups of 16 partitions by one list, which is read down the partitions; runs of neighbours."""
    bits, run = a.dst.bits.copy(), a.num_elem_per_idx or 1
    for partition in range(a.dst.partitions):
        first = partition // 16 * 16
        group = [a.index.storage[first + i % 16, i // 16] for i in range(16 * a.index.count)]
        for place, start in enumerate(group[: a.num_valid_indices]):
            for step in range(run):
                bits[partition, place * run + step] = a.src_buffer.bits[partition, int(start) + step]
    return {"dst": Bits(bits)}


def nc_stream_shuffle(a: Any, state: State) -> Results:
    """Within each 32 partitions; 255 keeps what is there."""
    bits = a.dst.bits.copy()
    for partition in range(a.dst.partitions):
        chosen = a.shuffle_mask[partition % 32]
        if chosen != 255:
            bits[partition] = a.src.bits[partition - partition % 32 + chosen]
    return {"dst": Bits(bits)}


def nc_transpose(a: Any, state: State) -> Results:
    """Rows become columns."""
    columns = range(a.data.count)
    return {"dst": Bits(np.array([[row[i] for row in a.data.bits] for i in columns], a.data.bits.dtype))}


# ---- MX

_LANES = {"float8_e4m3fn_x4": (8, float8_e4m3fn), "float8_e5m2_x4": (15, float8_e5m2)}


def quantize_mx(a: Any, state: State) -> Results:
    """One scale for 8 partitions x 4 elements: ``2**(floor(log2(largest)) - (Emax - 1))``, at least 2**-127."""
    return _quantized(a, reserve=1)


def quantize_mx_sample(a: Any, state: State) -> Results:
    """As `quantize_mx`, with half the scale."""
    return _quantized(a, reserve=0)


def _quantized(a: Any, reserve: int) -> Results:
    emax, lane = _LANES[a.dst.dtype.name]
    values, scales = a.src.f32, a.dst_scale.bits.copy()
    codes = np.zeros(values.shape, np.uint8)
    for top in range(0, a.src.partitions, 8):
        for left in range(0, a.src.count, 4):
            block = values[top : top + 8, left : left + 4]
            largest = float(abs(block).max())
            exponent = 128 if np.isinf(largest) else int(np.frexp(largest)[1]) - 1 if largest else -127
            scale = min(max(exponent - (emax - reserve) + 127, 0), 254)
            scales[top // 32 * 32 + top % 32 // 8, left // 4] = scale
            codes[top : top + 8, left : left + 4] = _codes(np.ldexp(block, 127 - scale), lane)
    words = codes.reshape(a.src.partitions, -1, 4).astype(np.uint32)
    packed = sum(words[..., i] << np.uint32(8 * i) for i in range(4))
    return {"dst": Bits(packed), "dst_scale": Bits(scales)}


def _codes(block: Any, lane: DType) -> Any:
    """Rounded and saturated, as bytes."""
    largest = FORMATS[lane.name].largest
    return bits_of(stored(np.clip(block, -largest, largest), lane).astype(lane.numpy))
