"""Layers of a decoding step: shards of an 8 B model's layers, one sequence and several, on one core and two."""

from __future__ import annotations

from typing import Any

import numpy as np
from benchmarks.library.case import Case, Make

import nki.language as nl


def _case(
    layers: int, batch: int, hidden: int, heads: int, inner: int, keys: int, head: int = 128, lnc: int = 1
) -> Case:
    columns = (heads + 2) * head

    def arguments(make: Make) -> dict[str, Any]:
        def each(*shape: int, dtype: Any = nl.bfloat16) -> Any:
            def values(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
                return rng.standard_normal(shape) / max(1, shape[0] if len(shape) == 2 else 1) ** 0.5

            return tuple(make(shape, dtype, values) for _ in range(layers))

        return {
            **{"X": make((batch, 1, hidden)), "W_qkvs": each(hidden, columns), "W_outs": each(heads * head, hidden)},
            **{"W_gates": each(hidden, inner), "W_ups": each(hidden, inner), "W_downs": each(inner, hidden)},
            **{"W_gamma_qkvs": each(1, hidden), "W_gamma_mlps": each(1, hidden)},
            **{"K_caches": each(batch, 1, head, keys), "V_caches": each(batch, 1, keys, head)},
            **{f"RoPE_{name}": make((head // 2, batch, 1), nl.bfloat16, _cosines) for name in ("cos", "sin")},
            "attention_mask": make((keys, batch, heads, 1), nl.uint8, lambda _, shape: np.ones(shape)),
            "position_ids": make((batch, 1), nl.uint32, lambda _, shape: np.full(shape, keys - 1)),
            "num_layers": layers,
        }

    name = f"{layers} layers, {batch} sequences of {keys}, {hidden} features, {heads} heads, {inner} inner"
    weights = hidden * (columns + heads * head + 3 * inner)
    moved = 2 * layers * (2 * batch * keys * head + weights)
    flops = 2 * layers * batch * (2 * heads * keys * head + weights)
    # the published kernel of 2.29 has two masks in the place of one
    return Case("transformer_tkg", name, arguments, flops, moved, lnc, official=False)


def _cosines(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return np.cos(rng.uniform(0, 6, shape))


CASES = [
    _case(2, 4, 4096, 4, 1792, 8192),
    _case(2, 1, 4096, 4, 3584, 2048),
    _case(2, 4, 4096, 4, 1792, 8192, lnc=2),
]
