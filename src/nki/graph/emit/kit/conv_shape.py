"""What a convolution says, in numbers: dimensions, windows, and the groups that it falls into."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from nki.graph.errors import unsupported
from nki.graph.ir import Op

MOST_POOLED, _MOST_CONVOLVED = 4, 3
"""Spatial dimensions of pooling and of convolutions: an access has four free dimensions, images are one."""


def refuse_dims(op: Op, count: int, most: int) -> None:
    """Raises GraphError for windows along more dimensions than an access has (``graph.unsupported``)."""
    if count > most:
        raise unsupported(
            op, f"its windows go along {count} dimensions, of at most {most}", "take the windows in several steps"
        )


@dataclass(frozen=True, slots=True)
class Window:
    """One spatial dimension of a convolution or a pooling.

    Attributes:
        size: of the input.
        taps: elements of the window.
        out: of the result.
        stride: from one window to the next.
        low, high: padding, which may be negative.
        spread: step between input elements (lhs or base dilation).
        dilation: step between taps.
        reverse: whether the taps are counted backwards.
    """

    size: int
    taps: int
    out: int
    stride: int = 1
    low: int = 0
    high: int = 0
    spread: int = 1
    dilation: int = 1
    reverse: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether the input is used as it is, without padding or gaps."""
        return self.low == 0 and self.high <= 0 and self.spread == 1

    def at(self, tap: int) -> int:
        """Position of a tap in the window."""
        return (self.taps - 1 - tap if self.reverse else tap) * self.dilation

    def reach(self, outs: int) -> int:
        """Padded positions that so many neighbouring windows cover."""
        return (outs - 1) * self.stride + (self.taps - 1) * self.dilation + 1

    def inside(self, start: int, length: int) -> tuple[int, int, int]:
        """(first, count, position) of the input elements among padded positions from `start`, seen from there."""
        first = max(0, -((self.low - start) // self.spread))
        last = min(self.size - 1, (start + length - 1 - self.low) // self.spread)
        return first, max(0, last - first + 1), self.low + first * self.spread - start


@dataclass(frozen=True, slots=True)
class Side:
    """Where a tensor has its dimensions: the two that are no windows, and the spatial ones."""

    first: int
    second: int
    spatial: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ConvGroup:
    """One group of a convolution: where its batch, input features and output features begin."""

    batch: int
    feature: int
    out: int


@dataclass(frozen=True, slots=True)
class ConvShape:
    """A convolution.

    Attributes:
        input, kernel, output: dimensions; (batch, feature), (input feature, output feature), (batch, feature).
        batch: of the result.
        features: input features in a group.
        outs: output features in a group.
        shares: the groups.
        by_feature: whether the groups divide the features, not the batch.
    """

    input: Side
    kernel: Side
    output: Side
    windows: tuple[Window, ...]
    batch: int
    features: int
    outs: int
    shares: tuple[ConvGroup, ...]
    by_feature: bool

    @property
    def taps(self) -> int:
        """Elements of the kernel for each pair of features."""
        return prod(window.taps for window in self.windows)


def conv_shape(op: Op) -> ConvShape:
    """The convolution that an operation is.

    Raises:
        GraphError: too many spatial dimensions (``graph.unsupported``).
    """
    refuse_dims(op, len(op.attributes["input_spatial_dimensions"]), _MOST_CONVOLVED)
    a = op.attributes
    image, kernel, result = (value.type.shape for value in (*op.operands[:2], op.results[0]))
    sides = (
        Side(a["input_batch_dimension"], a["input_feature_dimension"], tuple(a["input_spatial_dimensions"])),
        Side(
            a["kernel_input_feature_dimension"],
            a["kernel_output_feature_dimension"],
            tuple(a["kernel_spatial_dimensions"]),
        ),
        Side(a["output_batch_dimension"], a["output_feature_dimension"], tuple(a["output_spatial_dimensions"])),
    )
    by_feature, by_batch = int(a.get("feature_group_count", 1)), int(a.get("batch_group_count", 1))
    groups = max(by_feature, by_batch)
    batch, features, outs = result[sides[2].first], kernel[sides[1].first], kernel[sides[1].second] // groups
    shares = tuple(
        ConvGroup(0, g * features, g * outs) if by_feature > 1 else ConvGroup(g * batch, 0, g * outs)
        for g in range(groups)
    )
    windows = _windows(a, image, kernel, result, sides)
    return ConvShape(
        input=sides[0],
        kernel=sides[1],
        output=sides[2],
        windows=windows,
        batch=batch,
        features=features,
        outs=outs,
        shares=shares,
        by_feature=by_feature > 1,
    )


def _windows(
    a: Any, image: Sequence[int], kernel: Sequence[int], result: Sequence[int], sides: Sequence[Side]
) -> tuple[Window, ...]:
    rank = len(sides[0].spatial)
    ones, zeros = (1,) * rank, ((0, 0),) * rank
    padding = a.get("padding") or zeros
    return tuple(
        Window(
            size=image[sides[0].spatial[d]],
            taps=kernel[sides[1].spatial[d]],
            out=result[sides[2].spatial[d]],
            stride=int((a.get("window_strides") or ones)[d]),
            low=int(padding[d][0]),
            high=int(padding[d][1]),
            spread=int((a.get("lhs_dilation") or ones)[d]),
            dilation=int((a.get("rhs_dilation") or ones)[d]),
            reverse=bool((a.get("window_reversal") or (False,) * rank)[d]),
        )
        for d in range(rank)
    )
