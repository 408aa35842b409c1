"""Explicit addresses: values that pass from one tensor to another survive, lost values are reported."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki.isa as nisa
import nki.language as nl
from nki.compiler import AddressRotation
from nki.options import Options
from nki.passes.allocation.addresses import PASS, allocate
from nki.passes.allocation.fixed_addresses import sharing
from nki.passes.analysis.liveness import liveness
from nki.passes.analysis.memory_demand import demand, memories
from nki.passes.context import Context
from nki.spec.program import Block
from tests.passes.allocation.support import TRN2, at_addresses, buffer, context, loop, program, results, traced, use


def ranges(block: Block) -> dict[int, tuple[int, int]]:
    """Live ranges of the explicit SBUF tensors."""
    traced_program = program(block)
    own = demand(memories(TRN2)[0], liveness(traced_program).buffers).explicit
    return {each.buffer.id: (each.first, each.last) for each in sharing(traced_program, [own])[0].ranges}


def lost(block: Block) -> list[tuple[str, str]]:
    findings = allocate(program(block), context()).findings
    return [(each.facts["tensor"], each.facts["by"]) for each in findings]


def test_a_tensor_that_reads_what_another_one_wrote_lives_from_then_on() -> None:
    a, b, other = buffer(0, 100, address=(0, 0)), buffer(1, 100, address=(0, 0)), buffer(2, 8)
    assert ranges(Block([a, b, other], [use(a), use(other), use(other), use(other, b)])) == {0: (0, 0), 1: (0, 3)}


def test_a_tensor_that_writes_first_does_not() -> None:
    a, b, other = buffer(0, 100, address=(0, 0)), buffer(1, 100, address=(0, 0)), buffer(2, 8)
    assert ranges(Block([a, b, other], [use(a), use(other), use(b), use(other, b)])) == {0: (0, 0), 1: (2, 3)}


def test_bytes_and_partitions_count() -> None:
    a, other = buffer(0, 100, address=(0, 0), partitions=64), buffer(3, 8)
    below, beside = buffer(1, 100, address=(64, 0), partitions=64), buffer(2, 100, address=(0, 100))
    items = [use(a), use(other, below), use(other, beside)]
    assert ranges(Block([a, below, beside, other], items)) == {0: (0, 0), 1: (1, 1), 2: (2, 2)}


def test_what_a_loop_reads_stays_until_it_ends() -> None:
    a, b, other = buffer(0, 100, address=(0, 0)), buffer(1, 100, address=(0, 0)), buffer(2, 8)
    body = Block([b], [use(other), use(other, b), use(other), use(other)])
    assert ranges(Block([a, other], [use(a), use(other), loop(body), use(other)])) == {0: (0, 0), 1: (0, 5)}


def test_what_the_trip_before_left_stays_around_the_loop() -> None:
    a, b, other = buffer(0, 100, address=(0, 0)), buffer(1, 100, address=(0, 0)), buffer(2, 8)
    body = Block([a, b], [use(other), use(other, b), use(other), use(a), use(other)])
    assert ranges(Block([other], [use(other), loop(body)])) == {0: (4, 5), 1: (1, 5)}


def test_no_automatic_tensor_comes_between() -> None:
    """The value is written through one tensor, and read through another after automatic tensors were in use."""

    def kernel(a: Any) -> Any:
        out = nl.ndarray((128, 64), a.dtype, buffer=nl.shared_hbm)
        written = nl.ndarray((128, 64), a.dtype, buffer=nl.sbuf, address=(0, 0))
        nisa.dma_copy(dst=written, src=a)
        between = nl.ndarray((128, 64), a.dtype, buffer=nl.sbuf)
        nisa.memset(dst=between, value=1.0)
        read = nl.ndarray((128, 32), a.dtype, buffer=nl.sbuf, address=(0, 128))
        nisa.tensor_tensor(dst=between[:, 0:32], data1=read, data2=between[:, 0:32], op=nl.add)
        nisa.dma_copy(dst=out, src=between)
        return out

    array = np.random.default_rng(0).standard_normal((128, 64)).astype(np.float32)
    unplaced = traced(kernel, array)
    for mode in AddressRotation:
        assert results(at_addresses(PASS.run(unplaced, context(mode))), array) == results(unplaced, array)


# --- lost values


def test_a_lost_value_is_reported() -> None:
    a, b = buffer(0, 100, address=(0, 0)), buffer(1, 100, address=(0, 50))
    out = buffer(2, 100)
    block = Block([a, b, out], [use(a), use(b), use(out, b), use(out, a)])
    assert lost(block) == [("b0", "b1")]


def test_taking_turns_is_fine() -> None:
    a, b, out = buffer(0, 100, address=(0, 0)), buffer(1, 100, address=(0, 50)), buffer(2, 100)
    assert lost(Block([a, b, out], [use(a), use(out, a), use(b), use(out, b), use(a), use(out, a)])) == []


def test_a_part_that_is_only_written_is_fine() -> None:
    """Clear all of it, write a part through a tensor of its own, read all of it."""
    a, part, out = buffer(0, 100, address=(0, 0)), buffer(1, 10, address=(0, 50)), buffer(2, 100)
    assert lost(Block([a, part, out], [use(a), use(part), use(out, a)])) == []


def test_other_bytes_are_fine() -> None:
    a, b, out = buffer(0, 100, address=(0, 0)), buffer(1, 100, address=(0, 100)), buffer(2, 100)
    assert lost(Block([a, b, out], [use(a), use(b), use(out, b), use(out, a)])) == []


def test_a_value_that_is_lost_on_the_second_trip() -> None:
    a, b, out = buffer(0, 100, address=(0, 0)), buffer(1, 100, address=(0, 50)), buffer(2, 100)
    body = Block([b], [use(out, a), use(b), use(out, b)])
    assert lost(Block([a, out], [use(a), loop(body)])) == [("b0", "b1")]


def test_the_warning() -> None:
    def kernel(x: Any) -> Any:
        out = nl.ndarray((128, 64), x.dtype, buffer=nl.shared_hbm)
        first = nl.ndarray((128, 64), x.dtype, buffer=nl.sbuf, address=(0, 0), name="first")
        second = nl.ndarray((64, 64), x.dtype, buffer=nl.sbuf, address=(64, 128), name="second")
        nisa.dma_copy(dst=first, src=x)
        nisa.memset(dst=second, value=1.0)
        nisa.tensor_tensor(dst=second, data1=second, data2=second, op=nl.add)
        nisa.dma_copy(dst=out, src=first)
        return out

    traced_program = traced(kernel, np.zeros((128, 64), np.float32))
    (finding,) = allocate(traced_program, context()).findings
    start = kernel.__code__.co_firstlineno
    assert (finding.code, finding.severity) == ("memory.alias", "warning")
    assert finding.message == (
        "first is read after second has written to the same bytes: first has bytes 0 to 256 of "
        f"partitions 0 to 128 (test_fixed_addresses.py:{start + 2}), second has bytes 128 to 384 of "
        f"partitions 64 to 128 (test_fixed_addresses.py:{start + 3})"
    )
    assert finding.location.frame is not None
    assert finding.location.frame.line == start + 3
    silent = Context(TRN2, Options(disabled_rules=frozenset({"memory.alias"})))
    assert allocate(traced_program, silent).findings == ()


@pytest.mark.parametrize("region", ["sbuf", "psum"])
def test_many_tensors_at_one_address(region: str) -> None:
    tiles = [buffer(n, 64, region, address=(0, 0)) for n in range(50)]
    out = buffer(99, 64)
    items = [item for tile in tiles for item in (use(tile), use(out, tile))]
    assert lost(Block([*tiles, out], items)) == []
