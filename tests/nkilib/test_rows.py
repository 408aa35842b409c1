"""Blocks of rows: all rows once and in order, on as many partitions as there are, divided among cores."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as some

import nki
import nki.language as nl
from nkilib import rows
from nkilib.streaming import load, result, store


@given(some.integers(1, 5000), some.integers(1, 9000))
def test_every_row_is_in_one_block(count: int, row_bytes: int) -> None:
    blocks = rows.row_blocks(count, row_bytes, shared=False)
    assert [row for block in blocks for row in range(block.span.start, block.span.stop)] == list(range(count))
    assert all(block.partitions <= 128 for block in blocks)
    assert all(block.each == 1 or block.each * row_bytes <= 4096 for block in blocks)
    whole = 128 * blocks[0].each  # beside full blocks there are few, which hold what is left
    assert len(blocks) <= count // whole + 1 + blocks[0].each.bit_length()


@nki.jit
def doubled(x):
    flat, out = rows.matrix(x), result(x.shape, x.dtype)
    for block in rows.row_blocks(flat.shape[0], 4 * flat.shape[1], tile_bytes=64):
        tile = load(block.of(flat))
        nki.isa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
        store(block.of(rows.matrix(out)), tile)
    return out


def test_cores_have_different_rows() -> None:
    x = np.arange(7 * 43 * 5, dtype=np.float32).reshape(7, 43, 5)
    assert np.array_equal(doubled(x), 2 * x) and np.array_equal(doubled[2](x), 2 * x)
