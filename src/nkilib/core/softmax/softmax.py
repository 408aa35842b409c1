"""Softmax along the last dimension, and its gradient::

    out = exp(scale * x - largest) / sum(exp(scale * x - largest)),  largest = max(scale * x)
    dx  = scale * out * (dy - sum(dy * out))

Layouts: any number of dimensions; all but the last are rows. Dtypes: bfloat16, float16 or float32; exponentials and
sums are float32, results round once. An element of -inf counts as 0, as masks need it; a row of nothing but -inf is
NaN. Limits: none; a row that does not fit SBUF is loaded again.

Plan: Vector finds the largest element of a row, Scalar takes exponentials and sums them up in one pass, and Vector
divides, so that transfers bound the kernel for float32, and Vector for bfloat16. Of a row that has no room Scalar takes
the exponentials once more, with the logarithm of the sum subtracted before. In the gradient Vector and GpSimd have a
product each, and Scalar sums up.
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib import limits
from nkilib.core.rmsnorm.rms_norm import RowSums, scale_rows
from nkilib.rows import Pieces, matrix, row_blocks
from nkilib.streaming import result, sbuf, store

_FLOATS = (nl.bfloat16, nl.float16, nl.float32)


@nki.jit
def softmax(x: nl.NkiTensor, scale: float = 1.0) -> nl.NkiTensor:
    """Softmax of ``scale * x`` along the last dimension; the cores of the launch divide the rows.

    Args:
        x: in HBM.
        scale: positive factor.

    Returns:
        A tensor like `x`.

    Raises:
        KernelLimit: dtypes, a `scale` that is not positive.
    """
    limits.dtype("x", x, _FLOATS)
    limits.need(scale > 0, "scale", scale, "scale is positive", "negate x, and pass a positive scale")
    out, flat = result(x.shape, x.dtype), matrix(x)
    for block in row_blocks(flat.shape[0], flat.shape[1] * x.dtype.itemsize):
        pieces = Pieces(block, flat)
        below = _negative_largest(pieces, scale)
        sums, powers = RowSums(pieces), []
        for place, (_, tile) in enumerate(pieces):
            powers.append(sbuf(tile.shape, nl.float32) if pieces.stays else None)
            sums.add(place, tile, nl.exp, scale, below, powers[-1])
        inverse, down = _for_division(sums.total(), below)
        for (part, tile), power in zip(pieces, powers, strict=True):
            shares = sbuf(tile.shape, x.dtype)
            if power is None:
                _exponentials(tile, scale, down, into=shares)
            else:
                scale_rows(power, inverse, None, into=shares)
            store(block.of(matrix(out)[:, part]), shares)
    return out


@nki.jit
def softmax_backward(dy: nl.NkiTensor, out: nl.NkiTensor, scale: float = 1.0) -> nl.NkiTensor:
    """Gradient of `softmax`; the cores of the launch divide the rows.

    Args:
        dy: the gradient of the result, like `out`.
        out: what `softmax` returned.
        scale: as `softmax` got it.

    Returns:
        The gradient of x, like `out`.

    Raises:
        KernelLimit: as `softmax`, and another shape or dtype of `dy`.
    """
    limits.dtype("out", out, _FLOATS)
    limits.shape("dy", dy, out.shape)
    limits.same_dtype(dy=dy, out=out)
    limits.need(scale > 0, "scale", scale, "scale is positive", "pass the scale that softmax got")
    gradient, flat = result(out.shape, out.dtype), matrix(out)
    for block in row_blocks(flat.shape[0], flat.shape[1] * out.dtype.itemsize):
        outs, dys = Pieces(block, flat), Pieces(block, matrix(dy))
        found = RowSums(outs)
        for place, ((_, tile), (_, above)) in enumerate(zip(outs, dys, strict=True)):
            product = sbuf(tile.shape, nl.float32)
            nisa.tensor_tensor(dst=product, data1=tile, data2=above, op=nl.multiply, engine=nisa.engine.gpsimd)
            found.add(place, product, scale=-1.0)
        below = found.total()
        for (part, tile), (_, above) in zip(outs, dys, strict=True):
            change = sbuf(tile.shape, out.dtype)
            _weigh(tile, above, below, scale, into=change)
            store(block.of(matrix(gradient)[:, part]), change)
    return gradient


def _forward(x: Any, scale: float = 1.0) -> tuple[Any, Any]:
    out = softmax(x, scale)
    return out, out


def _gradient(out: Any, gradient: Any, scale: float) -> tuple[Any]:
    return (softmax_backward(gradient, out, scale),)


softmax.defvjp(_forward, _gradient)


def _negative_largest(pieces: Pieces, scale: float) -> Any:
    """``-max(scale * x)`` of every row: (partitions, rows of each) in float32."""
    partitions, each = pieces.block.partitions, pieces.block.each
    largest = sbuf((partitions, each, len(pieces.parts)), nl.float32)
    for place, (_, tile) in enumerate(pieces):
        nisa.tensor_reduce(dst=largest[:, :, place], op=nl.maximum, data=tile, axis=[2])
    below = sbuf((partitions, each), nl.float32)
    nisa.tensor_reduce(dst=below, op=nl.maximum, data=largest, axis=[2])
    nisa.tensor_scalar(dst=below, data=below, op0=nl.multiply, operand0=-scale)
    return below


def _for_division(total: Any, below: Any) -> tuple[Any, Any]:
    """``1 / total``, and ``below - log(total)``, to which exponentials are shifted that need no division."""
    inverse, logarithm, down = (sbuf(total.shape, nl.float32) for _ in range(3))
    nisa.reciprocal(dst=inverse, data=total)
    nisa.activation(dst=logarithm, op=nl.log, data=total)
    nisa.tensor_tensor(dst=down, data1=below, data2=logarithm, op=nl.subtract)
    return inverse, down


def _exponentials(tile: Any, scale: float, down: Any, into: Any) -> None:
    """``into = exp(scale * tile + down)``, where down is of rows."""
    for row in range(tile.shape[1]):
        bias = down[:, row : row + 1]
        nisa.activation(dst=into[:, row], op=nl.exp, data=tile[:, row], scale=scale, bias=bias)


def _weigh(tile: Any, above: Any, below: Any, scale: float, into: Any) -> None:
    """``into = (above + below) * tile * scale``."""
    for row in range(tile.shape[1]):
        change = sbuf((tile.shape[0], tile.shape[2]), nl.float32) if scale != 1.0 else into[:, row]
        nisa.scalar_tensor_tensor(
            dst=change,
            data=above[:, row],
            op0=nl.add,
            operand0=below[:, row : row + 1],
            op1=nl.multiply,
            operand1=tile[:, row],
        )
        if scale != 1.0:
            nisa.tensor_scalar(dst=into[:, row], data=change, op0=nl.multiply, operand0=scale)
