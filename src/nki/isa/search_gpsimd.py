"""Searches on the eight processors of GpSimd, 16 partitions each: nonzero elements, and the K largest of a snake."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np

from nki.core.dtypes import bfloat16, float32, int32, uint32
from nki.core.nki_tensor import NkiTensor
from nki.core.tensor import View
from nki.isa.indirection import no_indirection
from nki.isa.search import largest, sort_keys
from nki.isa.shared import on_partitions_of, same_elements
from nki.spec.arrays import Arrays
from nki.spec.cost import UNPUBLISHED, streams
from nki.spec.cost_vector import TOPK
from nki.spec.engine import engine as Engine
from nki.spec.instruction import instruction
from nki.spec.operand import SBUF, Int, Name, out, source
from nki.spec.rule import Rule

_ISA = "nki/api/nki/isa"
_INT32 = (-(1 << 31), (1 << 31) - 1)
# Limits of topk (nki/api/nki/isa topk): 8 <= n < 65536, 1 <= K < 32768.
_TOPK_MIN_N, _TOPK_END_N, _TOPK_END_K = 8, 1 << 16, 1 << 15


def _rows(view: View, start: int, count: int) -> View:
    """Some partitions of an on-chip view."""
    return view._replace(shape=(count, *view.shape[1:]), offset=view.offset + start * view.strides[0])


def _columns(view: View, start: int, count: int) -> View:
    """Some columns of a 2-D view."""
    return view._replace(shape=(view.shape[0], count), offset=view.offset + start * view.strides[1])


@instruction(
    engines=(Engine.gpsimd,),
    source=_ISA,
    feature="nonzero_with_count",
    rules=[
        on_partitions_of("src", "dst"),
        Rule(
            "size",
            "dst has one element per partition more than src",
            lambda a, t: a.dst.free_size == a.src.free_size + 1,
            _ISA,
            "allocate dst with one element more, for the count",
            lambda a, t: f"dst has {a.dst.free_size} elements per partition, src has {a.src.free_size}",
        ),
        Rule(
            "int32",
            "index_offset and padding_val are 32-bit integers",
            lambda a, t: all(_INT32[0] <= v <= _INT32[1] for v in (a.index_offset, a.padding_val)),
            _ISA,
            "use smaller numbers",
            lambda a, t: f"index_offset is {a.index_offset}, padding_val is {a.padding_val}",
        ),
        no_indirection(),
    ],
    steps=streams("NonzeroWithCount", "dst", source="", estimate=UNPUBLISHED),
)
def nonzero_with_count(
    dst: Annotated[NkiTensor, out(SBUF, (int32,), also_read=True)],
    src: Annotated[NkiTensor, source(SBUF, (float32, int32))],
    index_offset: Int = 0,
    padding_val: Int = -1,
    name: Name = None,
) -> None:
    """The positions of nonzero elements, padding, and their number, on every 16th partition; on GpSimd.

    Works on partitions 0, 16, ..., 112 of the tiles: each processor of GpSimd has 16 partitions and uses its first one.
    The others are neither read nor written. With T elements in `src`, of which N are not zero, ``dst[p]`` holds their N
    positions plus `index_offset`, then T - N times `padding_val`, then N. NaN is not zero, -0 is.

    Args:
        dst: SBUF int32 with T + 1 elements per partition.
        src: SBUF float32 or int32 with T elements per partition, the same partitions.
        index_offset, padding_val: int32.
    """


@nonzero_with_count.body
def _(a: Any, x: Arrays) -> None:
    count = a.src.free_size
    used = range(0, a.src.shape[0], x.target.gpsimd.partitions_per_core)
    results = []
    for partition in used:
        positions = np.flatnonzero(x.load_raw(_rows(a.src, partition, 1))[0])
        row = np.full((1, count + 1), a.padding_val, np.int32)
        row[0, : positions.size] = (positions + a.index_offset).astype(np.int32)
        row[0, count] = positions.size
        results.append(row)
    for partition, row in zip(used, results, strict=True):
        x.store_raw(_rows(a.dst, partition, 1), row)


def _snake_views(view: View, count: int, group: int) -> Iterator[View]:
    """Views of the first `count` elements of the snakes: whole columns, then the last one group by group."""
    full, rest = divmod(count, group)
    if full:
        yield _columns(view, 0, full)
    if rest:
        for start in range(0, view.shape[0], group):
            yield _rows(_columns(view, full, 1), start, rest)


def _load_snakes(x: Arrays, view: View, count: int, group: int) -> Any:
    """Storage ``(groups, count)``: element i of a snake lies at partition ``i % group``, column ``i // group``."""
    groups, full = view.shape[0] // group, count // group
    parts = [x.load_raw(part) for part in _snake_views(view, count, group)]
    whole = parts.pop(0) if full else np.empty((view.shape[0], 0), view.dtype.numpy)
    snakes = whole.reshape(groups, group, full).transpose(0, 2, 1).reshape(groups, full * group)
    return np.concatenate([snakes, np.concatenate(parts, axis=1).T], axis=1) if parts else snakes


