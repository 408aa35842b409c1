"""Boxes of bytes, against an array with one bool for each byte."""

from __future__ import annotations

import numpy as np
import pytest

from nki.core.dtypes import bfloat16, float32
from nki.core.tensor import MemoryRegion
from nki.sim.pieces import Box, Pieces
from tests.sim.machines import Bench

ROWS, COLUMNS = 6, 8


def _box(random: np.random.Generator) -> Box:
    first, low = int(random.integers(0, ROWS)), int(random.integers(0, COLUMNS))
    return first, int(random.integers(first + 1, ROWS + 1)), low, int(random.integers(low + 1, COLUMNS + 1))


def test_boxes_are_what_was_added() -> None:
    random = np.random.default_rng(3)
    merged = 0
    for _ in range(400):
        pieces, bytes_in = Pieces(0), np.zeros((ROWS, COLUMNS), bool)
        added = 0
        for _ in range(12):
            box = _box(random)
            here = bytes_in[box[0] : box[1], box[2] : box[3]]
            assert pieces.touches(box) == here.any()
            assert not pieces.holds(box) or here.all()
            taken = pieces.add(box)
            assert taken == (not here.any())
            if taken:
                here[...] = True
                added += 1
                assert pieces.holds(box)
            shown = np.zeros((ROWS, COLUMNS + 3), bool)
            for piece in pieces.bytes_in(shown.reshape(-1), 1, COLUMNS + 3):
                assert not piece.any()
                piece[...] = True
            assert (shown[:, 1 : COLUMNS + 1] == bytes_in).all()
            assert pieces.size() == bytes_in.sum()
        merged += added - len(pieces.boxes)
    assert merged > 100


def test_too_many_boxes_are_refused() -> None:
    pieces = Pieces(0)
    taken = [pieces.add((2 * i, 2 * i + 1, 0, 4)) for i in range(100)]
    assert taken.index(False) > 8
    assert pieces.size() == 4 * sum(taken)


@pytest.mark.parametrize("region", [MemoryRegion.private_hbm, MemoryRegion.sbuf])
@pytest.mark.parametrize("left_out", [None, 0, 3, 5])
def test_tiles_in_any_order_fill_a_buffer(region: MemoryRegion, left_out: int | None) -> None:
    bench = Bench()
    tensor = bench.tensor((8, 12), float32, region)
    order = np.random.default_rng(1).permutation(6)
    for i in order:
        if i == left_out:
            continue
        tile = tensor._replace(shape=(4, 4), offset=(i // 3) * 4 * 12 + (i % 3) * 4)
        bench.machine.store_raw(tile, np.full((4, 4), i, np.float32))
        got = bench.machine.load_raw(tile)
        assert (got == i).all() and not bench.warned()
    storage = bench.storages[0]
    if left_out is None:
        assert storage.written is None and not storage.fresh
    got = np.asarray(bench.machine.load_raw(tensor)).reshape(8, 12)
    assert bench.warned() == (left_out is not None)
    for i in range(6):
        tile_values = got[i // 3 * 4 :][:4, i % 3 * 4 :][:, :4]
        assert np.isnan(tile_values).all() if i == left_out else (tile_values == i).all()


def test_rows_of_another_width_are_not_taken_for_the_same() -> None:
    """Boxes in HBM count in rows, and a view may have rows of another length."""
    bench = Bench()
    tensor = bench.tensor((8, 12), bfloat16, MemoryRegion.private_hbm)
    bench.machine.store_raw(tensor._replace(shape=(4, 12)), np.ones((4, 12), bfloat16.numpy))
    halves = tensor._replace(shape=(8, 6), strides=(6, 1))
    bench.machine.load_raw(halves)
    assert not bench.warned()
    bench.machine.load_raw(halves._replace(offset=6))
    assert bench.warned()
    bench.machine.load_raw(tensor)
    assert bench.warned()
