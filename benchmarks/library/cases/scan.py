"""Recurrences: linear ones, and the layers of Mamba models."""

from __future__ import annotations

from typing import Any

import numpy as np
from benchmarks.library.case import Case, Make

import nki.language as nl


def _uniform(low: float, high: float) -> Any:
    return lambda rng, shape: rng.uniform(low, high, shape)


def _linear(rows: int, steps: int, dtype: Any) -> Any:
    def arguments(make: Make) -> dict[str, Any]:
        return {"decay": make((rows, steps), dtype, _uniform(0.5, 1.0)), "data": make((rows, steps), dtype)}

    return arguments


def _mamba(batch: int, channels: int, states: int, steps: int, dtype: Any) -> Any:
    def arguments(make: Make) -> dict[str, Any]:
        wide, narrow = (batch, channels, steps), (batch, states, steps)
        return {
            "x": make(wide, dtype),
            "dt": make(wide, dtype, _uniform(0.001, 0.1)),
            "A": make((channels, states), nl.float32, lambda rng, shape: -np.exp(rng.standard_normal(shape))),
            "B": make(narrow, dtype),
            "C": make(narrow, dtype),
            "D": make((channels,), nl.float32),
        }

    return arguments


def _mamba_bytes(batch: int, channels: int, states: int, steps: int, size: int) -> int:
    return batch * ((3 * channels + 2 * states) * steps * size + channels * states * 4) + channels * (states + 1) * 4


def _ssd(heads: int, steps: int, width: int, states: int, dtype: Any) -> Any:
    def arguments(make: Make) -> dict[str, Any]:
        return {
            "x": make((1, heads, steps, width), dtype),
            "dt": make((1, heads, steps), nl.float32, _uniform(0.001, 0.1)),
            "A": make((heads,), nl.float32, lambda rng, shape: -np.exp(rng.standard_normal(shape))),
            "B": make((1, steps, states), dtype),
            "C": make((1, steps, states), dtype),
            "D": make((heads,), nl.float32),
        }

    return arguments


def _ssd_flops(heads: int, steps: int, width: int, states: int, chunk: int = 128) -> int:
    """Pairs of a chunk below the diagonal, and twice the states."""
    pairs = steps * (chunk + 1) // 2
    return 2 * (pairs * states + heads * (pairs * width + 2 * steps * states * width))


def _ssd_bytes(heads: int, steps: int, width: int, states: int, size: int) -> int:
    return 2 * heads * steps * width * size + 2 * steps * states * size + heads * (steps + states * width) * 4


def _selective(batch: int, channels: int, steps: int, dtype: Any, name: str, states: int = 16) -> Case:
    return Case(
        "selective_scan",
        f"{f'{batch} x ' if batch > 1 else ''}{channels} channels, {states} states, {steps} steps, {name}",
        _mamba(batch, channels, states, steps, dtype),
        0,
        _mamba_bytes(batch, channels, states, steps, dtype.itemsize),
        small=_mamba(batch, 256, states, 600, dtype),
    )


def _dual(heads: int, steps: int, states: int, dtype: Any, name: str, peak: str = "bf16", width: int = 64) -> Case:
    return Case(
        "ssd",
        f"{heads} heads of {width}, {states} states, {steps} steps, {name}",
        _ssd(heads, steps, width, states, dtype),
        _ssd_flops(heads, steps, width, states),
        _ssd_bytes(heads, steps, width, states, dtype.itemsize),
        small=_ssd(9, 300, width, states, dtype),
        peak=peak,
    )


CASES = [
    Case("linear_scan", "2048 rows, 4096 steps, f32", _linear(2048, 4096, nl.float32), 0, 3 * 2048 * 4096 * 4),
    Case("linear_scan", "4096 rows, 2048 steps, bf16", _linear(4096, 2048, nl.bfloat16), 0, 3 * 4096 * 2048 * 2),
    _selective(1, 1536, 2048, nl.bfloat16, "bf16"),
    _selective(2, 768, 1024, nl.float32, "f32"),
    _dual(48, 2048, 128, nl.bfloat16, "bf16"),
    _dual(24, 1024, 64, nl.float32, "f32", peak="fp32"),
]
