"""The dispatch loop executes records in order, each thread its partitions, and stops where a function declines."""

from __future__ import annotations

from threading import Thread

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nki.native.objects import jit
from nki.native.primitives.abi import ALONE, STOPPED
from nki.native.primitives.copy import copy_text
from tests.native.primitives.support import KERNEL, RUN, Context, Memory, base, compiled, place, record
from tests.oracles.fill import fill_text

_DECLINES = """
func.func @declines(%words: !llvm.ptr, %ctx: !llvm.ptr, %first: i64, %last: i64) -> i32 {
  %one = arith.constant 1 : i32
  return %one : i32
}
"""


def run(words: list[int], start: int, context: Context) -> int:
    packed = np.array(words, np.int64)
    return RUN(base()["run"])(packed.ctypes.data, start, len(words), context.address)


def barrier() -> list[int]:
    return record(base()["barrier"], [])


def test_records_run_in_order() -> None:
    first, second = (place((4, 9), (40, 4), np.uint32, i) for i in (1, 2))
    fill = record(compiled(fill_text, 4), [first], [77])
    copy = record(compiled(copy_text, 4), [second, first])
    words = fill + copy + record(compiled(fill_text, 4), [first], [5])
    assert run(words, 0, Context()) == len(words)
    assert (second.view == 77).all() and (first.view == 5).all()
    assert run(words, len(fill), Context()) == len(words)
    assert (second.view == 5).all()


def test_it_stops_at_the_record_that_declines() -> None:
    memory = place((4, 9), (40, 4), np.uint32, 1)
    fill = record(compiled(fill_text, 4), [memory], [1])
    decline = [jit.in_process(_DECLINES)["declines"], 4, 1, 1]
    words = fill + decline + record(compiled(fill_text, 4), [memory], [2])
    assert run(words, 0, Context()) == len(fill)
    assert (memory.view == 1).all()
    assert run(words, len(fill) + 4, Context()) == len(words)
    assert (memory.view == 2).all()


@given(st.integers(1, 5), st.integers(1, 300), st.integers(0, 127))
def test_threads_share_the_partitions(threads: int, count: int, home: int) -> None:
    """Every partition is executed by one thread: the one that has this partition of the 128, or the last."""
    memory = place((count,), (1,), np.uint8, 1)
    memory.view[...] = 255
    for thread in range(threads):
        before = memory.view.copy()
        shared = np.zeros(8, np.int64)
        words = record(compiled(fill_text, 1), [memory], [thread], home)
        assert run(words, 0, Context(thread, threads, shared)) == len(words)
        changed = np.flatnonzero(memory.view != before)
        assert (before[changed] == 255).all()
    starts = [128 * t // threads for t in range(threads)]
    owners = [max(t for t in range(threads) if starts[t] <= home + p) for p in range(count)]
    np.testing.assert_array_equal(memory.view, owners)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_record_for_one_thread(threads: int) -> None:
    memory = place((128,), (1,), np.uint8, 1)
    for thread in reversed(range(threads)):
        words = record(compiled(fill_text, 1), [memory], [100 + thread])
        words[1] |= ALONE
        assert run(words, 0, Context(thread, threads, np.zeros(8, np.int64))) == len(words)
    assert (memory.view == 100).all()


def test_a_barrier_alone_does_nothing() -> None:
    for threads in (0, 1):
        assert run(barrier() * 3, 0, Context(0, threads)) == 12


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_see_what_others_wrote_before_the_barrier(threads: int) -> None:
    """Transposes between the same two squares: partitions of one are elements of all partitions of the other."""
    one, two = (place((128, 128), (128 * 4, 4), np.uint32, i) for i in (1, 2))
    before = one.view.copy()
    there, back = (
        record(compiled(copy_text, 4), [two, _transposed(one)]),
        record(compiled(copy_text, 4), [one, _reversed(two)]),
    )
    rounds = 60
    words = (there + barrier() + back + barrier()) * rounds
    shared = np.zeros(8, np.int64)
    ends: dict[int, int] = {}
    contexts = [Context(thread, threads, shared) for thread in range(threads)]

    def work(thread: int) -> None:
        ends[thread] = run(words, 0, contexts[thread])

    workers = [Thread(target=work, args=(thread,)) for thread in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert set(ends.values()) == {len(words)}
    expected = before
    for _ in range(rounds):
        expected = expected.T[::-1]
    np.testing.assert_array_equal(one.view, expected)


def _transposed(memory: Memory) -> Memory:
    return Memory(memory.bytes, memory.view.T)


def _reversed(memory: Memory) -> Memory:
    return Memory(memory.bytes, memory.view[::-1])


def test_threads_stop_at_the_barrier_when_one_declines_and_go_on_together() -> None:
    memory = place((128,), (1,), np.uint8, 1)
    decline = [jit.in_process(_DECLINES)["declines"], 4 | ALONE, 1, 1]
    nothing = [compiled(fill_text, 1), *record(0, [memory], [9])[1:]]
    shared = np.zeros(8, np.int64)
    contexts = [Context(thread, 2, shared) for thread in (0, 1)]
    streams = [decline + barrier() + nothing, barrier() + nothing]
    ends: dict[int, int] = {}

    def work(thread: int, start: int) -> None:
        ends[thread] = run(streams[thread], start, contexts[thread])

    def both(starts: tuple[int, int]) -> dict[int, int]:
        workers = [Thread(target=work, args=(thread, starts[thread])) for thread in (0, 1)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return ends

    memory.view[...] = 3
    assert both((0, 0)) == {0: 0, 1: 0}
    assert (memory.view == 3).all() and shared[STOPPED] == 1
    shared[STOPPED] = 0
    assert both((4, 0)) == {0: len(streams[0]), 1: len(streams[1])}
    assert (memory.view == 9).all() and not shared[[0, STOPPED]].any()


def test_an_empty_range_is_left_alone() -> None:
    memory = place((4, 9), (40, 4), np.uint32, 1)
    before = memory.bytes.copy()
    words = np.array(record(compiled(fill_text, 4), [memory], [7]), np.int64)
    context = Context()
    assert KERNEL(int(words[0]))(words.ctypes.data, context.address, 2, 2) == 0
    np.testing.assert_array_equal(memory.bytes, before)
