"""A compiled kernel in time, and questions to it that profiles answer too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from nki.compiler import CompileConfig
from nki.core.collector import paused_collector
from nki.driver.launch import Launch, trace_only
from nki.options import Options
from nki.passes import pipeline
from nki.passes.context import Context
from nki.spec.program import Issued, Program
from nki.spec.step import Step
from nki.target.load import load_target
from nki.target.model import Target
from nki.timing.cost import steps_of
from nki.timing.timeline import Timeline, timeline

Array = tuple[tuple[int, ...], Any]


class Case(NamedTuple):
    """A kernel with arguments.

    Attributes:
        kernel: the undecorated function.
        target: that it is compiled for.
        arrays: shape and dtype of each.
        more: arguments after the arrays.
        times: how often the measured kernel does what this one does.
        lnc: cores that it is launched on; the first one is timed.
    """

    kernel: Callable[..., Any]
    target: str
    arrays: tuple[Array, ...]
    more: tuple[Any, ...] = ()
    times: float = 1.0
    lnc: int | None = None


def compiled(case: Case) -> Program:
    """The scheduled program of a case, of its first core."""
    target = load_target(case.target)
    arrays = [np.zeros(shape, dtype) for shape, dtype in case.arrays]
    with paused_collector():
        traced, *_ = trace_only(Launch(case.kernel, case.lnc), (*arrays, *case.more), {}, target, Options())
        (program,) = pipeline.compile_programs([traced.program], Context(target, config=CompileConfig())).programs
    return program


class Run:
    """A program in time on a target, which may have other coefficients than the one it was compiled for."""

    def __init__(self, program: Program, target: Target, times: float = 1.0) -> None:
        self.items: list[Issued] = list(program.body.walk())
        self.target, self.times = target, times
        self.line: Timeline = timeline(program, target)

    def every(self, name: str) -> list[int]:
        """Positions of all instructions of that name, in the order of their starts."""
        found = [p for p, item in enumerate(self.items) if item.instruction.label.rpartition(".")[2] == name]
        return sorted(found, key=lambda position: float(self.line.start[position]))

    def at(self, name: str, number: int = 0) -> int:
        """Position of one of them."""
        return self.every(name)[number]

    def steps(self, position: int) -> tuple[Step, ...]:
        """What an instruction costs."""
        return steps_of(self.items[position], self.target)

    def duration(self, position: int) -> float:
        """From the start of an instruction until its result is visible."""
        return float(self.line.visible[position] - self.line.start[position])

    def interval(self, name: str, number: int) -> float:
        """From the start of an instruction to that of the next one of its name."""
        here = self.every(name)
        return float(self.line.start[here[number + 1]] - self.line.start[here[number]])

    def working(self, position: int) -> float:
        """ns of work of a transfer, added up over all DMA engines."""
        step = self.steps(position)[-1]
        return step.occupied * step.ns * self.target.dma.engines

    @property
    def kernel_ns(self) -> float:
        """What the whole measured kernel takes, without its launch."""
        return self.line.makespan * self.times

    def active(self, names: Sequence[str], last: bool = False) -> float:
        """ns with at least one of these instructions between its start and its visible result.

        Args:
            last: count only the last step of each, which of a transfer is the data on its way.
        """
        line, spans = self.line, []
        for position in (position for name in names for position in self.every(name)):
            start = line.end[position] - self.steps(position)[-1].ns if last else line.start[position]
            spans.append((float(start), float(line.visible[position])))
        total, until = 0.0, 0.0
        for start, end in sorted(spans):
            total += max(0.0, end - max(start, until))
            until = max(until, end)
        return total
