"""List schedules obey dependences, are the same every time, and are as long as a plain simulation of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from random import Random

import pytest

from nki.passes.scheduling.list_schedule import (
    Dependent,
    Heuristic,
    Machine,
    Schedule,
    Task,
    in_order,
    list_schedule,
)
from tests.together import together

MACHINE = Machine(("dma0", "dma1"), switch=100.0, signal=5.0)


def critical_path(tasks: Sequence[Task], producers: Sequence[Sequence[int]], signal: float) -> float:
    """ns of the longest chain of dependences."""
    return max(Dependent(tasks, producers, MACHINE._replace(signal=signal)).urgency, default=0.0)


def random_tasks(random: Random, most: int = 30) -> tuple[list[Task], list[tuple[int, ...]]]:
    """Instructions of all queues, Scalar ones with tables, and what they depend on."""
    tasks, producers = [], []
    for at in range(random.randint(1, most)):
        queue = random.choice(["tensor", "vector", "scalar", "dma"])
        group = random.choice(["exp", "tanh", ""]) if queue == "scalar" else ""
        tasks.append(Task(queue, float(random.randint(1, 50)), float(random.randint(0, 20)), group))
        producers.append(tuple(sorted(random.sample(range(at), min(at, random.randint(0, 2))))))
    return tasks, producers


def simulated(schedule: Schedule, tasks: Sequence[Task], producers: Sequence[Sequence[int]]) -> float:
    """When everything is done if each queue takes its instructions in the order of the schedule."""
    free: dict[str, float] = {}
    table = ""
    visible: dict[int, float] = {}
    for position in schedule.order:
        task, queue = tasks[position], schedule.queues[position]
        start = free.get(queue, 0.0)
        for producer in producers[position]:
            other = schedule.queues[producer]
            near = tasks[producer].queue == task.queue != "dma" or (other == queue and task.queue != "dma")
            start = max(start, visible[producer] + (0.0 if near else MACHINE.signal))
        if task.group and task.group != table:
            table = task.group
            start += MACHINE.switch
        free[queue] = start + task.busy
        visible[position] = start + task.busy + task.latency
    return max(visible.values(), default=0.0)


@together("seed", range(60))
def test_schedules_are_legal_and_as_long_as_they_say(seed: int) -> None:
    tasks, producers = random_tasks(Random(seed))
    written = Heuristic(window=8, written=True)
    for schedule in (
        list_schedule(tasks, producers, MACHINE),
        list_schedule(tasks, producers, MACHINE, written),
        in_order(tasks, producers, MACHINE),
        in_order(tasks, producers, MACHINE, spread=False),
    ):
        place = {position: at for at, position in enumerate(schedule.order)}
        assert sorted(place) == list(range(len(tasks)))
        assert all(place[p] < place[c] for c, needed in enumerate(producers) for p in needed)
        for task, queue in zip(tasks, schedule.queues, strict=True):
            assert queue in MACHINE.dma if task.queue == "dma" else queue == task.queue
        assert schedule.makespan >= critical_path(tasks, producers, MACHINE.signal) - 1e-9
        assert schedule.makespan == pytest.approx(simulated(schedule, tasks, producers))


def test_the_same_schedule_every_time() -> None:
    for seed in range(20):
        tasks, producers = random_tasks(Random(seed))
        assert list_schedule(tasks, producers, MACHINE) == list_schedule(tasks, list(producers), MACHINE)


def test_schedules_are_mostly_shorter_than_the_order_of_the_kernel() -> None:
    shorter = longer = 0
    for seed in range(100):
        tasks, producers = random_tasks(Random(seed))
        new, old = (f(tasks, producers, MACHINE).makespan for f in (list_schedule, in_order))
        shorter, longer = shorter + (new < old), longer + (new > old)
    assert shorter > 5 * longer


def test_the_order_of_the_kernel_stays() -> None:
    tasks, producers = random_tasks(Random(3))
    assert in_order(tasks, producers, MACHINE).order == list(range(len(tasks)))


def test_a_long_chain_goes_first() -> None:
    """Position 0 is short and nobody needs it; 1 begins a chain."""
    tasks = [Task("vector", 10, 0), Task("vector", 10, 0), Task("scalar", 100, 0)]
    schedule = list_schedule(tasks, [(), (), (1,)], MACHINE)
    assert schedule.order.index(1) < schedule.order.index(0)
    assert schedule.makespan == 10 + 5 + 100


def test_tables_are_not_loaded_to_and_fro() -> None:
    tasks = [Task("scalar", 10, 0, name) for name in ("exp", "tanh") * 3]
    schedule = list_schedule(tasks, [()] * 6, MACHINE)
    assert schedule.makespan == 60 + 2 * MACHINE.switch
    assert in_order(tasks, [()] * 6, MACHINE).makespan == 60 + 6 * MACHINE.switch


def test_transfers_are_spread_over_the_queues() -> None:
    schedule = list_schedule([Task("dma", 10, 3)] * 4, [()] * 4, MACHINE)
    assert sorted(schedule.queues) == ["dma0", "dma0", "dma1", "dma1"]
    assert schedule.makespan == 23


def test_transfers_follow_each_other_as_bandwidth_allows() -> None:
    """Each takes all of it: in one queue the first one is done as early as possible."""
    schedule = list_schedule([Task("dma", 10, 3, "", 10)] * 4, [()] * 4, MACHINE)
    assert set(schedule.queues) == {"dma0"}
    assert schedule.makespan == 43


def test_a_transfer_that_waits_holds_no_other_up() -> None:
    """The store starts when its data is ready; the loads stay in their queue."""
    loads, work, store = [Task("dma", 10, 0, "", 10)] * 5, Task("vector", 5, 0), Task("dma", 10, 0, "", 1)
    schedule = list_schedule([*loads, work, store], [(), (), (), (), (), (0,), (5,)], MACHINE)
    assert set(schedule.queues[:5]) == {"dma0"}
    place = {position: at for at, position in enumerate(schedule.order)}
    assert schedule.queues[6] == "dma1" or place[6] > place[4]


def test_a_transfer_follows_the_one_that_it_waits_for_in_its_queue() -> None:
    tasks = [Task("vector", 7, 0), *[Task("dma", 10, 3)] * 2]
    schedule = list_schedule(tasks, [(), (0,), (1,)], MACHINE)
    assert schedule.queues[1] == schedule.queues[2]


def test_patience_saves_loading_tables() -> None:
    """Data for both groups comes in turns; who waits for its own group switches once."""
    tasks, producers = [], []
    for number in range(4):
        tasks += [Task("vector", 130, 0), Task("scalar", 10, 0, ("exp", "tanh")[number % 2])]
        producers += [(), (2 * number,)]
    hasty, patient = (list_schedule(tasks, producers, MACHINE, Heuristic(patience=p)) for p in (0.0, 150.0))

    def loads(schedule: Schedule) -> int:
        groups = [tasks[position].group for position in schedule.order if tasks[position].group]
        return 1 + sum(a != b for a, b in pairwise(groups))

    assert (loads(hasty), loads(patient)) == (4, 2)
    assert patient.makespan < hasty.makespan
    assert patient.makespan == pytest.approx(simulated(patient, tasks, producers))


@pytest.mark.parametrize("window", [1, 2, 5, 40])
def test_no_instruction_is_further_ahead_than_the_window(window: int) -> None:
    for seed in range(20):
        tasks, producers = random_tasks(Random(seed))
        schedule = list_schedule(tasks, producers, MACHINE, Heuristic(window=window))
        left = set(range(len(tasks)))
        for position in schedule.order:
            assert position < min(left) + window
            left.remove(position)
        assert not left
        assert schedule.makespan == pytest.approx(simulated(schedule, tasks, producers))


def test_nothing() -> None:
    for schedule in (list_schedule([], [], MACHINE), in_order([], [], MACHINE)):
        assert schedule == Schedule([], [], 0.0)
