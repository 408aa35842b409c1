"""Which results of a kernel may have the memory of an operand: no byte is read after something was written there."""

from __future__ import annotations

import numpy as np

from nki.core.tensor import Buffer, View
from nki.passes.analysis.footprints import Accesses, Footprint
from nki.spec.program import Issued, Program
from nki.target.model import Target

_MOST_BYTES = 1 << 26
"""Bytes of tensors that are followed one by one."""


def may_share(program: Program, inputs: int, target: Target) -> tuple[tuple[int, int], ...]:
    """Pairs (result, operand) of a kernel that may be one tensor.

    The order of the kernel counts, which the linked program keeps for bytes that are read and written.

    Args:
        inputs: how many of the kernel's arguments are operands; the others are results.
    """
    if not all(isinstance(item, Issued) for item in program.body.items):
        return ()
    accesses = Accesses(program, target)
    operands, results = program.inputs[:inputs], program.inputs[inputs:]
    found = []
    for number, result in enumerate(results):
        for position, operand in enumerate(operands):
            if operand.nbytes == result.nbytes <= _MOST_BYTES and _fits(program, operand, result, accesses):
                found.append((number, position))
    return tuple(found)


def _fits(program: Program, operand: Buffer, result: Buffer, accesses: Accesses) -> bool:
    written = np.zeros(result.nbytes, np.bool_)
    for issued in program.body.walk():
        reads, writes = _uses(issued, operand, reads=True), _uses(issued, result, reads=False)
        if _uses(issued, operand, reads=False) or _uses(issued, result, reads=True):
            return False
        if any(_bytes(written, accesses.footprint(view)).any() for view in reads):
            return False
        if reads and any(view[1:] != other[1:] for view in reads for other in writes):
            return False  # one transfer that reads and writes bytes which are not the same
        for view in writes:
            _bytes(written, accesses.footprint(view))[...] = True
    return True


def _uses(issued: Issued, buffer: Buffer, reads: bool) -> list[View]:
    """The views of a buffer that an instruction reads, or writes; its indices are read."""
    found = []
    for name, view in issued.views():
        operand = issued.instruction.operands[name]
        if view.buffer is buffer and (operand.reads if reads else operand.writes):
            found.append(view)
        indices = view.dynamic.indices if view.dynamic is not None else None
        if reads and isinstance(indices, View) and indices.buffer is buffer:
            found.append(indices)
    return found


def _bytes(of: np.ndarray, footprint: Footprint) -> np.ndarray:
    """The elements of an array of bytes that a footprint covers."""
    shape = (*(count for _, count in footprint.dims), footprint.run)
    strides = (*(stride for stride, _ in footprint.dims), 1)
    return np.lib.stride_tricks.as_strided(of[footprint.low :], shape, strides)


def same_bytes(issued: Issued) -> bool:
    """Whether an instruction copies bytes to where they are already."""
    if issued.instruction.name != "dma_copy":
        return False
    found = dict(issued.views())
    return found["dst"] == found["src"] and found["dst"].dynamic is None
