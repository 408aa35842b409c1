"""Waits are enough whatever the speed of the queues, and none of them could be left out."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from nki.passes.scheduling.semaphores import synchronize
from nki.spec.program import Sync, Wait
from tests.together import together

Producers = list[list[int]]


def random_segment(random: Random) -> tuple[list[str], Producers]:
    """Queues of some instructions, and for each one the earlier ones that it depends on."""
    count = random.randint(1, 14)
    queues = [random.choice(["tensor", "vector", "scalar", "dma0"]) for _ in range(count)]
    producers = [sorted(random.sample(range(at), min(at, random.choice([0, 0, 1, 2, 3])))) for at in range(count)]
    return queues, producers


def run(syncs: Sequence[Sync], random: Random) -> list[tuple[int, int]]:
    """Start and end of each instruction (as ranks in time) in a random legal run; waits that never end are an error."""
    left: dict[str, list[int]] = {}
    for position, sync in enumerate(syncs):
        left.setdefault(sync.queue, []).append(position)
    given = dict.fromkeys(left, 0)
    running: dict[str, int] = {}
    begin, end = [-1] * len(syncs), [-1] * len(syncs)
    clock = 0
    while running or any(left.values()):
        can_start = [
            queue
            for queue, positions in left.items()
            if positions
            and queue not in running
            and all(given.get(w.queue, 0) >= w.signals for w in syncs[positions[0]].waits)
        ]
        queue = random.choice(can_start + sorted(running))
        clock += 1
        if queue in running:
            position = running.pop(queue)
            end[position] = clock
            given[queue] += syncs[position].signals
        else:
            running[queue] = left[queue].pop(0)
            begin[running[queue]] = clock
    return list(zip(begin, end, strict=True))


def certainly_done(syncs: Sequence[Sync]) -> list[set[int]]:
    """For each instruction all that must have completed when it starts, by following every wait."""
    done: list[set[int]] = []
    for position, sync in enumerate(syncs):
        before = [p for p in range(position) if syncs[p].queue == sync.queue][-1:]
        for queue, count in sync.waits:
            before.append([p for p, other in enumerate(syncs) if other.queue == queue and other.signals][count - 1])
        done.append(set(before).union(*(done[p] for p in before)))
    return done


@together("seed", range(60))
def test_every_dependence_holds_in_random_runs(seed: int) -> None:
    random = Random(seed)
    queues, producers = random_segment(random)
    syncs = synchronize(queues, producers).syncs
    for _ in range(20):
        times = run(syncs, random)
        for consumer, needed in enumerate(producers):
            assert all(times[producer][1] < times[consumer][0] for producer in needed)


@together("seed", range(60))
def test_no_wait_could_be_left_out_and_no_signal_is_unused(seed: int) -> None:
    queues, producers = random_segment(Random(seed))
    syncs = synchronize(queues, producers).syncs
    assert all(set(needed) <= done for needed, done in zip(producers, certainly_done(syncs), strict=True))
    for position, sync in enumerate(syncs):
        for wait in sync.waits:
            fewer = [*syncs]
            fewer[position] = sync._replace(waits=tuple(w for w in sync.waits if w is not wait))
            assert not all(set(n) <= done for n, done in zip(producers, certainly_done(fewer), strict=True))
    awaited = {(wait.queue, wait.signals) for sync in syncs for wait in sync.waits}
    for queue in set(queues):
        given = sum(sync.signals for sync in syncs if sync.queue == queue)
        assert {count for name, count in awaited if name == queue} == set(range(1, given + 1))


def test_what_a_queue_knows_needs_no_wait() -> None:
    found = synchronize(["dma0", "vector", "scalar", "scalar"], [[], [0], [0, 1], [0]])
    assert found.syncs == [
        Sync("dma0", (), True),
        Sync("vector", (Wait("dma0", 1),), True),
        Sync("scalar", (Wait("vector", 1),), False),
        Sync("scalar", (), False),
    ]
    assert (found.crossing, found.waits) == (4, 2)


def test_the_same_queue_needs_no_wait() -> None:
    assert synchronize(["vector"] * 3, [[], [0], [0, 1]]).syncs == [Sync("vector")] * 3


def test_signals_are_counted_by_those_that_somebody_waits_for() -> None:
    found = synchronize(["dma0", "dma0", "dma0", "vector", "vector"], [[], [], [], [1], [2]])
    assert [sync.signals for sync in found.syncs] == [False, True, True, False, False]
    assert [sync.waits for sync in found.syncs[3:]] == [(Wait("dma0", 1),), (Wait("dma0", 2),)]


def test_nothing() -> None:
    assert synchronize([], []).syncs == []
