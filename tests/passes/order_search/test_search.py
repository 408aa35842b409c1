"""Candidates are evaluated once and never changed, and the best one of them is taken with all that belongs to it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from benchmarks.kernels.cases import STRAIGHT
from benchmarks.schedule_quality import programs_of

from nki.compiler import AddressRotation, CompileConfig
from nki.passes import allocate_and_schedule
from nki.passes.context import Context, PassResult
from nki.passes.order_search import search as searching
from nki.passes.order_search.candidates import Candidate, Order, Scheduled, Start
from nki.passes.order_search.choice import better
from nki.passes.order_search.evaluation import Evaluation
from nki.passes.order_search.heuristic_orders import ListOrders, written_order
from nki.passes.order_search.heuristics import HEURISTICS
from nki.passes.order_search.search import is_searched, search
from nki.passes.scheduling.list_schedule import Heuristic
from nki.passes.scheduling.ready_list import NEVER
from nki.passes.scheduling.tasks import Tasks
from nki.spec.program import Program
from nki.target.load import load_target
from nki.timing.loops import Spent
from nki.timing.run import SegmentRun
from tests.passes.allocation.overflowing import long_way_round
from tests.passes.allocation.support import TRN2, traced
from tests.passes.scheduling.test_pressure_reordering import needed_together
from tests.passes.test_allocate_and_schedule import program, scaled

CONTEXT = Context(TRN2)
NOWHERE = Heuristic(window=1)
"""No instruction overtakes another one: the written order."""


def benchmark(label: str) -> list[Program]:
    """The traced programs of a kernel of the benchmarks, one for each core."""
    (case,) = (case for case in STRAIGHT if case.label == label)
    return programs_of(case, load_target(case.target))


def candidate(ns: float) -> Candidate:
    empty = Program("k", "trn2", 0, 1)
    return Candidate(Order(()), PassResult(empty), Scheduled(Spent(ns), ns, lambda: empty))


def test_the_shorter_one_is_better_and_on_a_tie_the_first() -> None:
    one, equal, less = candidate(2.0), candidate(2.0), candidate(1.0)
    assert better(one, less) is less
    assert better(less, one) is less
    assert better(one, equal) is one
    assert better(None, one) is one
    assert better(one, None) is one
    assert better(None, None) is None


def test_an_order_is_evaluated_once_whoever_made_it() -> None:
    source, tasks = program(scaled, 6), Tasks(TRN2)
    evaluation = Evaluation(Start(source), CONTEXT, tasks)
    written = evaluation.of(written_order(source))
    assert written is not None
    again = ListOrders(source, TRN2, tasks).under(NOWHERE)
    assert again is not None and again.heuristic == NOWHERE
    assert evaluation.of(again) is written
    assert evaluation.spent == evaluation.instructions == 24


def test_an_order_without_room_is_none_and_the_first_reason_stays() -> None:
    kernel = traced(needed_together, np.ones((128, 512), np.float32))
    evaluation = Evaluation(Start(kernel), CONTEXT, Tasks(TRN2))
    assert evaluation.of(written_order(kernel)) is None
    assert evaluation.failure is not None and evaluation.failure.code == "memory.capacity"
    assert evaluation.spent == 0


def test_the_candidate_says_which_heuristic_made_it() -> None:
    (source,) = benchmark("transposed 1024x512 bf16 trn2")
    found = search(Start(source), CONTEXT, Tasks(TRN2))
    assert found.order.heuristic in HEURISTICS.several
    unsearched = search(Start(source), CONTEXT, Tasks(TRN2), HEURISTICS._replace(several=()))
    assert unsearched.order.heuristic is None
    assert found.makespan < unsearched.makespan


def test_large_programs_get_one_try(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Heuristic | None] = []
    evaluated = Evaluation.of

    def of(self: Evaluation, order: Order, limit: float = NEVER) -> Candidate | None:
        tried.append(order.heuristic)
        return evaluated(self, order, limit)

    monkeypatch.setattr(Evaluation, "of", of)
    (source,) = benchmark("attention-full 128x2048 bf16 trn2")
    found = search(Start(source), CONTEXT, Tasks(TRN2))
    assert tried == [None, found.order.heuristic]
    assert found.order.heuristic in HEURISTICS.one_with_sums


@pytest.mark.parametrize(
    ("kernel", "array", "spilled"),
    [
        (needed_together, np.ones((128, 512), np.float32), 2),
        (long_way_round, np.ones((128, 9 * 8192), np.float32), 4),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_only_the_candidate_that_is_taken_has_something_to_say(kernel: Any, array: np.ndarray, spilled: int) -> None:
    """Other candidates spill too; what they say of it is not true of the result."""
    config = CompileConfig(spill=True)
    found = allocate_and_schedule.run(traced(kernel, array), Context(TRN2, config=config))
    assert [finding.code for finding in found.findings] == ["memory.spill"]
    assert found.findings[0].facts["tensors"] == spilled


def test_what_is_not_searched() -> None:
    config, tight = CompileConfig(), CompileConfig(address_rotation=AddressRotation.DISABLE)
    assert is_searched(program(scaled, 5), config)
    assert not is_searched(program(scaled, searching.SMALL // 4), config), "nothing to gain"
    assert not is_searched(program(scaled, 5), tight), "the kernel wants its order"


@pytest.mark.parametrize("label", ["matmul 512x512 bf16 trn2", "rope 256x1024 f32 trn2", "matmul 2048x1024 bf16 trn2"])
def test_what_is_given_up_would_not_have_been_chosen(label: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same search in which every schedule is timed to its end."""
    source = next(iter(benchmark(label)))
    found = search(Start(source), CONTEXT, Tasks(TRN2))
    given_up: list[float] = []
    plain = SegmentRun.__init__

    def patient(self: SegmentRun, *args: Any, limit: float = NEVER, **more: Any) -> None:
        plain(self, *args, **more)
        given_up.append(limit)

    monkeypatch.setattr(SegmentRun, "__init__", patient)
    again = search(Start(source), CONTEXT, Tasks(TRN2))
    assert any(limit < NEVER for limit in given_up)
    assert again.schedule.spent == found.schedule.spent
    assert again.schedule.program().body.sync == found.schedule.program().body.sync
    assert again.schedule.program().body.items == found.schedule.program().body.items
    assert again.placed.program.placement == found.placed.program.placement
