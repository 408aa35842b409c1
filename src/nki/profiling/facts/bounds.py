"""What no change of order could beat, and what the hardware could do at best with the same work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nki.profiling.facts.timed_core import CoreFacts, segments
from nki.profiling.facts.work import Facts
from nki.timing.bound import lower_bound


def bounds(core: CoreFacts, facts: list[Facts], trips: Mapping[int, float] | None = None) -> dict[str, float]:
    """ns by name.

    * ``unit NAME``: all work of a unit, one after the other; for dma the part of its engines that transfers use.
    * ``dependences``: no schedule of these instructions is faster (`nki.timing.bound`).
    * ``roofline compute``: floating-point operations of matmuls at the documented peak for their dtype.
    * ``roofline memory``: every byte of the inputs and results that the core touches, once, at the full DMA rate.
    * ``roofline``: the larger of these two.
    """
    found = {f"unit {unit}": ns for unit, ns in core.line.busy.items() if unit != "dma"}
    found["unit dma"] = sum(core.recipes[at].ns * core.recipes[at].demand * core.runs[at] for at in core.transfers())
    found["dependences"] = dependence_bound(core, core.needs, trips)
    compute, memory = _compute(core, facts), _compulsory(core) / core.target.dma.aggregate_gbps
    found["roofline compute"], found["roofline memory"] = compute, memory
    found["roofline"] = max(compute, memory)
    return {name: float(ns) for name, ns in found.items()}


def dependence_bound(core: CoreFacts, needs: Sequence[tuple[int, ...]], trips: Mapping[int, float] | None) -> float:
    """ns that no schedule beats if each instruction needs these earlier ones, by position in the walk."""
    by_segment = [
        [tuple(p - segment.first for p in needs[segment.first + at]) for at in range(len(segment.items))]
        for segment in segments(core.plan.body)
    ]
    return lower_bound(core.program, core.target, by_segment, trips)


def _compute(core: CoreFacts, facts: list[Facts]) -> float:
    """ns of all matmuls at the peak of their operands' width; TFLOPS are 1000 operations per ns."""
    peak, total = core.target.peak, 0.0
    for position, issued in enumerate(core.items):
        flops = facts[position].flops if "stationary" in issued.instruction.operands else 0.0
        if flops:
            size = issued.arguments.moving.dtype.itemsize
            rate = peak.tensor_fp32_tflops if size == 4 else peak.tensor_bf16_tflops
            if size == 1 and peak.tensor_fp8_tflops:
                rate = peak.tensor_fp8_tflops
            total += flops * core.runs[position] / (rate * 1000.0)
    return total


def _compulsory(core: CoreFacts) -> float:
    """Bytes of the tensors in HBM that come in and go out, each once; shared ones by the cores that share them."""
    touched: dict[int, int] = {}
    for position in core.transfers():
        for _, view in core.items[position].views():
            if view.buffer.region.is_hbm:
                touched[view.buffer.id] = view.buffer.nbytes
    ends = {b.id for b in core.program.inputs} | {view.buffer.id for view in core.program.outputs}
    return sum(nbytes for number, nbytes in touched.items() if number in ends) / core.program.cores
