"""What is forgotten or summed up so that long programs stay cheap: the same order, and the same faults."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from benchmarks.kernels import products, rows

from nki.passes.analysis.footprints import Footprint
from nki.passes.analysis.interval_index import Plane
from nki.passes.analysis.memory_boxes import IndexLayout
from nki.passes.context import Context
from nki.passes.pipeline import PIPELINE
from nki.passes.proof import happens_before
from nki.passes.proof.vector_clocks import Clocks
from nki.spec.program import Block, Program
from tests.ir.kernels import traced
from tests.passes.kernels import TRN2


def device(low: int, high: int) -> Footprint:
    return Footprint(7, "memory", (0, 1), low, (), high - low, hbm=True)


def test_reads_that_no_write_covers_do_not_add_up() -> None:
    """Each round reads everything from a place on, as gathers do, and writes a few of these bytes."""
    plane, random = Plane(IndexLayout()), Random(1)
    parts = [(device(n * 64, (n + 1) * 64)) for n in range(32)]
    tails = [device(n * 64, 32 * 64) for n in range(32)]
    before: list[set[int]] = []
    accesses: list[tuple[bool, int]] = []
    longest = 0
    for position in range(3000):
        writes, at = random.random() < 0.5, random.randrange(32)
        found: set[int] = set()
        (plane.write if writes else plane.read)(position, (parts if writes else tails)[at], found)
        longest = max(longest, len(found)) if position > 500 else longest
        before.append(found.union(*(before[other] for other in found)))
        accesses.append((writes, at))
        for other, (wrote, place) in enumerate(accesses[-200:-1], max(0, position - 199)):
            meets = place == at if writes and wrote else place <= at if writes else wrote and place >= at
            assert not meets or other in before[position]
    assert longest < 400


def damaged(program: Program, random: Random) -> Program:
    """Without some of its waits."""
    syncs = [s and s._replace(waits=s.waits if random.random() < 0.8 else ()) for s in program.body.sync or ()]
    return replace(program, body=Block(program.body.buffers, program.body.items, syncs))


@pytest.mark.parametrize(
    "kernel, size", [(rows.softmax, (640, 64)), (products.matmul, (256, 512)), (rows.chain, (256, 1024))]
)
def test_what_is_over_hides_no_fault(kernel: Any, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = [np.zeros(size, np.float32)] * (1 if kernel is rows.softmax else 2)
    program = traced(kernel, *arrays)[0]
    for item in PIPELINE:
        program = item.run(program, Context(TRN2))
    monkeypatch.setattr(happens_before, "_BLOCK", 1)
    forgetful = [happens_before.check([damaged(program, Random(seed))], TRN2) for seed in range(12)]
    monkeypatch.setattr(Clocks, "over", lambda self, every: [()] * len(self.clocks))
    assert forgetful == [happens_before.check([damaged(program, Random(seed))], TRN2) for seed in range(12)]
    assert sum(map(bool, forgetful)) >= 8  # there is something to hide
