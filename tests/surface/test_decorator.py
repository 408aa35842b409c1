"""Arguments that nki.jit does not have: what to write instead."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki
import nki.language as nl
from nki.core.errors import LaunchError

X = np.arange(32, dtype=np.float32).reshape(4, 8)


@pytest.mark.parametrize("name", ["grid", "lnc", "num_cores", "num_programs", "spmd_grid"])
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
