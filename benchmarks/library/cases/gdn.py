"""The gated delta rule, as in hybrid models: heads of 128 features."""

from __future__ import annotations

from typing import Any

import numpy as np
from benchmarks.library.case import Case, Make

import nki.language as nl


def _unit(rng: Any, shape: tuple[int, ...]) -> Any:
    values = rng.standard_normal(shape)
    return values / np.linalg.norm(values, axis=-1, keepdims=True)


def _call(heads: int, steps: int, width: int, dtype: Any) -> Any:
    def arguments(make: Make) -> dict[str, Any]:
        shape = (heads, steps, width)
        return {
            "q": make(shape, dtype, _unit),
            "k": make(shape, dtype, _unit),
            "v": make(shape, dtype),
            "beta": make(shape[:2], nl.float32, lambda rng, size: rng.uniform(0.1, 1.0, size)),
            "gate": make(shape[:2], nl.float32, lambda rng, size: -rng.uniform(0.0, 0.3, size)),
            "scale": width**-0.5,
        }

    return arguments


def _flops(heads: int, steps: int, width: int, chunk: int = 128) -> int:
    """Scores and corrections of the pairs of a chunk below the diagonal, and four products with the state."""
    pairs = steps * (chunk + 1) // 2
    return 2 * heads * (pairs * width * 5 + 4 * steps * width * width)


def _bytes(heads: int, steps: int, width: int, size: int) -> int:
    return heads * (4 * steps * width * size + 2 * steps * 4 + width * width * 4)


CASES = [
    Case(
        "gdn_cte",
        "16 heads of 128, 2048 tokens, bf16",
        _call(16, 2048, 128, nl.bfloat16),
        _flops(16, 2048, 128),
        _bytes(16, 2048, 128, 2),
        small=_call(2, 300, 128, nl.bfloat16),
        official=False,
    ),
    Case(
        "gdn_cte",
        "8 heads of 64, 1024 tokens, f32",
        _call(8, 1024, 64, nl.float32),
        _flops(8, 1024, 64),
        _bytes(8, 1024, 64, 4),
        small=_call(2, 300, 64, nl.float32),
        official=False,
        peak="fp32",
    ),
]
