"""Synchronising a program anew whose order, queues and addresses stay: for programs that were joined from others.

Whoever joins compiled programs (their blocks one after the other, with new addresses for what they hand on) knows where
everything runs, but neither which instructions of one follow which of another nor what queues have signalled by then::

    joined = Program(..., body=Block(buffers, items, [Sync(queue), ...]), placement=placement)
    linked = relink(joined, target)
    refuse_races([linked], target)     # the proof, which shares nothing with this but the list of accesses
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nki.core.errors import VerificationError
from nki.passes.analysis.dependences import Segment, dependences, segments_of
from nki.passes.scheduling.semaphores import synchronize
from nki.spec.program import Block, ForLoop, Issued, Program, Sync, WhileLoop
from nki.target.model import Target

_Syncs = dict[tuple[int, int], Sequence[Sync]]
"""The new entries of segments, by ``id(block)`` and first position in its items."""


def relink(program: Program, target: Target) -> Program:
    """The program with waits and signals that make every dependence hold, whatever the queues' relative speed.

    The order of every block is the one whose results count. Bytes are shared by on-chip buffers at overlapping
    addresses (`Program.placement` or explicit ones), and by views of one buffer of device memory; two buffers of
    device memory share none, so that memory that is used again has to be one buffer of which the joined programs have
    views. One buffer for each piece that is used again is better than one for all: a view with a dynamic index counts
    as all that it can reach in its buffer.

    Args:
        program: every instruction has a `Sync` (`Block.sync`), of which the queue counts and nothing else; of its
            `edges` and `fences` only those inside of segments matter.
        target: of the program.

    Returns:
        The same blocks, buffers, items and queues with new `Sync`s; nothing is changed in place. Device loops remain
        barriers of all queues. `edges`, `fences` and `placement` stay.

    Raises:
        VerificationError: "timeline.unsynchronized" if an instruction has no queue.
    """
    found: _Syncs = {}
    for segment in segments_of(program):
        needs = dependences(segment.items, program, target, segment.edges, segment.fences)
        found[id(segment.block), segment.first] = synchronize(_queues(segment), needs).syncs
    return replace(program, body=_block(program.body, found))


def _queues(segment: Segment) -> list[str]:
    entries = segment.block.sync
    queues = []
    for offset, issued in enumerate(segment.items):
        sync = None if entries is None else entries[segment.first + offset]
        if sync is None:
            raise VerificationError(
                "timeline.unsynchronized",
                f"{issued.instruction.label} has no queue",
                rule="each instruction of a program that is synchronised anew says which queue it runs on",
                fix="compile the program before it is joined with others, and give what is added a Sync",
                location=issued.location,
            )
        queues.append(sync.queue)
    return queues


def _block(block: Block, found: _Syncs) -> Block:
    items: list[Issued | ForLoop | WhileLoop] = []
    syncs: list[Sync | None] = []
    for position, item in enumerate(block.items):
        if isinstance(item, Issued):
            syncs += found.get((id(block), position), ())
            items.append(item)
        else:
            items.append(replace(item, body=_block(item.body, found)))
            syncs.append(None)
    return Block(list(block.buffers), items, syncs if any(syncs) else None)
