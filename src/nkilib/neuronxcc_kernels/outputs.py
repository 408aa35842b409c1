"""Between kernels of this library: results that go to parameters, sums and casts in HBM, and where cores meet."""

from __future__ import annotations

from math import prod
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib import limits
from nkilib.streaming import ceil_div, load, result, sbuf, size, spans, store


def give(made: Any, out: Any, name: str = "out") -> None:
    """Copy a result to an output parameter of its shape; the cores of the launch divide it.

    Args:
        made, out: in HBM.
        name: of the parameter.

    Raises:
        KernelLimit: another shape (``nkilib.shape``).
    """
    limits.shape(name, out, tuple(made.shape))
    meet(made)  # either core has a part of it
    _copy_shared(out, made)


def meet(made: Any) -> None:
    """Wait until all cores of the launch have written their parts of a tensor in HBM."""
    if nl.num_programs(0) > 1:
        nisa.core_barrier(data=made, cores=(0, 1))


def cast(tensor: Any, dtype: Any) -> Any:
    """A tensor of HBM, all of which is written, in a new one of another dtype; itself if it has that one."""
    if tensor.dtype == dtype:
        return tensor
    made = result(tuple(tensor.shape), dtype)
    _copy_shared(made, tensor)
    meet(made)
    return made


def add_to(total: Any, *others: Any) -> None:
    """``total += others``, of tensors (..., columns) in HBM of one shape; the cores of the launch divide the rows."""
    columns = total.shape[-1]
    flat, *added = (each.reshape((prod(each.shape[:-1]), columns)) for each in (total, *others))
    for part in spans(flat.shape[0], nl.tile_size.pmax, shared=True):
        tile = load(flat[part])
        for each in added:
            more = sbuf((size(part), columns), tile.dtype)
            nisa.dma_copy(dst=more, src=each[part])
            nisa.tensor_tensor(dst=tile, data1=tile, data2=more, op=nl.add)
        store(flat[part], tile)
    meet(total)


def _copy_shared(into: Any, source: Any) -> None:
    """A copy of all elements; the cores divide the longest dimension."""
    cores, core = nl.num_programs(0), nl.program_id(0)
    axis = max(range(len(source.shape)), key=lambda each: source.shape[each])
    step = ceil_div(source.shape[axis], cores)
    part = slice(core * step, min((core + 1) * step, source.shape[axis]))
    key = (*(slice(None) for _ in range(axis)), part)
    if part.start < part.stop:
        nisa.dma_copy(dst=into[key], src=source[key])
