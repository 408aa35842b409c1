"""No order is faster than the least time of a program, which an example and random programs show."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.driver.compile import compiled
from nki.driver.prepare import prepare
from nki.profiling.facts.change import UNUSED, Change, Needs, scaled
from nki.profiling.facts.dependence_edges import Edges
from nki.profiling.facts.least_time import Job, LeastTime, preemptive
from nki.profiling.facts.retiming import Retiming
from nki.profiling.facts.timed_core import CoreFacts, core_of
from nki.spec.step import Step
from nki.target.load import load_target
from nki.timing.timeline import timeline
from tests.profiling.support import array, hbm, loaded
from tests.timing.support import Sketch
from tests.together import together

TRN2 = load_target("trn2")


def _core(sketch: Sketch) -> CoreFacts:
    program = sketch.program()
    return core_of(0, program, TRN2, timeline(program, TRN2))


def _sketched(seed: int) -> CoreFacts:
    """A random synchronized segment on several engines and DMA queues."""
    chance, sketch = random.Random(seed), Sketch()
    for number in range(50):
        queue = chance.choice(["vector", "scalar", "gpsimd", "sync", "dma0", "dma1"])
        after = chance.sample(range(number), min(number, chance.choice([0, 0, 1, 2])))
        ns = chance.choice([50.0, 100.0, 333.0])
        if queue.startswith("dma"):
            steps = [Step("start", "sync", 90.0, 500.0), Step("move", "dma", ns, 300.0, 4096, 1, 0.6, 20.0)]
        else:
            steps = [Step("work", queue, ns, chance.choice([0.0, 60.0]))]
        sketch.add(queue, *steps, after=after)
    return _core(sketch)


def _best(jobs: list[Job]) -> float:
    """The least end without interruptions, by trying every order."""
    found = float("inf")
    for order in itertools.permutations(jobs):
        now = last = 0.0
        for job in order:
            now = max(now, job.head) + job.work
            last = max(last, now + job.tail)
        found = min(found, last)
    return found


def test_the_work_of_a_unit_with_what_is_before_and_after_it() -> None:
    assert preemptive([Job(3.0, 2.0, 4.0)]) == 9.0
    assert preemptive([Job(0.0, 5.0, 0.0), Job(1.0, 2.0, 7.0)]) == 10.0, "the second one interrupts the first one"
    assert preemptive([Job(2.0, 3.0, 1.0), Job(2.0, 3.0, 1.0)]) == 9.0, "fill, work and drain"
    assert preemptive([]) == 0.0


@together("seed", range(30))
def test_no_order_of_jobs_is_faster(seed: int) -> None:
    chance = random.Random(seed)
    jobs = [Job(*(float(chance.randint(0, 9)) for _ in range(3))) for _ in range(5)]
    assert preemptive(jobs) <= _best(jobs)
    assert preemptive(jobs) >= max(job.head + job.work + job.tail for job in jobs)
    assert preemptive(jobs) >= min(j.head for j in jobs) + sum(j.work for j in jobs) + min(j.tail for j in jobs)


@pytest.mark.parametrize("seed", range(20))
def test_a_changed_program_takes_no_less_than_its_least_time(seed: int) -> None:
    core = _sketched(seed)
    needs = Needs(core, Edges(core))
    least, retimed = LeastTime(core, needs), Retiming(core, needs)
    assert retimed.ns(Change()) == pytest.approx(core.line.makespan)
    chance = random.Random(seed)
    some = chance.sample(range(len(core.items)), 15)
    changes = [
        Change(),
        Change(gone=dict.fromkeys(some, UNUSED)),
        Change(recipes={at: scaled(core.recipes[at], 0.5, 0.25) for at in some}),
    ]
    for change in changes:
        assert 0.0 < least.ns(change) <= retimed.ns(change) + 1e-6
    assert least.ns(changes[2]) <= least.ns(Change())


def _compiled(kernel: Callable[..., Any], *arguments: Any) -> CoreFacts:
    prepared = prepare(nki.jit(kernel), arguments, {}, mode="compiled", cache={})
    program = compiled(prepared).programs[0]
    return core_of(0, program, prepared.target, timeline(program, prepared.target))


def _rows(tiles: int) -> Callable[..., Any]:
    def kernel(a: Any) -> Any:
        out = hbm(a.shape)
        for tile in range(tiles):
            x = loaded(a[tile])
            nisa.activation(dst=x, op=nl.exp, data=x)
            nisa.dma_copy(dst=out[tile], src=x)
        return out

    return kernel


def test_what_nothing_can_overlap_with_takes_its_whole_time() -> None:
    """A load, a function with its table, a store: all but what transfers are spared that follow another one."""
    core = _compiled(_rows(1), array(1, 128, 512))
    spared = sum(core.recipes[at].skew for at in core.transfers())
    assert LeastTime(core, Needs(core, Edges(core))).ns(Change()) == pytest.approx(core.line.makespan - spared)


def test_the_first_load_and_the_last_store_are_part_of_the_least_time() -> None:
    core = _compiled(_rows(6), array(6, 128, 512))
    least = LeastTime(core, Needs(core, Edges(core))).ns(Change())
    activations = core.line.busy["scalar"]
    load, store = (core.recipes[at].alone for at in (min(core.transfers()), max(core.transfers())))
    assert 0.8 * (load + store) + activations <= least <= core.line.makespan
