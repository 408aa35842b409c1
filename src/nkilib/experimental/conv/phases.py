"""Which input a transposed convolution reads for which output: arithmetic on positions, without tensors.

Outputs of one dimension that leave the same remainder by the stride, a **phase**, read the same taps, and neighbours
among them read neighbours of the input. So each phase is a convolution with a stride of 1 and some of the taps.
"""

from __future__ import annotations

from dataclasses import dataclass

from nkilib.streaming import ceil_div


@dataclass(frozen=True, slots=True)
class Phase:
    """Outputs ``first + stride * j`` for j below `count`.

    Attributes:
        first: the remainder.
        count: how many there are.
        taps: of the filter, each with a shift: output j reads input ``j + shift``; outside of it there are zeros.
    """

    first: int
    count: int
    taps: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class TransposedAxis:
    """One spatial dimension.

    Attributes:
        size: of the input.
        taps: of the filter, in the order of a convolution: the last one goes with the first output of an input.
        stride, dilation: steps between what inputs write to, and between taps.
        padding: outputs that are left out at both ends.
    """

    size: int
    taps: int
    stride: int
    padding: int
    dilation: int

    @property
    def outputs(self) -> int:
        """How many there are."""
        return (self.size - 1) * self.stride + self.dilation * (self.taps - 1) - 2 * self.padding + 1

    @property
    def phases(self) -> list[Phase]:
        """All that have an output."""
        return [self._phase(first) for first in range(min(self.stride, self.outputs))]

    def _phase(self, first: int) -> Phase:
        back = self.dilation * (self.taps - 1) - self.padding
        places = [(tap, first + tap * self.dilation - back) for tap in range(self.taps)]
        taps = tuple((tap, place // self.stride) for tap, place in places if place % self.stride == 0)
        return Phase(first, ceil_div(self.outputs - first, self.stride), taps)

    @property
    def steps(self) -> int:
        """How many outputs the longest phase has."""
        return ceil_div(self.outputs, self.stride)

    def reach(self, steps: slice) -> slice:
        """Positions of the input, zeros around it included, that these outputs of all phases read."""
        shifts = [shift for phase in self.phases for _, shift in phase.taps] or [0]
        return slice(steps.start + min(shifts), steps.stop + max(shifts))

    def written(self, steps: slice) -> slice:
        """These outputs of all phases, which follow each other."""
        return slice(steps.start * self.stride, min(steps.stop * self.stride, self.outputs))
