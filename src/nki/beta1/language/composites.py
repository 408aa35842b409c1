"""Functions that take several instructions: where, softmax, rms_norm, dropout, random numbers."""

from __future__ import annotations

from typing import Any

import nki.language as nl
from nki.beta1.errors import refused
from nki.beta1.language.arguments import hints_only, kind_of, promoted
from nki.beta1.language.memory import sizes_of
from nki.beta1.tensors.index import broadcast_shapes
from nki.beta1.tensors.mask import Mask, region_of
from nki.beta1.tensors.tensor import Tensor
from nki.beta1.tracing.assignment import assign
from nki.beta1.tracing.elementwise import elementwise
from nki.beta1.tracing.operands import common_region, on_chip, tile
from nki.beta1.tracing.results import placed, undefined
from nki.beta1.tracing.session import current
from nki.core.dtypes import DType, int32
from nki.language.arguments import is_number
from nki.language.memory import filled_tile, new_tile


def where(condition: Any, x: Any, y: Any, *, dtype: Any = None, mask: Any = None, **kwargs: Any) -> Tensor:
    """`x` where the condition is not 0, else `y`; all three broadcast, and `x`, `y` may be numbers.

    Args:
        condition: a tile, or a comparison of index expressions.
    """
    hints_only("nl.where", kwargs)
    kind = kind_of(dtype, promoted(x, y))
    if isinstance(condition, Mask):
        return _where_mask(condition, x, y, kind, mask)
    return elementwise(
        "nl.where",
        [condition, x, y],
        mask,
        lambda chosen, one, other: nl.where(chosen, one, other, dtype=kind),
        names=("condition", "x", "y"),
        explicit=dtype is not None,
    )


def _where_mask(condition: Mask, x: Any, y: Any, kind: DType, mask: Any) -> Tensor:
    """`y`, and `x` on top of it where a comparison of index expressions is true."""
    tiles = [each.shape for each in (x, y) if isinstance(each, Tensor)]
    shape = broadcast_shapes(*[each.shape for each in condition.comparisons], *tiles)
    made = Tensor.of(new_tile(shape, kind))
    part = Tensor(made.memory, made.access, mask)
    assign(part, y)
    assign(part[condition], Tensor.of(filled_tile(shape, kind, x)) if is_number(x) else x)
    return part


def softmax(
    x: Any, axis: Any, *, dtype: Any = None, compute_dtype: Any = None, mask: Any = None, **kwargs: Any
) -> Tensor:
    """``exp(x - max) / sum(exp(x - max))`` over the last free dimensions; sums are float32."""
    hints_only("nl.softmax", kwargs)
    kind = kind_of(dtype if dtype is not None else compute_dtype, on_chip(x, "x", "softmax").dtype)
    return _rows("nl.softmax", x, mask, lambda value: nl.softmax(value, axis, dtype=kind), dtype)


def rms_norm(
    x: Any,
    w: Any,
    axis: Any,
    n: Any,
    epsilon: float = 1e-6,
    *,
    dtype: Any = None,
    compute_dtype: Any = None,
    mask: Any = None,
    **kwargs: Any,
) -> Tensor:
    """``x / sqrt(sum(x * x) / n + epsilon) * w`` over the last free dimensions.

    `dtype` and `compute_dtype` mean the same: the dtype of the result and of what is in between.
    """
    hints_only("nl.rms_norm", kwargs)
    kind = kind_of(dtype if dtype is not None else compute_dtype, on_chip(x, "x", "rms_norm").dtype)
    weight = tile(w, "w", "nl.rms_norm")
    return _rows(
        "nl.rms_norm",
        x,
        mask,
        lambda value: nl.rms_norm(value, weight, axis, n, epsilon, dtype=kind, compute_dtype=kind),
        dtype,
    )


def dropout(x: Any, rate: Any, *, dtype: Any = None, mask: Any = None, **kwargs: Any) -> Tensor:
    """`x` with elements replaced by 0 with probability `rate`, a number or a tile of one element per partition."""
    hints_only("nl.dropout", kwargs)
    kind = kind_of(dtype, on_chip(x, "x", "dropout").dtype)
    return elementwise(
        "nl.dropout",
        [x, rate],
        mask,
        lambda value, chance: nl.dropout(value, chance, dtype=kind),
        names=("x", "rate"),
        explicit=dtype is not None,
    )


def rand(shape: Any, dtype: Any = None, **kwargs: Any) -> Tensor:
    """A new SBUF tile of numbers that are uniform in [0, 1); float32 unless `dtype` says otherwise."""
    hints_only("nl.rand", kwargs)
    sizes, _ = sizes_of(shape)
    return placed("nl.rand", lambda: nl.rand(sizes, kind_of(dtype, nl.float32)), explicit=dtype is not None)


def random_seed(seed: Any, *, mask: Any = None, **kwargs: Any) -> None:
    """Start the sequence of `rand` and `dropout` anew.

    Args:
        seed: an int, or a tile of one element.
        mask: a condition of loop variables and program ids: whether to do so.
    """
    hints_only("nl.random_seed", kwargs)
    current("nl.random_seed")
    if region_of(mask, (1, 1)).empty:
        return
    if is_number(seed):
        nl.random_seed(filled_tile((1, 1), int32, int(seed)))
        return
    nl.random_seed(tile(seed, "seed", "nl.random_seed"))


def _rows(function: str, x: Any, mask: Any, compute: Any, dtype: Any) -> Tensor:
    """A function of whole rows, of what the mask leaves of them."""
    shape, region = common_region(function, [on_chip(x, "x", function)], mask)
    if region.empty:
        return undefined(function, [x], shape)
    if region.rest:
        raise refused(
            "unsupported_expression_in_mask",
            f"the mask of {function} depends on several axes at once",
            "choose with nl.where before, or call it for parts of the tile",
        )
    value = tile(x, "x", function, region.box)
    return placed(function, lambda: compute(value), shape, region, explicit=dtype is not None)
