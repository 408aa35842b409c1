"""nki.simulator.simulate_kernel is nki.simulate with its arguments in containers; nki.experimental re-exports."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki
import nki.language as nl
from nki.core.errors import LaunchError
from nki.experimental import while_loop
from nki.simulator import simulate_kernel

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def scaled(a: Any, factor: float = 1.0) -> Any:
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.multiply(nl.load(a), factor * nl.num_programs(0)))
    return out


@pytest.mark.parametrize("kernel", [scaled, nki.jit(scaled), nki.simulate(scaled)], ids=["plain", "jit", "simulate"])
@pytest.mark.parametrize("lnc", [None, 1, 2])
def test_simulate_kernel(kernel: Any, lnc: int | None) -> None:
    result = simulate_kernel(kernel, [X], {"factor": 3.0}, lnc)
    np.testing.assert_array_equal(result, X * 3 * (lnc or 1))


def test_a_grid_of_the_kernel_stays() -> None:
    np.testing.assert_array_equal(simulate_kernel(nki.jit(scaled)[2], (X,), {}, None), X * 2)


@pytest.mark.parametrize(("args", "kwargs"), [(X, {}), ((X,), [1])])
def test_other_containers_are_refused(args: Any, kwargs: Any) -> None:
    with pytest.raises(LaunchError, match=r"simulator\.arguments"):
        simulate_kernel(scaled, args, kwargs, 1)


def test_experimental_while_loop_is_that_of_the_language() -> None:
    assert while_loop is nl.while_loop
