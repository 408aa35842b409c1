"""Kernels of the first NKI that need more memory than there is: tensors wait elsewhere, and the report says which."""

from __future__ import annotations

import numpy as np
import pytest

import nki.beta1.compiler as ncc
import nki.beta1.language as nl
from nki.beta1.decorators import jit
from nki.core.errors import VerificationError
from nki.report import NkiWarning

COLUMNS = 8192
"""Of a tile: 32 KiB of each partition, of which SBUF holds six."""
ARRAY = np.random.default_rng(0).integers(-9, 9, (8, 128, COLUMNS)).astype(np.float32)


def staged(a, buffer=nl.sbuf):
    """Eight tiles that are computed one after the other, and read once more when all of them are there."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    total = nl.zeros((nl.par_dim(128), 1), dtype=a.dtype)
    kept = nl.ndarray((8, nl.par_dim(128), COLUMNS), dtype=a.dtype, buffer=buffer)
    for n in nl.affine_range(8):
        kept[n] = nl.load(a[n]) * 2.0
        total += nl.max(kept[n], axis=1, keepdims=True)
    for n in nl.affine_range(8):
        nl.store(out[n], kept[n] - total)
    return out


def test_what_does_not_fit_waits_in_hbm():
    kernel = jit(staged)
    with pytest.warns(NkiWarning, match=r"kept in HBM .* bytes are written and \d+ read"):
        found = kernel(ARRAY)
    doubled = ARRAY * 2
    assert np.array_equal(found, doubled - doubled.max(2, keepdims=True).sum(0))
    assert np.array_equal(found, kernel.simulated()(ARRAY))
    (told,) = [each for each in kernel.report.findings if each.code == "memory.spill"]
    assert told.facts["saved"] == told.facts["loaded"] == told.facts["tensors"] * ARRAY[0].nbytes
    assert "kept[n] = nl.load" in told.location.excerpt() or "kept = nl.ndarray" in told.location.excerpt()
    copies = [each for each in kernel.report.programs[0].body.walk() if each.instruction.name == "dma_copy"]
    moved = [each for each in copies if "spilled" in {view.buffer.role for _, view in each.views()}]
    assert sum(each.arguments.dst.nbytes for each in moved) == told.facts["saved"] + told.facts["loaded"]
    assert all(each.location.frames for each in moved)
    # Transfers take their time: without them HBM would move what is loaded and what is stored.
    read = sum(kernel.profile["instructions"]["hbm_read_bytes"])
    assert read == ARRAY.nbytes + told.facts["loaded"]


def test_a_kernel_that_is_left_as_written_is_refused():
    with pytest.raises(VerificationError) as caught:
        ncc.skip_middle_end_transformations(jit(staged))(ARRAY)
    assert caught.value.code == "memory.capacity"


def test_tensors_with_addresses_do_not_move():
    """Three tiles of 64 KiB have their places, and there is no room for the sum of two of them."""

    def kernel(a):
        out = nl.ndarray((128, 2 * COLUMNS), dtype=a.dtype, buffer=nl.shared_hbm)
        fixed = nl.ndarray((3, nl.par_dim(128), 2 * COLUMNS), nl.float32, buffer=ncc.sbuf.alloc(_place))
        fixed[0] = nl.broadcast_to(nl.load(a[0, :, 0:1]), shape=(128, 2 * COLUMNS))
        fixed[1] = fixed[0] + 1.0
        fixed[2] = fixed[1] + fixed[0]
        more = fixed[0] + fixed[1]
        nl.store(out, more + fixed[2] * fixed[0])
        return out

    with pytest.raises(VerificationError) as caught:
        jit(kernel)(ARRAY)
    assert caught.value.code == "memory.capacity"


def _place(idx, pdim_size, fdim_size):
    return 0, idx[0] * fdim_size
