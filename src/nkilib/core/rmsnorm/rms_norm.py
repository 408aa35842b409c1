"""Normalisation of rows by the root of their mean square, and its gradient::

    rms = sqrt(mean(x**2) + eps)
    out = x / rms * gamma

    dx     = (dy * gamma - x / rms**2 * mean(dy * gamma * x)) / rms
    dgamma = sum of dy * x / rms over all rows

Layouts: any number of dimensions; all but the last are rows. Dtypes: bfloat16, float16 or float32; sums and factors are
float32, results round once to the dtype of x. Limits: none; a row that does not fit SBUF is loaded once more.

Plan: Scalar squares and sums up a row in one pass, Vector multiplies with the factor of the row and with gamma in
another, so that transfers bound the kernel. In the gradient the Tensor engine sums up over rows, GpSimd has two of the
products, and Vector the rest.

Source: Zhang and Sennrich, Root Mean Square Layer Normalization, arXiv:1910.07467.
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib import limits
from nkilib.column_sums import ColumnSums
from nkilib.rows import Pieces, column_pieces, matrix, row_blocks
from nkilib.streaming import filled, load_repeated, result, sbuf, store

_FLOATS = (nl.bfloat16, nl.float16, nl.float32)


@nki.jit
def rms_norm(x: nl.NkiTensor, gamma: nl.NkiTensor | None = None, eps: float = 1e-6) -> nl.NkiTensor:
    """Normalise along the last dimension; the cores of the launch divide the rows.

    Args:
        x: in HBM.
        gamma: one factor for each element of a row, of any shape and float dtype; None for 1.
        eps: added to the mean square.

    Returns:
        A tensor like `x`.

    Raises:
        KernelLimit: another number of factors, dtypes, a negative `eps`.
    """
    checked(x, eps, gamma=gamma)
    flat, out = matrix(x), result(x.shape, x.dtype)
    rows, columns = flat.shape
    factors = load_factors(gamma, flat)
    epsilon = filled((nl.tile_size.pmax, 1), nl.float32, eps)
    for block in row_blocks(rows, columns * x.dtype.itemsize):
        pieces = Pieces(block, flat)
        inverse = inverse_rms(pieces, epsilon)
        for (part, tile), factor in zip(pieces, factors, strict=True):
            normal = sbuf(tile.shape, x.dtype)
            scale_rows(tile, inverse, factor, into=normal)
            store(block.of(matrix(out)[:, part]), normal)
    return out


@nki.jit
def rms_norm_backward(
    dy: nl.NkiTensor, x: nl.NkiTensor, gamma: nl.NkiTensor | None = None, eps: float = 1e-6
) -> nl.NkiTensor | tuple[nl.NkiTensor, nl.NkiTensor]:
    """Gradients of `rms_norm`; the cores of the launch divide the rows.

    Args:
        dy: the gradient of the result, like `x`.
        x, gamma, eps: as `rms_norm` got them.

    Returns:
        The gradient of x; with `gamma` also that of gamma, each like the argument.

    Raises:
        KernelLimit: as `rms_norm`, and another shape or dtype of `dy`.
    """
    checked(x, eps, gamma=gamma)
    limits.shape("dy", dy, x.shape)
    limits.same_dtype(dy=dy, x=x)
    out = result(x.shape, x.dtype)
    source, gradient, target = matrix(x), matrix(dy), matrix(out)
    factors = load_factors(gamma, source)
    sums = None if gamma is None else ColumnSums(source.shape[1])
    epsilon = filled((nl.tile_size.pmax, 1), nl.float32, eps)
    for block in row_blocks(source.shape[0], source.shape[1] * x.dtype.itemsize):
        xs, dys = Pieces(block, source), Pieces(block, gradient)
        inverse = inverse_rms(xs, epsilon)
        back = _back(_products(xs, dys, factors, inverse, sums), inverse, source.shape[1])
        for (part, tile), (_, above), factor in zip(xs, dys, factors, strict=True):
            forward, change = sbuf(tile.shape, nl.float32), sbuf(tile.shape, x.dtype)
            scale_rows(above, inverse, factor, into=forward)
            add_scaled(tile, back, forward, into=change)
            store(block.of(target[:, part]), change)
    if gamma is None or sums is None:
        return out
    of_gamma = result(gamma.shape, gamma.dtype)
    sums.store(matrix_row(of_gamma))
    return out, of_gamma


def _gradient(residuals: Any, gradient: Any, eps: float) -> Any:
    x, *gamma = residuals
    if not gamma:
        return (rms_norm_backward(gradient, x, eps=eps),)
    return rms_norm_backward(gradient, x, gamma[0], eps)


rms_norm.defvjp(None, _gradient)


def _products(xs: Pieces, dys: Pieces, factors: list[Any], inverse: Any, sums: ColumnSums | None) -> Any:
    """``sum(x * dy * gamma)`` of every row; what the rows give to the gradient of gamma goes to `sums`."""
    found, weights = RowSums(xs), sbuf(inverse.shape, xs.source.dtype)
    nisa.tensor_copy(dst=weights, src=inverse)
    for place, ((part, tile), (_, above)) in enumerate(zip(xs, dys, strict=True)):
        both = product(tile, above)
        if sums is not None:
            for row in range(tile.shape[1]):
                sums.add(both[:, row], weights[:, row : row + 1], part.start)
        found.add(place, times_columns(both, factors[place]))
    return found.total()


def _back(products: Any, inverse: Any, columns: int) -> Any:
    """``-products / columns * inverse**3``: what the gradient of the factor gives to each element, over x."""
    cube, back = sbuf(inverse.shape, nl.float32), sbuf(inverse.shape, nl.float32)
    nisa.tensor_tensor(dst=cube, data1=inverse, data2=inverse, op=nl.multiply)
    nisa.tensor_tensor(dst=cube, data1=cube, data2=inverse, op=nl.multiply)
    nisa.scalar_tensor_tensor(
        dst=back, data=products, op0=nl.multiply, operand0=-1.0 / columns, op1=nl.multiply, operand1=cube
    )
    return back


def checked(x: Any, eps: float, **of_columns: Any) -> None:
    """Check a tensor whose rows are normalised, and tensors with one number for each element of a row, or None."""
    limits.dtype("x", x, _FLOATS)
    limits.need(eps >= 0, "eps", eps, "eps is not negative", "pass an eps of 0 or more")
    for name, tensor in of_columns.items():
        if tensor is not None:
            limits.between(
                f"the number of elements of {name}", tensor.size, x.shape[-1], x.shape[-1], "as x has columns"
            )
            limits.dtype(name, tensor, _FLOATS)


def matrix_row(tensor: Any) -> Any:
    """A tensor of HBM with one dimension."""
    return tensor.reshape((tensor.size,))


def load_factors(tensor: Any, source: Any) -> list[Any]:
    """A number for each column of a matrix, on all partitions, in the pieces of its columns; None for none."""
    parts = column_pieces(source)
    return [None if tensor is None else load_repeated(matrix_row(tensor)[part], nl.tile_size.pmax) for part in parts]


def inverse_rms(pieces: Pieces, epsilon: Any) -> Any:
    """``1 / sqrt(mean(x**2) + eps)`` of every row: (partitions, rows of each) in float32."""
    squares = RowSums(pieces)
    for place, (_, tile) in enumerate(pieces):
        squares.add(place, tile, nl.square)
    return inverse_root(squares.total(), pieces.source.shape[1], epsilon)


def inverse_root(squares: Any, count: int, epsilon: Any) -> Any:
    """``1 / sqrt(squares / count + eps)`` in a new tile."""
    inverse = sbuf(squares.shape, nl.float32)
    nisa.activation(dst=inverse, op=nl.rsqrt, data=squares, scale=1.0 / count, bias=epsilon[: squares.shape[0]])
    return inverse


class RowSums:
    """Sums along the rows of a block, which Scalar adds up for each piece by itself, in any order."""

    def __init__(self, pieces: Pieces) -> None:
        self._sums = sbuf((pieces.block.partitions, pieces.block.each, len(pieces.parts)), nl.float32)

    def add(
        self, place: int, tile: Any, op: Any = nl.copy, scale: float = 1.0, bias: Any = None, values: Any = None
    ) -> None:
        """Add up ``op(tile * scale + bias)`` of a piece.

        Args:
            place: of the piece among all.
            tile: (partitions, rows of each, columns).
            bias: (partitions, rows of each), or None.
            values: gets the values themselves, like the tile; None where nobody needs them.
        """
        unused = sbuf((tile.shape[0], tile.shape[2]), nl.bfloat16)
        for row in range(tile.shape[1]):
            nisa.activation(
                dst=unused if values is None else values[:, row],
                op=op,
                data=tile[:, row],
                scale=scale,
                bias=None if bias is None else bias[:, row : row + 1],
                reduce_op=nl.add,
                reduce_res=self._sums[:, row, place : place + 1],
                reduce_cmd=nisa.reduce_cmd.reset_reduce,
            )

    def total(self) -> Any:
        """The sums of whole rows: (partitions, rows of each) in float32."""
        partitions, each, places = self._sums.shape
        if places == 1:
            return self._sums.reshape((partitions, each))
        total = sbuf((partitions, each), nl.float32)
        nisa.tensor_reduce(dst=total, op=nl.add, data=self._sums, axis=[2])
        return total


def scale_rows(tile: Any, of_rows: Any, of_columns: Any, into: Any) -> None:
    """``into = tile * of_rows * of_columns`` on Vector.

    Args:
        tile: (partitions, rows of each, columns).
        of_rows: (partitions, rows of each) in float32.
        of_columns: (128, columns), or None for 1.
    """
    for row in range(tile.shape[1]):
        inverse = of_rows[:, row : row + 1]
        if of_columns is None:
            nisa.tensor_scalar(dst=into[:, row], data=tile[:, row], op0=nl.multiply, operand0=inverse)
        else:
            nisa.scalar_tensor_tensor(
                dst=into[:, row],
                data=tile[:, row],
                op0=nl.multiply,
                operand0=inverse,
                op1=nl.multiply,
                operand1=of_columns[: tile.shape[0]],
            )


def product(first: Any, second: Any, into: Any = None) -> Any:
    """The product of two tiles, on GpSimd, in a new tile or `into` one."""
    into = sbuf(first.shape, first.dtype) if into is None else into
    nisa.tensor_tensor(dst=into, data1=first, data2=second, op=nl.multiply, engine=nisa.engine.gpsimd)
    return into


def times_columns(tile: Any, factor: Any, into: Any = None) -> Any:
    """A tile times the factors of its columns, if there are any, on GpSimd."""
    if factor is None:
        return tile
    return product(tile, factor[: tile.shape[0]].expand_dim(1).broadcast(1, tile.shape[1]), into)


def add_scaled(tile: Any, of_rows: Any, other: Any, into: Any) -> None:
    """``into = tile * of_rows + other`` on Vector; tiles as in `scale_rows`."""
    for row in range(tile.shape[1]):
        nisa.scalar_tensor_tensor(
            dst=into[:, row],
            data=tile[:, row],
            op0=nl.multiply,
            operand0=of_rows[:, row : row + 1],
            op1=nl.add,
            operand1=other[:, row],
        )
