"""Rotary position embeddings: a prompt, a step of decoding, heads of 64, and the two layouts."""

from __future__ import annotations

from typing import Any

from benchmarks.library.case import Case, Make

import nki.language as nl


def _rope(
    head: int, batch: int, heads: int, sequence: int, dtype: Any = nl.bfloat16, lnc: int = 1, **options: Any
) -> Case:
    def arguments(make: Make) -> dict[str, Any]:
        angles = (head // 2, batch, sequence)
        x = make((head, batch, heads, sequence), dtype)
        return {"x_in": x, "cos": make(angles, dtype), "sin": make(angles, dtype), **options}

    elements = head * batch * sequence * (2 * heads + 1)
    name = f"{heads} heads of {head}, {batch} x {sequence} positions, {dtype}"
    layout = "" if options.get("contiguous_layout", True) else ", neighbours"
    return Case("RoPE", name + layout, arguments, 0, elements * dtype.itemsize, lnc)


def _hf(
    batch: int, heads: tuple[int, int], sequence: int, head: int, dtype: Any = nl.bfloat16, lnc: int = 1, **options: Any
) -> Case:
    def arguments(make: Make) -> dict[str, Any]:
        q, k = ((batch, count, sequence, head) for count in heads)
        return {
            **{"q": make(q, dtype), "k": make(k, dtype), "q_out": make(q, dtype), "k_out": make(k, dtype)},
            **{"cos": make((sequence, head), dtype), "sin": make((sequence, head), dtype), **options},
        }

    elements = 2 * sequence * head * (batch * sum(heads) + 1)
    name = f"{heads[0]} + {heads[1]} heads of {head}, {batch} x {sequence} positions, {dtype}"
    gradient = ", gradient" if options.get("backward") else ""
    return Case("rope_hf", name + gradient, arguments, 0, elements * dtype.itemsize, lnc)


CASES = [
    _rope(128, 1, 16, 512),
    _rope(128, 1, 32, 2048),
    _rope(64, 1, 16, 512, contiguous_layout=False),
    _rope(128, 64, 8, 1),
    _rope(128, 1, 16, 512, nl.float32),
    _rope(128, 1, 32, 2048, lnc=2, lnc_shard=True),
    _hf(1, (32, 8), 2048, 128),
    _hf(4, (16, 16), 512, 64),
    _hf(1, (32, 8), 2048, 128, backward=True),
    _hf(1, (32, 8), 2048, 128, nl.float32),
    _hf(1, (32, 8), 2048, 128, lnc=2),
]
