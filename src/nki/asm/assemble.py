"""From streams of queues back to one tree of instructions and loops, in program order."""

from __future__ import annotations

from dataclasses import dataclass, field

from nki.asm.errors import damaged
from nki.asm.streams import Begin, Command, End, Pass, Register, Stream, Streams, semaphore_of


@dataclass(frozen=True, slots=True)
class QueuedInstruction:
    """An instruction and the queue that runs it."""

    queue: str
    command: Command


@dataclass(slots=True)
class AssembledLoop:
    """A loop with what all queues do in it."""

    begin: Begin
    body: list[Node] = field(default_factory=list)


Node = QueuedInstruction | AssembledLoop
Tree = list[Node]

_DEPTH = 64
"""Depth of loops in each other, at most; hardware has far fewer."""


def assembled(streams: Streams) -> Tree:
    """All instructions and loops of the kernel's body.

    Raises:
        ArtifactError: "asm.order" if loops do not match, or positions are not each there once.
    """
    merge = _Merge()
    for stream in streams.streams:
        merge.add(stream)
    return merge.tree()


class _Merge:
    """Collects the parts of each block from all queues."""

    def __init__(self) -> None:
        self._root = AssembledLoop(Begin(0, -1, Register(0), None, 0, True, 0))
        self._loops: dict[int, tuple[AssembledLoop, int]] = {}
        self._queues: set[str] = set()

    def add(self, stream: Stream) -> None:
        if semaphore_of(stream.queue) is None or stream.queue in self._queues:
            raise damaged("asm.table", f"queue {stream.queue!r}"[:200], "each queue has one stream")
        self._queues.add(stream.queue)
        inside = [self._root]
        for entry in stream.entries:
            match entry:
                case Command():
                    _check_waits(entry)
                    inside[-1].body.append(QueuedInstruction(stream.queue, entry))
                case Begin():
                    inside.append(self._loop(entry, inside[-1].begin.loop))
                    if len(inside) > _DEPTH:
                        raise damaged("asm.order", f"{_DEPTH} loops in each other", "loops nest less deeply")
                case End(loop):
                    if len(inside) == 1 or inside.pop().begin.loop != loop:
                        raise damaged("asm.order", f"loop {loop} ends in {stream.queue}", "a loop ends in itself")
                case Pass():
                    continue
        if len(inside) > 1:
            raise damaged("asm.order", f"a loop does not end in {stream.queue}", "every loop ends")

    def _loop(self, begin: Begin, parent: int) -> AssembledLoop:
        known = self._loops.get(begin.loop)
        if known is None:
            loop = AssembledLoop(begin)
            self._loops[begin.loop] = loop, parent
            (self._loops[parent][0] if parent else self._root).body.append(loop)
            return loop
        if known[0].begin != begin or known[1] != parent:
            raise damaged("asm.order", f"two loops are number {begin.loop}", "queues agree about a loop")
        return known[0]

    def tree(self) -> Tree:
        """Sorted by position; each position is there once."""
        stack, expected = [iter(_sorted(self._root))], 0
        while stack:
            node = next(stack[-1], None)
            if node is None:
                stack.pop()
                continue
            if _position(node) != expected:
                raise damaged("asm.order", f"position {_position(node)} where {expected} is next", "none is left out")
            expected += 1
            if isinstance(node, AssembledLoop):
                stack.append(iter(_sorted(node)))
        return self._root.body


def _sorted(loop: AssembledLoop) -> Tree:
    loop.body.sort(key=_position)
    return loop.body


def _position(node: Node) -> int:
    return node.begin.position if isinstance(node, AssembledLoop) else node.command.position


def _check_waits(command: Command) -> None:
    for wait in command.waits:
        if not 0 <= wait.semaphore < 1 << 16 or not 0 < wait.count < 1 << 32:
            raise damaged(
                "asm.value", f"a wait for {wait.count} of semaphore {wait.semaphore}", "a wait is for a signal"
            )
