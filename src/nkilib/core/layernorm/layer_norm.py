"""Normalisation of rows to mean 0 and variance 1, and its gradient::

    normal = (x - mean(x)) / sqrt(variance(x) + eps)
    out    = normal * gamma + beta

    g      = dy * gamma
    dx     = (g - mean(g) - normal * mean(g * normal)) / sqrt(variance(x) + eps)
    dgamma = sum of dy * normal over all rows
    dbeta  = sum of dy over all rows

Layouts: any number of dimensions; all but the last are rows. Dtypes: bfloat16, float16 or float32; sums, factors and
what lies between are float32, results round once to the dtype of x. Limits: none; a row that does not fit SBUF is
loaded once more.

Plan: Scalar sums up a row, and then the squares of the differences from its mean, so that rows far from 0 keep their
digits; Vector subtracts, multiplies and adds in two passes, which bound the kernel for bfloat16, as transfers do for
float32. In the gradient the Tensor engine sums up over rows, and GpSimd has the products that are summed up.

Source: Ba, Kiros and Hinton, Layer Normalization, arXiv:1607.06450.
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib import limits, scalar_copies
from nkilib.column_sums import ColumnSums
from nkilib.core.rmsnorm.rms_norm import (
    RowSums,
    checked,
    inverse_root,
    load_factors,
    matrix_row,
    product,
    scale_rows,
    times_columns,
)
from nkilib.rows import Pieces, matrix, row_blocks
from nkilib.streaming import filled, result, sbuf, store


@nki.jit
def layer_norm(
    x: nl.NkiTensor, gamma: nl.NkiTensor | None = None, beta: nl.NkiTensor | None = None, eps: float = 1e-5
) -> nl.NkiTensor:
    """Normalise along the last dimension; the cores of the launch divide the rows.

    Args:
        x: in HBM.
        gamma, beta: one factor, and one summand, for each element of a row, of any shape and float dtype; None for 1
            and 0.
        eps: added to the variance.

    Returns:
        A tensor like `x`.

    Raises:
        KernelLimit: another number of factors or summands, dtypes, a negative `eps`.
    """
    checked(x, eps, gamma=gamma, beta=beta)
    out, flat = result(x.shape, x.dtype), matrix(x)
    factors, summands = load_factors(gamma, flat), load_factors(beta, flat)
    epsilon = filled((nl.tile_size.pmax, 1), nl.float32, eps)
    for block in row_blocks(flat.shape[0], flat.shape[1] * x.dtype.itemsize):
        pieces = Pieces(block, flat)
        below, inverse = _statistics(pieces, epsilon)
        for (part, tile), factor, summand in zip(pieces, factors, summands, strict=True):
            normal = sbuf(tile.shape, x.dtype)
            _normalise(tile, below, inverse, factor, summand, into=normal)
            store(block.of(matrix(out)[:, part]), normal)
    return out


@nki.jit
def layer_norm_backward(
    dy: nl.NkiTensor,
    x: nl.NkiTensor,
    gamma: nl.NkiTensor | None = None,
    beta: nl.NkiTensor | None = None,
    eps: float = 1e-5,
) -> tuple[nl.NkiTensor, ...]:
    """Gradients of `layer_norm`; the cores of the launch divide the rows.

    Args:
        dy: the gradient of the result, like `x`.
        x, gamma, beta, eps: as `layer_norm` got them.

    Returns:
        A tuple: the gradient of x, that of gamma if there is one, that of beta if there is one, each like the argument.

    Raises:
        KernelLimit: as `layer_norm`, and another shape or dtype of `dy`.
    """
    checked(x, eps, gamma=gamma, beta=beta)
    limits.shape("dy", dy, x.shape)
    limits.same_dtype(dy=dy, x=x)
    out, source, gradient = result(x.shape, x.dtype), matrix(x), matrix(dy)
    columns = source.shape[1]
    of_gamma, of_beta = (None if each is None else ColumnSums(columns) for each in (gamma, beta))
    factors, epsilon = load_factors(gamma, source), filled((nl.tile_size.pmax, 1), nl.float32, eps)
    for block in row_blocks(source.shape[0], columns * x.dtype.itemsize):
        xs, dys = Pieces(block, source), Pieces(block, gradient)
        below, inverse = _statistics(xs, epsilon)
        sums, products = _sums(xs, dys, factors, below, inverse, of_gamma, of_beta)
        shares = _shares(sums, products, below, inverse, columns)
        for (part, tile), (_, above), factor in zip(xs, dys, factors, strict=True):
            change = sbuf(tile.shape, x.dtype)
            _change(tile, above, factor, inverse, shares, into=change)
            store(block.of(matrix(out)[:, part]), change)
    found = [out]
    for argument, total in ((gamma, of_gamma), (beta, of_beta)):
        if argument is not None and total is not None:
            found.append(result(argument.shape, argument.dtype))
            total.store(matrix_row(found[-1]))
    return tuple(found)


def _gradient(residuals: Any, gradient: Any, **constants: Any) -> Any:
    x, *of_columns = residuals
    names = [name for name in ("gamma", "beta") if name not in constants]
    return layer_norm_backward(gradient, x, **dict(zip(names, of_columns, strict=True)), eps=constants["eps"])


layer_norm.defvjp(None, _gradient)


def _statistics(pieces: Pieces, epsilon: Any) -> tuple[Any, Any]:
    """``-mean`` and ``1 / sqrt(variance + eps)`` of every row: (partitions, rows of each) in float32."""
    columns = pieces.source.shape[1]
    sums, squares = RowSums(pieces), RowSums(pieces)
    for place, (_, tile) in enumerate(pieces):
        sums.add(place, tile, scale=-1.0 / columns)
    below = sums.total()
    for place, (_, tile) in enumerate(pieces):
        squares.add(place, tile, nl.square, bias=below)
    return below, inverse_root(squares.total(), columns, epsilon)


def _normalise(tile: Any, below: Any, inverse: Any, factor: Any, summand: Any, into: Any) -> None:
    """``into = (tile + below) * inverse * factor + summand``; below and inverse are of rows, the others of columns."""
    partitions, rows, columns = tile.shape
    for row in range(rows):
        down, scale = below[:, row : row + 1], inverse[:, row : row + 1]
        if summand is None and factor is None:
            _two_scalars(tile[:, row], down, scale, into[:, row])
            continue
        between = sbuf((partitions, columns), nl.float32)
        if factor is None:
            _two_scalars(tile[:, row], down, scale, between)
            nisa.tensor_tensor(dst=into[:, row], data1=between, data2=summand[:partitions], op=nl.add)
            continue
        nisa.scalar_tensor_tensor(
            dst=between, data=tile[:, row], op0=nl.add, operand0=down, op1=nl.multiply, operand1=factor[:partitions]
        )
        if summand is None:
            nisa.tensor_scalar(dst=into[:, row], data=between, op0=nl.multiply, operand0=scale)
        else:
            nisa.scalar_tensor_tensor(
                dst=into[:, row],
                data=between,
                op0=nl.multiply,
                operand0=scale,
                op1=nl.add,
                operand1=summand[:partitions],
            )


def _two_scalars(tile: Any, down: Any, scale: Any, into: Any) -> None:
    """``into = (tile + down) * scale``."""
    nisa.tensor_scalar(dst=into, data=tile, op0=nl.add, operand0=down, op1=nl.multiply, operand1=scale)


def _sums(
    xs: Pieces, dys: Pieces, factors: list[Any], below: Any, inverse: Any, of_gamma: Any, of_beta: Any
) -> tuple[Any, Any]:
    """``sum(g)`` and ``sum(g * normal)`` of every row; what the rows give to the gradients of columns goes to those."""
    sums, products = RowSums(xs), RowSums(xs)
    ones = filled((inverse.shape[0], 1), xs.source.dtype, 1.0)
    for place, ((part, tile), (_, above)) in enumerate(zip(xs, dys, strict=True)):
        normal = sbuf(tile.shape, tile.dtype)
        for row in range(tile.shape[1]):
            _two_scalars(tile[:, row], below[:, row : row + 1], inverse[:, row : row + 1], normal[:, row])
        both = product(normal, above)
        for row in range(tile.shape[1]):
            for total, each in ((of_gamma, both), (of_beta, above)):
                if total is not None:
                    total.add(each[:, row], ones, part.start)
        sums.add(place, times_columns(above, factors[place]))
        products.add(place, times_columns(both, factors[place]))
    return sums.total(), products.total()


def _shares(sums: Any, products: Any, below: Any, inverse: Any, columns: int) -> tuple[Any, Any]:
    """What a row of the gradient has beside ``g * inverse``: a factor of x, and a summand, for every row.

    With ``m = mean(g * normal)`` they are ``-m * inverse**2`` and ``below * factor - mean(g) * inverse``.
    """
    factor, summand, mean = (sbuf(sums.shape, nl.float32) for _ in range(3))
    share = {"op0": nl.multiply, "operand0": -1.0 / columns, "op1": nl.multiply, "operand1": inverse}
    nisa.scalar_tensor_tensor(dst=factor, data=products, **share)
    nisa.scalar_tensor_tensor(dst=mean, data=sums, **share)
    nisa.tensor_tensor(dst=factor, data1=factor, data2=inverse, op=nl.multiply)
    nisa.tensor_tensor(dst=summand, data1=factor, data2=below, op=nl.multiply)
    nisa.tensor_tensor(dst=summand, data1=summand, data2=mean, op=nl.add)
    return factor, summand


def _change(tile: Any, above: Any, factor: Any, inverse: Any, shares: tuple[Any, Any], into: Any) -> None:
    """``into = above * inverse * factor + (tile * shares[0] + shares[1])``."""
    forward, back = sbuf(tile.shape, nl.float32), sbuf(tile.shape, nl.float32)
    scale_rows(above, inverse, factor, into=forward)
    for row in range(tile.shape[1]):
        scale, bias = (each[:, row : row + 1] for each in shares)
        scalar_copies.shifted(back[:, row], tile[:, row], bias, scale)
    nisa.tensor_tensor(dst=into, data1=forward, data2=back, op=nl.add)
