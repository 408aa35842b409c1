"""Instructions that make one number of many: reductions, scans and statistics."""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
from nki.beta1.errors import refused
from nki.beta1.isa.activations import reduced_column
from nki.beta1.isa.elementwise import step
from nki.beta1.isa.shared import alike, apart, columns, region_of_input, tiles, vector
from nki.beta1.language.arguments import flag, hints_only, kind_of, operation, promoted
from nki.beta1.language.reductions import reduced
from nki.beta1.tensors.mask import Region
from nki.beta1.tensors.tensor import Tensor
from nki.beta1.tracing.elementwise import elementwise
from nki.beta1.tracing.operands import tile
from nki.beta1.tracing.results import placed, undefined
from nki.core.dtypes import DType, float32
from nki.core.nki_tensor import NkiTensor
from nki.isa import alu
from nki.language.broadcasting import common_shape, fit
from nki.language.combine import cast
from nki.language.memory import new_tile
from nki.spec.operator import Operator

_SIDE_REDUCERS = (alu.ADD, alu.MULTIPLY, alu.MAXIMUM, alu.MINIMUM)


def tensor_reduce(
    op: Any,
    data: Any,
    axis: Any,
    *,
    mask: Any = None,
    dtype: Any = None,
    negate: bool = False,
    keepdims: bool = False,
    **kwargs: Any,
) -> Tensor:
    """A reduction over free dimensions on Vector; elements that the mask leaves out take no part.

    Args:
        axis: an int or several; the partitions (0) are none of them.
        negate: whether the result is multiplied by -1, for arithmetic operators.
        keepdims: whether the reduced dimensions stay with size 1.
    """
    name = "tensor_reduce"
    hints_only(f"nisa.{name}", kwargs)
    (source,) = tiles(name, data=data)
    own, kind = operation(op, "op"), kind_of(dtype, source.dtype)
    region_of_input(name, source, mask)

    def compute(x: NkiTensor, axes: tuple[int, ...]) -> NkiTensor:
        left = x.shape[: x.ndim - len(axes)]
        made = new_tile(left if len(left) > 1 else (*left, 1), x.dtype if own.is_bitvec else kind)
        nisa.tensor_reduce(dst=made, op=own, data=x, axis=axes, negate=flag(negate, "negate"))
        made = cast(made, kind)
        return made.reshape((*left, *(1,) * len(axes))) if keepdims else made

    return reduced(name, source, axis, mask, keepdims, compute, explicit=dtype is not None)


def tensor_partition_reduce(op: Any, data: Any, *, mask: Any = None, dtype: Any = None, **kwargs: Any) -> Tensor:
    """The reduction over the partitions of a tile ``(P, ...)``, on GpSimd: a tile ``(1, ...)``."""
    name = "tensor_partition_reduce"
    hints_only(f"nisa.{name}", kwargs)
    (source,) = tiles(name, data=data)
    own, kind = operation(op, "op"), kind_of(dtype, source.dtype)
    region = region_of_input(name, source, mask)
    shape = (1, *source.shape[1:])
    if region.empty:
        return undefined(name, [source], shape)
    value = tile(source, "data", name, region.box, sbuf=True)

    def compute() -> NkiTensor:
        made = new_tile((1, *value.shape[1:]), value.dtype if own.is_bitvec else kind)
        nisa.tensor_partition_reduce(dst=made, op=own, data=value)
        return cast(made, kind)

    return placed(name, compute, shape, Region(((0, 1), *region.box[1:])), explicit=dtype is not None)


