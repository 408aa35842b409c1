"""Searches, gathers, and runs of equal ids, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import nki.beta1.isa as nisa
import nki.beta1.language as nl
from tests.beta1.isa.instructions import both, computed, floats, integers, refused


def _distinct(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).permutation(int(np.prod(shape))).reshape(shape).astype(np.float32)


def _eight(flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(-flat, axis=1)[:, :8]
    return np.take_along_axis(flat, order, 1), order


def test_the_eight_largest_and_where_they_are():
    a = _distinct(64, 100)

    def body(x):
        best = nisa.max8(src=x)
        return best, nisa.nc_find_index8(data=x, vals=best), nisa.nc_find_index8(data=x, vals=best, dtype=nl.uint16)

    best, places, narrow = computed(body, a)
    values, order = _eight(a)
    assert np.array_equal(best, values) and np.array_equal(places, order) and np.array_equal(narrow, order)
    assert places.dtype == np.uint32 and narrow.dtype == np.uint16


def test_searches_see_what_a_mask_leaves():
    a = _distinct(64, 100)

    def body(x):
        i_p, i_f = nl.mgrid[0:64, 0:100]
        inside = (i_p < 32) & (i_f < 50)
        best, places = nl.zeros((64, 8), nl.float32), nl.zeros((64, 8), nl.uint32)
        best[...] = nisa.max8(src=x[i_p, i_f], mask=inside)
        rest = nl.full((64, 100), -1.0, nl.float32)
        rest[...] = nisa.nc_match_replace8(data=x[i_p, i_f], vals=best, imm=-5, dst_idx=places, mask=inside)
        found = nl.zeros((64, 8), nl.uint32)
        found[...] = nisa.nc_find_index8(data=x[i_p, i_f], vals=best, mask=inside)
        return best, places, rest, found

    best, places, rest, found = computed(body, a)
    values, order = _eight(a[:32, :50])
    assert np.array_equal(best[:32], values) and not best[32:].any()
    assert np.array_equal(places[:32], order) and np.array_equal(found[:32], order)
    assert not places[32:].any() and not found[32:].any()
    replaced = a[:32, :50].copy()
    np.put_along_axis(replaced, order, -5, 1)
    wanted = np.full((64, 100), -1, np.float32)
    wanted[:32, :50] = replaced
    assert np.array_equal(rest, wanted)


def test_tiles_of_more_dimensions():
    a = _distinct(32, 2, 3, 10)

    def body(x):
        i_p, i_a, i_b, i_c = nl.mgrid[0:32, 0:2, 0:3, 0:10]
        best = nisa.max8(src=x)
        made = nl.ndarray((32, 2, 3, 10), dtype=nl.float32)
        made[i_p, i_a, i_b, i_c] = nisa.nc_match_replace8(data=x[i_p, i_a, i_b, i_c], vals=best, imm=0.0)
        return best, made, nisa.nc_find_index8(data=x, vals=best)

    best, made, places = computed(body, a)
    values, order = _eight(a.reshape(32, 60))
    replaced = a.reshape(32, 60).copy()
    np.put_along_axis(replaced, order, 0, 1)
    assert np.array_equal(best, values) and np.array_equal(places, order)
    assert np.array_equal(made, replaced.reshape(a.shape))


@pytest.mark.parametrize(("width", "valid"), [(1, None), (4, None), (4, 50)])
def test_local_gather(width, valid):
    a, index = floats(64, 200), integers(64, 4, high=196, dtype=np.uint16)

    def body(x, y):
        found = nisa.local_gather(x, y, width, valid)
        made = nl.zeros((64, 4, 16, width), nl.float32)
        if valid is None:
            made[...] = found
        else:
            i_p, i_f = nl.mgrid[0:64, 0 : valid * width]
            made.reshape((64, 64 * width))[i_p, i_f] = found.reshape((64, 64 * width))[i_p, i_f]
        return made

    wanted = np.zeros((64, 64, width), np.float32)
    for core in range(4):
        rows = slice(core * 16, core * 16 + 16)
        places = index[rows].flatten(order="F").astype(int)[: valid or 64]
        wanted[rows, : len(places)] = a[rows][:, places[:, None] + np.arange(width)]
    assert np.array_equal(computed(body, a, index), wanted.reshape(64, 4, 16, width))


def test_local_gather_of_some_groups():
    a, index = floats(64, 200), integers(64, 2, high=200, dtype=np.uint16)

    def body(x, y):
        made = nl.zeros((64, 2, 16, 1), nl.float32)
        made[...] = nisa.local_gather(x, y, mask=nl.arange(64)[:, None] < 32)
        return made

    found = computed(body, a, index)
    order = index[16:32].flatten(order="F").astype(int)
    assert np.array_equal(found[16:32].reshape(16, 32), a[16:32][:, order]) and not found[32:].any()


@pytest.mark.parametrize("kind", [np.float32, np.int32])
def test_sequence_bounds(kind):
    ids = np.array([[1, 1, 1, 2, 2, 0, 0, 5]], kind)

    def kernel(x):
        out = nl.ndarray((1, 2, 8), dtype=x.dtype, buffer=nl.shared_hbm)
        made = nl.ndarray((1, 2, 8), dtype=x.dtype)
        i_p, i_a, i_f = nl.mgrid[0:1, 0:2, 0:8]
        made[i_p, i_a, i_f] = nisa.sequence_bounds(segment_ids=nl.load(x))
        nl.store(out, made)
        return out

    assert both(kernel, ids).tolist() == [[[0, 0, 0, 3, 3, 8, 8, 7], [3, 3, 3, 5, 5, -1, -1, 8]]]


@pytest.mark.parametrize(
    ("code", "words", "body"),
    [
        ("max8.size", "", lambda x: nisa.max8(src=x[:, 0:4])),
        (
            "beta1.unsupported_expression_in_mask",
            "joins two axes",
            lambda x: nisa.max8(src=x, mask=nl.arange(64)[:, None] >= nl.arange(40)[None, :]),
        ),
        (
            "beta1.unsupported_expression_in_mask",
            "a part of the indices",
            lambda x: nisa.local_gather(x, nl.zeros((64, 4), nl.uint16), mask=nl.arange(4)[None, :] < 2),
        ),
        ("local_gather.run-length", "", lambda x: nisa.local_gather(x, nl.zeros((64, 4), nl.uint16), 3)),
        ("operand.dtype", "index", lambda x: nisa.local_gather(x, nl.zeros((64, 4), nl.int32))),
    ],
)
def test_what_is_refused(code, words, body):
    error = refused(body, floats(64, 40))
    assert error.code == code and words in str(error) and error.fix
