"""Products of stacks with streamed weights, against NumPy: any size, two weights, pairs of 8-bit pieces, two cores."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from ml_dtypes import bfloat16, float8_e4m3

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib import products as pr
from nkilib import streaming as st
from nkilib.stacks import batches


def put(out, block):
    tile = st.sbuf(block.shape, out.dtype)
    nisa.tensor_copy(dst=tile, src=block)
    st.store(out, tile)


def stacks(x, shared=False):
    """Blocks of the rows of x, and each as a stack."""
    rows, depth = x.shape
    for block in pr.row_blocks(rows, depth, x.dtype.itemsize, shared=shared):
        tiles = (
            st.load(x[block.start + part.start : block.start + part.stop]) for part in st.spans(st.size(block), 128)
        )
        yield block, pr.turned(tiles, st.size(block), depth, x.dtype)


@nki.jit
def both(x, gate, up):
    out = [st.result((x.shape[0], gate.shape[1]), nl.float32) for _ in range(2)]
    for block, stack in stacks(x, shared=True):
        for rows, columns, *sums in pr.products(stack, gate, up):
            for target, block_sums in zip(out, sums, strict=True):
                put(target[block.start + rows.start : block.start + rows.stop, columns], block_sums)
    return tuple(out)


@nki.jit
def turned(x, w):
    """The product's transpose; cores share the columns of w."""
    out = st.result((w.shape[1], x.shape[0]), nl.float32)
    for block, stack in stacks(x):
        for columns, rows, sums in pr.products_turned(stack, w, columns=pr.own(w.shape[1], 128)):
            for tile in range(sums.shape[1]):
                first = columns.start + tile * sums.shape[0]
                here = slice(block.start + rows.start, block.start + rows.stop)
                put(out[first : first + sums.shape[0], here], sums[:, tile])
    return out


@nki.jit
def stacked(x, w, height=128):
    """x is (depth, rows)."""
    out = st.result((x.shape[1], w.shape[1]), nl.float32)
    for rows, columns, sums in pr.products(pr.stacked(x, height=height), w):
        put(out[rows, columns], sums)
    return out


def integers(rng, shape, dtype):
    """Sums of small integers are exact, in whatever order."""
    return rng.integers(-4, 5, shape).astype(dtype)


@pytest.mark.parametrize(
    ("rows", "depth", "columns", "cores", "dtype"),
    [
        (1, 1, 1, 1, bfloat16),
        (129, 127, 513, 2, np.float32),
        (257, 300, 700, 2, bfloat16),
        (3, 2600, 1030, 1, bfloat16),
    ],
)
def test_products_of_any_size(rows: int, depth: int, columns: int, cores: int, dtype: type) -> None:
    rng = np.random.default_rng(1)
    x, gate, up = integers(rng, (rows, depth), dtype), *(integers(rng, (depth, columns), dtype) for _ in range(2))
    first, second = nki.simulate(both)[cores](x, gate, up)
    assert np.array_equal(first, x.astype(np.float64) @ gate.astype(np.float64))
    assert np.array_equal(second, x.astype(np.float64) @ up.astype(np.float64))
    assert np.array_equal(nki.simulate(turned)[cores](x, gate), first.T)
    assert np.array_equal(nki.simulate(stacked)(np.ascontiguousarray(x.T), gate, 96), first)


@pytest.mark.parametrize("depth", [128, 384, 640, 700])
def test_pairs_of_one_byte_pieces(depth: int) -> None:
    rng = np.random.default_rng(depth)
    x, w = integers(rng, (20, depth), float8_e4m3), integers(rng, (depth, 130), float8_e4m3)
    wanted = x.astype(np.float64) @ w.astype(np.float64)
    assert np.array_equal(nki.simulate(both)(x, w, w)[0], wanted)
    assert np.array_equal(nki.simulate(turned)(x, w), wanted.T)
    assert np.array_equal(nki.simulate(stacked)(np.ascontiguousarray(x.T), w), wanted)


@given(some.integers(1, 140), some.integers(1, 300), some.integers(1, 600), some.booleans())
@settings(max_examples=8, deadline=None)
def test_odd_sizes(rows: int, depth: int, columns: int, turn: bool) -> None:
    rng = np.random.default_rng(rows * depth)
    x, w = integers(rng, (rows, depth), bfloat16), integers(rng, (depth, columns), bfloat16)
    found = nki.simulate(turned)(x, w).T if turn else both(x, w, w)[1]
    assert np.array_equal(found, x.astype(np.float64) @ w.astype(np.float64))


@pytest.mark.parametrize("rows", [1, 128, 300, 1100, 5000])
@pytest.mark.parametrize("depth", [64, 4096, 16384])
def test_row_blocks_cover_all_rows_in_balance(rows: int, depth: int) -> None:
    seen = []

    @nki.jit
    def blocks(a):
        seen.append(pr.row_blocks(rows, depth, 2))
        return a

    nki.simulate(blocks)(np.zeros((1, 1), np.float32))
    starts = [block.start for block in seen[0]]
    assert starts == [0, *(block.stop for block in seen[0])][:-1] and seen[0][-1].stop == rows
    assert all(start % 128 == 0 for start in starts)
    sizes = [block.stop - block.start for block in seen[0]]
    assert max(sizes) - min(sizes) < 256
    assert max(sizes) * -(-depth // 128) * 2 <= 64 * 1024 or max(sizes) <= 256


@pytest.mark.parametrize(
    ("rows", "depth", "columns", "unit", "share"),
    [(2048, 4096, 4096, "tensor", 0.9), (4, 4096, 4096, "dma", 0.85), (64, 8192, 1280, "dma", 0.8)],
)
def test_share_of_the_roofline(rows: int, depth: int, columns: int, unit: str, share: float) -> None:
    """Many rows keep the Tensor engine busy, few rows the DMA engines: 91.75 TFLOPS of bfloat16, 368 bytes per ns."""

    @nki.jit
    def product(x, w):
        out = st.result((rows, columns), x.dtype)
        for block, stack in stacks(x):
            for down, across, sums in pr.products(stack, w):
                put(out[block.start + down.start : block.start + down.stop, across], sums)
        return out

    found = nki.predict(product, target="trn2")(
        nki.ShapeDtype((rows, depth), nl.bfloat16), nki.ShapeDtype((depth, columns), nl.bfloat16)
    )
    least = 2 * rows * depth * columns / 78.6e3 if unit == "tensor" else 2 * depth * columns / 368.0
    assert found.bound_by == unit and least / found.ns > share


@nki.jit
def in_batches(x, w):
    """x is (batch, depth, rows), of which stacks of 512 columns are made."""
    rows = x.shape[0] * x.shape[2]
    out = st.result((rows, w.shape[1]), nl.float32)
    for here, columns, sums in pr.products(batches(x, slice(0, rows), 512), w):
        put(out[here, columns], sums)
    return out


@pytest.mark.parametrize(("batch", "rows"), [(1, 576), (3, 200)])
def test_stacks_of_other_widths_use_the_rows_of_weights_that_they_need(batch, rows):
    """The last stack is narrower, so that as many bytes are more pieces; each of its pieces has the same weights."""
    random = np.random.default_rng(0)
    x, w = random.normal(size=(batch, 2048, rows)).astype(bfloat16), random.normal(size=(2048, 2048)).astype(bfloat16)
    want = np.concatenate([one.astype(np.float32).T @ w.astype(np.float32) for one in x])
    np.testing.assert_allclose(np.asarray(in_batches(x, w)), want, atol=2e-4 * np.abs(want).max())
