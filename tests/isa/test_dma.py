"""What dma_copy moves: order, casts, bits, and keywords of older kernels."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nki.isa as nisa
import nki.language as nl
from nki.isa import alu
from tests.isa.tiles import bits_of, shared, store
from tests.isa.tiles import dma_load as load
from tests.support import both, rejection

BF16 = ml_dtypes.bfloat16
SKIP = nisa.oob_mode.skip


# --- order and casts


@given(
    st.permutations(range(3)),
    st.tuples(*[st.integers(1, 6)] * 3),
    st.sampled_from([np.float32, np.int32, np.uint8, np.float16]),
    st.booleans(),
)
def test_elements_keep_their_order_whatever_the_shapes(
    order: list[int], shape: tuple[int, ...], dtype: Any, through_sbuf: bool
) -> None:
    data = np.arange(int(np.prod(shape)), dtype=np.int64).astype(dtype).reshape(shape)

    def kernel(a: Any) -> Any:
        out = nl.ndarray((a.size, 1), a.dtype, buffer=nl.shared_hbm)
        view = a.permute(tuple(order))
        if through_sbuf:
            tile = nl.ndarray((view.shape[0], view.shape[2], view.shape[1]), a.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=view)
            nisa.dma_copy(dst=out, src=tile)
        else:
            nisa.dma_copy(dst=out, src=view)
        return out

    places = (tuple(index[order.index(d)] for d in range(3)) for index in np.ndindex(*(shape[d] for d in order)))
    assert both(kernel, data).ravel().tolist() == [data[place].item() for place in places]


CASTS = [
    (np.float32, np.int8, [300.0, -300.0, 2.5, 3.5, -0.5, np.nan, np.inf], [127, -128, 2, 4, 0, 0, 127]),
    (np.float32, np.uint8, [300.0, -1.0, 254.5, 255.5, np.inf], [255, 0, 254, 255, 255]),
    (np.float32, np.int32, [2.0**31, -(2.0**31), 1e10, 16777217.0], [2**31 - 1, -(2**31), 2**31 - 1, 16777216]),
    (np.int32, np.float32, [2**24 + 1, 2**24 + 3, -(2**31)], [2.0**24, 2.0**24 + 4, -(2.0**31)]),
    (np.int32, np.uint32, [2**24 + 1, -5], [2**24, 0]),
    (np.uint32, np.int32, [2**32 - 1, 7], [2**31 - 1, 7]),
    (np.float32, BF16, [1.00390625, 1.01171875, 3.4e38, -0.0], [1.0, 1.015625, np.inf, -0.0]),
    (np.float32, np.float16, [65520.0, 1e-8, 65519.0], [np.inf, 0.0, 65504.0]),
    (BF16, np.float32, [1.0078125, np.inf], [1.0078125, np.inf]),
]


@pytest.mark.parametrize(("source", "target", "values", "wanted"), CASTS)
def test_casts_pass_through_float32(source: Any, target: Any, values: list[Any], wanted: list[Any]) -> None:
    def kernel(a: Any) -> Any:
        return store(load(a, target))

    result = both(kernel, np.array([values], source))
    assert np.array_equal(bits_of(result), bits_of(np.array([wanted], target)))


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint32, np.float16, BF16, ml_dtypes.float8_e5m2, np.bool_])
def test_equal_dtypes_move_as_bits(dtype: Any) -> None:
    raw = np.random.default_rng(0).integers(0, 256, 48 * np.dtype(dtype).itemsize).astype(np.uint8)
    if dtype is np.bool_:
        raw &= 1
    data = raw.view(dtype).reshape(4, 12)

    def kernel(a: Any) -> Any:
        return store(load(a))

    assert np.array_equal(bits_of(both(kernel, data)), bits_of(data))


def test_psum_is_out_of_reach() -> None:
    def from_psum(a: Any) -> Any:
        tile = nl.ndarray((4, 4), np.float32, buffer=nl.psum)
        nisa.memset(dst=tile, value=0.0)
        return shared(tile)

    def to_psum(a: Any) -> Any:
        tile = nl.ndarray((4, 4), np.float32, buffer=nl.psum)
        nisa.dma_copy(dst=tile, src=a)
        return a

    for kernel in (from_psum, to_psum):
        assert rejection(kernel, np.zeros((4, 4), np.float32)).code == "operand.region"


# --- keywords of older kernels


def test_old_keywords_are_accepted_where_they_change_nothing() -> None:
    def kernel(a: Any, **old: Any) -> Any:
        tile = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=a, **old)
        return store(tile)

    data = np.arange(4, dtype=np.float32).reshape(2, 2)
    with pytest.warns(DeprecationWarning, match="unique_indices"):
        assert np.array_equal(both(lambda a: kernel(a, unique_indices=True), data), data)
    assert rejection(lambda a: kernel(a, dst_rmw_op=alu.ADD), data).code == "call.deprecated"
    assert rejection(lambda a: kernel(a, mask=None), data).code == "call.unknown-argument"
