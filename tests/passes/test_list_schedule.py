"""List schedules obey dependences, are the same every time, and are as long as a plain simulation of them."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from nki.passes.list_schedule import Machine, Schedule, Task, critical_path, in_order, list_schedule
from nki.passes.schedule import shorter

MACHINE = Machine(("dma0", "dma1"), switch=100.0, signal=5.0)


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


@pytest.mark.parametrize("seed", range(60))
def test_schedules_are_legal_and_as_long_as_they_say(seed: int) -> None:
    tasks, producers = random_tasks(Random(seed))
    for schedule in (list_schedule(tasks, producers, MACHINE), in_order(tasks, producers, MACHINE)):
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


@pytest.mark.parametrize("window", [1, 2, 5, 40])
def test_no_instruction_is_further_ahead_than_the_window(window: int) -> None:
    for seed in range(20):
        tasks, producers = random_tasks(Random(seed))
        schedule = list_schedule(tasks, producers, MACHINE, window)
        left = set(range(len(tasks)))
        for position in schedule.order:
            assert position < min(left) + window
            left.remove(position)
        assert not left
        assert schedule.makespan == pytest.approx(simulated(schedule, tasks, producers))


def test_what_is_chosen_is_never_longer_than_the_order_of_the_kernel() -> None:
    for seed in range(100):
        tasks, producers = random_tasks(Random(seed))
        new, old = (f(tasks, producers, MACHINE) for f in (list_schedule, in_order))
        assert shorter(new, old).makespan == min(new.makespan, old.makespan)
        assert shorter(old, old) is old


def test_nothing() -> None:
    for schedule in (list_schedule([], [], MACHINE), in_order([], [], MACHINE)):
        assert schedule == Schedule([], [], 0.0)
