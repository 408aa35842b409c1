"""Arguments that nki.jit does not have: what to write instead."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki
import nki.language as nl
from nki.core.errors import LaunchError

X = np.arange(32, dtype=np.float32).reshape(4, 8)


@pytest.mark.parametrize("name", ["lnc", "num_cores", "num_programs", "spmd_grid"])
def test_the_number_of_programs_is_said_by_the_launch(name: str) -> None:
    with pytest.raises(LaunchError) as caught:
        nki.jit(**{name: [2]})
    assert caught.value.code == "jit.argument" and repr(name) in caught.value.message
    assert caught.value.fix == "write @nki.jit, and launch the kernel on two cores with kernel[2](...)"

    def kernel(a: Any) -> Any:
        out = nl.ndarray((2, *a.shape), a.dtype, buffer=nl.shared_hbm)
        nl.store(out[nl.program_id(0)], nl.load(a))
        return out

    np.testing.assert_array_equal(nki.jit(kernel)[2](X), np.stack([X, X]))


@pytest.mark.parametrize("grid", [2, [2], (2,), np.int64(2)])
def test_a_grid_of_the_decorator_holds_for_launches_without_one(grid: Any) -> None:
    def kernel(a: Any) -> Any:
        out = nl.ndarray((nl.num_programs(0), *a.shape), a.dtype, buffer=nl.shared_hbm)
        nl.store(out[nl.program_id(0)], nl.load(a))
        return out

    with pytest.warns(DeprecationWarning, match=r"argument grid is deprecated; launch the kernel with kernel\[2\]"):
        made = nki.jit(grid=grid)(kernel)
    np.testing.assert_array_equal(made(X), np.stack([X, X]))
    np.testing.assert_array_equal(nki.simulate(made)(X), np.stack([X, X]))
    np.testing.assert_array_equal(made[np.int64(1)](X), X[None])


def test_a_grid_of_the_decorator_is_one_number() -> None:
    with pytest.warns(DeprecationWarning), pytest.raises(LaunchError, match=r"grid \(2, 2\)") as caught:
        nki.jit(grid=(2, 2))(lambda a: a)
    assert caught.value.code == "launch.grid"


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("compile_conf", "write compile_config="),
        ("apis", "write api="),
        ("inline", "write @nki.jit"),
    ],
)
def test_other_names(name: str, fix: str) -> None:
    with pytest.raises(LaunchError) as caught:
        nki.jit(**{name: 1})
    assert (caught.value.code, caught.value.fix) == ("jit.argument", fix)
