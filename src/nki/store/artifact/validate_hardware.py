"""What a program asks of its target beside the rules of its instructions: memory, queues, and that every wait ends."""

from __future__ import annotations

from nki.asm.assemble import QueuedInstruction, Tree, assembled
from nki.asm.streams import Streams
from nki.core.errors import ArtifactError, NkiError
from nki.core.source import Location
from nki.spec.allocation import check_fit
from nki.spec.program import Block, Issued, Program
from nki.spec.queue import fits
from nki.target.model import Target


def check_hardware(program: Program, streams: Streams, target: Target) -> None:
    """Refuse a program that the target has no room or no queue for, or that never ends because nobody signals.

    Raises:
        TensorError: see `nki.spec.allocation.check_fit`.
        ArtifactError: "artifact.queue" for an instruction in a queue that cannot run it, "artifact.wait" for a wait
            whose signal does not come before it.
    """
    for buffer in program.body.all_buffers():
        address = buffer.address or (program.placement or {}).get(buffer.id)
        try:
            check_fit(buffer.shape, buffer.dtype, buffer.region, address, target)
        except NkiError as error:
            error.location = buffer.location
            raise
    _check_queues(program.body, target)
    for producer, position in dependencies(assembled(streams)):
        if producer is None or producer >= position:
            raise _refused(
                "artifact.wait",
                f"the instruction at position {position} waits for what does not come before it",
                "a signal comes from an earlier instruction between the same two loops",
                program.location,
            )


def dependencies(tree: Tree) -> list[tuple[int | None, int]]:
    """``(position that signals, position that waits)`` for every wait; None for a signal that never comes."""
    found: list[tuple[int | None, int]] = []
    segment: list[QueuedInstruction] = []
    for node in tree:
        if isinstance(node, QueuedInstruction):
            segment.append(node)
        else:
            found += _waits(segment) + dependencies(node.body)
            segment = []
    return found + _waits(segment)


def _waits(segment: list[QueuedInstruction]) -> list[tuple[int | None, int]]:
    signals: dict[str, list[int]] = {}
    for leaf in segment:
        if leaf.command.signals:
            signals.setdefault(leaf.queue, []).append(leaf.command.position)
    return [
        (_at(signals.get(wait.queue, []), wait.count), leaf.command.position)
        for leaf in segment
        for wait in leaf.command.waits
    ]


def _at(positions: list[int], count: int) -> int | None:
    return positions[count - 1] if count <= len(positions) else None


def _check_queues(block: Block, target: Target) -> None:
    syncs = block.sync or [None] * len(block.items)
    for item, sync in zip(block.items, syncs, strict=True):
        if not isinstance(item, Issued):
            _check_queues(item.body, target)
        elif sync is None or not fits(item, sync.queue, target):
            queue = "no queue" if sync is None else f"queue {sync.queue}"
            raise _refused(
                "artifact.queue",
                f"{item.instruction.label} on {item.engine.name} is in {queue}",
                f"an instruction is in the queue of its engine, a transfer in one of {target.dma.engines} DMA queues",
                item.location,
            )


def _refused(code: str, message: str, rule: str, where: Location) -> ArtifactError:
    return ArtifactError(code, message, rule=rule, fix="compile the kernel again", location=where)
