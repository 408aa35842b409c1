"""Traced programs on the way from a process that is not trusted: written there, and read as what they are, data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nki.asm.decode import decode
from nki.asm.encode import encode
from nki.asm.lower import lower
from nki.asm.raising import raise_
from nki.core.errors import ArtifactError
from nki.core.source import UNKNOWN
from nki.core.tensor import MemoryRegion
from nki.spec.allocation import check_tensors
from nki.spec.program import Block, ForLoop, Issued, Program, Sync, WhileLoop
from nki.store.archive import parts_by_core, write_tar
from nki.target.model import Target

_QUEUE = Sync("sync")
_PLACE = (0, 0)
_ROLES = ("temporary", "constant", "copy")


def pack_traced(programs: Sequence[Program]) -> bytes:
    """Traced programs, one for each core, as streams with a single queue; tensors stand where no address is meant.

    Raises:
        IRError: "asm.*", what streams cannot say.
    """
    return write_tar(
        {
            f"core{core}/{name}.bin": part
            for core, program in enumerate(programs)
            for name, part in encode(lower(_staged(program))).items()
        }
    )


def read_traced(data: bytes, target: Target) -> tuple[Program, ...]:
    """The programs that `pack_traced` wrote. Nothing in the bytes is run.

    Accesses lie in their tensors, tensors fit their memories, and what comes in and goes out is where a trace has it.
    The rules of the instructions are for who has the programs verified (`nki.ir.verify`).

    Raises:
        ArtifactError: "artifact.*" or "asm.*" for bytes that `pack_traced` did not write.
        TensorError: a tensor that no memory of the target holds.
    """
    programs = tuple([_unstaged(raise_(decode(parts))) for parts in parts_by_core(data, _refused)])
    for core, program in enumerate(programs):
        if (program.target, program.core, program.cores) != (target.name, core, len(programs)):
            raise _refused(f"core {program.core} of {program.cores} for {program.target}, as number {core}")
        check_tensors(program, target)
        _check_roles(program)
    return programs


def _check_roles(program: Program) -> None:
    """Only constants have values from the start, in device memory, as arguments and results are.

    No rule of an instruction says so, because no trace makes anything else: it would spare the transfers.
    """
    arguments = MemoryRegion.shared_hbm if program.cores > 1 else MemoryRegion.private_hbm
    for buffer in program.inputs:
        if buffer.region is not arguments or buffer.role != "input" or buffer.data is not None:
            raise _refused(f"argument {buffer.name} is {buffer.role} in {buffer.region}")
    for buffer in program.body.all_buffers():
        constant = buffer.role == "constant" and buffer.region is MemoryRegion.shared_hbm
        if buffer.role not in _ROLES or constant is (buffer.data is None):
            raise _refused(f"tensor {buffer.name} is {buffer.role} in {buffer.region}")
    for view in program.outputs:
        if view.on_chip or view.dynamic is not None:
            raise _refused(f"result {view.buffer.name} is {view.describe()}")


def _staged(program: Program) -> Program:
    """With a schedule that is the order of the trace, and places that say nothing: what streams must have."""
    buffers = [buffer for buffer in (*program.inputs, *program.body.all_buffers()) if buffer.on_chip]
    placement = {buffer.id: _PLACE for buffer in buffers if buffer.address is None}
    return replace(program, body=_with_queue(program.body), placement=placement)


def _unstaged(program: Program) -> Program:
    """Without schedule and places, and as if no pass had seen it."""
    return replace(program, body=_without_queue(program.body), placement=None, passed=())


def _with_queue(block: Block) -> Block:
    items = [item if isinstance(item, Issued) else _around(item, _with_queue(item.body)) for item in block.items]
    return Block(block.buffers, items, [_QUEUE if isinstance(item, Issued) else None for item in items])


def _without_queue(block: Block) -> Block:
    items = [item if isinstance(item, Issued) else _around(item, _without_queue(item.body)) for item in block.items]
    return Block(block.buffers, items)


def _around(loop: ForLoop | WhileLoop, body: Block) -> ForLoop | WhileLoop:
    return replace(loop, body=body)


def _refused(what: str) -> ArtifactError:
    return ArtifactError(
        "artifact.program",
        what[:300],
        rule="traced programs are for one target, one for each core of a launch",
        fix="trace the kernel again",
        location=UNKNOWN,
    )
