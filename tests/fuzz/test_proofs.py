"""The proofs of a launch hold for what the compiler makes, and are loud about programs and results that are wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from benchmarks.kernels.hostile import PROGRAMS, Named
from benchmarks.proofs import policies, proof

import nki
import nki.isa as nisa
import nki.language as nl
from nki.passes import check_races
from nki.passes.order_search import evaluation
from nki.passes.pipeline import PIPELINE
from nki.passes.scheduling.semaphores import Synchronized, synchronize

CASES = [
    p
    for p in PROGRAMS
    if p.name in ("gather", "doubled", "loop counted", "loop softmax ahead", "two cores loop passed")
]


def squares(a: Any) -> Any:
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    for start in range(0, a.shape[0], 128):
        x, y = (nl.ndarray((128, a.shape[1]), a.dtype, buffer=nl.sbuf) for _ in range(2))
        nisa.dma_copy(dst=x, src=a[start : start + 128])
        nisa.tensor_tensor(dst=y, data1=x, data2=x, op=nl.multiply)
        nisa.dma_copy(dst=out[start : start + 128], src=y)
    return out


def numbers() -> np.ndarray:
    return np.arange(256 * 8, dtype=np.float32).reshape(256, 8)


@pytest.mark.parametrize("program", CASES, ids=lambda program: program.name)
def test_named_programs_hold(program: Named) -> None:
    found = proof(program.made(), program.arguments(), {}, stages=True, schedules=3)
    assert (found.refused, found.faults, found.schedules) == ("", (), 3)
    assert found.stages == ("trace", *(item.name for item in PIPELINE))
    assert found.cores == (program.lnc or 1)
    assert found.instructions and found.waits


def test_there_are_enough_programs_of_every_kind() -> None:
    names = [program.name for program in PROGRAMS]
    assert len(set(names)) == len(names) >= 40
    assert sum(program.lnc == 2 for program in PROGRAMS) >= 8
    assert sum("loop" in name for name in names) >= 15


def test_arguments_that_the_kernel_changes_are_compared() -> None:
    (program,) = [p for p in PROGRAMS if p.name == "doubled"]
    arguments = program.arguments()
    result = nki.simulate(program.made())(arguments[0].copy())
    found = proof(program.made(), arguments, {}, schedules=1, eager=(result, (arguments[0],), {}))
    assert [fault.split(":")[0] for fault in found.faults] == [
        "compiled",
        "schedule Policy(kind='program', queue='', seed=0, in_flight=True)",
    ]
    assert all("arguments differ" in fault for fault in found.faults)


def test_another_result_is_a_fault_at_every_stage() -> None:
    wrong = numbers() ** 2
    wrong[7, 3] += 1
    found = proof(squares, [numbers()], {}, stages=True, schedules=2, eager=(wrong, (numbers(),), {}))
    assert len(found.faults) == 1 + len(found.stages) + 2
    assert all("results differ: 0" in fault for fault in found.faults)


def test_a_missing_wait_is_a_fault_of_order_and_shows_under_schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(queues: Any, producers: Any) -> Synchronized:
        made = synchronize(queues, producers)
        return made._replace(awaited=[() for _ in made.awaited])

    def copied(a: Any) -> Any:
        return squares(a)

    monkeypatch.setattr(evaluation, "synchronize", careless)
    monkeypatch.setattr(check_races, "refuse_races", lambda programs, target: None)
    found = proof(copied, [numbers()], {}, schedules=6)
    kinds = {fault.split(":")[0].split(" ")[0] for fault in found.faults}
    assert {"order", "schedule"} <= kinds


def test_policies_are_the_same_again_and_of_all_kinds() -> None:
    from random import Random

    chosen = policies([], 9, Random(1))
    assert chosen == policies([], 9, Random(1)) != policies([], 9, Random(2))
    assert {policy.kind for policy in chosen} == {"program", "random", "late", "early"}
