"""``and`` between masks, and chained comparisons."""

from __future__ import annotations

import numpy as np
import pytest

import nki.beta1.language as nl
from nki.beta1.errors import Beta1Error
from nki.beta1.tensors.index import arange
from nki.beta1.tensors.mask import Mask, region_of
from tests.beta1.isa.instructions import both, floats

ROWS, COLUMNS = np.indices((12, 9))


def _true(mask):
    found = np.zeros((12, 9), bool)
    region = region_of(mask, (12, 9))
    for (low, high), (left, right) in () if region.empty else region.boxes():
        found[low:high, left:right] = True
    return found


@pytest.mark.parametrize(
    ("made", "wanted"),
    [
        (lambda i, j: i < 5 and j < 4, (ROWS < 5) & (COLUMNS < 4)),
        (lambda i, j: 2 <= i < 7, (ROWS >= 2) & (ROWS < 7)),
        (lambda i, j: i < 5 and j < 4 and i + j > 2, (ROWS < 5) & (COLUMNS < 4) & (ROWS + COLUMNS > 2)),
        (lambda i, j: i < 5 and ((j < 4) & (j > 1)), (ROWS < 5) & (COLUMNS < 4) & (COLUMNS > 1)),
        (lambda i, j: i < 50 and j < 4, COLUMNS < 4),
        (lambda i, j: i > 50 and j < 4, np.zeros((12, 9), bool)),
        (lambda i, j: True and j < 4, COLUMNS < 4),
        (lambda i, j: (1 <= i <= 4) & (j != 0), (ROWS >= 1) & (ROWS <= 4) & (COLUMNS != 0)),
    ],
)
def test_both_conditions_hold(made, wanted):
    assert np.array_equal(_true(made(arange(12)[:, None], arange(9)[None, :])), wanted)


def test_a_mask_that_would_be_lost_is_refused():
    mask, flag = arange(12)[:, None] < 5, True
    for made in (lambda: mask and flag, lambda: mask and mask):
        with pytest.raises(Beta1Error) as caught:
            region_of(made(), (12, 9))
        assert caught.value.code == "beta1.control_flow_condition_depending_on_arange"
    assert isinstance(arange(12)[:, None] < 5, Mask) and _true(None).all(), "nothing is left behind"


@pytest.mark.parametrize(
    "asked",
    [
        lambda i, j: 1 if i < 5 and j < 4 else 2,
        lambda i, j: i < 5 or j < 4,
        lambda i, j: not i < 5,
        lambda i, j: bool(i < 5),
        lambda i, j: [0 for _ in range(3) if i < 5],
    ],
)
def test_control_flow_is_refused(asked):
    with pytest.raises(Beta1Error) as caught:
        asked(arange(12)[:, None], arange(9)[None, :])
    assert caught.value.code == "beta1.control_flow_condition_depending_on_arange"


def test_masks_of_instructions():

    a = floats(12, 9)

    def kernel(x):
        out = nl.ndarray((12, 9), dtype=x.dtype, buffer=nl.shared_hbm)
        i_p, i_f = nl.mgrid[0:12, 0:9]
        tile = nl.zeros((12, 9), nl.float32)
        tile[i_p, i_f] = nl.load(x[i_p, i_f], mask=(i_p < 7 and i_f < 5))
        nl.store(out[i_p, i_f], tile, mask=0 <= i_p < 20)
        return out

    assert np.array_equal(both(kernel, a), np.where((ROWS < 7) & (COLUMNS < 5), a, 0))
