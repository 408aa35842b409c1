"""What the timeline knows of a target beside the steps of instructions: units, ports, and the times between them.

* An instruction that waits for another queue starts ``timing.semaphore_ns`` after the result is visible. What a DMA
  takes to complete (``timing.dma_completion_ns``) is measured up to the start of the waiting instruction and includes
  it (nki/img/overviews/nki-dma-intro-3.png).
* Vector and GpSimd take turns on SBUF, Vector and Scalar on PSUM, unless the target has the features for parallel
  access (trainium_inferentia2_arch.rst, Data Movement; trainium2_arch.rst). With the feature, Vector and Scalar still
  take turns on a PSUM bank that both use.
* An instruction of Vector or Scalar that reads what the one before it in the same queue wrote waits for a signal like
  an instruction of another queue, because its read starts when the result is in memory (nki_perf_guide.rst: 189 ns
  between starts of dependent activations that last 159 ns). Other engines see their own results when they complete.
* A barrier of all queues, as around the trips of a device loop, is a signal to one sequencer, a branch there, and a
  signal back: an estimate, no document times it.
"""

from __future__ import annotations

from typing import NamedTuple

from nki.spec.queue import SEQUENCERS, dma_queues
from nki.spec.step import UNITS
from nki.target.model import Target

LOAD, TENSOR, VECTOR, SCALAR, GPSIMD, SYNC, DMA = range(len(UNITS))
"""Units by number, in the order of `UNITS`."""

UNIT = {name: number for number, name in enumerate(UNITS)}

SBUF_PORT, PSUM_PORT, FIRST_BANK = 0, 1, 2
"""Ports that engines share, by number; one for every PSUM bank follows."""


class Hardware(NamedTuple):
    """Numbers of a target; times in ns.

    Attributes:
        queues: names of all queues; a queue is its position here.
        semaphore: from a visible result to the start of an instruction that waits for it.
        barrier: for all queues to meet.
        table_load: for another activation table.
        chained: for each unit, from a visible result to the start of the next instruction of its queue that reads it.
        background_load: whether the next weights load while the engine multiplies.
        aggregate: bytes per ns that the DMA engines of the core move together.
        sbuf_shared: whether Vector and GpSimd take turns on SBUF.
        psum_shared: whether Vector and Scalar take turns on all of PSUM.
        banks: number of PSUM banks.
        bank_bytes: their size per partition.
    """

    queues: tuple[str, ...]
    semaphore: float
    barrier: float
    table_load: float
    chained: tuple[float, ...]
    background_load: bool
    aggregate: float
    sbuf_shared: bool
    psum_shared: bool
    banks: int
    bank_bytes: int


def hardware_of(target: Target) -> Hardware:
    """The numbers of a target that the timeline needs."""
    timing, access = target.timing, target.access
    chained = [0.0] * len(UNITS)
    chained[VECTOR] = chained[SCALAR] = timing["semaphore_ns"]
    return Hardware(
        queues=(*SEQUENCERS, *dma_queues(target)),
        semaphore=timing["semaphore_ns"],
        barrier=2 * timing["semaphore_ns"] + target.issue.min_ii_cycles / target.engines.sync.ghz,
        table_load=timing["activation_table_load_ns"],
        chained=tuple(chained),
        background_load=target.has("background_load"),
        aggregate=target.dma.aggregate_gbps,
        sbuf_shared=not access.parallel_sbuf_vector_gpsimd,
        psum_shared=not access.parallel_psum_vector_scalar,
        banks=target.psum.banks,
        bank_bytes=target.psum.bank_bytes,
    )
