"""Every declaration on drawn cases: results, untouched surroundings and warnings, by independent references."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from nki.spec.instruction import REGISTRY
from tests.isa.properties.cases import Case, check, run
from tests.isa.properties.families import PROPERTIES, Property
from tests.isa.properties.formats import bits_of

_QUICK, _LONG, _COMPILED = 36, 400, 2
"""Cases for each unit of weight, and cases that run compiled too."""

EACH = pytest.mark.parametrize("item", PROPERTIES.values(), ids=lambda item: item.instruction)
_SLOW_DRAWS = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


def examine(item: Property, examples: int) -> None:
    """Draw so many cases and compare them."""

    @settings(max_examples=examples, suppress_health_check=_SLOW_DRAWS)
    @given(item.strategy)
    def holds(case: Case) -> None:
        outcome = check(case, item.reference)
        assert not outcome.wrong, "; ".join(outcome.wrong)

    holds()


@EACH
def test_results_are_those_of_the_reference(item: Property) -> None:
    examine(item, _QUICK * item.weight)


@EACH
@pytest.mark.slow
def test_results_are_those_of_the_reference_in_many_cases(item: Property) -> None:
    examine(item, _LONG * item.weight)


@EACH
def test_compiled_runs_give_the_same_bits(item: Property) -> None:
    @settings(max_examples=_COMPILED, suppress_health_check=_SLOW_DRAWS)
    @given(item.strategy)
    def same(case: Case) -> None:
        eager, compiled = run(case)[0], run(case, compiled=True)[0]
        for first, second in zip(eager, compiled, strict=True):
            assert first.keys() == second.keys()
            for name in first:
                np.testing.assert_array_equal(bits_of(first[name]), bits_of(second[name]))

    same()


@EACH
def test_a_wrong_body_is_noticed(item: Property, monkeypatch: pytest.MonkeyPatch) -> None:
    """One element of every result gets another upper bit: most results are then wrong (a NaN may still be one)."""
    declared = REGISTRY[item.instruction]
    right = declared.execute

    def wrong(arguments: Any, x: Any) -> None:
        right(arguments, x)
        for name, operand in declared.operands.items():
            view = getattr(arguments, name)
            if operand.writes and view is not None:
                bits = x.load_raw(view).copy()
                upper = bits_of(bits)
                upper[0, -1] ^= 1 if view.dtype.kind == "bool" else 1 << (view.dtype.bits - 2)
                x.store_raw(view, upper.view(bits.dtype))

    noticed: list[bool] = []

    @settings(max_examples=8, suppress_health_check=_SLOW_DRAWS, derandomize=True)
    @given(item.strategy)
    def see(case: Case) -> None:
        monkeypatch.setattr(declared, "execute", wrong)
        noticed.append(bool(check(case, item.reference).wrong))
        monkeypatch.undo()

    see()
    assert np.mean(noticed) > 0.6
