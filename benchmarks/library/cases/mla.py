"""Multi-head latent attention of DeepSeek-V3.2, on trn3."""

from __future__ import annotations

from typing import Any

import numpy as np
from benchmarks.library.case import Case, Make

import nki.language as nl

_TIES = 0.1
"""A latent at a tie of 8-bit numbers may be rounded the other way, by an eighth of itself. The largest of a row is four
times as large as the mean, as is the weight that it meets, and a result adds 512 of such products or more: one of them
moves it by ``4 * 4 / 8 / sqrt(512)`` of the mean at most."""


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
        official=False,
        small=lambda make: arguments(make, 40, 640),
        peak="mx",
    )


def gammas(rng: Any, shape: tuple[int, ...]) -> Any:
    """Weights of a norm, near 1."""
    return 1 + 0.1 * rng.standard_normal(shape)


def numbers(rng: Any, shape: tuple[int, ...]) -> Any:
    """Rows of 8-bit numbers, and behind them scales from 1/32 to 1."""
    width = shape[-1] * 16 // 17 // 512 * 512
    found = rng.standard_normal(shape).astype(nl.float8_e4m3fn.numpy)
    found.view("uint8")[..., width:] = rng.integers(122, 128, (*shape[:-1], shape[-1] - width))
    return found


def projections(make: Make, tokens: int, width: int, heads: int, ranks: tuple[int, int, int]) -> dict[str, Any]:
    """What both projections of queries, keys and values of one batch take, but for the hidden states."""
    query_rank, rank, rotated = ranks
    return {
        **weights(make, "wqkv_a", width, sum(ranks)),
        **weights(make, "wq_b", query_rank, heads * (128 + rotated)),
        "q_norm_gamma_hbm": make((1, query_rank), fill=gammas),
        "kv_norm_gamma_hbm": make((1, rank), fill=gammas),
        "cos_cache_hbm": make((1, tokens, rotated)),
        "sin_cache_hbm": make((1, tokens, rotated)),
        "n_heads": heads,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": rotated,
        "kv_lora_rank": rank,
        "qk_lora_rank": query_rank,
    }


def absorbed(tokens: int, heads: int, lnc: int = 1) -> Case:
    """A case of `mla_qkv_cte_kernel`; its products in bfloat16 count as the four in MX that take as long."""
    width, ranks = 7168, (1536, 512, 64)

    def arguments(make: Make, count: int = tokens, some: int = heads) -> dict[str, Any]:
        return {
            "x_hbm_mx": make((1, count, width + 512), nl.float8_e4m3fn, numbers),
            **projections(make, count, width, some, ranks),
            "wuk_hbm": make((128, some * 512)),
        }

    products = width * sum(ranks) + 1536 * heads * 192
    return Case(
        kernel="mla_qkv_cte_kernel",
        name=f"{tokens} tokens, {heads} heads",
        arguments=arguments,
        flops=2 * tokens * (products + 4 * heads * 128 * 512),
        hbm_bytes=products + 2 * heads * 128 * 512 + tokens * (width + 512 + 2 * (heads + 1) * 576),
        lnc=lnc,
        target="trn3",
        tolerance=_TIES,
        official=False,
        small=lambda make: arguments(make, 40, 4),
        peak="mx",
    )


def unabsorbed(tokens: int, heads: int, lnc: int = 1) -> Case:
    """A case of `qkv_mla_mx`."""
    width, ranks = 7168, (1536, 512, 64)

    def arguments(make: Make, count: int = tokens, some: int = heads) -> dict[str, Any]:
        return {
            "x_hbm": make((1, count, width)),
            **projections(make, count, width, some, ranks),
            **weights(make, "wkv_b", 512, some * 256),
            "v_head_dim": 128,
        }

    products = width * sum(ranks) + 1536 * heads * 192 + 512 * heads * 256
    return Case(
        kernel="qkv_mla_mx",
        name=f"{tokens} tokens, {heads} heads",
        arguments=arguments,
        flops=2 * tokens * products,
        hbm_bytes=products + 2 * tokens * (width + heads * 512),
        lnc=lnc,
        target="trn3",
        tolerance=_TIES,
        official=False,
        small=lambda make: arguments(make, 40, 4),
        peak="mx",
    )


