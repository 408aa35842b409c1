"""Unwritten memory and dead stores against bytes that are painted one by one, over random programs with a loop."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

import nki.isa as nisa
from nki.core.dtypes import uint8
from nki.core.register import VirtualRegister
from nki.core.source import Frame, Location
from nki.core.tensor import Buffer, MemoryRegion, View
from nki.passes.lint.memory import memory_findings
from nki.spec.engine import engine
from nki.spec.program import Block, ForLoop, Issued, Program
from nki.target.load import load_target

WIDTH = 6
Copy = tuple[int, int, int, int]
"""Width, source column, target column, and source * 3 + target tensor."""

COPIES = st.lists(
    st.tuples(st.integers(1, WIDTH), st.integers(0, WIDTH - 1), st.integers(0, WIDTH - 1), st.integers(0, 8)),
    max_size=8,
)


def line(number: int) -> Location:
    return Location((Frame("k.py", "k", number, 0, number, 1),))


def tensors() -> list[Buffer]:
    return [Buffer(key, f"b{key}", MemoryRegion.sbuf, (2, WIDTH), uint8) for key in range(3)]


def part(buffer: Buffer, column: int, width: int) -> View:
    return View(buffer, uint8, (2, width), (WIDTH, 1), column)


def places(copy: Copy) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Tensor and column of what is read and of what is written."""
    width, source, target, both = copy
    width = min(width, WIDTH - source, WIDTH - target)
    steps = range(width)
    return [(both // 3, source + k) for k in steps], [(both % 3, target + k) for k in steps]


def issue(copy: Copy, buffers: list[Buffer], number: int) -> Issued:
    read, written = places(copy)
    data = part(buffers[read[0][0]], read[0][1], len(read))
    dst = part(buffers[written[0][0]], written[0][1], len(written))
    arguments = nisa.tensor_copy.arguments(dst=dst, src=data, engine=engine.vector, name=None)
    return Issued(nisa.tensor_copy, arguments, line(number), engine.vector)


@dataclass
class Painted:
    """Bytes with the line that wrote them."""

    bytes: dict[tuple[int, int], int] = field(default_factory=dict)
    unwritten: set[int] = field(default_factory=set)
    used: set[int] = field(default_factory=set)

    def run(self, copy: Copy, number: int) -> None:
        read, written = places(copy)
        if any(place not in self.bytes for place in read):
            self.unwritten.add(number)
        self.used |= {self.bytes[place] for place in read if place in self.bytes}
        self.bytes |= dict.fromkeys(written, number)


@settings(max_examples=150, deadline=None)
@given(COPIES, COPIES, st.integers(1, 3), COPIES)
def test_findings_are_what_painting_says(before: list[Copy], body: list[Copy], trips: int, after: list[Copy]) -> None:
    buffers, painted = tensors(), Painted()
    numbered = list(enumerate([*before, *body, *after], 1))
    first, second = len(before), len(before) + len(body)
    for number, copy in numbered[:first] + numbered[first:second] * trips + numbered[second:]:
        painted.run(copy, number)
    painted.used |= {number for (tensor, _), number in painted.bytes.items() if tensor == 2}  # it is returned
    items = [issue(copy, buffers, number) for number, copy in numbered]
    inner = ForLoop(0, trips, 1, VirtualRegister(1), Block([], items[first:second]), line(99))
    block = Block(buffers, [*items[:first], inner, *items[second:]])
    whole = View(buffers[2], uint8, (2, WIDTH), (WIDTH, 1), 0)
    program = Program("k", "trn2", 0, 1, outputs=[whole], body=block)
    found: dict[str, set[int]] = {"memory.uninitialized": set(), "lint.dead-store": set()}
    for finding in memory_findings([program], load_target("trn2")):
        assert finding.location.frame is not None
        found[finding.code].add(finding.location.frame.line)
    assert found["memory.uninitialized"] == painted.unwritten
    assert found["lint.dead-store"] == {number for number, _ in numbered} - painted.used
