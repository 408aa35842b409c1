"""Index expressions and masks against NumPy."""

from __future__ import annotations

import operator
import random

import numpy as np
import pytest

from nki.beta1.errors import Beta1Error
from nki.beta1.tensors.index import Index, MGrid, arange

_RELATIONS = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]


def _dense(index: Index) -> np.ndarray:
    places = np.indices(index.shape)
    return index.const + sum(step * place for step, place in zip(index.steps, places, strict=True))


@pytest.mark.parametrize("seed", range(30))
def test_expressions_and_masks_are_those_of_numpy(seed):
    draw = random.Random(seed)
    for _ in range(30):
        n, m = draw.randint(1, 9), draw.randint(1, 9)
        a, b, c = (draw.randint(-4, 4) for _ in range(3))
        rows, columns = np.arange(n)[:, None], np.arange(m)[None, :]
        found = arange(n)[:, None] * a + b * arange(m)[None, :] - c
        wanted = rows * a + b * columns - c
        assert np.array_equal(_dense(found), np.broadcast_to(wanted, (n, m)))
        assert found.bounds == (wanted.min(), wanted.max())
        relation, bound, edge = draw.choice(_RELATIONS), draw.randint(-6, 6), draw.randint(-2, 8)
        mask = relation(found, bound) & (arange(n)[:, None] < edge) & (edge - 3 <= arange(m)[None, :])
        true = relation(wanted, bound) & (rows < edge) & (edge - 3 <= columns)
        count = np.zeros((n, m), int)
        region = mask.region((n, m))
        for (low, high), (left, right) in () if region.empty else region.boxes():
            count[low:high, left:right] += 1
        assert np.array_equal(count, np.broadcast_to(true, (n, m)).astype(int))


def test_a_grid_has_named_axes():
    grid = MGrid()[0:4, 2:8:2]
    assert [each.shape for each in grid] == [(4, 3)] * 2 and grid.x is grid[1]
    assert np.array_equal(_dense(grid.x), np.mgrid[0:4, 2:8:2][1])


def test_a_condition_that_is_decided_may_be_joined_by_or():
    i = arange(8)
    mask = i < 3
    assert (mask | (i < 0)) is mask and ((i > 9) | mask) is mask and (mask | (i >= 0)) is True


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (lambda i: bool(i < 3), "beta1.control_flow_condition_depending_on_arange"),
        (lambda i: (i < 3) | (i > 5), "beta1.unsupported_expression_in_mask"),
        (lambda i: i // 3, "beta1.unsupported_expression_in_index"),
        (lambda i: i * i, "beta1.unsupported_expression_in_index"),
        (lambda i: i.__setitem__(0, 1), "beta1.cannot_assign_to_index"),
        (lambda i: (i[:, None] < 3).region((4, 4)), "beta1.mask_shape"),
    ],
)
def test_what_is_not_affine_is_refused(wrong, code):
    with pytest.raises(Beta1Error) as caught:
        wrong(arange(8))
    assert caught.value.code == code and caught.value.fix
