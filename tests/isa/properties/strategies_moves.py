"""Cases of what moves bits between elements and partitions, and of MX quantization."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki.spec.engine import engine
from tests.isa.properties import values
from tests.isa.properties.drawing import Chooser
from tests.isa.properties.places import Tile, buffer_shape

Calls = tuple[dict[str, Any], ...]


def nc_n_gather(c: Chooser) -> Calls:
    """Any indices that exist."""
    rows, count = c.sizes(600)
    data = c.tile("data", rows, c.pick((1, 3, 8, 20)))
    indices = c.tile("indices", rows, count, make=values.whole(0, data.count))
    return ({"dst": c.tile("dst", rows, count, data.dtype), "data": data, "indices": indices},)


def local_gather(c: Chooser) -> Calls:
    """All indices or some, single elements and runs; dst as large as what is gathered."""
    rows, run = c.pick((16, 32, 48, 128)), c.pick((1, 2, 4, 8))
    columns = c.pick((1, 2)) if rows < 64 else 1
    data = c.tile("src_buffer", rows, c.pick((8, 15, 20)))
    index = c.tile("index", rows, columns, make=values.whole(0, data.count - run + 1))
    valid = c.pick((16 * columns, 16 * columns - 3, 1))
    call = {"dst": c.tile("dst", rows, valid * run, data.dtype), "src_buffer": data, "index": index}
    return ({**call, "num_elem_per_idx": run, "num_valid_indices": valid},)


def nc_stream_shuffle(c: Chooser) -> Calls:
    """Permutations, repetitions, and partitions that stay."""
    rows, count = c.pick((32, 64, 128, 5, 40)), c.pick((1, 3, 8))
    src = c.tile("src", 128 if rows > 64 else -(-rows // 32) * 32, count)
    entry = c.pick((list(range(32)), [*range(32), *[255] * 16], [0, 255]))
    mask = [int(n) for n in c.rng().choice(entry, 32)]
    layout = "gaps" if c.flag() else "plain"
    return (
        {
            "dst": _plain(c, c.tile("dst", rows, count, src.dtype), layout),
            "src": _plain(c, src, layout),
            "shuffle_mask": mask,
        },
    )


def _plain(c: Chooser, tile: Tile, layout: str) -> Tile:
    """The same dtype and shape from partition 0 on, where every size of tile may start."""
    filled = values.wild(c.rng(), buffer_shape(tile.shape, layout), tile.dtype)
    return Tile(filled, tile.dtype, tile.shape, layout, tile.psum)


def nc_transpose(c: Chooser) -> Calls:
    """Small squares on Vector; on the Tensor engine where it moves bits, whole elements of 2 or 4 bytes to PSUM."""
    by_tensor = c.target.pe.transpose_exact and c.flag()
    sizes = (1, 2, 7, 16, 31, 32) if not by_tensor else (1, 5, 16, 33)
    rows, count = c.pick(sizes), c.pick(sizes)
    data = c.tile("data", rows, count, psum=False if by_tensor else None)
    if by_tensor and data.dtype.itemsize > 1:
        call = {"dst": c.tile("dst", count, rows, data.dtype, psum=True), "data": data}
        return ({**call, "engine": engine.tensor},)
    if rows > 32 or count > 32:
        rows, count = min(rows, 32), min(count, 32)
        data = c.tile("data", rows, count)
    return ({"dst": c.tile("dst", count, rows, data.dtype), "data": data, "engine": engine.vector},)


def quantize_mx(c: Chooser) -> Calls:
    """Zeros, subnormals and infinities; scales lie in the first four rows of each 32 partitions."""
    rows, count = c.pick((32, 64, 128)), c.pick((4, 8, 12))
    src = c.tile("src", rows, count, make=lambda r, shape, dtype: _without_nan(c.pick(values.KINDS)(r, shape, dtype)))
    scale = _plain(c, c.tile("dst_scale", rows, count // 4, shape=(rows, count // 4)), "plain")
    return ({"dst": c.tile("dst", rows, count // 4), "src": src, "dst_scale": scale},)


quantize_mx_sample = quantize_mx


def _without_nan(array: Any) -> Any:
    """1 instead of NaN, of which there are many encodings."""
    with np.errstate(invalid="ignore"):
        return np.where(np.isnan(array), np.ones_like(array), array)
