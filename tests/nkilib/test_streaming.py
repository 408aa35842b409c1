"""The streaming helpers: pieces of any size, panels, transposes and sums of products."""

import numpy as np
import pytest
from ml_dtypes import bfloat16

import nki
import nki.language as nl
from nkilib import streaming as st


@nki.jit
def product(a, b):
    """a @ b for a (rows, inner) and b (inner, columns), the result in float32."""
    out = st.result((a.shape[0], b.shape[1]), nl.float32)
    moving = st.load_panel(b)
    for down, across in st.blocks(a.shape[0], b.shape[1], shared=True):
        stationary = st.load_transposed(a[down, :])
        total = st.contract(stationary, st.columns_of(moving, across), st.psum((st.size(down), st.size(across))))
        tile = st.sbuf(total.shape, nl.float32)
        nki.isa.tensor_copy(dst=tile, src=total)
        st.store(out[down, across], tile)
    return out


@pytest.mark.parametrize(
    ("rows", "inner", "columns", "cores"), [(1, 1, 1, 1), (127, 129, 513, 1), (257, 5, 3, 2), (128, 256, 512, 2)]
)
@pytest.mark.parametrize("dtype", [np.float32, bfloat16])
def test_products_of_any_size(rows: int, inner: int, columns: int, cores: int, dtype: type) -> None:
    rng = np.random.default_rng(1)
    a = rng.integers(-8, 8, (rows, inner)).astype(dtype)  # sums of small integers are exact
    b = rng.integers(-8, 8, (inner, columns)).astype(dtype)
    wanted = a.astype(np.float64) @ b.astype(np.float64)
    assert np.array_equal(product[cores](a, b), wanted)


@nki.jit
def repeated(row):
    tile = st.load_repeated(row, 3)
    out = st.result(tile.shape, row.dtype)
    st.store(out, tile)
    return out


def test_a_row_on_every_partition() -> None:
    row = np.arange(6, dtype=np.float32)
    assert np.array_equal(repeated(row), np.tile(row, (3, 1)))


def test_one_byte_elements_are_transposed() -> None:
    @nki.jit
    def turned(a):
        out = st.result((a.shape[1], a.shape[0]), a.dtype)
        st.store(out, st.transpose(st.load(a)))
        return out

    a = np.random.default_rng(2).standard_normal((5, 100)).astype(nl.float8_e4m3.numpy)
    assert np.array_equal(turned(a).view(np.uint8), a.T.view(np.uint8))


def test_cores_share_all_pieces_and_no_piece_twice() -> None:
    seen = []

    @nki.jit
    def count(a):
        seen.extend(st.share(range(7)))
        return a

    nki.simulate(count)[2](np.zeros((1, 1), np.float32))
    assert sorted(seen) == list(range(7))
