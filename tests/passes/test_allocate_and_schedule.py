"""Addresses are chosen with a schedule, which is handed to the next pass and is what that would make itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from benchmarks.kernels.products import mlp

import nki.isa as nisa
import nki.language as nl
from nki.core.errors import VerificationError
from nki.passes import allocate_and_schedule, schedule
from nki.passes.allocation import addresses
from nki.passes.allocation.addresses import Layout
from nki.passes.analysis.memory_usage import usage
from nki.passes.context import Context, rewriting
from nki.passes.editing.remove import Item, kept_items
from nki.passes.imitation import imitation
from nki.passes.order_search import choice
from nki.passes.order_search.heuristics import HEURISTICS, Heuristics
from nki.passes.pipeline import compile_programs
from nki.spec.program import Program
from nki.testing.equality import differences
from nki.timing.timeline import timeline
from tests.ir.kernels import traced
from tests.oracles.written_order import as_written
from tests.passes.kernels import TRN2, results


def scaled(a: Any, tiles: int) -> Any:
    """Tiles that are loaded, squared, scaled and stored, all in the same way."""
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    for tile in range(tiles):
        rows = slice(tile * 128, (tile + 1) * 128)
        x, y = (nl.ndarray((128, a.shape[1]), a.dtype, buffer=nl.sbuf) for _ in range(2))
        nisa.dma_copy(dst=x, src=a[rows])
        nisa.activation(dst=y, op=nl.square, data=x)
        nisa.tensor_scalar(dst=x, data=y, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=out[rows], src=x)
    return out


def summed(a: Any, tiles: int) -> Any:
    """As `scaled`, with a loop on the device before it."""
    total = nl.ndarray((128, 64), nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=total, value=0.0)
    for _ in nl.dynamic_range(3):
        nisa.tensor_scalar(dst=total, data=total, op0=nl.add, operand0=1.0)
    return scaled(a, tiles)


def program(kernel: Any, tiles: int) -> Program:
    return traced(kernel, np.ones((tiles * 128, 64), np.float32), tiles)[0]


@pytest.mark.parametrize(("kernel", "tiles"), [(scaled, 1), (scaled, 12), (summed, 12)])
def test_the_kept_schedule_is_the_one_that_the_next_pass_makes(kernel: Any, tiles: int) -> None:
    context = Context(TRN2)
    found = allocate_and_schedule.run(program(kernel, tiles), context)
    assert (found.scheduled is not None) == (tiles > 1), "a segment of a few instructions has nothing to gain"
    kept = schedule.PASS.step(found, context).program
    anew = schedule.run(found.program, context)
    assert kept.body.sync is not None
    assert not differences(kept, anew)


def test_a_kept_schedule_is_for_the_next_pass_only() -> None:
    """What another pass makes of the program is scheduled anew, and not what it was before."""
    shorter = rewriting("shorter", "Leave out the last store.", lambda each, _: kept_items(each, keep(each)))

    def keep(each: Program) -> Callable[[Item], bool]:
        return lambda item: item is not each.body.items[-1]

    passes = allocate_and_schedule.PASS, shorter, schedule.PASS
    (done,) = compile_programs([program(scaled, 12)], Context(TRN2), passes).programs
    assert len(done.body.items) == 12 * 4 - 1
    assert done.body.sync is not None and all(done.body.sync)


def test_it_takes_no_longer_than_the_written_order() -> None:
    for tiles in (1, 5, 12, 260):  # the last one has more instructions than are tried in all ways
        source = program(scaled, tiles)
        context = Context(TRN2)
        best = timeline(schedule.run(allocate_and_schedule.PASS.run(source, context), context), TRN2).makespan
        placed = addresses.PASS.run(source, Context(TRN2))
        assert best <= timeline(schedule.run(placed, Context(TRN2)), TRN2).makespan
        assert best <= timeline(as_written(placed, Context(TRN2)), TRN2).makespan


def test_the_same_every_time_and_the_same_results() -> None:
    source = program(scaled, 12)
    first, second = (allocate_and_schedule.PASS.run(source, Context(TRN2)) for _ in range(2))
    assert first.placement == second.placement
    assert not differences(first, second)
    data = np.arange(12 * 128 * 64, dtype=np.float32).reshape(12 * 128, 64) % 7
    done = schedule.run(first, Context(TRN2))
    assert results(done, [data]) == [(data * data * 2).tobytes()]


def held(a: Any, tiles: int, kept: int) -> Any:
    """As `scaled` with wide rows, while some tiles stay in SBUF from the first to the last instruction."""
    out = nl.ndarray((tiles * 128, a.shape[1]), a.dtype, buffer=nl.shared_hbm)
    sums = [nl.ndarray((128, a.shape[1]), a.dtype, buffer=nl.sbuf) for _ in range(kept)]
    for each in sums:
        nisa.memset(dst=each, value=0.0)
    for tile in range(tiles):
        x, y = (nl.ndarray((128, a.shape[1]), a.dtype, buffer=nl.sbuf) for _ in range(2))
        nisa.dma_copy(dst=x, src=a[tile % 4 * 128 : (tile % 4 + 1) * 128])
        nisa.activation(dst=y, op=nl.square, data=x)
        each = sums[tile % kept]
        nisa.tensor_tensor(dst=each, data1=each, data2=y, op=nl.add)
    for tile in range(tiles):
        nisa.dma_copy(dst=out[tile * 128 : (tile + 1) * 128], src=sums[tile % kept])
    return out


@pytest.mark.parametrize("kept", [1, 20, 40])
def test_running_ahead_takes_half_of_sbuf_at_most(kept: int) -> None:
    """Tiles of 4 KiB: 20 of them leave room in half of the memory, 40 need more than that and get all of it."""
    source = traced(held, np.ones((512, 1024), np.float32), 60, kept)[0]
    placed = allocate_and_schedule.PASS.run(source, Context(TRN2))
    sbuf, _ = usage(placed, TRN2)
    half = imitation("vendor").ahead[0] * TRN2.sbuf.usable_bytes_per_partition
    assert (sbuf.peak <= half) == (kept < 40)


def pairs(a: Any, tiles: int) -> Any:
    """One tile after the other, each with its double."""
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    for _ in range(tiles):
        x, y = (nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf) for _ in range(2))
        nisa.dma_copy(dst=x, src=a)
        nisa.tensor_tensor(dst=y, data1=x, data2=x, op=nl.add)
        nisa.dma_copy(dst=out, src=y)
    return out


def test_what_does_not_fit_is_told_of_the_whole_memory() -> None:
    source = traced(pairs, np.ones((128, 28_000), np.float32), 8)[0]
    with pytest.raises(VerificationError) as caught:
        allocate_and_schedule.PASS.run(source, Context(TRN2))
    assert caught.value.facts["capacity"] == TRN2.sbuf.usable_bytes_per_partition


def test_the_share_does_not_touch_psum_or_fixed_addresses() -> None:
    source = program(scaled, 12)
    whole, half = (addresses.allocate(source, Context(TRN2), Layout(share)).program for share in (1.0, 0.01))
    most = int(0.01 * TRN2.sbuf.usable_bytes_per_partition)
    assert whole.placement and half.placement and set(whole.placement) == set(half.placement)
    assert max(offset for _, offset in half.placement.values()) < most
    assert max(offset for _, offset in whole.placement.values()) > most


def test_of_large_orders_that_are_as_long_the_estimate_decides() -> None:
    many = choice.MOST_TIMED + 1
    equal, shortest = imitation("vendor").equal_orders, imitation("none").equal_orders
    assert choice.shortest([100.0, 100.4], [90.0, 80.0], many, equal) == 1
    assert choice.shortest([100.0, 100.6], [90.0, 80.0], many, equal) == 0
    assert choice.shortest([100.0, 100.4], [80.0, 80.0], many, equal) == 0
    assert choice.shortest([100.0, 100.4], [90.0, 80.0], many, shortest) == 0
    assert choice.shortest([100.0, 100.4], [90.0, 80.0], choice.MOST_TIMED, equal) == 0


def test_orders_that_fit_psum_are_shorter() -> None:
    """In a perceptron the operands of many more sums are there early than there are banks."""
    shapes = (512, 2048), (512, 2048), (128, 16), (2048, 512)
    source = traced(mlp, *(np.zeros(shape, nl.bfloat16) for shape in shapes))[0]

    def length(heuristics: Heuristics) -> float:
        found = allocate_and_schedule.run(source, Context(TRN2), heuristics)
        return timeline(schedule.run(found.program, Context(TRN2)), TRN2).makespan

    several = tuple(heuristic for heuristic in HEURISTICS.several if not heuristic.spare)
    assert length(HEURISTICS) < 0.9 * length(HEURISTICS._replace(several=several))
