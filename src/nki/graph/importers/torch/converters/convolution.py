"""ATen's convolution and its derivative, in any number of spatial dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nki.graph.importers.torch.builder import Builder
from nki.graph.importers.torch.table import Call, converts, wide
from nki.graph.ir import TensorType, Value

Sizes = Sequence[int]
Pairs = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Sides:
    """Which dimensions are which: of data, kernel and result, batch (or input feature) and feature (or output one)."""

    data: tuple[int, int] = (0, 1)
    kernel: tuple[int, int] = (1, 0)
    result: tuple[int, int] = (0, 1)


@dataclass(frozen=True, slots=True)
class Moves:
    """How the kernel goes over the data: `spread` is the data's dilation, `dilation` the kernel's."""

    stride: Sizes
    padding: Pairs
    spread: Sizes
    dilation: Sizes
    groups: int = 1
    batches: int = 1


def product(b: Builder, data: Value, kernel: Value, moves: Moves, sides: Sides) -> Value:
    """A convolution of StableHLO."""
    spatial = tuple(range(2, len(data.type.shape)))
    shape = [0] * len(data.type.shape)
    shape[sides.result[0]] = data.type.shape[sides.data[0]] // moves.batches
    shape[sides.result[1]] = kernel.type.shape[sides.kernel[1]]
    for i, dim in enumerate(spatial):
        around = (data.type.shape[dim] - 1) * moves.spread[i] + 1 + sum(moves.padding[i])
        shape[dim] = (around - (kernel.type.shape[dim] - 1) * moves.dilation[i] - 1) // moves.stride[i] + 1
    return b.one(
        "convolution",
        (data, kernel),
        TensorType(tuple(shape), data.type.dtype),
        window_strides=tuple(moves.stride),
        padding=tuple(moves.padding),
        lhs_dilation=tuple(moves.spread),
        rhs_dilation=tuple(moves.dilation),
        window_reversal=(False,) * len(spatial),
        input_batch_dimension=sides.data[0],
        input_feature_dimension=sides.data[1],
        input_spatial_dimensions=spatial,
        kernel_input_feature_dimension=sides.kernel[0],
        kernel_output_feature_dimension=sides.kernel[1],
        kernel_spatial_dimensions=spatial,
        output_batch_dimension=sides.result[0],
        output_feature_dimension=sides.result[1],
        output_spatial_dimensions=spatial,
        feature_group_count=moves.groups,
        batch_group_count=moves.batches,
    )


def forward(b: Builder, x: Value, weight: Value, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int) -> Value:
    """``weight[out, in / groups, ...]`` over ``x[batch, in, ...]``."""
    ones = (1,) * len(stride)
    return product(b, x, weight, Moves(stride, [(p, p) for p in padding], ones, dilation, groups), Sides())


def transposed(
    b: Builder, x: Value, weight: Value, stride: Sizes, padding: Sizes, dilation: Sizes, sizes: Sizes, groups: int
) -> Value:
    """``weight[in, out / groups, ...]`` spread over ``x[batch, in, ...]``: what `forward` does to its data, backwards.

    Args:
        sizes: of the result's spatial dimensions.
    """
    spatial = range(2, len(x.type.shape))
    if groups > 1:  # from [groups * in, out] to [in, groups * out]
        count, rest, window = weight.type.shape[0] // groups, weight.type.shape[1], weight.type.shape[2:]
        split = b.transpose(b.reshape(weight, (groups, count, rest, *window)), (1, 0, 2, *range(3, 3 + len(window))))
        weight = b.reshape(split, (count, groups * rest, *window))
    pairs = []
    for i, dim in enumerate(spatial):
        reach = (weight.type.shape[dim] - 1) * dilation[i]
        low = reach - padding[i]
        pairs.append((low, sizes[i] + reach - low - ((x.type.shape[dim] - 1) * stride[i] + 1)))
    ones = (1,) * len(stride)
    turned = b.reverse(weight, [dim for dim in spatial if weight.type.shape[dim] > 1])
    return product(b, x, turned, Moves(ones, pairs, stride, dilation, groups), Sides(kernel=(0, 1)))


def of_kernel(
    b: Builder, x: Value, gradient: Value, window: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int
) -> Value:
    """The derivative of `forward` with respect to its kernel: the gradient goes over the data."""
    pairs = []
    for i, size in enumerate(window):
        reach = (gradient.type.shape[2 + i] - 1) * stride[i] + 1
        pairs.append((padding[i], (size - 1) * dilation[i] + reach - x.type.shape[2 + i] - padding[i]))
    moves = Moves(dilation, pairs, (1,) * len(stride), stride, 1, groups)
    return product(b, x, gradient, moves, Sides((1, 0), (0, 1), (1, 0)))


def _each(x: Value, *sizes: Sizes) -> list[Sizes]:
    """Sizes with one number for each spatial dimension; ATen lets one number stand for all of them."""
    rank = len(x.type.shape) - 2
    return [tuple(size) * rank if len(size) == 1 else size for size in sizes]


@converts("convolution")
def _convolution(  # noqa: PLR0913  the parameters of the operator
    b: Builder,
    call: Call,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    is_transposed: bool,
    output_padding: Sizes,
    groups: int,
) -> Value:
    stride, padding, dilation = _each(x, stride, padding, dilation)
    if is_transposed:
        made = transposed(b, x, weight, stride, padding, dilation, call.type.shape[2:], groups)
    else:
        made = forward(b, x, weight, stride, padding, dilation, groups)
    if bias is None:
        return made
    return b.add(made, b.reshape(bias, (bias.type.size, *(1 for _ in stride))))


@converts("convolution_backward")
def _convolution_backward(  # noqa: PLR0913  the parameters of the operator
    b: Builder,
    call: Call,
    gradient: Value,
    x: Value,
    weight: Value,
    bias_sizes: Sizes | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    is_transposed: bool,
    output_padding: Sizes,
    groups: int,
    output_mask: Sequence[bool],
) -> list[Value | None]:
    of_data = of_weight = of_bias = None
    window = weight.type.shape[2:]
    stride, padding, dilation = _each(x, stride, padding, dilation)
    if output_mask[0] and 0 in call.used:
        if is_transposed:
            of_data = forward(b, gradient, weight, stride, padding, dilation, groups)
        else:
            of_data = transposed(b, gradient, weight, stride, padding, dilation, x.type.shape[2:], groups)
    if output_mask[1] and 1 in call.used:
        pair = (gradient, x) if is_transposed else (x, gradient)
        of_weight = of_kernel(b, *pair, window, stride, padding, dilation, groups)
    if output_mask[2] and 2 in call.used:
        dims = [0, *range(2, len(gradient.type.shape))]
        of_bias = b.convert(b.reduce("add", wide(b, gradient), dims), gradient.type.dtype)
    return [of_data, of_weight, of_bias]
