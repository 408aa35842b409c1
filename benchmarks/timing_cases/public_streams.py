"""Kernels of public repositories that stream tensors through one core or two, one parameterised kernel for each."""

from __future__ import annotations

from typing import Any

from benchmarks.timing_cases.instructions import hbm, sbuf

import nki.isa as nisa
import nki.language as nl

ROWS = 128


def _mine(count: int) -> range:
    """The turns of this core: half of them each if there are two."""
    if not nl.program_ndim():
        return range(count)
    share = count // nl.num_programs(axes=0)
    return range(nl.program_id(axis=0) * share, (nl.program_id(axis=0) + 1) * share)


def copy(a: Any) -> Any:
    """Tiles of 128 rows, loaded and stored."""
    out = hbm(a.shape, a.dtype)
    for first in range(0, a.shape[0], ROWS):
        tile = sbuf((ROWS, a.shape[1]), a.dtype)
        nisa.dma_copy(dst=tile, src=a[first : first + ROWS])
        nisa.dma_copy(dst=out[first : first + ROWS], src=tile)
    return out


def rmsnorm(a: Any, weight: Any) -> Any:
    """Rows over the root of the mean of their squares, times a weight that is loaded into every partition by itself."""
    rows, width = a.shape
    out, factor = hbm(a.shape, a.dtype), sbuf((ROWS, width), weight.dtype)
    for row in range(ROWS):
        nisa.dma_copy(dst=factor[row : row + 1], src=weight)
    for first in range(0, rows, ROWS):
        x, squares, total, root = (
            sbuf((ROWS, width), a.dtype),
            sbuf((ROWS, width)),
            sbuf((ROWS, 1)),
            sbuf((ROWS, 1)),
        )
        nisa.dma_copy(dst=x, src=a[first : first + ROWS])
        nisa.activation_reduce(dst=squares, op=nl.square, data=x, reduce_op=nl.add, reduce_res=total)
        nisa.activation(dst=root, op=nl.rsqrt, data=total, scale=1.0 / width, bias=1e-6)
        scaled, result = sbuf((ROWS, width)), sbuf((ROWS, width), a.dtype)
        nisa.tensor_scalar(dst=scaled, data=x, op0=nl.multiply, operand0=root)
        nisa.tensor_tensor(dst=result, data1=scaled, data2=factor, op=nl.multiply)
        nisa.dma_copy(dst=out[first : first + ROWS], src=result)
    return out


# --- first language, static descriptors


def _moved(dst: Any, src: Any) -> None:
    nisa.dma_copy(dst=dst, src=src, dge_mode=nisa.dge_mode.none)


def _stepped(theta: Any, grad: Any, first: Any, second: Any, out: Any) -> None:
    """One tile of the optimiser's step: ``0.99999 t - 0.001 (9 m + g) / sqrt(999 v + g g)``."""
    t, g, m, v = (sbuf(source.shape) for source in (theta, grad, first, second))
    for tile, source in zip((t, g, m, v), (theta, grad, first, second), strict=True):
        _moved(tile, source)
    squared, inside, inverse, mean, change, result = (sbuf(t.shape) for _ in range(6))
    nisa.activation(dst=squared, op=nl.square, data=g)
    _fused(inside, v, nl.multiply, 999.0, nl.add, squared)
    nisa.activation(dst=inverse, op=nl.rsqrt, data=inside)
    _fused(mean, m, nl.multiply, 9.0, nl.add, g)
    _fused(change, mean, nl.multiply, 0.001, nl.multiply, inverse)
    _fused(result, t, nl.multiply, 0.99999, nl.subtract, change)
    _moved(out, result)


def _fused(dst: Any, data: Any, op0: Any, operand0: float, op1: Any, operand1: Any) -> None:
    nisa.scalar_tensor_tensor(dst=dst, data=data, op0=op0, operand0=operand0, op1=op1, operand1=operand1)


def adamw(theta: Any, grad: Any, first: Any, second: Any, columns: int = 0) -> Any:
    """An optimiser's step over four tensors: tiles of 128 rows, or `columns` of each partition's share of the data."""
    everything = theta, grad, first, second
    out = hbm(theta.shape)
    if not columns:
        for turn in _mine(-(-theta.shape[0] // ROWS)):
            rows = slice(turn * ROWS, min(theta.shape[0], (turn + 1) * ROWS))
            _stepped(*(tensor[rows] for tensor in everything), out[rows])
        return out
    turns = theta.shape[0] * theta.shape[1] // ROWS // columns
    views = [tensor.reshape((ROWS, turns, columns)) for tensor in (*everything, out)]
    for turn in _mine(turns):
        _stepped(*(view[:, turn, :] for view in views))
    return out


def silu(a: Any, slices: int = 1, parts: int = 1, in_place: bool = False) -> Any:
    """SiLU of ``a`` (128, slices of all, columns), of some slices with each transfer or of some parts of a slice."""
    _, count, width = a.shape
    out = hbm(a.shape)
    source, result = (tensor.reshape((ROWS, count * parts, width // parts)) for tensor in (a, out))
    for turn in _mine(-(-count * parts // slices)):
        part = slice(turn * slices, min(count * parts, (turn + 1) * slices))
        x = sbuf(source[:, part].shape)
        y = x if in_place else sbuf(x.shape)
        _moved(x, source[:, part])
        nisa.activation(dst=y, op=nl.silu, data=x)
        _moved(result[:, part], y)
    return out


def silu_in_turns(a: Any) -> Any:
    """SiLU with the load of the next slice written before the activation of this one; two tiles take turns."""
    _, count, width = a.shape
    out, tiles = hbm(a.shape), [sbuf((ROWS, width)) for _ in range(2)]
    _moved(tiles[0], a[:, 0])
    for turn in range(count):
        if turn + 1 < count:
            _moved(tiles[(turn + 1) % 2], a[:, turn + 1])
        y = sbuf((ROWS, width))
        nisa.activation(dst=y, op=nl.silu, data=tiles[turn % 2])
        _moved(out[:, turn], y)
    return out
