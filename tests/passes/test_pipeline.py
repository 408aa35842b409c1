"""The passes in their order: every stage computes the same, nothing that came in changes, and times are measured."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest

from nki.core.errors import UsageError
from nki.options import Options
from nki.passes.context import Context
from nki.passes.pipeline import PIPELINE, Stage, compile_programs, passes_named, remaining
from nki.passes.proof.happens_before import check
from nki.passes.scheduling.tasks import Tasks, machine_of
from nki.spec.program import Issued, Program
from nki.target.load import load_target
from nki.testing.adversary import Policy
from nki.testing.equality import differences
from tests.fuzz.checks import adverse, traced
from tests.fuzz.programs import Case, case

SEEDS = [3, 4, 7, 11, 12, 18, 23]
NAMES = [item.name for item in PIPELINE]


def context(of: Case) -> Context:
    return Context(load_target(of.target), Options(target=of.target), of.config)


def staged(of: Case) -> list[Stage]:
    """All stages of a case's programs."""
    stages: list[Stage] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compile_programs(traced(of), context(of), after=stages.append)
    return stages


@pytest.mark.parametrize("seed", SEEDS)
def test_every_stage_computes_the_same(seed: int) -> None:
    of = case(seed)
    stages = staged(of)
    assert [stage.name for stage in stages] == ["trace", *NAMES]
    wanted = adverse(of, stages[0].programs, Policy())
    assert wanted
    for stage in stages[1:]:
        assert adverse(of, stage.programs, Policy()) == wanted, stage.name


def test_each_program_knows_what_it_went_through() -> None:
    stages = staged(case(3))
    for number, stage in enumerate(stages):
        assert [program.passed for program in stage.programs] == [tuple(NAMES[:number])] * len(stage.programs)
        assert [item.name for item in remaining(stage.programs)] == NAMES[number:]
        assert stage.seconds >= 0


@pytest.mark.parametrize("seed", SEEDS[:3])
def test_what_comes_in_does_not_change(seed: int) -> None:
    of = case(seed)
    programs, untouched = traced(of), traced(of)
    first = compile_programs(programs, context(of)).programs
    assert [differences(a, b) for a, b in zip(programs, untouched, strict=True)] == [[]] * len(programs)
    assert all(program.placement is None and program.body.sync is None for program in programs)
    second = compile_programs(programs, context(of)).programs
    assert [differences(a, b) for a, b in zip(first, second, strict=True)] == [[]] * len(programs)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_last_stage_is_placed_and_scheduled(seed: int) -> None:
    of = case(seed)
    (*_, last) = staged(of)
    target = load_target(of.target)
    assert check(last.programs, target) == []
    for program in last.programs:
        used = {view.buffer.id: view.buffer for issued in program.body.walk() for _, view in issued.views()}
        for buffer in used.values():
            assert not buffer.on_chip or buffer.address is not None or buffer.id in (program.placement or {})
        assert _synchronised(program.body)
        assert all(producer < consumer for producer, consumer in program.edges)


def _synchronised(block: Any) -> bool:
    return len(block.sync) == len(block.items) and all(
        (sync is not None) == isinstance(item, Issued) and (isinstance(item, Issued) or _synchronised(item.body))
        for item, sync in zip(block.items, block.sync, strict=True)
    )


def test_passes_one_by_one_are_the_passes_at_once() -> None:
    of = case(7)
    current: tuple[Program, ...] = tuple(traced(of))
    for name in NAMES:
        current = compile_programs(current, context(of), passes_named([name])).programs
    (*_, last) = staged(of)
    assert [differences(a, b) for a, b in zip(current, last.programs, strict=True)] == [[]] * len(current)


def test_an_unknown_pass_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(UsageError) as caught:
        passes_named(["canonicalize", "magic"])
    assert caught.value.code == "pass.unknown"
    assert all(name in str(caught.value) for name in ("magic", *NAMES))


def test_the_scheduler_sees_costs_and_queues() -> None:
    of = case(3)
    target = load_target(of.target)
    items = list(traced(of)[0].body.walk())
    for issued, task in zip(items, Tasks(target).of(items), strict=True):
        assert task.busy >= 0 and task.latency >= 0
        assert task.queue == ("dma" if issued.instruction.name.startswith("dma_") else issued.engine.name)
        assert bool(task.group) == (issued.engine.name == "scalar" and issued.instruction.name.startswith("activation"))
    assert len(machine_of(target).dma) == target.dma.engines


def test_a_copy_of_the_arguments_is_enough() -> None:
    """Cases are made anew for each run: arguments are never shared."""
    of = case(4)
    before = copy.deepcopy(of.arguments)
    staged(of)
    assert all((a == b).all() for a, b in zip(of.arguments[:2], before[:2], strict=True))
