"""Gradients of attention, as training asks for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from benchmarks.library.case import Case, Make

import nki.language as nl


def gradients(name: str, heads: int, heads_kv: int, places: int, d: int, lnc: int = 1, **options: Any) -> Case:
    """A case of `attention_bwd` with as many queries as keys."""
    position = np.arange(places)
    seen = position + 1 if options.get("use_causal_mask") else np.full(places, places)
    seen = np.minimum(seen, options.get("sliding_window", places))
    return Case(
        kernel="attention_bwd",
        name=f"{name}, {heads} of {heads_kv} heads, {places} x {places}, d {d}",
        arguments=_arguments(heads, heads_kv, places, d, options),
        flops=10 * heads * d * int(seen.sum()),
        hbm_bytes=2 * d * places * (4 * heads + 4 * heads_kv) + 4 * heads * places,
        lnc=lnc,
        small=_arguments(min(heads, 2 * heads_kv), heads_kv, min(places, 512), d, options),
    )


def _arguments(heads: int, heads_kv: int, places: int, d: int, options: Any) -> Callable[[Make], dict[str, Any]]:
    def arguments(make: Make) -> dict[str, Any]:
        # near the logarithms of sums of normal scores, whose mean the results and values are far smaller than
        sums = lambda rng, shape: np.full(shape, 0.5 + np.log(places))  # noqa: E731
        few = lambda rng, shape: rng.standard_normal(shape) * 0.1  # noqa: E731
        return {
            "q_ref": make((1, heads, d, places)),
            "k_ref": make((1, heads_kv, d, places)),
            "v_ref": make((1, heads_kv, d, places)),
            "o_ref": make((1, heads, d, places), fill=few),
            "dy_ref": make((1, heads, d, places)),
            "lse_ref": make((1, heads, 128, places // 128), nl.float32, fill=sums),
            **options,
        }

    return arguments


CASES = [
    gradients("causal", 4, 4, 2048, 128, use_causal_mask=True),
    gradients("causal", 4, 1, 2048, 128, use_causal_mask=True),
    gradients("causal", 1, 1, 8192, 128, use_causal_mask=True),
    gradients("all keys", 12, 12, 512, 64),
    gradients("a window of 1,024", 4, 1, 4096, 64, use_causal_mask=True, sliding_window=1024),
    gradients("causal", 8, 2, 2048, 128, use_causal_mask=True, lnc=2),
]
