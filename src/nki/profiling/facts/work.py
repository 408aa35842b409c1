"""What an instruction does, whenever it runs: bytes of each memory, operations, descriptors, operands in words."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

from nki.core.tensor import MemoryRegion, View
from nki.spec.engine import engine as Engine
from nki.spec.operator import Operator
from nki.spec.program import Issued
from nki.target.model import Target
from nki.timing.cost import Key, cost_of, signature

REGIONS = ("hbm", "sbuf", "psum")
_TRANSPOSE = "nc_transpose"


class Facts(NamedTuple):
    """What one run of an instruction reads, writes and computes.

    Attributes:
        reads, writes: bytes of HBM, SBUF and PSUM.
        flops: operations on numbers; a multiply-add is two.
        transpose_flops: of a matmul or nc_transpose that only moves.
        nbytes: payload of transfers.
        descriptors: pieces that the DMA moves one by one.
        elements: per partition, of the largest operand on chip.
        partitions: of the largest operand on chip.
    """

    reads: tuple[int, int, int]
    writes: tuple[int, int, int]
    flops: float
    transpose_flops: float
    nbytes: int
    descriptors: int
    elements: int
    partitions: int


class Facter:
    """Facts on one target, remembered for equal shapes."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._known: dict[Key, Facts] = {}

    def of(self, issued: Issued) -> Facts:
        """The facts of an instruction."""
        key = signature(issued)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = _facts(issued, self._target)
        return found


def region_of(view: View) -> str:
    """hbm, sbuf or psum."""
    region = view.buffer.region
    return "hbm" if region.is_hbm else region.value


def _facts(issued: Issued, target: Target) -> Facts:
    reads, writes = [0, 0, 0], [0, 0, 0]
    elements = partitions = 0
    for name, view in issued.views():
        operand = issued.instruction.operands[name]
        at = REGIONS.index(region_of(view))
        size = prod(view.shape) * view.dtype.itemsize
        reads[at] += size if operand.reads else 0
        writes[at] += size if operand.writes else 0
        if view.buffer.on_chip:
            elements = max(elements, prod(view.shape[1:]))
            partitions = max(partitions, view.shape[0])
    steps = cost_of(issued, target)
    flops, transposed = _flops(issued)
    return Facts(
        (reads[0], reads[1], reads[2]),
        (writes[0], writes[1], writes[2]),
        flops,
        transposed,
        sum(step.nbytes for step in steps),
        sum(step.descriptors for step in steps),
        elements,
        partitions,
    )


def _flops(issued: Issued) -> tuple[float, float]:
    """Operations, and those of a transpose.

    A matmul has 2 * K * M * N: K partitions, M stationary and N moving columns; a transpose on the Tensor engine is one
    with an identity matrix of K rows as moving operand. An instruction with operators has one for each operator and
    each element that it reads or makes, whichever are more; all others have none.
    """
    operands, arguments = issued.instruction.operands, issued.arguments
    if issued.instruction.name == _TRANSPOSE:
        data = arguments.data
        return (0.0, 2.0 * prod(data.shape) * data.shape[0] if issued.engine is Engine.tensor else 0.0)
    if "stationary" in operands and "moving" in operands:
        stationary, moving = arguments.stationary, arguments.moving
        rows = max(stationary.shape[0], 1)
        flops = 2.0 * rows * (prod(stationary.shape) / rows) * (prod(moving.shape) / moving.shape[0])
        transposed = bool(arguments.is_transpose) if "is_transpose" in operands else False
        return (0.0, flops) if transposed else (flops, 0.0)
    count = sum(1 for value in arguments if isinstance(value, Operator) and value.name != "copy")
    sizes = [prod(view.shape) for _, view in issued.views()]
    return (float(count * max(sizes, default=0)), 0.0)


def operands_text(issued: Issued) -> str:
    """Tensor operands: ``dst=x:float32[128, 512]@sbuf``, with operators and numbers that say what it computes."""
    parts = []
    for name, value in zip(issued.instruction.operands, issued.arguments, strict=True):
        text = _operand(value)
        if text:
            parts.append(f"{name}={text}")
    return " ".join(parts)


def _operand(value: Any) -> str:
    if type(value) is View:
        return f"{value.buffer.name}:{value.dtype}{list(value.shape)}@{region_of(value)}"
    if isinstance(value, Operator):
        return str(value.name)
    if type(value) is tuple:
        return "(" + ", ".join(filter(None, map(_operand, value))) + ")" if any(map(_operand, value)) else ""
    return ""


def on_chip(view: View) -> bool:
    """Whether a view is in SBUF or PSUM."""
    return view.buffer.region in (MemoryRegion.sbuf, MemoryRegion.psum)
