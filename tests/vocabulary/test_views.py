"""Registers from tensors, and the ways to name a part of a tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nki.isa as nisa
import nki.language as nl
from tests.support import both, rejection
from tests.together import together

X = np.arange(8 * 6 * 10, dtype=np.float32).reshape(8, 6, 10)
SPACES = [nl.sbuf, nl.hbm]


def stored(tensor: Any) -> Any:
    out = nl.ndarray(tensor.shape, tensor.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tensor)
    return out


def placed(a: Any, space: Any) -> Any:
    tensor = nl.ndarray(a.shape, a.dtype, buffer=space)
    nisa.dma_copy(dst=tensor, src=a)
    return tensor


@pytest.mark.parametrize("on_chip", [True, False])
@pytest.mark.parametrize("dtype", [np.int32, np.uint16, np.int8])
def test_a_register_is_made_from_a_tensor(dtype: Any, on_chip: bool) -> None:
    def kernel(a: Any, n: Any) -> Any:
        index = nisa.register_alloc(nl.load(n) if on_chip else n)
        row = nl.ndarray((1, 60), a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=row, src=a.ap([[60, 1], [1, 60]], scalar_offset=index))
        back = nl.ndarray((1, 1), nl.int32, buffer=nl.sbuf)
        nisa.register_store(back, index)
        return stored(row), stored(back)

    for n in (0, 5):
        row, back = both(kernel, X, np.array([[n]], dtype))
        np.testing.assert_array_equal(row[0], X[n].ravel())
        assert back.tolist() == [[n]]


def test_a_register_is_one_element_and_no_index() -> None:
    def pair(a: Any) -> Any:
        nisa.register_alloc(nl.load(a[0:1, 0, 0:2]))
        return a

    def index(a: Any, n: Any) -> Any:
        return stored(a[nisa.register_alloc(n)])

    def start(a: Any, n: Any) -> Any:
        return stored(a[nl.ds(nisa.register_alloc(n), 2)])

    n = np.array([[1]], np.int32)
    assert rejection(pair, X).code == "register_load.one-element"
    for kernel, code in ((index, "access.dynamic-index"), (start, "register.python-value")):
        error = rejection(kernel, X, n)
        assert error.code == code
        assert "select" in error.fix or "scalar_offset" in error.fix


VIEWS: dict[str, Callable[[Any], Any]] = {
    "slice": lambda t: t[:, 2:5, 1:9],
    "step": lambda t: t[:, 1:6:2, 0:10:3],
    "one": lambda t: t[:, 3, :],
    "negative": lambda t: t[:, -1, :-2],
    "ellipsis": lambda t: t[..., 4:8],
    "ellipsis-first": lambda t: t[..., 5],
    "ellipsis-between": lambda t: t[0:4, ..., 2:9:3],
    "ellipsis-alone": lambda t: t[...],
    "rows": lambda t: t[0:5],
}


@pytest.mark.parametrize("space", SPACES, ids=str)
@together("name", VIEWS)
def test_indexing_is_that_of_numpy(name: str, space: Any) -> None:
    view = VIEWS[name]

    def read(a: Any) -> Any:
        return stored(view(placed(a, space)))

    def write(a: Any, b: Any) -> Any:
        tensor = placed(a, space)
        nisa.dma_copy(dst=view(tensor), src=b)
        return stored(tensor)

    wanted, new = X.copy(), -np.ones_like(view(X))
    view(wanted)[...] = new
    np.testing.assert_array_equal(both(read, X), view(X))
    np.testing.assert_array_equal(both(write, X, new), wanted)


@pytest.mark.parametrize("space", SPACES, ids=str)
@together("name", VIEWS)
def test_offset_and_pattern_describe_a_view(name: str, space: Any) -> None:
    """Both are what `.ap` takes: the whole tensor with them is the view, and so is the view with its own pattern."""
    seen: list[tuple[int, list[list[int]]]] = []

    def kernel(a: Any) -> Any:
        tensor = placed(a, space)
        part = VIEWS[name](tensor)
        seen.append((part.offset, part.pattern))
        assert part.pattern == part.get_pattern()
        return stored(tensor.ap(part.pattern, offset=part.offset)), stored(part.ap(part.pattern))

    wanted = VIEWS[name](X)
    for got in both(kernel, X):
        np.testing.assert_array_equal(got, wanted)
    start = (wanted.__array_interface__["data"][0] - X.__array_interface__["data"][0]) // 4
    numpy = [[stride // 4, count] for stride, count in zip(wanted.strides, wanted.shape, strict=True)]
    assert all(found == (start, numpy) for found in seen)


def test_partitions_have_no_step_and_slices_no_end_outside() -> None:
    def skipped(a: Any) -> Any:
        return stored(placed(a, nl.sbuf)[0:8:2])

    def beyond(a: Any) -> Any:
        return stored(placed(a, nl.sbuf)[:, 0:7])

    assert rejection(skipped, X).code == "access.partition-step"
    assert rejection(beyond, X).code == "access.out-of-bounds"


RANGES = [
    (range(5), range(2, 6), range(10)),
    (slice(None), range(1, 6, 2), range(3, 10, 4)),
    (Ellipsis, range(9, 10)),
    (range(8), 2, range(0, 10, 9)),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
@pytest.mark.parametrize("key", RANGES, ids=str)
def test_ranges_as_indices(key: Any, space: Any) -> None:
    def kernel(a: Any) -> Any:
        read = stored(placed(a, space)[key])
        out = nl.zeros(a.shape, a.dtype, buffer=nl.shared_hbm)
        whole = nl.zeros(a.shape, a.dtype, buffer=space)
        whole[key] = placed(a, space)[key]
        nisa.dma_copy(dst=out, src=whole)
        return read, out

    same = tuple(slice(k.start, k.stop, k.step) if isinstance(k, range) else k for k in key)
    read, written = both(kernel, X)
    np.testing.assert_array_equal(read.ravel(), X[same].ravel())
    wanted = np.zeros_like(X)
    wanted[same] = X[same]
    np.testing.assert_array_equal(written, wanted)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("make", [nl.affine_range, nl.sequential_range, nl.static_range], ids=lambda f: f.__name__)
def test_ranges_of_old_loops_as_indices(make: Any) -> None:
    def kernel(a: Any) -> Any:
        tile = nl.load(a[make(8), make(0, 6, 2), make(1, 10)])
        out = nl.ndarray(tile.shape, a.dtype, buffer=nl.shared_hbm)
        out[make(8), make(3)] = tile[make(8), make(3)]
        return out

    np.testing.assert_array_equal(both(kernel, X), X[:, 0:6:2, 1:10])


@pytest.mark.parametrize(
    ("code", "said", "index"),
    [
        ("access.step", "use a step of at least 1", range(5, 0, -1)),
        ("access.out-of-bounds", "start at 0 or higher", range(-2, 2)),
        ("access.out-of-bounds", "start at 0 or higher", range(-3, -1)),
        ("access.out-of-bounds", "clip it with min(stop, 6)", range(4, 8)),
        ("access.empty", "make the range at least one element long, or skip the instruction", range(0, -1)),
        ("access.empty", "make the range at least one element long, or skip the instruction", range(3, 3)),
    ],
)
def test_ranges_that_are_no_slice(code: str, said: str, index: range) -> None:
    error = rejection(lambda a: stored(placed(a, nl.sbuf)[:, index]), X)
    assert (error.code, error.fix) == (code, said)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("space", SPACES, ids=str)
@pytest.mark.parametrize("loop", [nl.dynamic_range, nl.affine_range, nl.sequential_range], ids=lambda f: f.__name__)
def test_a_range_of_the_device_is_no_index(loop: Any, space: Any) -> None:
    error = rejection(lambda a: stored(placed(a, space)[:, loop(nisa.register_alloc(3))]), X)
    assert error.code == "access.index-kind"
    assert "tensor.select(dim, index)" in error.fix
