"""Which input a convolution reads for which output: arithmetic on positions, without tensors."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Axis:
    """One spatial dimension.

    Attributes:
        size: of the input.
        taps: of the filter.
        stride, dilation: steps between outputs, and between taps.
        before, after: zeros around the input.
    """

    size: int
    taps: int
    stride: int = 1
    before: int = 0
    after: int = 0
    dilation: int = 1

    @property
    def outputs(self) -> int:
        """How many there are."""
        return (self.size + self.before + self.after - self.dilation * (self.taps - 1) - 1) // self.stride + 1

    def position(self, output: int, tap: int) -> int:
        """Of the input; outside of it there are zeros."""
        return output * self.stride + tap * self.dilation - self.before

    def inside(self, outputs: slice, tap: int) -> slice:
        """Those of the outputs for which a tap reads the input itself; it may be empty."""
        first = -(-(self.before - tap * self.dilation) // self.stride)
        last = (self.size - 1 + self.before - tap * self.dilation) // self.stride
        start = max(outputs.start, first)
        return slice(start, max(start, min(outputs.stop, last + 1)))

    def reach(self, outputs: slice) -> slice:
        """Positions from the first to the last that outputs read, zeros included."""
        return slice(self.position(outputs.start, 0), self.position(outputs.stop - 1, self.taps - 1) + 1)

    def reached(self, outputs: int) -> int:
        """How many positions outputs that follow each other read."""
        return (outputs - 1) * self.stride + (self.taps - 1) * self.dilation + 1


@dataclass(frozen=True, slots=True)
class Space:
    """Depth, height and width."""

    depth: Axis
    height: Axis
    width: Axis

    def taps(self) -> list[tuple[int, int, int]]:
        """All of them, in the order of the filter's rows."""
        return [
            (d, h, w) for d in range(self.depth.taps) for h in range(self.height.taps) for w in range(self.width.taps)
        ]

    @property
    def outputs(self) -> tuple[int, int, int]:
        """How many there are in each dimension."""
        return self.depth.outputs, self.height.outputs, self.width.outputs
