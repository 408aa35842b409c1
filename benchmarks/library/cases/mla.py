"""Multi-head latent attention of DeepSeek-V3.2, on trn3."""

from __future__ import annotations

from typing import Any

from benchmarks.library.case import Case, Make

import nki.language as nl


def sparse_attention(queries: int, heads: int, keys: int, cached: int, lnc: int = 1) -> Case:
    """A case of `mla_sparse_attention_cte_kernel`."""

    def arguments(make: Make, count: int = queries) -> dict[str, Any]:
        return {
            "q_lift_hbm": make((1, count, heads, 512)),
            "q_pe_hbm": make((1, count, heads, 64)),
            "c_kv_hbm": make((1, cached, 512)),
            "k_pe_hbm": make((1, cached, 64)),
            "topk_indices_hbm": make((1, count, keys), nl.int32, lambda rng, shape: rng.integers(0, cached, shape)),
            "softmax_scale": 192**-0.5,
        }

    return Case(
        kernel="mla_sparse_attention_cte_kernel",
        name=f"{queries} queries, {heads} heads, {keys} of {cached} keys",
        arguments=arguments,
        flops=2 * queries * heads * keys * (512 + 64 + 512),
        hbm_bytes=2 * (queries * heads * (512 + 64 + 512) + cached * (512 + 64)) + 4 * queries * keys,
        lnc=lnc,
        target="trn3",
        official=False,
        small=lambda make: arguments(make, 4),
    )


CASES = [
    sparse_attention(32, 128, 2048, 8192),
    sparse_attention(64, 128, 2048, 8192, lnc=2),
    sparse_attention(64, 16, 256, 4096),
]
