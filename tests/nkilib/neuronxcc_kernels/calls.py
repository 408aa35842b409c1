"""What tests of served kernels share: inputs, references of NumPy, and how close results are."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from ml_dtypes import bfloat16

RNG = np.random.default_rng(7)


def normal(*shape: int, dtype: Any = bfloat16) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64)


def close(found: np.ndarray, wanted: np.ndarray, share: float = 2e-2) -> None:
    """Within so much of the largest number."""
    found = wide(found)
    assert np.isfinite(found).all()
    assert np.abs(found - wanted).max() <= share * np.abs(wanted).max()


def kernel(module: str, name: str) -> Any:
    return getattr(import_module(f"neuronxcc.nki.{module}"), name)


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float, causal: bool) -> np.ndarray:
    """Of q and k (..., d, s) and v (..., s, d): (..., s, d)."""
    scores = scale * np.einsum("...dq,...dk->...qk", wide(q), wide(k))
    if causal:
        scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("...qk,...kd->...qd", weights / weights.sum(-1, keepdims=True), wide(v))


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def rms_norm(x: np.ndarray, gamma: np.ndarray | float = 1.0) -> np.ndarray:
    x = wide(x)
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * gamma