def _store_snakes(x: Arrays, view: View, snakes: Any, group: int) -> None:
    """The inverse of `_load_snakes`; the rest of the view keeps its contents."""
    groups, count = snakes.shape
    full = count // group
    whole = snakes[:, : full * group].reshape(groups, full, group).transpose(0, 2, 1).reshape(groups * group, full)
    parts = ([whole] if full else []) + [row[full * group :, None] for row in snakes]
    # without a partial column there are fewer views than parts
    for part, values in zip(_snake_views(view, count, group), parts, strict=False):
        x.store_raw(part, values)


@instruction(
    engines=(Engine.gpsimd,),
    source=_ISA,
    feature="topk",
    rules=[
        Rule(
            "rank",
            "val_dst, idx_dst and src have two dimensions",
            lambda a, t: a.val_dst.ndim == a.idx_dst.ndim == a.src.ndim == 2,
            _ISA,
            "merge free dimensions with tensor.flatten_dims or tensor.reshape",
            lambda a, t: ", ".join(f"{n} is {list(getattr(a, n).shape)}" for n in ("val_dst", "idx_dst", "src")),
        ),
        same_elements("val_dst", "idx_dst"),
        on_partitions_of("src", "val_dst", "idx_dst"),
        Rule(
            "groups",
            "the number of partitions is a multiple of {t.gpsimd.partitions_per_core}",
            lambda a, t: a.src.shape[0] % t.gpsimd.partitions_per_core == 0,
            _ISA,
            "pad to whole groups of partitions",
            lambda a, t: f"src has {a.src.shape[0]} partitions",
        ),
        Rule(
            "n",
            f"n is at least {_TOPK_MIN_N} and less than {_TOPK_END_N}",
            lambda a, t: _TOPK_MIN_N <= a.n < _TOPK_END_N,
            _ISA,
            "split the search, and search the results",
            lambda a, t: f"n is {a.n}",
        ),
        Rule(
            "k",
            f"K, the elements per partition of val_dst, is at most n and less than {_TOPK_END_K}",
            lambda a, t: a.val_dst.free_size <= a.n and a.val_dst.free_size < _TOPK_END_K,
            _ISA,
            "slice val_dst and idx_dst to K columns",
            lambda a, t: f"val_dst has {a.val_dst.free_size} elements per partition, n is {a.n}",
        ),
        Rule(
            "src-size",
            "src has room for n elements in its groups of {t.gpsimd.partitions_per_core} partitions",
            lambda a, t: a.src.free_size * t.gpsimd.partitions_per_core >= a.n,
            _ISA,
            "pass the number of elements that src holds as n",
            lambda a, t: f"src has {a.src.free_size} columns, n is {a.n}",
        ),
        no_indirection(),
    ],
    steps=TOPK,
)
def topk(
    val_dst: Annotated[NkiTensor, out(SBUF, (bfloat16,), also_read=True)],
    idx_dst: Annotated[NkiTensor, out(SBUF, (uint32,), also_read=True)],
    src: Annotated[NkiTensor, source(SBUF, (bfloat16,))],
    n: Int,
    name: Name = None,
) -> None:
    """The K largest of n values and their indices, for every group of 16 partitions on its own; on GpSimd.

    A group is a snake: element i lies at partition ``i % 16`` of the group, column ``i // 16``. Of `src` the first n
    elements of each snake count. The results form snakes too, in ascending order of the values: result j stands at
    partition ``j % 16``, column ``j // 16``, of `val_dst` and `idx_dst`; an index is a position in the snake of `src`.
    K is the number of *columns* of `val_dst`, but only the K positions of the snakes are written, which lie in the
    first ``ceil(K / 16)`` columns. (The manual says both that partitions are independent and that the input is a snake
    over 16; kernels in use read the results as snakes. Do not rely on the order: a device may have another one.)

    Of equal values the lower positions are taken, and listed last. NaN counts as larger than every number.

    Args:
        val_dst: SBUF bfloat16 ``(P, K)``, P a multiple of 16, 1 <= K < 32768 and K <= n.
        idx_dst: SBUF uint32 ``(P, K)``.
        src: SBUF bfloat16 ``(P, at least ceil(n / 16))``.
        n: elements of a snake that count, 8 <= n < 65536.
    """


@topk.body
def _(a: Any, x: Arrays) -> None:
    group = x.target.gpsimd.partitions_per_core
    values = _load_snakes(x, a.src, a.n, group)
    # the value in the upper half, and below it what is larger for lower positions
    last = np.uint64(_TOPK_END_N - 1)
    order = last - np.arange(a.n, dtype=np.uint64)
    keys = sort_keys(values.astype(np.float32)).astype(np.uint64) << np.uint64(32) | order
    index = (last - (largest(keys, a.val_dst.free_size) & last)).astype(np.uint32)
    _store_snakes(x, a.val_dst, np.take_along_axis(values, index.astype(np.int64), axis=1), group)
    _store_snakes(x, a.idx_dst, index, group)
