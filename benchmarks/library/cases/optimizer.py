"""Steps of optimizers, and what gradients are scaled by: 4 million parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from benchmarks.library.case import Case, Make

import nki.language as nl

_COUNT = 4 * 1024 * 1024
_SMALL = 100_003


def _positive(rng: Any, shape: tuple[int, ...]) -> Any:
    return 0.5 + rng.random(shape)


def _number(value: float) -> Callable[..., Any]:
    return lambda rng, shape: np.full(shape, value)


def _case(kernel: str, tensors: str, results: int, numbers: dict[str, float], lnc: int = 1, **others: Any) -> Case:
    """A call with tensors, each of as many elements, and numbers, which come 128 times."""

    def given(make: Make, count: int) -> dict[str, Any]:
        found: dict[str, Any] = {name: make((count,), nl.float32, _positive) for name in tensors.split()}
        found |= {name: make((128, 1), nl.float32, _number(value)) for name, value in numbers.items()}
        return found | {"numel": count} | others

    moved = 4 * _COUNT * (len(tensors.split()) + results)
    return Case(
        kernel,
        f"{_COUNT} of float32",
        lambda make: given(make, _COUNT),
        0,
        moved,
        lnc,
        small=lambda make: given(make, _SMALL),
        official=False,
    )


_MOMENTS = "param_ptr grad_ptr exp_avg_ptr exp_avg_sq_ptr"
_RATES = {"step_size_ptr": 0.01, "inv_bc2_sqrt_ptr": 1.3, "wd_factor_ptr": 0.99}
_DECAYS = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8}

CASES = [
    _case("adamw_kernel", _MOMENTS, 3, _RATES, max_exp_avg_sq_ptr=None, **_DECAYS),
    _case("adamw_kernel", _MOMENTS, 3, _RATES, lnc=2, max_exp_avg_sq_ptr=None, **_DECAYS),
    _case("adam_kernel", _MOMENTS + " max_exp_avg_sq_ptr", 4, _RATES, amsgrad=True, **_DECAYS),
    _case("mul_scalar_kernel", "data", 1, {"scalar_tensor": 0.3}),
    _case("add_tensor_kernel", "data1 data2", 1, {"alpha_tensor": 0.3}),
    _case("addcdiv_kernel", "data data1 data2", 1, {"value_tensor": 0.3}),
    _case("lerp_kernel", "data end", 1, {"weight_tensor": 0.3}),
    _case("l2_norm_kernel", "data", 0, {}),
    _case("l2_norm_kernel", "data", 0, {}, lnc=2),
    _case("linf_norm_kernel", "data", 0, {}),
]
