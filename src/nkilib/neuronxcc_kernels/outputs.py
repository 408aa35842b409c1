"""Outputs that are parameters: a result is copied to where the caller wants it."""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib import limits
from nkilib.streaming import ceil_div


def give(result: Any, out: Any, name: str = "out") -> None:
    """Copy a result to an output parameter of its shape; the cores of the launch divide it.

    Args:
        result, out: in HBM.
        name: of the parameter.

    Raises:
        KernelLimit: another shape (``nkilib.shape``).
    """
    limits.shape(name, out, tuple(result.shape))
    cores, core = nl.num_programs(0), nl.program_id(0)
    if cores > 1:  # either core has a part of it
        nisa.core_barrier(data=result, cores=(0, 1))
    axis = max(range(len(result.shape)), key=lambda each: result.shape[each])
    step = ceil_div(result.shape[axis], cores)
    part = slice(core * step, min((core + 1) * step, result.shape[axis]))
    key = (*(slice(None) for _ in range(axis)), part)
    if part.start < part.stop:
        nisa.dma_copy(dst=out[key], src=result[key])
