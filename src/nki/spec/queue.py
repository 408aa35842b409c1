"""Queues: where scheduled instructions wait for their turn, one for each engine's sequencer and several for DMA."""

from __future__ import annotations

from nki.spec.engine import engine as Engine
from nki.spec.program import Issued
from nki.target.model import Target

SEQUENCERS = ("tensor", "vector", "scalar", "gpsimd", "sync")
"""Queues that belong to an engine, by its name."""

DMA = "dma"
"""Queues of transfers are called dma0, dma1, ..."""

_TRIGGERS = (Engine.sync, Engine.scalar)


def by_dma(issued: Issued) -> bool:
    """Whether a DMA queue runs it: a transfer, also one that an engine's sequencer triggers.

    Naming an engine in a transfer chooses who writes its descriptors, and not who moves the data
    (nki/deep-dives/nki-dge.rst).
    """
    return issued.engine is Engine.dma or (issued.engine in _TRIGGERS and Engine.dma in issued.instruction.engines)


def queue_class(issued: Issued) -> str:
    """The name of the engine's queue, or "dma" for any DMA queue."""
    return DMA if by_dma(issued) else issued.engine.name


def dma_queues(target: Target) -> tuple[str, ...]:
    """Names of the DMA queues."""
    return tuple(f"{DMA}{number}" for number in range(target.dma.engines))


def fits(issued: Issued, queue: str, target: Target) -> bool:
    """Whether a queue can run an instruction."""
    return queue in dma_queues(target) if by_dma(issued) else queue == issued.engine.name
