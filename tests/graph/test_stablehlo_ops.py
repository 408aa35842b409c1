"""One fixed case of every operation of StableHLO, through the whole compiler, against JAX on the CPU."""

from __future__ import annotations

import warnings

import pytest

from tests.graph.stablehlo.table import OPERATIONS, outcome

_REFUSED = frozenset({"cholesky", "custom_call", "triangular_solve"})
"""What no device has: decompositions of matrices, targets that nobody knows."""

_NUMBERS = {"bitcast_convert": 3, "rng_bit_generator": 0}


@pytest.mark.parametrize("name", OPERATIONS)
def test_operation(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        case, found = outcome(name, _NUMBERS.get(name, 1))
    assert found.status == ("refused" if name in _REFUSED else "right"), f"{found.why} ({case.note})"
