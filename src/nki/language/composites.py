"""Compositions that models need: softmax, rms_norm, where, dropout."""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
from nki.core.dtypes import DType, float32, uint8
from nki.core.errors import ArgumentError
from nki.core.nki_tensor import NkiTensor
from nki.isa import alu
from nki.isa import functions as unit
from nki.language import reductions
from nki.language.arguments import Number, number, operand, public, reduced_axes, result_dtype, tile
from nki.language.broadcasting import common_shape, fit
from nki.language.combine import cast, combine, copied, promoted
from nki.language.memory import new_tile
from nki.language.unary import reciprocal, rsqrt


@public
def softmax(x: Any, axis: Any = -1, dtype: Any = None) -> NkiTensor:
    """``exp(x - max) / sum(exp(x - max))`` over the last free dimensions.

    Args:
        x: tile in SBUF or PSUM.
        axis: int or sequence of ints: the last free dimensions without gap.
        dtype: of the result; that of `x` by default. Everything before is float32.
    """
    source = tile(x, "x", "softmax")
    axes = reduced_axes(axis, source, "softmax")
    kind = result_dtype(dtype, source.dtype)
    if len(axes) == source.ndim - 1:
        powers, total = _powers_by_row(source, axes)
    else:
        powers, total = _powers(source, axes)
    return combine(alu.MULTIPLY, powers, reciprocal(total), kind)


def _powers_by_row(x: NkiTensor, axes: tuple[int, ...]) -> tuple[NkiTensor, NkiTensor]:
    """One group per partition: the Scalar engine subtracts the maximum and sums while it exponentiates."""
    lowest, total = new_tile((x.shape[0], 1), float32), new_tile((x.shape[0], 1), float32)
    nisa.tensor_reduce(dst=lowest, op=alu.MAXIMUM, data=x, axis=axes, negate=True)
    powers = new_tile(x.shape, float32)
    nisa.activation(
        dst=powers,
        op=unit.EXP,
        data=x,
        bias=lowest,
        reduce_op=alu.ADD,
        reduce_res=total,
        reduce_cmd=nisa.reduce_cmd.reset_reduce,
    )
    return powers, total


def _powers(x: NkiTensor, axes: tuple[int, ...]) -> tuple[NkiTensor, NkiTensor]:
    highest = reductions.max(x, axes, dtype=float32, keepdims=True)
    powers = combine(alu.SUBTRACT, x, highest, float32)
    nisa.activation(dst=powers, op=unit.EXP, data=powers)
    return powers, reductions.sum(powers, axes, keepdims=True)


@public
def rms_norm(
    x: Any, w: Any, axis: Any, n: Any, epsilon: float = 1e-6, dtype: Any = None, compute_dtype: Any = None
) -> NkiTensor:
    """``x / sqrt(sum(x * x) / n + epsilon) * w`` over the last free dimensions.

    Args:
        x: tile in SBUF or PSUM.
        w: tile of weights that broadcasts to `x`, for example ``(1, F)`` or ``(P, F)``.
        axis: int or sequence of ints: the last free dimensions without gap.
        n: number of elements in the mean (more than `axis` has, if `x` is a part of the row).
        epsilon: keeps the root away from 0.
        dtype: of the result; that of `x` by default.
        compute_dtype: of the tiles in between; float32 by default. Sums and root are always float32.
    """
    source, weight = tile(x, "x", "rms_norm"), tile(w, "w", "rms_norm")
    axes = reduced_axes(axis, source, "rms_norm")
    count, floor = number(n, "n", "rms_norm"), number(epsilon, "epsilon", "rms_norm")
    if count <= 0:
        raise ArgumentError("language.count", f"nl.rms_norm: n is {n}", fix="pass the number of elements in the mean")
    inner = result_dtype(compute_dtype, float32)
    values = cast(source, inner)
    squares = reductions.sum(combine(alu.MULTIPLY, values, values, inner), axes, dtype=float32, keepdims=True)
    nisa.tensor_scalar(
        dst=squares, data=squares, op0=alu.MULTIPLY, operand0=1.0 / count, op1=alu.ADD, operand1=float(floor)
    )
    normalized = combine(alu.MULTIPLY, values, rsqrt(squares), inner)
    return combine(alu.MULTIPLY, normalized, weight, result_dtype(dtype, source.dtype))


@public
def where(condition: Any, x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """`x` where the condition is not 0, else `y`; all three broadcast. Bits stay where the dtype does.

    Args:
        condition: tile.
        x, y: tiles or numbers.
        dtype: of the result; by default that of `x` and `y` (of `condition`, if both are numbers).
    """
    mask = tile(condition, "condition", "where")
    chosen, other = operand(x, "x", "where"), operand(y, "y", "where")
    tiles = [t for t in (chosen, other) if isinstance(t, NkiTensor)]
    kind = result_dtype(dtype, promoted(tiles[0].dtype, tiles[-1].dtype) if tiles else mask.dtype)
    shape = common_shape("where", [mask, *tiles])
    result = _filled(other, shape, kind)
    predicate = copied(fit(combine(alu.NOT_EQUAL, mask, 0, uint8), shape))
    source = copied(fit(chosen, shape), kind) if isinstance(chosen, NkiTensor) else chosen
    nisa.tensor_copy_predicated(dst=result, src=source, predicate=predicate)
    return result


def _filled(value: NkiTensor | Number, shape: tuple[int, ...], dtype: DType) -> NkiTensor:
    if isinstance(value, NkiTensor):
        return copied(fit(value, shape), dtype)
    result = new_tile(shape, dtype)
    nisa.memset(dst=result, value=value)
    return result


@public
def dropout(x: Any, rate: Any, dtype: Any = None) -> NkiTensor:
    """`x` with elements replaced by 0 with probability `rate`; what stays is not scaled.

    Args:
        x: tile in SBUF or PSUM.
        rate: number from 0 to 1, or a float tile ``(P, 1)``.
        dtype: of the result; that of `x` by default.
    """
    source, chance = tile(x, "x", "dropout"), operand(rate, "rate", "dropout")
    if not isinstance(chance, NkiTensor) and not 0 <= chance <= 1:
        raise ArgumentError(
            "language.rate",
            f"nl.dropout: rate is {rate}",
            rule="rate is the probability of dropping an element",
            fix="pass a number from 0.0 to 1.0",
        )
    result = new_tile(source.shape, source.dtype)
    nisa.dropout(dst=result, data=source, prob=chance)
    return cast(result, result_dtype(dtype, source.dtype))