def of_v4(tokens: int, heads: int, lnc: int = 1) -> Case:
    """A case of `qkv_mla_mx_deepseek_v4`."""
    width, (query_rank, rank, rotated) = 7168, (1536, 512, 64)

    def arguments(make: Make, count: int = tokens, some: int = heads) -> dict[str, Any]:
        return {
            "x_hbm": make((1, count, width)),
            **weights(make, "wqkv", width, query_rank + rank + rotated),
            **weights(make, "wq_b", query_rank, some * 512),
            "q_norm_gamma_hbm": make((1, query_rank), fill=gammas),
            "kv_norm_gamma_hbm": make((1, rank + rotated), fill=gammas),
            "cos_cache_hbm": make((1, count, rotated)),
            "sin_cache_hbm": make((1, count, rotated)),
            "n_heads": some,
            "head_dim": 512,
            "qk_rope_head_dim": rotated,
            "kv_lora_rank": rank,
            "qk_lora_rank": query_rank,
        }

    products = width * (query_rank + rank + rotated) + query_rank * heads * 512
    return Case(
        kernel="qkv_mla_mx_deepseek_v4",
        name=f"{tokens} tokens, {heads} heads",
        arguments=arguments,
        flops=2 * tokens * products,
        hbm_bytes=products + 2 * tokens * (width + heads * 512 + rank + rotated),
        lnc=lnc,
        target="trn3",
        tolerance=_TIES,
        official=False,
        small=lambda make: arguments(make, 40, 4),
        peak="mx",
    )


def fine(make: Make, depth: int, columns: int) -> tuple[Any, Any]:
    """Packed weights, and their scales for 32 numbers."""
    return make((depth // 4, columns), nl.uint32, words), make((depth // 32, columns), nl.uint8, scales)


def indexer(queries: int, keys: int, chosen: int, lnc: int = 1) -> Case:
    """A case of `sparse_attention_indexer_mx_bf16score`: 64 heads, the last tokens of so many."""
    width, rank, heads = 7168, 1536, 64

    def arguments(make: Make, count: int = queries, end: int = keys, some: int = heads) -> dict[str, Any]:
        tiles = -(-count // 128)
        up, up_scale = fine(make, rank, some * 128)
        down, down_scale = fine(make, width, 128)
        return {
            "x": make((count, width)),
            "wq_b": up,
            "wk": down,
            "k_norm_gamma": make((128,), fill=gammas),
            "k_norm_beta": make((128,)),
            "weights_proj": make((some, width)),
            "cos": make((count, 32), nl.float32),
            "sin": make((count, 32), nl.float32),
            "k_cache": make((1, 128, end)),
            "mask": make((count, end), nl.float32, lambda rng, shape: np.zeros(shape)),
            "n_heads": some,
            "head_dim": 128,
            "rope_head_dim": 64,
            "index_topk": min(chosen, end // 32 * 16),
            "start_pos": end - count,
            "wq_b_scale": up_scale,
            "wk_scale": down_scale,
            "qr_qtz_hbm": make((tiles, 128, rank // 512, 128), nl.uint32, words),
            "qr_scale_hbm": make((tiles, 128, rank // 512, 128), nl.uint8, scales),
            "emit_flat_topk": True,
        }

    products = rank * heads * 128 + width * 128
    return Case(
        kernel="sparse_attention_indexer_mx_bf16score",
        name=f"{queries} queries, {chosen} of {keys} keys",
        arguments=arguments,
        flops=2 * queries * (products + 4 * heads * (width + keys * 128)),
        hbm_bytes=products + queries * (2 * width + rank + 8 * keys + 4 * chosen) + 256 * keys,
        lnc=lnc,
        target="trn3",
        tolerance=_TIES,
        official=False,
        small=lambda make: arguments(make, 40, 200, 4),
        meaning=lambda found: found if found.dtype != "int32" else found * 0,
        peak="mx",
    )


CASES = [
    sparse_attention(32, 128, 2048, 8192),
    sparse_attention(64, 128, 2048, 8192, lnc=2),
    sparse_attention(64, 16, 256, 4096),
    absorbed(512, 128),
    absorbed(1024, 64, lnc=2),
    absorbed(4096, 4),
    output(512, 128, 7168),
    output(1024, 64, 7168, lnc=2),
    output(4096, 4, 7168),
    unabsorbed(512, 128),
    unabsorbed(2048, 4),
    unabsorbed(1024, 64, lnc=2),
    of_v4(512, 64),
    of_v4(1024, 64, lnc=2),
    indexer(256, 2048, 512),
    indexer(256, 2048, 512, lnc=2),
]
