"""The rule of the advice on what the kernel stores to device memory only to load it again."""

from __future__ import annotations

from collections import defaultdict

from nki.core.tensor import Buffer
from nki.profiling.advice.ranking import Advice, Evidence, amount, duration, listed, where
from nki.profiling.facts.change import MERGED, UNUSED, Change
from nki.profiling.facts.timed_core import is_transfer


def round_trips(evidence: Evidence) -> Advice | None:
    """Tensors in device memory that the kernel writes and reads again."""
    core = evidence.core
    stores, loads, tensors = _trips(evidence)
    if not tensors:
        return None
    outputs = {view.buffer.id for view in core.program.outputs}
    first = max(tensors.values(), key=lambda tensor: sum(evidence.facts[at].nbytes for at in loads[tensor.id]))
    gone = {at: MERGED for number in tensors for at in loads[number]}
    gone |= {at: UNUSED for number in tensors if number not in outputs for at in stores[number]}
    nbytes = sum(evidence.facts[at].nbytes * evidence.runs(at) for at in gone)
    costs = {at: evidence.ns(at) + evidence.starting(at) for at in gone}
    be = "is" if len(tensors) == 1 else "are"
    kept = " (it is a result, and has to be stored)" if first.id in outputs else ""
    return Advice(
        "round-trips",
        "dma",
        f"{_names(tensors)} {be} stored in device memory and loaded again: {amount(nbytes)}, which takes "
        f"{duration(nbytes / core.target.dma.aggregate_gbps)} at the full rate{where(evidence, costs)}",
        f"use the tiles of {first.name} while they are in SBUF{kept}: do what needs them right after they were made, "
        "in the same loop; where they are loaded in another layout, nisa.nc_transpose turns them on chip",
        evidence.gain(Change(gone=gone)),
        costs,
    )


def _trips(evidence: Evidence) -> tuple[dict[int, list[int]], dict[int, list[int]], dict[int, Buffer]]:
    """Stores and loads by tensor, of those that only this core writes, whole transfers at places that are known."""
    core = evidence.core
    stores: dict[int, list[int]] = defaultdict(list)
    loads: dict[int, list[int]] = defaultdict(list)
    bad = {buffer.id for buffer in core.program.inputs}
    tensors: dict[int, Buffer] = {}
    for at, issued in enumerate(core.items):
        operands = issued.instruction.operands
        device = [(name, view) for name, view in issued.views() if view.buffer.region.is_hbm]
        for name, view in device:
            plain = is_transfer(core, at) and len(device) == 1 and view.dynamic is None and core.ran[at]
            shared = core.program.cores > 1 and view.buffer.region.value == "shared_hbm"
            if not plain or shared or (operands[name].reads and not stores[view.buffer.id]):
                bad.add(view.buffer.id)
            tensors[view.buffer.id] = view.buffer
            (loads if operands[name].reads else stores)[view.buffer.id].append(at)
    return stores, loads, {number: tensors[number] for number in loads if number not in bad}


def _names(tensors: dict[int, Buffer]) -> str:
    return listed([f"{buffer.name} ({amount(buffer.nbytes)}{_line(buffer)})" for buffer in tensors.values()])


def _line(buffer: Buffer) -> str:
    frame = buffer.location.frame
    return f", line {frame.line}" if frame is not None else ""
