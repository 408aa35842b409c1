"""Orders that fit PSUM: no more is begun than there is, and sums leave room for what they wait for."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np

import nki.isa as nisa
import nki.language as nl
from nki.passes.analysis.dependences import dependences, segments_of
from nki.passes.scheduling.list_schedule import Heuristic, Schedule, Task, list_schedule, schedule_within
from nki.passes.scheduling.psum_pressure import Needs, psum_needs
from tests.ir.kernels import array, scaled_sum, traced
from tests.passes.kernels import TRN2
from tests.passes.scheduling.test_list_schedule import MACHINE, random_tasks
from tests.together import together

ONE = Heuristic(spare=1)


def most_in_use(schedule: Schedule, needs: Needs) -> int:
    """Bytes of the tensors between their first and their last instruction, where that is most."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for at, position in enumerate(schedule.order):
        for tensor in needs.touches[position]:
            first.setdefault(tensor, at)
            last[tensor] = at
    return max(
        (sum(needs.sizes[t] for t in first if first[t] <= at <= last[t]) for at in range(len(schedule.order))),
        default=0,
    )


def chains(random: Random) -> tuple[list[Task], list[tuple[int, ...]], Needs]:
    """Random instructions; some of them work on a tensor, from its first writer to its last reader."""
    tasks, producers = random_tasks(random)
    touches: list[tuple[int, ...]] = [()] * len(tasks)
    sizes = []
    for tensor in range(random.randint(1, 8)):
        users = sorted(random.sample(range(len(tasks)), min(len(tasks), random.randint(1, 4))))
        sizes.append(random.choice([1, 1, 2]))
        for earlier, user in zip([None, *users], users, strict=False):
            touches[user] += (tensor,)
            if earlier is not None:
                producers[user] = tuple(sorted({*producers[user], earlier}))
    return tasks, producers, Needs(4, touches, sizes, [0] * len(sizes))


@together("seed", range(40))
def test_no_more_is_begun_than_there_is(seed: int) -> None:
    tasks, producers, needs = chains(Random(seed))
    schedule = schedule_within(tasks, producers, MACHINE, ONE, needs)
    if schedule is None:  # it may come to no end, as no rank says who has to leave room
        assert most_in_use(list_schedule(tasks, producers, MACHINE), needs) > needs.room
        return
    place = {position: at for at, position in enumerate(schedule.order)}
    assert sorted(place) == list(range(len(tasks)))
    assert all(place[p] < place[c] for c, needed in enumerate(producers) for p in needed)
    assert most_in_use(schedule, needs) <= needs.room


def test_some_orders_would_need_more() -> None:
    cases = [chains(Random(seed)) for seed in range(40)]
    over = [most_in_use(list_schedule(t, p, MACHINE), n) > n.room for t, p, n in cases]
    fits = [schedule_within(t, p, MACHINE, ONE, n) is not None for t, p, n in cases]
    assert sum(over) >= 5
    assert sum(fitting for much, fitting in zip(over, fits, strict=True) if much) >= 3


def sums(count: int) -> tuple[list[Task], list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Sums of two products; the second one needs a tensor of its own first."""
    tasks: list[Task] = []
    producers: list[tuple[int, ...]] = []
    touches: list[tuple[int, ...]] = []

    def add(queue: str, busy: float, before: Sequence[int], tensors: Sequence[int]) -> int:
        tasks.append(Task(queue, busy, 1.0))
        producers.append(tuple(before))
        touches.append(tuple(tensors))
        return len(tasks) - 1

    for number in range(count):
        total, between = 2 * number, 2 * number + 1
        begun = add("tensor", 1.0, (), (total,))
        slow = add("dma", 500.0, (), ())
        product = add("tensor", 1.0, (slow,), (between,))
        moved = add("scalar", 1.0, (product,), (between,))
        add("tensor", 1.0, (begun, moved), (total,))
    return tasks, producers, touches


def test_a_sum_leaves_room_for_what_it_waits_for() -> None:
    tasks, producers, touches = sums(6)
    careless = Needs(4, touches, [1] * 12, [0] * 12)
    assert schedule_within(tasks, producers, MACHINE, ONE, careless) is None
    careful = careless._replace(ranks=[1, 0] * 6)
    schedule = schedule_within(tasks, producers, MACHINE, ONE, careful)
    assert schedule is not None
    assert most_in_use(schedule, careful) <= 4
    two = schedule_within(tasks, producers, MACHINE, Heuristic(spare=2), careful)
    assert two is not None
    assert most_in_use(two, careful) <= 4


def kernel(x: Any, w: Any) -> Any:
    """Two products into one sum, the second one of a product that needs PSUM itself; a tensor with an address."""
    out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
    tokens, weight = (nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf) for a in (x, w))
    nisa.dma_copy(dst=tokens, src=x)
    nisa.dma_copy(dst=weight, src=w)
    total, product = (nl.ndarray((128, 512), nl.float32, buffer=nl.psum) for _ in range(2))
    fixed = nl.ndarray((128, 512), nl.float32, buffer=nl.psum, address=(0, 3 * 2048))
    active, result = nl.ndarray((128, 512), x.dtype, buffer=nl.sbuf), nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
    nisa.nc_matmul(dst=total, stationary=weight, moving=tokens)
    nisa.nc_matmul(dst=product, stationary=weight, moving=tokens)
    nisa.activation(dst=active, op=nl.gelu, data=product)
    nisa.nc_matmul(dst=total, stationary=weight, moving=active, accumulate=True)
    nisa.nc_matmul(dst=fixed, stationary=weight, moving=active)
    nisa.tensor_copy(dst=result, src=fixed)
    nisa.tensor_tensor(dst=result, data1=total, data2=result, op=nl.add)
    nisa.dma_copy(dst=out, src=result)
    return out


def test_the_ranks_of_a_kernel() -> None:
    """The sum waits for the product, which waits for nothing; what has an address takes its room."""
    program = traced(kernel, np.zeros((128, 512), nl.bfloat16), np.zeros((128, 128), nl.bfloat16))[0]
    (segment,) = segments_of(program)
    before = dependences(segment.items, program, TRN2, segment.edges, segment.fences)
    (needs,) = psum_needs([segment], [before], TRN2)
    assert needs is not None
    assert needs.room == 7 * 2048
    assert needs.sizes == [2048, 2048]
    assert needs.ranks == [1, 0]
    assert [touched for touched in needs.touches if touched] == [(0,), (1,), (1,), (0,), (0,)]


def test_without_sums_there_are_no_needs() -> None:
    program = traced(scaled_sum, array(), array())[0]
    (segment,) = segments_of(program)
    before = dependences(segment.items, program, TRN2, segment.edges, segment.fences)
    assert psum_needs([segment], [before], TRN2) == [None]
