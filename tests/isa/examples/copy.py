"""Examples of tensor_copy, memset and tensor_copy_predicated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

import nki.isa as nisa
import nki.language as nl
from nki.core import dtypes
from tests.isa.examples.dma import BF16, V3, normal
from tests.isa.registry import Breaks, Legal
from tests.isa.tiles import dma_load as load
from tests.isa.tiles import filled as tile_of
from tests.isa.tiles import gather, gather_arrays, gathered, misplaced, nothing, scattered_to_psum, store


def copied(dtype: Any = None, buffer: Any = nl.sbuf, **options: Any) -> Callable[[Any], Any]:
    def kernel(a: Any) -> Any:
        tile = nl.ndarray(a.shape, dtype or a.dtype, buffer=buffer)
        nisa.tensor_copy(dst=tile, src=load(a), **options)
        again = nl.ndarray(a.shape, dtype or a.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(again, tile)
        return store(again)

    return kernel


def copy_views(a: Any) -> Any:
    """Different ranks and strides: the elements of a partition in order."""
    tile = nl.ndarray((16, 30), a.dtype, buffer=nl.sbuf)
    nisa.memset(dst=tile, value=0.0)
    nisa.tensor_copy(dst=tile[:, 1:25:2], src=load(a).reshape((16, 3, 4)).permute((0, 2, 1)))
    return store(tile)


def copy_views_reference(a: Any) -> Any:
    out = np.zeros((16, 30), a.dtype)
    for i in range(4):
        for j in range(3):
            out[:, 1 + 2 * (3 * i + j)] = a[:, 4 * j + i]
    return out


def copy_fewer(a: Any) -> Any:
    tile = load(a)
    nisa.tensor_copy(dst=tile[:, 0:4], src=tile[:, 0:5])
    return store(tile)


def filled(value: Any, dtype: Any, buffer: Any = nl.sbuf, **options: Any) -> Callable[[Any], Any]:
    def kernel(a: Any) -> Any:
        tile = nl.ndarray(a.shape, dtype, buffer=buffer)
        nisa.memset(dst=tile, value=value, **options)
        last = nl.ndarray(a.shape, dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=last, src=tile)
        return store(last)

    return kernel


def constant(value: Any, dtype: Any) -> Callable[[Any], Any]:
    return lambda a: np.full(a.shape, value, dtype)


def predicated(number: float | None = None, reverse: bool = False, dtype: Any = None) -> Callable[..., Any]:
    def kernel(a: Any, b: Any, mask: Any) -> Any:
        tile = load(a)
        source = load(b, dtype) if number is None else number
        nisa.tensor_copy_predicated(dst=tile, src=source, predicate=load(mask), reverse_pred=reverse)
        return store(tile)

    return kernel


def predicated_ranks(a: Any, b: Any, mask: Any) -> Any:
    tile = load(a).reshape((8, 3, 4))
    nisa.tensor_copy_predicated(tile, load(b), load(mask).reshape((8, 4, 3)))
    return store(tile.reshape((8, 12)))


def predicated_psum(a: Any, b: Any, mask: Any) -> Any:
    tile = load(a)
    source, predicate = (nl.ndarray(x.shape, x.dtype, buffer=nl.psum) for x in (b, mask))
    nisa.tensor_copy_predicated(tile, source, predicate)
    return store(tile)


def predicated_fewer(a: Any, b: Any, mask: Any) -> Any:
    tile = load(a)
    nisa.tensor_copy_predicated(tile, load(b), load(mask)[:, 0:11])
    return store(tile)


def on(engine: Any) -> Callable[[Any, Any], Any]:
    return lambda dst, data: nisa.tensor_copy(dst, data, engine=engine)


def predicated_packed(a: Any, b: Any, mask: Any) -> Any:
    tile = load(b)
    nisa.tensor_copy_predicated(tile.view(dtypes.float8_e4m3fn_x4), 1.0, load(mask))
    return store(tile)


def predicated_gathered(a: Any, index: Any) -> Any:
    """The predicate is gathered."""
    dst, table, offsets = tile_of((16, 16)), load(a), load(index)
    mask = nl.ndarray(a.shape, np.uint8, buffer=nl.sbuf)
    nisa.tensor_scalar(mask, table, nl.greater, 1.5)
    nisa.tensor_copy_predicated(dst, 7.0, mask.indirect(offsets, 16))
    return store(dst)


def with_mask(mask_dtype: Any = np.uint8, dtype: Any = np.float32) -> Callable[[], tuple[Any, ...]]:
    def make() -> tuple[Any, ...]:
        r = np.random.default_rng(4)
        a, b = ((r.standard_normal((8, 12)) * 90).astype(dtype) for _ in "ab")
        return a, b, (r.integers(0, 3, (8, 12)) * 100).astype(mask_dtype)

    return make


def chosen(number: float | None = None, reverse: bool = False) -> Callable[..., Any]:
    def reference(a: Any, b: Any, mask: Any) -> Any:
        out = a.copy()
        for place in np.ndindex(a.shape):
            if (mask[place] != 0) != reverse:
                out[place] = b[place] if number is None else number
        return out

    return reference


F8 = ml_dtypes.float8_e4m3fn
EXAMPLES = [
    Legal("tensor_copy", copied(), normal((128, 40)), lambda a: a),
    Legal("tensor_copy", copied(BF16, nl.psum), normal((40, 33)), lambda a: a.astype(BF16)),
    Legal("tensor_copy", copied(F8, engine=nisa.engine.gpsimd), normal((40, 33)), lambda a: a.astype(F8)),
    Legal("tensor_copy", copied(np.int16), normal((40, 33)), lambda a: np.rint(a).astype(np.int16)),
    Legal("tensor_copy", copied(engine=nisa.engine.scalar), normal((40, 33), dtype=np.int32), lambda a: a, V3),
    Legal("tensor_copy", copy_views, normal((16, 12)), copy_views_reference),
    Breaks("tensor_copy.shapes", copy_fewer, normal((8, 8))),
    Breaks("tensor_copy.scalar-target", copied(engine=nisa.engine.scalar), normal((8, 8)), "trn1"),
    Breaks("tensor_copy.packed-cast", copied(dtypes.float8_e4m3fn_x4), normal((8, 8))),
    Legal("tensor_copy", gather(nisa.tensor_copy), gather_arrays, gathered, ("trn3",)),
    Breaks("tensor_copy.indirect", gather(nisa.tensor_copy), gather_arrays, "trn2"),
    Breaks("tensor_copy.indirect-partitions", misplaced(nisa.tensor_copy), nothing, "trn3"),
    Breaks("tensor_copy.indirect-engine", gather(on(nisa.engine.gpsimd)), gather_arrays, "trn3"),
    Breaks("tensor_copy.indirect-psum", scattered_to_psum(on(nisa.engine.scalar)), nothing, "trn3"),
    Legal("memset", filled(2.5, np.float32), normal((128, 7)), constant(2.5, np.float32)),
    Legal("memset", filled(1.3, BF16, nl.psum), normal((128, 7)), constant(1.3, BF16)),
    Legal("memset", filled(2**31 - 1, np.int32), normal((8, 7)), constant(2**31 - 1, np.int32)),
    Legal("memset", filled(-7, np.int8, engine=nisa.engine.gpsimd), normal((8, 7)), constant(-7, np.int8)),
    Legal("memset", filled(float("-inf"), np.float16), normal((8, 7)), constant(-np.inf, np.float16)),
    Breaks("memset.value-kind", filled(2.5, np.int32), normal((8, 8))),
    Breaks("memset.value-kind", filled(1, dtypes.float8_e4m3fn_x4), normal((8, 8))),
    Breaks("memset.value-range", filled(256, np.uint8), normal((8, 8))),
    Breaks("memset.value-range", filled(-1, np.uint32), normal((8, 8))),
    Breaks("memset.indirect", gather(lambda dst, data: nisa.memset(data, 0.0)), gather_arrays, "trn3"),
    Legal("tensor_copy_predicated", predicated(), with_mask(), chosen()),
    Legal("tensor_copy_predicated", predicated(reverse=True), with_mask(np.uint32, np.int32), chosen(reverse=True)),
    Legal("tensor_copy_predicated", predicated(-1.5), with_mask(np.uint16, BF16), chosen(-1.5)),
    Legal("tensor_copy_predicated", predicated_ranks, with_mask(), chosen()),
    Breaks("tensor_copy_predicated.shapes", predicated_fewer, with_mask()),
    Breaks("tensor_copy_predicated.both-psum", predicated_psum, with_mask()),
    Breaks("tensor_copy_predicated.dtypes", predicated(dtype=BF16), with_mask()),
    Breaks("tensor_copy_predicated.packed-number", predicated_packed, with_mask()),
    Legal(
        "tensor_copy_predicated",
        predicated_gathered,
        gather_arrays,
        lambda a, index: np.where(gathered(a, index) > 1.5, 7, 0),
        ("trn3",),
    ),
    Breaks("tensor_copy_predicated.indirect", predicated_gathered, gather_arrays, "trn2"),
    Breaks(
        "tensor_copy_predicated.indirect-partitions",
        misplaced(lambda dst, mask: nisa.tensor_copy_predicated(dst, 1.0, mask), np.uint8),
        nothing,
        "trn3",
    ),
]
