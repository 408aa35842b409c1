"""Views against NumPy: the same chain of operations on a View and on an array must name the same elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nki.core import access, reshape
from nki.core.dtypes import bfloat16, float32, uint8
from nki.core.errors import TensorError
from nki.core.pattern import check_inside, pattern
from nki.core.tensor import Buffer, MemoryRegion, View, whole
from tests.together import together


def make(shape: tuple[int, ...], region: MemoryRegion = MemoryRegion.private_hbm, dtype: Any = float32) -> View:
    return whole(Buffer(0, "t", region, shape, dtype))


def numbers(view: View) -> np.ndarray:
    """Element numbers in the buffer, from the definition of a view."""
    grid = np.indices(view.shape)
    return view.offset + sum(g * s for g, s in zip(grid, view.strides, strict=True))


def step(draw: Any, view: View, array: np.ndarray) -> tuple[View, np.ndarray]:
    dim = draw(st.integers(0, view.ndim - 1))
    size = view.shape[dim]
    match draw(st.sampled_from(["slice", "range", "select", "permute", "expand", "split", "flatten"])):
        case "slice":
            start = draw(st.integers(0, size - 1))
            stop = draw(st.integers(start + 1, size))
            by = draw(st.integers(1, 3))
            key = (*[slice(None)] * dim, slice(start, stop, by))
            return access.slice_dim(view, dim, start, stop, by), array[key]
        case "range":
            start = draw(st.integers(0, size - 1))
            stop = draw(st.integers(start + 1, size))
            by = draw(st.integers(1, 3))
            key = (*[slice(None)] * dim, range(start, stop, by))
            return access.index(view, key, lambda _: None), array.take(np.arange(start, stop, by), dim)
        case "select" if view.ndim > 1:
            at = draw(st.integers(-size, size - 1))
            return access.select(view, dim, at), np.take(array, at, axis=dim)
        case "permute":
            order = draw(st.permutations(range(view.ndim)))
            return access.permute(view, order), array.transpose(order)
        case "expand" if view.ndim < 5:
            return access.expand_dim(view, dim), np.expand_dims(array, dim)
        case "split" if size % 2 == 0 and view.ndim < 5:
            shape = (*array.shape[:dim], 2, size // 2, *array.shape[dim + 1 :])
            return reshape.reshape_dim(view, dim, (2, -1)), array.reshape(shape)
        case "flatten" if dim + 1 < view.ndim:
            shape = (*array.shape[:dim], size * array.shape[dim + 1], *array.shape[dim + 2 :])
            try:
                return reshape.flatten_dims(view, dim, dim + 1), array.reshape(shape)
            except TensorError as error:
                assert error.code == "access.reshape"
                with pytest.raises((ValueError, AttributeError)):
                    array.view().shape = shape
    return view, array


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_chains_of_views_name_the_elements_that_numpy_names(data: Any) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    view = make(shape)
    array = np.arange(view.size).reshape(shape)
    for _ in range(data.draw(st.integers(1, 5))):
        view, array = step(data.draw, view, array)
    assert view.shape == array.shape
    assert (numbers(view) == array).all()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.data())
def test_reshape_agrees_with_numpy_about_what_needs_a_copy(sizes: list[int], data: Any) -> None:
    view = make(tuple(sizes))
    array = np.arange(view.size).reshape(sizes)
    order = data.draw(st.permutations(range(view.ndim)))
    view, array = access.permute(view, order), array.transpose(order)
    flat = data.draw(st.permutations([n for n in sizes if n != 1] or [1]))
    shares = np.shares_memory(array, array.reshape(flat)) and array.size > 1
    try:
        result = reshape.reshape(view, flat)
    except TensorError as error:
        assert error.code == "access.reshape"
        assert not shares
        return
    assert (numbers(result) == array.reshape(flat)).all()


@pytest.mark.parametrize(
    ("key", "shape"),
    [
        ((0, 0, 10), (1, 1)),
        ((slice(None), 0, 10), (64, 1)),
        ((3,), (1, 64, 64)),
        ((..., 5), (64, 64)),
        ((slice(0, 8), slice(0, 64, 2)), (8, 32, 64)),
        ((access.DynamicSlice(32, 16), ...), (16, 64, 64)),
        ((slice(None), -1), (64, 64)),
    ],
)
def test_on_chip_indexing_keeps_the_partition_and_one_free_dimension(key: Any, shape: tuple[int, ...]) -> None:
    assert access.index(make((64, 64, 64), MemoryRegion.sbuf), key, lambda _: None).shape == shape


def test_on_chip_selection_keeps_the_partition_and_one_free_dimension() -> None:
    tile = make((16, 4, 8), MemoryRegion.sbuf)
    assert access.select(tile, 1, 3).shape == (16, 8)
    assert (access.select(tile, 0, 2).shape, access.select(tile, 0, 2).start_partition) == ((1, 4, 8), 2)
    assert access.select(access.select(tile, 1, 3), 1, -1).shape == (16, 1)


def test_hbm_indexing_drops_dimensions_but_keeps_one() -> None:
    view = make((4, 5))
    assert access.index(view, (1,), lambda _: None).shape == (5,)
    assert access.index(view, (1, 2), lambda _: None).shape == (1,)


def test_reinterpreting_scales_the_last_dimension_and_the_offset() -> None:
    view = access.slice_dim(make((8, 64), MemoryRegion.sbuf), 1, 16, 32)
    as_bytes = reshape.view_as(view, uint8)
    assert (as_bytes.shape, as_bytes.offset, as_bytes.strides) == ((8, 64), 64, (256, 1))
    assert reshape.view_as(as_bytes, bfloat16).shape == (8, 32)
    with pytest.raises(TensorError, match=r"access\.view"):
        reshape.view_as(access.slice_dim(as_bytes, 1, 1, 33), float32)


def test_pattern_is_a_strided_window_of_the_storage() -> None:
    view = make((8, 6, 10), MemoryRegion.sbuf)
    pooled = pattern(view, [[60, 8], [20, 3], [2, 5], [10, 2], [1, 2]])
    array = np.arange(480).reshape(8, 3, 2, 5, 2).transpose(0, 1, 3, 2, 4)
    assert (numbers(pooled) == array).all()


def test_rearrange_agrees_with_numpy() -> None:
    view = make((128, 24), MemoryRegion.sbuf)
    result = reshape.rearrange(view, ("b", ("h", "w")), ("b", "w", "h"), {"h": 4})
    array = np.arange(128 * 24).reshape(128, 4, 6).transpose(0, 2, 1)
    assert (numbers(result) == array).all()


REFUSED = [
    ("access.out-of-bounds", lambda t: access.slice_dim(t, 1, 0, 65)),
    ("access.out-of-bounds", lambda t: access.index(t, (0, 64), lambda _: None)),
    ("access.empty", lambda t: access.slice_dim(t, 1, 4, 4)),
    ("access.step", lambda t: access.slice_dim(t, 1, 0, 4, 0)),
    ("access.partition-step", lambda t: access.slice_dim(t, 0, 0, 4, 2)),
    ("access.partition-dim", lambda t: access.permute(t, (1, 0))),
    ("access.partition-dim", lambda t: reshape.reshape(t, (64, 16))),
    ("access.permute", lambda t: access.permute(t, (0, 0))),
    ("access.broadcast", lambda t: access.broadcast(t, 1, 4)),
    ("access.squeeze", lambda t: access.squeeze_dim(t, 1)),
    ("access.dimension", lambda t: access.select(t, 7, 0)),
    ("access.element-count", lambda t: reshape.reshape(t, (16, 63))),
    ("access.index-count", lambda t: access.index(t, (0, 0, 0), lambda _: None)),
    ("access.index-kind", lambda t: access.index(t, (0, 1.5), lambda _: None)),
    ("access.pattern", lambda t: pattern(t, [[64, 16], 3])),
    ("access.pattern-rank", lambda t: pattern(t, [[64, 16]])),
    ("access.partition-stride", lambda t: pattern(t, [[32, 16], [1, 8]])),
    ("access.out-of-bounds", lambda t: check_inside(pattern(t, [[64, 16], [1, 65]]))),
    ("access.out-of-bounds", lambda t: check_inside(pattern(t, [[64, 17], [1, 1]]))),
    ("access.out-of-bounds", lambda t: check_inside(pattern(t, [[64, 16], [-1, 2]]))),
    ("access.two-offsets", lambda t: pattern(t, [[64, 16], [1, 1]], scalar_offset=t, vector_offset=t)),
]


@together("code, make_view", REFUSED)
def test_impossible_views_are_refused_with_a_remedy(code: str, make_view: Any) -> None:
    with pytest.raises(TensorError) as caught:
        make_view(make((16, 64), MemoryRegion.sbuf))
    assert caught.value.code == code
    assert caught.value.fix
