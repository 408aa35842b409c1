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


def scales(rng: Any, shape: tuple[int, ...]) -> Any:
    """Powers of two that make products of weights about as large as their operands."""
    return rng.integers(118, 122, shape)


def words(rng: Any, shape: tuple[int, ...]) -> Any:
    """Four normal numbers of 8 bits in each word."""
    return rng.standard_normal((*shape, 4)).astype(nl.float8_e4m3fn.numpy).view("uint32")[..., 0]


def weights(make: Make, name: str, depth: int, columns: int) -> dict[str, Any]:
    """Packed weights and their scales, as arguments."""
    return {
        f"{name}_hbm": make((depth // 4, columns), nl.uint32, words),
        f"{name.removesuffix('_qtz')}_scale_hbm": make((depth // 128, -(-columns // 128)), nl.uint8, scales),
    }


def output(tokens: int, heads: int, columns: int, lnc: int = 1) -> Case:
    """A case of `mla_vupmx_oproj_cte_kernel`."""

    def arguments(make: Make, count: int = tokens, width: int = columns) -> dict[str, Any]:
        return {
            "out_attn_hbm": make((1, count, heads * 512)),
            **weights(make, "wuv_qtz", heads * 512, 128),
            **weights(make, "wo_qtz", heads * 128, width),
        }

    return Case(
        kernel="mla_vupmx_oproj_cte_kernel",
        name=f"{tokens} tokens, {heads} heads to {columns}",
        arguments=arguments,
        flops=2 * tokens * heads * 128 * (512 + columns),
        hbm_bytes=heads * 128 * (512 + columns) + 2 * tokens * (heads * 512 + columns),
        lnc=lnc,
        target="trn3",
        tolerance=3e-2,
        official=False,
        small=lambda make: arguments(make, 40, 640),
        peak="mx",
    )


CASES = [
    sparse_attention(32, 128, 2048, 8192),
    sparse_attention(64, 128, 2048, 8192, lnc=2),
    sparse_attention(64, 16, 256, 4096),
    output(512, 128, 7168),
    output(1024, 64, 7168, lnc=2),
    output(4096, 4, 7168),
]
