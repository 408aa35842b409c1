"""Usage tables against what can be counted by hand, and against a count position by position."""

from __future__ import annotations

import json

import numpy as np
from hypothesis import given

from nki.compiler import AddressRotation
from nki.core.tensor import MemoryRegion
from nki.passes.allocation.addresses import PASS
from nki.passes.analysis.memory_usage import table, usage
from nki.spec.program import Block
from tests.passes.allocation import overflowing
from tests.passes.allocation.support import TRN2, blocks, box, buffer, context, lives, program, traced, use


def test_by_hand() -> None:
    a, b, c = buffer(0, 100), buffer(1, 50), buffer(2, 3000, "psum")
    sbuf, psum = usage(program(Block([a, b, c], [use(a), use(b), use(c, a), use(b)])), TRN2)
    assert (sbuf.name, sbuf.capacity, sbuf.bound, sbuf.peak, sbuf.position) == ("SBUF", 212984, 150, None, 1)
    assert sbuf.occupancy == ((0, 100), (1, 150), (3, 50))
    assert [(row.name, row.count, row.nbytes) for row in sbuf.tensors] == [("b0", 1, 100), ("b1", 1, 50)]
    assert (psum.capacity, psum.bound, psum.position, psum.banks) == (16384, 4096, 2, ())


def test_banks() -> None:
    a, b = buffer(0, 3000, "psum"), buffer(1, 10, "psum")
    block = Block([a, b], [use(a), use(b), use(a), use(b)])
    _, psum = usage(PASS.run(program(block), context(AddressRotation.DISABLE)), TRN2)
    assert [(row.bank, row.tensors, row.busy) for row in psum.banks] == [
        *((0, 1, 3), (1, 1, 3), (2, 1, 3)),
        *((bank, 0, 0) for bank in range(3, 8)),
    ]
    assert psum.peak == 6144


def test_an_empty_program() -> None:
    for each in usage(PASS.run(program(Block()), context()), TRN2):
        assert (each.bound, each.peak, each.occupancy, each.tensors) == (0, 0, (), ())


@given(blocks(explicit=False))
def test_occupancy(block: Block) -> None:
    given_program = program(block)
    living = [(made, at) for made, at in lives(block).values() if made.region is MemoryRegion.sbuf]
    sbuf, _ = usage(given_program, TRN2)
    steps = dict(sbuf.occupancy)
    now = 0
    for position in range(sum(1 for _ in block.walk())):
        now = steps.get(position, now)
        assert now == sum(made.row_bytes for made, at in living if position in at)
    assert sbuf.bound == max([0, *steps.values()])
    assert sum(row.total for row in sbuf.tensors) == sbuf.bound


@given(blocks())
def test_peak(block: Block) -> None:
    placed = PASS.run(program(block), context())
    assert placed.placement is not None
    for each, region in zip(usage(placed, TRN2), (MemoryRegion.sbuf, MemoryRegion.psum), strict=True):
        own = [made for made, _ in lives(block).values() if made.region is region]
        unit = 2048 if region is MemoryRegion.psum else 1
        assert each.peak == max((-(-box(made, placed.placement)[3] // unit) * unit for made in own), default=0)


def test_json_and_text() -> None:
    sbuf, psum = usage(traced(overflowing.too_many_tiles, np.zeros((128, 65536), np.float32)), TRN2)
    text = json.loads(json.dumps([sbuf.as_json(), psum.as_json()]))
    assert text[0]["tensors"][0] == {
        "name": "sbuf0",
        "dtype": "float32",
        "shape": [128, 8192],
        "count": 8,
        "bytes": 32768,
        "place": "overflowing.py:18",
    }
    assert text[0]["location"][0]["line"] == 19
    assert table(sbuf.tensors).splitlines()[1] == "      262144  8 x sbuf0 float32[128, 8192]  overflowing.py:18"


def test_long_tables_are_cut() -> None:
    made = [buffer(n, 100 + n) for n in range(12)]
    sbuf, _ = usage(program(Block(made, [*map(use, made), *map(use, made)])), TRN2)
    lines = table(sbuf.tensors).splitlines()
    assert len(lines) == 10
    assert lines[-1] == "         406  4 more"
