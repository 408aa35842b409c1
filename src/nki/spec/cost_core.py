"""What sequencers and meetings of cores cost."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from nki.spec.engine import engine as Engine
from nki.spec.step import Cost, Step
from nki.target.model import Target

_SEQUENCER = (
    "no document gives a cost; the least interval of an engine for the instruction, the overhead of an access for "
    "SBUF, and for device memory the fixed latency of a DMA"
)
_MEETING = "no document gives a cost; the least interval of the engine, and a semaphore to the other core"


def _least(target: Target, engine: Engine) -> float:
    return target.issue.min_ii_cycles / target.engines[engine.name].ghz


def sequences(name: str, memory: str = "") -> Cost:
    """An instruction on registers; `memory` is the operand that it reads or writes, if there is one."""
    operand = attrgetter(memory) if memory else None

    def formula(a: Any, target: Target, engine: Engine) -> tuple[Step, ...]:
        latency = 0.0
        if operand is not None:
            on_chip = operand(a).buffer.on_chip
            access = target.issue.access_overhead_cycles / target.engines[engine.name].ghz
            latency = access if on_chip else target.dma.fixed_overhead_ns
        return (Step(name, engine.name, _least(target, engine), latency),)

    return Cost(formula, "", _SEQUENCER)


def meets(name: str) -> Cost:
    """A wait for the other core, without the time that it is late."""

    def formula(a: Any, target: Target, engine: Engine) -> tuple[Step, ...]:
        return (Step(name, engine.name, _least(target, engine), target.timing["semaphore_ns"]),)

    return Cost(formula, "", _MEETING)
