"""Every instruction in its examples on every target: remembered costs are right, and programs have timelines."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from nki.passes.analysis.dependences import dependences, segments_of
from nki.spec.instruction import REGISTRY
from nki.spec.program import Program
from nki.target.load import load_target
from nki.timing.bound import lower_bound
from nki.timing.cores import timelines
from nki.timing.cost import cost_of, signature, steps_of
from tests.isa.registry import Legal
from tests.isa.test_registry import LEGAL
from tests.timing.support import traced, trivially

NAMES = sorted({example.instruction for example, _ in LEGAL})


def programs_of(example: Legal, target: str) -> list[Program]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return traced(example.kernel, *example.arguments(), target=load_target(target), lnc=example.lnc)


def test_all_instructions_are_here() -> None:
    assert set(NAMES) == set(REGISTRY)


@pytest.mark.parametrize("name", NAMES)
def test_costs_by_shape_are_those_of_the_declaration(name: str) -> None:
    """Whatever two examples have in common in their signature, their cost is the same."""
    known: dict[Any, Any] = {}
    for example, target in LEGAL:
        if example.instruction == name:
            chosen = load_target(target)
            for issued in [issued for program in programs_of(example, target) for issued in program.body.walk()]:
                fresh = steps_of(issued, chosen)
                assert cost_of(issued, chosen) == fresh
                assert known.setdefault((target, signature(issued)), fresh) == fresh


@pytest.mark.parametrize("name", NAMES)
def test_examples_have_a_timeline_above_their_bound(name: str) -> None:
    for example, target in LEGAL:
        if example.instruction == name:
            chosen = load_target(target)
            sources = programs_of(example, target)
            found = timelines([trivially(source, chosen) for source in sources], chosen)
            for source, line in zip(sources, found, strict=True):
                needs = [dependences(s.items, source, chosen, s.edges, s.fences) for s in segments_of(source)]
                assert 0 < lower_bound(source, chosen, needs) <= line.makespan + 1e-6
                assert np.isfinite(line.start).all()
