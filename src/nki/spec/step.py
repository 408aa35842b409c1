"""What an instruction costs: the machine steps that it occupies units with, and where the formula comes from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from nki.spec.engine import engine as Engine
from nki.target.model import Target

UNITS = ("tensor.load", "tensor", "vector", "scalar", "gpsimd", "sync", "dma")
"""Units that steps occupy: an engine by its name; the Tensor engine loads weights beside its multiplications."""


class Step(NamedTuple):
    """A unit is busy for a time.

    Attributes:
        name: for people, as profilers call it: "MultiplyMoving".
        unit: one of `UNITS`.
        ns: how long the unit is busy; the next instruction of that unit can start afterwards.
        latency: ns from then until the result is visible to another engine.
        nbytes: payload of a DMA transfer, or 0.
        descriptors: elements that the DMA moves one by one, each contiguous on both sides, or 0.
        occupied: part of the time of a DMA transfer for which all DMA engines of the core would have to work for it;
            0 if only its bytes count.
        skew: ns of a DMA transfer that it does not take right after another one of its queue, whose engines go on each;
            negative if it has to wait longer for their signals than for them to begin.
    """

    name: str
    unit: str
    ns: float
    latency: float = 0.0
    nbytes: int = 0
    descriptors: int = 0
    occupied: float = 0.0
    skew: float = 0.0

    def working(self, aggregate: float) -> float:
        """ns for which all DMA engines of the core work for a transfer, which together move so many bytes per ns."""
        return self.occupied * self.ns if self.occupied else self.nbytes / aggregate


Formula = Callable[[Any, Target, Engine], tuple[Step, ...]]


@dataclass(frozen=True, slots=True)
class Cost:
    """The steps of an instruction as a function of its arguments, the target and the engine that runs it.

    Attributes:
        formula: steps in the order in which they happen.
        source: the document that states the formula; "" if none does.
        estimate: why the formula is an estimate; "" if it is documented.
    """

    formula: Formula
    source: str
    estimate: str = ""
