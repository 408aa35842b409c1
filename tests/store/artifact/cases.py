"""Artifacts to damage: small ones, with loops, constants, dynamic addresses and matrix products in them."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

import nki.isa as nisa
import nki.language as nl
from nki.spec.program import Program
from nki.store.artifact.container import pack
from tests.asm.compiled import compiled, loops, summed
from tests.ir.kernels import array, traced


def constant_and_product(a: Any) -> Any:
    """A constant from HBM times a tile, with a dynamic row in between."""
    weights = nl.shared_constant(np.eye(64, dtype=np.float32))
    out = nl.ndarray((64, 64), a.dtype, buffer=nl.shared_hbm, name="out")
    x = nl.ndarray((64, 64), a.dtype, buffer=nl.sbuf, name="x")
    w = nl.ndarray((64, 64), a.dtype, buffer=nl.sbuf, name="w")
    row = nisa.register_alloc(3)
    nisa.dma_copy(dst=w, src=weights, name="weights")
    nisa.dma_copy(dst=x, src=a[0:64, :])
    nisa.dma_copy(dst=x[0:1, :], src=a.select(0, row).reshape((1, 64)))
    product = nl.ndarray((64, 64), nl.float32, buffer=nl.psum, name="product")
    nisa.nc_matmul(dst=product, stationary=w, moving=x)
    nisa.activation(dst=x, op=nl.exp, data=product, scale=0.5)
    nisa.dma_copy(dst=out, src=x)
    return out


def programs() -> list[Program]:
    """Compiled, one core each."""
    return [compiled(program) for program in (loops(), summed(), *traced(constant_and_product, array()))]


@cache
def originals() -> tuple[bytes, ...]:
    """The files."""
    return tuple(pack([program], options={"schedule": True, "level": 2}) for program in programs())
