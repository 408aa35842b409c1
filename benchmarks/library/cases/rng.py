"""Random numbers, and dropout of hidden states."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from benchmarks.library.case import Case, Make

import nki.language as nl


def _numbers(count: int) -> Case:
    def arguments(make: Make, count: int = count) -> dict[str, Any]:
        return {"output": make((1, count), nl.int32, lambda rng, shape: np.zeros(shape)), "n_elements": count}

    return Case(
        kernel="generate_random",
        name=f"{count:,} numbers",
        arguments=arguments,
        flops=0,
        hbm_bytes=4 * count,
        small=lambda make: arguments(make, 9000),
        exact=True,
        official=False,
    )


def _state(kernel: str) -> Case:
    return Case(
        kernel=kernel,
        name="one state",
        arguments=lambda make: {
            "tensor_state": make((1, 6), nl.uint32, lambda rng, shape: rng.integers(1, 1 << 32, shape))
        },
        flops=0,
        hbm_bytes=24 if kernel.startswith("get") else 48,
        exact=True,
        official=False,
    )


def _dropped(shape: tuple[int, ...], rate: float, dtype: Any = nl.bfloat16, lnc: int = 1) -> Case:
    def arguments(make: Make, shape: tuple[int, ...] = shape) -> dict[str, Any]:
        seed = make((1, 1), nl.uint32, lambda rng, shape: rng.integers(0, 1 << 32, shape))
        return {"x": make(shape, dtype), "rate": rate, "seed": seed}

    return Case(
        kernel="dropout",
        name=f"{' x '.join(map(str, shape))} of {dtype}, {rate:.0%}",
        arguments=arguments,
        flops=0,
        hbm_bytes=2 * prod(shape) * dtype.itemsize,
        lnc=lnc,
        small=lambda make: arguments(make, (70, *shape[1:])),
        official=False,
    )


CASES = [
    _numbers(4096),
    _numbers(1 << 20),
    _state("get_rng_state_gpsimd"),
    _state("set_rng_state_gpsimd"),
    _dropped((2048, 5120), 0.1),
    _dropped((2048, 5120), 0.1, lnc=2),
    _dropped((4096, 1024), 0.5, nl.float32),
]
