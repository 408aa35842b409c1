"""An array and a kernel of today for tests that use both languages."""

import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl

A = np.random.default_rng(0).standard_normal((128, 64)).astype(np.float32)


@nki.jit
def new_double(a):
    tile = nl.load(a)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out
