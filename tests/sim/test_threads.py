"""Threads of cores and ranks: what an interrupt and an error of one of them does to the others."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.core.errors import DivergenceError
from nki.core.source import UNKNOWN
from nki.ranks.one_at_a_time import OneAtATime
from nki.ranks.parallel import Parallel
from nki.ranks.protocol import Meeting
from nki.ranks.threads import ThreadRanks
from nki.sim.cores import Cores

RANKS = pytest.mark.parametrize("kind", [OneAtATime, Parallel])
LONG = 20.0
"""Seconds after which something that nobody stops gives up."""


@pytest.fixture(autouse=True)
def default_handler() -> Iterator[None]:
    """Of interrupts; and no thread is left behind, though nobody waits for one that had not begun."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    there = set(threading.enumerate())
    yield
    signal.signal(signal.SIGINT, before)
    for thread in set(threading.enumerate()) - there:
        thread.join(LONG)
    assert set(threading.enumerate()) <= there


def interrupt() -> None:
    """As Ctrl+C does, wherever the main thread waits."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def until_stopped(steps: list[int]) -> None:
    """Work that interrupts its own process, and does not end by itself for long."""
    end = time.monotonic() + LONG
    steps.append(1)  # after the interrupt it may not come to another one
    interrupt()
    while time.monotonic() < end:
        steps.append(1)


def interrupted(run: Callable[[], Any], steps: list[int]) -> None:
    """An interrupt ends it soon, and nothing goes on."""
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run()
    count = len(steps)
    assert count > 0
    assert time.monotonic() - begin < LONG / 4
    time.sleep(0.01)
    assert len(steps) == count


@pytest.mark.parametrize("worker", [0, 1])
def test_an_interrupt_ends_both_cores(worker: int) -> None:
    steps: list[int] = []
    cores = Cores(2)

    def task(core: int) -> None:
        if core == worker:
            until_stopped(steps)
        cores.meet(core, ("barrier",), 0, UNKNOWN)

    interrupted(lambda: cores.run([lambda: task(0), lambda: task(1)]), steps)


@RANKS
def test_an_interrupt_ends_the_cores_of_ranks(kind: type[ThreadRanks]) -> None:
    steps: list[int] = []

    def rank() -> None:
        Cores(2).run([lambda: until_stopped(steps), lambda: until_stopped(steps)])

    interrupted(lambda: kind(3).run([rank] * 3), steps)


@pytest.mark.parametrize("waiting", [0, 3])
def test_an_interrupt_ends_ranks_that_run_and_that_wait(waiting: int) -> None:
    steps: list[int] = []
    ranks = Parallel(4)

    def task(rank: int) -> None:
        if rank < waiting:
            ranks.meet(rank, Meeting((0, 1, 2, 3), ("all_reduce",), rank, UNKNOWN))
        until_stopped(steps)

    interrupted(lambda: ranks.run([lambda rank=rank: task(rank) for rank in range(4)]), steps)  # type: ignore[misc]


def test_an_interrupt_is_not_forgotten_where_a_thread_hides_it() -> None:
    steps: list[int] = []
    cores = Cores(2)

    def stubborn() -> None:
        try:
            until_stopped(steps)
        except KeyboardInterrupt:
            cores.meet(0, ("barrier",), 0, UNKNOWN)

    interrupted(lambda: cores.run([stubborn, lambda: None]), steps)


@pytest.mark.parametrize("simulate", [False, True], ids=["compiled", "eager"])
def test_an_interrupt_ends_a_kernel(simulate: bool) -> None:
    """While it is executed: one that comes while the compiler is loaded would leave that half loaded."""

    @nki.jit
    def kernel(a, count):
        x = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=x, src=a)
        trips = nisa.register_alloc()
        nisa.register_load(trips, count)
        for _ in nl.dynamic_range(trips):
            nisa.tensor_scalar(dst=x, data=x, op0=nl.multiply, operand0=1.0)
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=x)
        return out

    a = np.ones((4, 4), np.float32)
    made = nki.simulate(kernel[2]) if simulate else kernel[2]
    made(a, np.array([[1]], np.int32))
    timer = threading.Timer(0.8, interrupt)
    timer.start()
    begin = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            made(a, np.array([[1 << 28]], np.int32))  # 20 seconds natively
    finally:
        timer.cancel()  # an interrupt that comes after all of this would end the whole run
        timer.join()
    assert time.monotonic() - begin < LONG / 4


@pytest.mark.parametrize("failing", [0, 1])
def test_an_error_of_one_core_ends_the_other_one(failing: int) -> None:
    cores = Cores(2)
    after: list[int] = []

    def task(core: int) -> None:
        cores.meet(core, ("barrier",), 0, UNKNOWN)
        if core == failing:
            raise ValueError("mine")
        after.append(core)
        cores.meet(core, ("barrier",), 0, UNKNOWN)

    with pytest.raises(ValueError, match="mine"):
        cores.run([lambda: task(0), lambda: task(1)])
    assert after == ([1] if failing == 0 else []), "core 1 comes to the first barrier last, and goes on"


def test_an_error_before_the_first_meeting_ends_the_other_core_before_its_first_instruction() -> None:
    began: list[int] = []

    def fails() -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        Cores(2).run([fails, lambda: began.append(1)])
    assert not began


@RANKS
def test_an_error_of_one_rank_ends_the_others(kind: type[ThreadRanks]) -> None:
    ranks = kind(3)
    after: list[int] = []

    def task(rank: int) -> None:
        ranks.meet(rank, Meeting((0, 1, 2), ("all_reduce",), rank, UNKNOWN))
        if rank == 2:
            raise ValueError("mine")
        ranks.meet(rank, Meeting((0, 1, 2), ("all_reduce",), rank, UNKNOWN))
        after.append(rank)

    with pytest.raises(ValueError, match="mine"):
        ranks.run([lambda rank=rank: task(rank) for rank in range(3)])  # type: ignore[misc]
    assert not after


@RANKS
def test_a_deadlock_is_told_whoever_comes_last(kind: type[ThreadRanks]) -> None:
    ranks = kind(3)

    def meet(rank: int, *members: int) -> None:
        ranks.meet(rank, Meeting(members, ("all_reduce",), rank, UNKNOWN))

    def first() -> None:
        meet(0, 0, 1)
        meet(0, 0, 1, 2)

    def second() -> None:
        meet(1, 0, 1)
        meet(1, 1, 2)

    with pytest.raises(DivergenceError, match="rank 0 waits at all_reduce among ranks 0, 1, 2") as caught:
        ranks.run([first, second, lambda: meet(2, 0, 2)])
    assert caught.value.code == "ranks.deadlock"
