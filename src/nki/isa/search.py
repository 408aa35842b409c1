"""Searches on Vector, eight values at a time: the largest ones, and where they are."""

from __future__ import annotations

from collections.abc import Iterable
from math import isqrt
from typing import Annotated, Any

import numpy as np

from nki.core.dtypes import BY_NAME, DType, int16, int32, uint16, uint32
from nki.core.nki_tensor import NkiTensor
from nki.isa.indirection import no_indirection
from nki.isa.shared import on_partitions_of, same_elements
from nki.spec.arrays import Arrays
from nki.spec.cost import OLDER, streams
from nki.spec.engine import engine as Engine
from nki.spec.instruction import instruction
from nki.spec.operand import ON_CHIP, Name, Number, out, source
from nki.spec.rule import Rule
from nki.target.model import Target

_ISA = "nki/api/nki/isa"
_SLOTS = 8
_MAX_RANK = 3
_WORTH_GROUPS = 10
"""Values of a group from which looking at the maxima first is faster, as measured for the eight largest."""
# What passes through float32: every dtype of the device but the packed ones.
_NUMERIC: tuple[DType, ...] = tuple(d for d in BY_NAME.values() if d.device and not d.is_packed)
_INDICES = (uint32, uint16)

_NumericDst = Annotated[NkiTensor, out(ON_CHIP, _NUMERIC)]
_NumericSrc = Annotated[NkiTensor, source(ON_CHIP, _NUMERIC)]


# --- rules


def _eight(name: str, code: str, rank: int) -> Rule:
    """An operand with one element per slot, or None."""

    def holds(a: Any, t: Target) -> bool:
        view = getattr(a, name)
        return view is None or (view.free_size == _SLOTS and view.ndim <= rank)

    return Rule(
        code,
        f"{name} has {_SLOTS} elements per partition and at most {rank} dimensions",
        holds,
        _ISA,
        f"slice or reshape {name} to (partitions, {_SLOTS})",
        lambda a, t: f"{name} is {list(getattr(a, name).shape)}",
    )


def _rank(name: str) -> Rule:
    return Rule(
        "rank",
        f"{name} has at most {_MAX_RANK} dimensions",
        lambda a, t: getattr(a, name).ndim <= _MAX_RANK,
        _ISA,
        "merge free dimensions with tensor.flatten_dims or tensor.reshape",
        lambda a, t: f"{name} is {list(getattr(a, name).shape)}",
    )


def _search_size(name: str) -> Rule:
    return Rule(
        "size",
        f"{name} has {{t.limits.search_min_free}} to {{t.limits.search_max_free}} elements per partition",
        lambda a, t: t.limits.search_min_free <= getattr(a, name).free_size <= t.limits.search_max_free,
        _ISA,
        "search pieces of it, and then their results",
        lambda a, t: f"{name} has {getattr(a, name).free_size} elements per partition",
        remedy=lambda a, t: (
            f"pad {name} with -inf to {t.limits.search_min_free} elements per partition"
            if getattr(a, name).free_size < t.limits.search_min_free
            else "search pieces of it, and then their results"
        ),
    )


# --- instructions


def sort_keys(values: Any) -> Any:
    """uint32 that sort as the float32 do: -inf < ... < -0 < +0 < ... < inf < NaN."""
    bits = np.ascontiguousarray(values).view(np.int32)
    flipped = np.right_shift(bits, 31)  # all bits of a negative number, none but the sign of others
    flipped |= np.int32(-(2**31))
    flipped ^= bits
    keys = flipped.view(np.uint32)
    np.copyto(keys, np.uint32(0xFFC0_0000), where=np.isnan(values))
    return keys


def _from_sort_keys(keys: Any) -> Any:
    bits = np.where(keys >> np.uint32(31), keys & np.uint32(0x7FFF_FFFF), ~keys)
    return np.ascontiguousarray(bits).view(np.float32)


def largest(keys: Any, count: int) -> Any:
    """The `count` largest of each row, ascending."""
    if count < keys.shape[1]:
        keys = _candidates(keys, count)
        keys = np.partition(keys, keys.shape[1] - count, axis=1)[:, -count:]
    return np.sort(keys, axis=1)