def tensor_scalar_reduce(
    *,
    data: Any,
    op0: Any,
    operand0: Any,
    reduce_op: Any,
    reduce_res: Any,
    reverse0: bool = False,
    dtype: Any = None,
    mask: Any = None,
    **kwargs: Any,
) -> Tensor:
    """``data op0 operand0``, and its reduction over the free dimensions in `reduce_res`.

    Args:
        operand0: a number, or one element for each partition.
        reduce_op: nl.add, subtract, multiply, max or min.
        reduce_res: a column, one element for each partition.
    """
    name = "tensor_scalar_reduce"
    hints_only(f"nisa.{name}", kwargs)
    (source,) = tiles(name, data=data)
    (one,) = columns(name, source, operand0=operand0)
    first, one, swapped = step(op0, one, reverse0, "op0")
    reducer, kind = operation(reduce_op, "reduce_op"), kind_of(dtype, source.dtype)
    if reduce_res is None:
        raise refused("argument", f"'reduce_res' of '{name}' is None", "pass a column: reduce_res=tile[:, 0]")
    result = reduced_column(name, [source, one], reduce_res, mask)

    def compute(x: NkiTensor, a: Any) -> NkiTensor:
        if swapped or reducer not in _SIDE_REDUCERS:
            return _in_two(x, first, vector(a), swapped, reducer, result, kind)
        made = new_tile(x.shape, kind)
        nisa.tensor_scalar_reduce(dst=made, data=x, op0=first, operand0=vector(a), reduce_op=reducer, reduce_res=result)
        return made

    return elementwise(name, [source, one], mask, compute, explicit=dtype is not None)


def _in_two(
    x: NkiTensor, op: Operator, operand: Any, swapped: bool, reducer: Operator, result: Any, kind: DType
) -> NkiTensor:
    """The values in float32, and then their reduction, which rounds once, as that of one instruction does."""
    made = new_tile(x.shape, float32)
    nisa.tensor_scalar(dst=made, data=x, op0=op, operand0=operand, reverse0=swapped)
    nisa.tensor_reduce(dst=result, op=reducer, data=made, axis=tuple(range(1, x.ndim)))
    return cast(made, kind)


def tensor_tensor_scan(
    data0: Any,
    data1: Any,
    initial: Any,
    op0: Any,
    op1: Any,
    reverse0: bool = False,
    reverse1: bool = False,
    *,
    dtype: Any = None,
    mask: Any = None,
    **kwargs: Any,
) -> Tensor:
    """``r[i] = (data0[i] op0 r[i-1]) op1 data1[i]`` along the free dimensions of each partition, in float32.

    Args:
        initial: ``r[-1]``: a number, or one element for each partition.
        dtype: of the result; what the two promote to by default.
    """
    name = "tensor_tensor_scan"
    hints_only(f"nisa.{name}", kwargs)
    one, two = tiles(name, data0=data0, data1=data1)
    two = alike(one, two)
    (start,) = columns(name, one, initial=initial)
    first, second, kind = operation(op0, "op0"), operation(op1, "op1"), kind_of(dtype, promoted(one, two))
    region_of_input(name, one, mask)

    def compute(a: NkiTensor, b: NkiTensor, r: Any) -> NkiTensor:
        shape = common_shape(name, (a, b))
        a, b = fit(a, shape), fit(b, shape)
        made = new_tile(shape, kind)
        nisa.tensor_tensor_scan(
            dst=made,
            data0=apart(a, b),
            data1=b,
            initial=vector(r),
            op0=first,
            op1=second,
            reverse0=flag(reverse0, "reverse0"),
            reverse1=flag(reverse1, "reverse1"),
        )
        return made

    return elementwise(name, [one, two, start], mask, compute, explicit=dtype is not None)


def bn_stats(data: Any, *, mask: Any = None, dtype: Any = None, **kwargs: Any) -> Tensor:
    """Count, mean and ``variance * count`` of the even and of the odd elements: a tile ``(P, 6)`` for ``(P, F)``."""
    return _statistics("bn_stats", data, 6, mask, dtype, kwargs)


def bn_aggr(data: Any, *, mask: Any = None, dtype: Any = None, **kwargs: Any) -> Tensor:
    """Mean and variance of each partition from results of `bn_stats`: a tile ``(P, 2)``."""
    return _statistics("bn_aggr", data, 2, mask, dtype, kwargs)


def _statistics(name: str, data: Any, size: int, mask: Any, dtype: Any, kwargs: dict[str, Any]) -> Tensor:
    hints_only(f"nisa.{name}", kwargs)
    (source,) = tiles(name, data=data)
    kind, region = kind_of(dtype, source.dtype), region_of_input(name, source, mask)
    shape = (source.shape[0], size)
    if region.empty:
        return undefined(name, [source], shape)
    value, today = tile(source, "data", name, region.box), getattr(nisa, name)

    def compute() -> NkiTensor:
        made = new_tile((value.shape[0], size), kind)
        today(dst=made, data=value)
        return made

    return placed(name, compute, shape, Region((region.box[0], (0, size))), explicit=dtype is not None)
