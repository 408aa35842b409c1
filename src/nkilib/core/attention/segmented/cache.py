"""Keys and values of a cache in blocks, which a table puts in order, as prefill attention wants them.

DMA gathers by numbers, one for each partition. A partition gets a **run**, keys of one block that follow each other, so
that tile t of some keys has the t-th of each run: any order will do for a prefix that is seen as a whole. Where the
order counts, runs are single keys, and tiles follow each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np

import nki.isa as nisa
import nki.language as nl
from nkilib import streaming as st
from nkilib.core.attention.cte.operands import CHUNK, PRODUCTS, TILE, Head, Segment

_BLOCKS = 2048
"""Blocks of the table whose parts are numbered at once."""


@dataclass(frozen=True)
class Cache:
    """The cache of one call.

    Attributes:
        keys, values: rows of all blocks, ``(blocks * heads * block size, d)``.
        heads: of keys.
        block: keys of a block.
        part: as many keys as a block and a tile have in common.
        ahead: keys before the first one, a multiple of 128, which are those of any block.
        starts: the first row of each part of head 0, ``(sequences, parts)`` int32 in device memory.
        within: the place of each partition in its part, ``(128, 1)`` float32.
        run: keys of a run of the prefix.
        runs: numbers of the runs of head 0, ``(128, sequences * columns)`` float32; run 128 * t + p at [p, t].
    """

    keys: Any
    values: Any
    heads: int
    block: int
    part: int
    ahead: int
    starts: Any
    within: Any
    run: int
    runs: Any

    @property
    def width(self) -> int:
        """Size of a key."""
        return int(self.values.shape[1])

    def in_order(self, sequence: Any, head: Any, start: Any, keys: slice) -> Paged:
        """Some keys of a head, in their order.

        Args:
            sequence, head: which; numbers, or scalars of the device.
            start: what keys count from, a multiple of a part; a number, or a scalar of the device.
            keys: which.
        """
        count = st.size(keys)
        tiles, each = st.ceil_div(count, TILE), TILE // self.part
        place = sequence * int(self.starts.shape[1]) + (start + (self.ahead + keys.start)) // self.part
        found = st.sbuf((TILE, tiles), nl.int32)
        st.copy(found, _pattern(self.starts, [[1, each], [0, self.part], [each, tiles]], place))
        column, index = st.sbuf((TILE, 1), nl.float32), st.sbuf((TILE, tiles), nl.uint32)
        nisa.iota(dst=column, pattern=[[0, 1]], offset=head * self.block, channel_multiplier=0)
        nisa.tensor_tensor(dst=column, data1=column, data2=self.within, op=nl.add)
        nisa.tensor_scalar(dst=index, data=found, op0=nl.add, operand0=column)
        return self._gathered(index, 1, keys)

    def in_runs(self, sequence: int, head: int, segment: Any, count: int) -> Paged:
        """A segment of the prefix, in the order of its runs.

        Args:
            segment: number of it, a scalar of the device.
            count: keys of a segment.
        """
        sets = count // (TILE * self.run)
        each = self.runs.shape[1] // self.starts.shape[0]
        place, columns = segment * sets + sequence * each, self.runs.shape[1]
        found = self.runs.ap([[columns, TILE], [1, sets]], scalar_offset=place, indirect_dim=1)
        index = st.sbuf((TILE, sets), nl.uint32)
        nisa.tensor_scalar(dst=index, data=found, op0=nl.add, operand0=float(head * self.block // self.run))
        return self._gathered(index, self.run, slice(0, count))

    def _gathered(self, index: Any, run: int, some: slice) -> Paged:
        """Keys and values whose numbers are known.

        Args:
            index: ``(128, sets)`` uint32, of runs.
            run: keys of a run.
            some: which they are.
        """
        width, count = self.width, st.size(some)
        tiles = st.ceil_div(count, TILE)
        keys, values = st.sbuf((TILE, tiles, width), PRODUCTS), st.sbuf((TILE, tiles, width + 1), PRODUCTS)
        nisa.memset(dst=values[:, :, width : width + 1], value=1.0)
        for number in range(tiles // run if run > 1 else tiles):
            size = min(TILE, count - number * TILE) if run == 1 else TILE
            column, here = index[0:size, number : number + 1], slice(number * run, (number + 1) * run)
            for into, rows in ((keys, self.keys), (values, self.values)):
                source = rows.reshape((rows.shape[0] // run, run, width)).vector_select(0, column)
                nisa.dma_copy(dst=into[0:size, here, 0:width], src=source)
        return Paged(0, first=some.start, stop=some.stop, keys_by_row=keys, values=values)


@dataclass
class Paged(Head):
    """Some keys and values of a head in SBUF, keys as columns when they are first asked for.

    Attributes:
        first, stop: which keys.
        keys_by_row: ``(128, tiles, d)``.
        values: ``(128, tiles, d + 1)``, the last column ones.
    """

    first: int = 0
    stop: int = 0
    keys_by_row: Any = None
    values: Any = None

    def _chunk(self, segment: Segment, start: int) -> tuple[Any, Any]:
        place = segment.prior, start
        if place not in self.loaded:
            count, first = min(CHUNK, self.stop - start), (start - self.first) // TILE
            turned = st.psum((self.keys_by_row.shape[2], count), PRODUCTS)
            for number, part in enumerate(st.spans(count, TILE)):
                rows = self.keys_by_row[0 : st.size(part), first + number, :]
                nisa.nc_transpose(dst=turned[:, part], data=rows, engine=nisa.engine.tensor)
            keys = st.sbuf(turned.shape, PRODUCTS)
            nisa.tensor_copy(dst=keys, src=turned)
            self.loaded[place] = keys, self.values[:, first : first + st.ceil_div(count, TILE), :]
        return self.loaded[place]


def cache_of(k_cache: Any, v_cache: Any, table: Any, room: tuple[int, int], segment: int) -> Cache:
    """The cache of a call.

    Args:
        k_cache, v_cache: ``(blocks, heads, block size, d)``.
        table: blocks of each sequence, ``(sequences, blocks)`` int32.
        room: keys before the first one of the table and after the last one that may be asked for.
        segment: keys of the prefix at once.
    """
    blocks, heads, size, width = v_cache.shape
    part, run = gcd(size, TILE), gcd(size, segment // TILE) if segment % TILE == 0 else 1
    rows = blocks * heads * size
    within = nl.shared_constant((np.arange(TILE) % part).astype(np.float32).reshape(TILE, 1))
    more = TILE * run * st.ceil_div(table.shape[1] * size + segment, TILE * run) - table.shape[1] * size
    runs = None if run == 1 else _by_partition(_numbers(table, (heads * size // run, 1, size // run), (0, more // run)))
    return Cache(
        keys=k_cache.reshape((rows, width)),
        values=v_cache.reshape((rows, width)),
        heads=heads,
        block=size,
        part=part,
        ahead=room[0],
        starts=_numbers(table, (heads * size, part, size // part), (room[0] // part, room[1] // part + 1), nl.int32),
        within=st.load(within),
        run=run,
        runs=runs,
    )


def _numbers(table: Any, sizes: tuple[int, int, int], more: tuple[int, int], dtype: Any = nl.float32) -> Any:
    """Numbers of the parts of all blocks in the order of a table, ``(sequences, parts)`` in device memory.

    Args:
        sizes: numbers from a block to the next one, from a part to the next one, and parts of a block.
        more: parts before the first one and after the last one, whose number is 0.
        dtype: of the numbers.
    """
    (sequences, blocks), (step, unit, parts) = table.shape, sizes
    numbers = nl.ndarray((sequences, blocks * parts + sum(more)), dtype=dtype, buffer=nl.private_hbm)
    for some in st.spans(sequences, TILE):
        count = st.size(some)
        for span in st.spans(blocks, _BLOCKS):
            shape = count, st.size(span), parts
            first, inside, made = (
                st.sbuf(shape[:2], nl.float32),
                st.sbuf((count, parts), nl.float32),
                st.sbuf(shape, dtype),
            )
            given = st.load(table[some, span].view(nl.int32), nl.float32)
            nisa.tensor_scalar(dst=first, data=given, op0=nl.maximum, operand0=0.0, op1=nl.multiply, operand1=step)
            nisa.iota(dst=inside, pattern=[[unit, parts]], channel_multiplier=0)
            both = first.expand_dim(2).broadcast(2, parts), inside.expand_dim(1).broadcast(1, st.size(span))
            nisa.tensor_tensor(dst=made, data1=both[0], data2=both[1], op=nl.add)
            place = slice(more[0] + span.start * parts, more[0] + span.stop * parts)
            st.store(numbers[some, place], made.reshape((count, shape[1] * parts)))
        for first_part, number in ((0, more[0]), (more[0] + blocks * parts, more[1])):
            for span in st.spans(number, _BLOCKS):
                place = slice(first_part + span.start, first_part + span.stop)
                st.store(numbers[some, place], st.filled((count, st.size(span)), dtype, 0))
    return numbers


def _by_partition(numbers: Any) -> Any:
    """Numbers ``(sequences, 128 * columns)`` of device memory as ``(128, sequences * columns)``."""
    columns = numbers.shape[0] * numbers.shape[1] // TILE
    rows, result = numbers.reshape((columns, TILE)), st.sbuf((TILE, columns), nl.float32)
    for some in st.spans(columns, TILE):
        st.transpose(st.load(rows[some, :]), into=result[:, some])
    return result


def _pattern(tensor: Any, pattern: list[list[int]], place: Any) -> Any:
    """Elements of a matrix from a place on, a number or a scalar of the device."""
    flat = tensor.reshape((tensor.shape[0] * tensor.shape[1], 1))
    return flat.ap(pattern, offset=place) if isinstance(place, int) else flat.ap(pattern, scalar_offset=place)