def _candidates(keys: Any, count: int) -> Any:
    """Fewer columns with the same `count` largest of each row, because partitioning takes long.

    A row is dealt out into groups. Those `count` of them with the largest maxima hold `count` values that no value of
    the other groups exceeds.
    """
    rows, columns = keys.shape
    each = isqrt(columns // count)
    if each < _WORTH_GROUPS:
        return keys
    groups = columns // each
    dealt = keys[:, : groups * each].reshape(rows, each, groups)
    chosen = np.argpartition(dealt.max(axis=1), groups - count, axis=1)[:, None, -count:]
    held = np.take_along_axis(dealt, chosen, axis=2).reshape(rows, each * count)
    return np.concatenate([held, keys[:, groups * each :]], axis=1)


@instruction(
    engines=(Engine.vector,),
    source=_ISA,
    rules=[
        _search_size("src"),
        _rank("src"),
        _eight("dst", "dst-shape", 2),
        on_partitions_of("src", "dst"),
        no_indirection(),
    ],
    steps=streams("Max8", "src", source="", estimate=OLDER),
)
def max8(dst: _NumericDst, src: _NumericSrc, name: Name = None) -> None:
    """The eight largest values of each partition in descending order; on Vector.

    Values are compared as float32 and round to the dtype of `dst`. Equal values are all kept. NaN counts as larger than
    every number, and +0 as larger than -0; the documents say nothing about either.

    Args:
        dst: ``(P, 8)``, SBUF or PSUM, any dtype but packed x4.
        src: ``(P, ...)`` with at most 3 dimensions and 8 to 16384 elements per partition, any dtype but packed x4.
    """


@max8.body
def _(a: Any, x: Arrays) -> None:
    best = largest(sort_keys(x.load(a.src)), _SLOTS)
    x.store(a.dst, _from_sort_keys(best[:, ::-1]))


def _find(data: Any, vals: Any, slots: Iterable[int]) -> tuple[Any, Any]:
    """First occurrences ``(P, 8)`` of the values, slot by slot, each position once; and whether there was one.

    Positions that were found become NaN in a copy of the data, which equals nothing.
    """
    left = np.array(data)
    rows = np.arange(left.shape[0])
    position = np.zeros((left.shape[0], _SLOTS), np.int64)
    found = np.zeros(position.shape, bool)
    for slot in slots:
        match = left == vals[:, slot : slot + 1]
        position[:, slot] = match.argmax(axis=1)
        found[:, slot] = match[rows, position[:, slot]]
        hit = found[:, slot]
        left[rows[hit], position[hit, slot]] = np.nan
    return position, found


def _indices(position: Any, found: Any, dtype: DType) -> Any:
    """Positions in the stored form; all bits set where nothing was found."""
    return np.where(found, position, -1).astype(dtype.numpy)


@instruction(
    engines=(Engine.vector,),
    source=_ISA,
    rules=[
        _search_size("data"),
        _rank("data"),
        _eight("vals", "vals-shape", _MAX_RANK),
        _eight("dst", "dst-shape", 2),
        on_partitions_of("data", "vals", "dst"),
        no_indirection(),
    ],
    steps=streams("FindIndex8", "data", source="", estimate=OLDER),
)
def nc_find_index8(
    dst: Annotated[NkiTensor, out(ON_CHIP, _INDICES)], data: _NumericSrc, vals: _NumericSrc, name: Name = None
) -> None:
    """The positions of eight values in each partition of `data`, counted from 0; on Vector.

    ``dst[p, i]`` is the first position of ``vals[p, i]`` in the flattened free dimensions. If a value stands in `vals`
    several times, its slots take the first, second, ... occurrence in ascending order (`nc_match_replace8` fills them
    the other way round). A value that does not occur (often enough) gives all ones: 0xFFFF or 0xFFFFFFFF. Values are
    compared as float32: NaN is never found, +0 equals -0.

    Args:
        dst: ``(P, 8)`` uint16 or uint32.
        data: at most 3 dimensions, 8 to 16384 elements per partition, any dtype but packed x4.
        vals: at most 3 dimensions, 8 elements per partition, any dtype but packed x4.
    """


@nc_find_index8.body
def _(a: Any, x: Arrays) -> None:
    position, found = _find(x.load(a.data), x.load(a.vals), range(_SLOTS))
    x.store_raw(a.dst, _indices(position, found, a.dst.dtype))


@instruction(
    engines=(Engine.vector,),
    source=_ISA,
    rules=[
        same_elements("dst", "data"),
        Rule(
            "size",
            "data has at most {t.limits.search_max_free} elements per partition",
            lambda a, t: a.data.free_size <= t.limits.search_max_free,
            _ISA,
            "replace in pieces of it",
            lambda a, t: f"data has {a.data.free_size} elements per partition",
        ),
        _eight("vals", "vals-shape", _MAX_RANK),
        _eight("dst_idx", "dst-idx-shape", 2),
        on_partitions_of("data", "vals", "dst_idx"),
        no_indirection(),
    ],
    steps=streams("MatchReplace8", "data", "dst", source="", estimate=OLDER),
)
def nc_match_replace8(
    dst: _NumericDst,
    data: _NumericSrc,
    vals: _NumericSrc,
    imm: Number,
    dst_idx: Annotated[NkiTensor | None, out(ON_CHIP, (*_INDICES, int32, int16))] = None,
    name: Name = None,
) -> None:
    """Replace the first occurrence of eight values in each partition of `data` by `imm`; on Vector.

    The slots of `vals` are worked off from 7 to 0, and each takes the first occurrence that is left; so if a value
    stands in `vals` several times, its highest slot gets the lowest position (`nc_find_index8` is the other way round).
    A value that does not occur (often enough) replaces nothing, and its index is all ones, as that of `nc_find_index8`.
    Values are compared as float32: NaN is never found, +0 equals -0. If `dst` and `data` have the same dtype, what is
    not replaced keeps its bits.

    Args:
        dst: as many partitions and elements per partition as `data`; may be `data`.
        data: at most 16384 elements per partition, any dtype but packed x4.
        vals: at most 3 dimensions, 8 elements per partition.
        imm: a float32 that rounds to the dtype of `dst`.
        dst_idx: ``(P, 8)`` of 16-bit or 32-bit integers for the positions, counted from 0 in flattened free dimensions.
    """


@nc_match_replace8.body
def _(a: Any, x: Arrays) -> None:
    data = x.load(a.data)
    position, found = _find(data, x.load(a.vals), reversed(range(_SLOTS)))
    rows, slots = np.nonzero(found)
    where = rows, position[rows, slots]
    if a.dst.dtype == a.data.dtype:
        kept = np.array(x.load_raw(a.data))
        kept[where] = x.rounded(float(a.imm), a.dst.dtype)[0]
        x.store_raw(a.dst, kept)
    else:
        values = np.array(data)
        values[where] = a.imm
        x.store(a.dst, values)
    if a.dst_idx is not None:
        x.store_raw(a.dst_idx, _indices(position, found, a.dst_idx.dtype))
