"""Where transfers go: one behind the other while they wait for bandwidth only, else where they hold nobody up."""

from __future__ import annotations

from random import Random

from nki.passes.scheduling.dma_queues import Spread, Streams
from nki.passes.scheduling.list_schedule import Heuristic, Machine, Task, in_order, list_schedule
from nki.passes.scheduling.lower_bound import about_least
from tests.passes.scheduling.test_list_schedule import MACHINE, random_tasks

NAMES = tuple(f"dma{number}" for number in range(4))


def test_streams_follow_each_other_in_one_queue() -> None:
    streams = Streams(NAMES)
    assert [streams.place(0.0, 10.0, 10.0, None) for _ in range(3)] == [(0.0, "dma0"), (10.0, "dma0"), (20.0, "dma0")]


def test_a_transfer_that_waits_for_data_stays_out_of_the_stream() -> None:
    streams = Streams(NAMES)
    streams.place(0.0, 10.0, 10.0, None)
    start, queue = streams.place(100.0, 10.0, 10.0, None)
    assert start == 100.0
    assert queue != "dma0"
    assert streams.place(0.0, 10.0, 10.0, None) == (20.0, "dma0")


def test_a_transfer_follows_the_one_that_it_waits_for() -> None:
    streams = Streams(NAMES)
    streams.place(0.0, 10.0, 1.0, None)
    _, queue = streams.place(50.0, 10.0, 1.0, None)
    assert streams.place(60.0, 10.0, 1.0, queue) == (60.0, queue)


def test_with_more_transfers_than_queues_one_waits() -> None:
    streams = Streams(NAMES)
    starts = [streams.place(0.0, 10.0, 0.0, None)[0] for _ in range(6)]
    assert starts == [0.0] * 4 + [10.0] * 2


def test_spread_takes_every_queue() -> None:
    spread = Spread(NAMES)
    assert {spread.place(0.0, 10.0, 1.0, None)[1] for _ in NAMES} == set(NAMES)


def test_no_schedule_is_shorter_than_about_the_least() -> None:
    close = 0
    for seed in range(80):
        tasks, producers = random_tasks(Random(seed))
        least = about_least(tasks, producers, MACHINE.signal)
        found = [
            in_order(tasks, producers, MACHINE),
            in_order(tasks, producers, MACHINE, spread=False),
            list_schedule(tasks, producers, MACHINE),
            list_schedule(tasks, producers, MACHINE, Heuristic(written=True)),
        ]
        best = min(schedule.makespan for schedule in found)
        assert best >= least - 1e-9
        close += best <= 1.1 * least
    assert close > 10, "it would say nothing if nobody came near"


def test_what_is_begun_is_finished_first() -> None:
    """Two products of three steps each: the most urgent first means both halfway, written means one after the other."""
    machine = Machine(("dma0",), switch=0.0, signal=0.0)
    tasks = [Task("tensor", 10.0, 0.0) for _ in range(6)]
    producers = [(), (0,), (1,), (), (3,), (4,)]
    assert list_schedule(tasks, producers, machine).order == [0, 3, 1, 4, 2, 5]
    assert list_schedule(tasks, producers, machine, Heuristic(written=True)).order == [0, 1, 2, 3, 4, 5]
