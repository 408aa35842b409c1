"""Instructions of the Scalar engine: activation and activation_reduce."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import nki.isa as nisa
from nki.beta1.errors import refused
from nki.beta1.isa.shared import columns, tiles
from nki.beta1.language.arguments import hints_only, kind_of, operation
from nki.beta1.tensors.tensor import Tensor
from nki.beta1.tracing.elementwise import elementwise
from nki.beta1.tracing.operands import common_region, part_of
from nki.core.dtypes import bfloat16, float16, float32
from nki.core.nki_tensor import NkiTensor
from nki.core.shown import shown
from nki.core.tensor import MemoryRegion
from nki.language.arguments import is_number
from nki.language.memory import filled_tile, ndarray
from nki.spec.engine import reduce_cmd as ReduceCommand

_BIAS_KINDS = (float32, float16, bfloat16)


def activation(
    op: Any,
    data: Any,
    *,
    bias: Any = None,
    scale: Any = 1.0,
    reduce_op: Any = None,
    reduce_res: Any = None,
    reduce_cmd: ReduceCommand = ReduceCommand.idle,
    mask: Any = None,
    dtype: Any = None,
    buffer: MemoryRegion = MemoryRegion.sbuf,
    **kwargs: Any,
) -> Tensor:
    """``op(data * scale + bias)`` on the Scalar engine, in float32.

    Args:
        bias: one float32, float16 or bfloat16 for each partition, or a number.
        scale: a number, or one float32 for each partition.
        reduce_op, reduce_res, reduce_cmd: what is added up beside, and the column that gets it.
        buffer: where the result is.
    """
    name = "activation"
    hints_only(f"nisa.{name}", kwargs)
    reducer = None if reduce_op is None else operation(reduce_op, "reduce_op")
    own = operation(op, "op")

    def issue(made: NkiTensor, x: NkiTensor, b: Any, s: Any, r: NkiTensor | None) -> None:
        nisa.activation(
            dst=made, op=own, data=x, bias=b, scale=s, reduce_op=reducer, reduce_res=r, reduce_cmd=reduce_cmd
        )

    return _activated(name, issue, data, bias, scale, reduce_res, mask, dtype, buffer)


def activation_reduce(
    op: Any,
    data: Any,
    *,
    reduce_op: Any,
    reduce_res: Any,
    bias: Any = None,
    scale: Any = 1.0,
    mask: Any = None,
    dtype: Any = None,
    **kwargs: Any,
) -> Tensor:
    """``op(data * scale + bias)``, and its sum over the free dimensions in `reduce_res`."""
    name = "activation_reduce"
    hints_only(f"nisa.{name}", kwargs)
    own, reducer = operation(op, "op"), operation(reduce_op, "reduce_op")

    def issue(made: NkiTensor, x: NkiTensor, b: Any, s: Any, r: NkiTensor | None) -> None:
        assert r is not None, "activation_reduce has a result"
        nisa.activation_reduce(dst=made, op=own, data=x, reduce_op=reducer, reduce_res=r, bias=b, scale=s)

    if reduce_res is None:
        raise refused("argument", f"'reduce_res' of '{name}' is None", "pass a column: reduce_res=tile[:, 0]")
    return _activated(name, issue, data, bias, scale, reduce_res, mask, dtype, MemoryRegion.sbuf)


def _activated(
    name: str,
    issue: Any,
    data: Any,
    bias: Any,
    scale: Any,
    reduce_res: Any,
    mask: Any,
    dtype: Any,
    buffer: MemoryRegion,
) -> Tensor:
    (source,) = tiles(name, data=data)
    b, s = _bias(name, source, bias), _scale(name, source, scale)
    kind = kind_of(dtype, source.dtype)
    results = reduced_column(name, [source, b, s], reduce_res, mask)

    def compute(x: NkiTensor, column: Any, factor: Any) -> NkiTensor:
        made = ndarray(x.shape, kind, buffer)
        issue(made, x, _column(column, x), factor, results)
        return made

    return elementwise(name, [source, b, s], mask, compute, explicit=dtype is not None)


def reduced_column(name: str, operands: Sequence[Any], reduce_res: Any, mask: Any) -> NkiTensor | None:
    """The rows of the column of a reduction that the instruction computes.

    Args:
        operands: the tile that is reduced, and what else the instruction reads.
    """
    if reduce_res is None:
        return None
    source = operands[0]
    (result,) = columns(name, source, reduce_res=reduce_res)
    if is_number(result):
        raise refused("argument", f"'reduce_res' of '{name}' is {result}", "pass a column: reduce_res=tile[:, 0]")
    _, region = common_region(name, operands, mask)
    if region.rest and not region.empty:
        raise refused(
            "unsupported_expression_in_mask",
            f"the mask of '{name}' joins two axes, and the instruction reduces",
            "reduce in an instruction of its own, of which a mask leaves a rectangular part",
        )
    if region.empty:
        return None
    found: NkiTensor = result.elements(part_of(region.box, result, source.shape))
    return found


def _column(value: Any, like: NkiTensor) -> Any:
    """A bias as the engine takes it: a number stands in a column."""
    return filled_tile((like.shape[0], 1), float32, value) if is_number(value) and value else value


def _bias(name: str, source: Tensor, bias: Any) -> Any:
    if (isinstance(bias, Tensor) and bias.dtype not in _BIAS_KINDS) or not (
        bias is None or is_number(bias) or isinstance(bias, Tensor)
    ):
        raise refused(
            "activation_bias_invalid_type",
            f"bias of '{name}' is {_text(bias)}",
            "load it as float32, float16 or bfloat16, one for each partition",
            rule="a bias is a vector of float32, float16 or bfloat16",
        )
    (found,) = columns(name, source, bias=bias)
    return found


def _scale(name: str, source: Tensor, scale: Any) -> Any:
    if is_number(scale):
        return float(scale)
    if isinstance(scale, Tensor) and scale.dtype != float32:
        raise refused(
            "activation_scale_invalid_type",
            f"scale of '{name}' is {scale.describe()}",
            "pass a number, or a float32 tile with one element for each partition",
            rule="a scale in a tile is float32",
        )
    if not isinstance(scale, Tensor) or any(size != 1 for size in scale.shape[1:]):
        raise refused(
            "activation_scale_scalar_or_vector",
            f"scale of '{name}' is {_text(scale)}",
            "pass a number, or one column: scale=tile[:, 0]",
            rule="a scale is a scalar, or a vector of one element for each partition",
        )
    (found,) = columns(name, source, scale=scale)
    return found


def _text(value: Any) -> str:
    return value.describe() if isinstance(value, Tensor) else shown(value)
