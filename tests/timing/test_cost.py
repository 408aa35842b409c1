"""Costs that are remembered by shape against the declarations, evaluated anew."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki.isa as nisa
import nki.language as nl
from nki.core.source import UNKNOWN
from nki.spec.engine import engine
from nki.spec.program import Issued
from nki.spec.queue import queue_class
from nki.spec.step import Step
from nki.target.load import load_target
from nki.timing.cost import ENTRIES, Costs, alone, cost_of, duration, remember, signature, steps_of
from tests.timing.support import tensor, toy, traced
from tests.timing.test_properties import tiles

TRN2 = load_target("trn2")


def issued_by(kernel: Any, *arrays: Any) -> list[Issued]:
    return list(traced(kernel, *arrays)[0].body.walk())


def tile_program() -> list[Issued]:
    return issued_by(tiles, np.zeros((128, 384), nl.bfloat16), np.zeros((128, 512), nl.bfloat16))


def test_equal_shapes_share_a_cost_and_others_do_not() -> None:
    def copy(dst: Any, src: Any, on: engine = engine.vector) -> Issued:
        return Issued(nisa.tensor_copy, nisa.tensor_copy.arguments(dst, src, on, None), UNKNOWN, on)

    a, b, c = tensor(0), tensor(1), tensor(2)
    assert signature(copy(a, b)) == signature(copy(b, c))
    moved = b._replace(shape=(128, 4), offset=2), b._replace(shape=(128, 4), offset=0)
    assert signature(copy(moved[0], moved[0])) == signature(copy(moved[1], moved[1]))
    others = [
        copy(a, tensor(3, "psum")),
        copy(a, b, engine.scalar),
        copy(a, b._replace(strides=(8, 0))),
        copy(moved[0], moved[0]),
        copy(a, b._replace(dtype=nl.int32)),
    ]
    keys = {signature(copy(a, b)), *map(signature, others)}
    assert len(keys) == len(others) + 1


def test_an_instruction_without_steps_passes_a_sequencer() -> None:
    nothing = toy((), engine.scalar)
    issued = Issued(nothing, nothing.arguments(tensor(0), tensor(1)), UNKNOWN, engine.scalar)
    least = TRN2.issue.min_ii_cycles / TRN2.engines.scalar.ghz
    assert cost_of(issued, TRN2) == (Step("Sequencer", "scalar", least),)


def test_a_cache_does_not_grow_for_ever() -> None:
    known: dict[Any, Any] = {(n,): n for n in range(ENTRIES)}
    assert remember(known, ("new",), 5) == 5
    assert known == {("new",): 5}


def test_targets_have_their_own_costs() -> None:
    for issued in tile_program():
        for name in ("trn1", "trn2", "trn3"):
            target = load_target(name)
            assert Costs(target).of(issued) == cost_of(issued, target) == steps_of(issued, target)


# --- what a list scheduler asks


@pytest.mark.parametrize(
    ("steps", "busy", "total"),
    [
        ((Step("V", "vector", 100, 30),), 100, 130),
        ((Step("A", "scalar", 100, 30), Step("R", "scalar", 10, 40)), 110, 150),
        ((Step("L", "tensor.load", 20, 100), Step("M", "tensor", 200, 50)), 200, 370),
        ((Step("L", "tensor.load", 60, 100), Step("M", "tensor", 20, 50)), 60, 230),
    ],
)
def test_a_duration_is_what_the_queue_is_held_for_and_the_rest(
    steps: tuple[Step, ...], busy: float, total: float
) -> None:
    declared = toy(steps, engine.vector)
    issued = Issued(declared, declared.arguments(tensor(0), tensor(1)), UNKNOWN, engine.vector)
    assert alone(steps) == total
    assert duration(issued, TRN2) == (busy, total - busy)
    assert queue_class(issued) == "vector"


def test_a_transfer_holds_its_queue_while_it_moves() -> None:
    """With the time of a semaphore, the latency gives the start of who waits."""
    steps = Step("T", "sync", 10, 90), Step("D", "dma", 500, 300)
    declared = toy(steps, engine.dma)
    issued = Issued(declared, declared.arguments(tensor(0), tensor(1)), UNKNOWN, engine.dma)
    busy, latency = duration(issued, TRN2)
    assert (queue_class(issued), busy) == ("dma", 500)
    assert busy + latency + TRN2.timing["semaphore_ns"] == pytest.approx(10 + 90 + 500 + 300)
