"""Projections of DeepSeek-V4's latent attention, whose latents are keys and values at once, in MX (trn3).

Math, with N the root-mean-square norm, Q the quantization to MX, and rotation of the last R columns, of numbers that
lie R / 2 apart::

    latent, kv = Q(x) @ W                  q = rotate(N(Q(N(latent) * gamma_q) @ W_qb)), each head by itself
    kv = rotate(N(kv) * gamma)

Layouts: x (B, S, H), column ``i * H / 4 + 128 t + p`` holds feature ``512 t + 4 p + i``; weights packed, (H / 4,
R_q + L + R) and (R_q / 4, heads * D), with a scale for 128 x 128, as `packed` says; the first R_q columns are permuted
as x is. Results: q (B, S, heads, D), kv (B, S, L + R).

Limits: H, R_q and L multiples of 512, D up to 512 and more than R, R even and up to 128, NeuronCore-v4.

Engines: as in `qkv_mla_mx`; Scalar sums the squares of each head's queries while they leave PSUM.
Source: qkv-cte-mla.rst of the published library.
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib import limits, streaming
from nkilib.experimental.mla.deepseek.latents import (
    angles,
    check_ranks,
    normalize_rows,
    normalized,
    projected,
    quantized_states,
    rotate,
    sum_squares,
)
from nkilib.experimental.mla.deepseek.packed import BLOCK, Packed, Weights, blocks_of_core, check_weights
from nkilib.experimental.qkv.head_products import TOKENS, Group, check_gamma, check_states, groups
from nkilib.streaming import filled, load_repeated, sbuf, size, spans


@nki.jit
def qkv_mla_mx_deepseek_v4(
    x_hbm: nl.NkiTensor,
    wqkv_hbm: nl.NkiTensor,
    wqkv_scale_hbm: nl.NkiTensor,
    wq_b_hbm: nl.NkiTensor,
    wq_b_scale_hbm: nl.NkiTensor,
    q_norm_gamma_hbm: nl.NkiTensor,
    kv_norm_gamma_hbm: nl.NkiTensor,
    cos_cache_hbm: nl.NkiTensor,
    sin_cache_hbm: nl.NkiTensor,
    n_heads: int,
    head_dim: int,
    qk_rope_head_dim: int,
    kv_lora_rank: int,
    qk_lora_rank: int,
    norm_eps: float = 1e-6,
) -> tuple[nl.NkiTensor, nl.NkiTensor]:
    """Queries, and what is key and value.

    Args:
        x_hbm: (B, S, H), bfloat16, permuted.
        wqkv_hbm, wqkv_scale_hbm: (H / 4, R_q + L + R), packed.
        wq_b_hbm, wq_b_scale_hbm: (R_q / 4, heads * D), packed.
        q_norm_gamma_hbm, kv_norm_gamma_hbm: (1, R_q) and (1, L + R), bfloat16, in natural order.
        cos_cache_hbm, sin_cache_hbm: (B, S, R), bfloat16, of which the first half counts.
        n_heads, head_dim, qk_rope_head_dim, kv_lora_rank, qk_lora_rank: heads, D, R, L, R_q.
        norm_eps: added to mean squares.

    Returns:
        q (B, S, heads, D) and kv (B, S, L + R), bfloat16.
    """
    columns = kv_lora_rank + qk_rope_head_dim
    sizes = check_states("qkv_mla_mx_deepseek_v4", x_hbm, cos_cache_hbm, sin_cache_hbm, qk_rope_head_dim)
    check_ranks((qk_lora_rank, kv_lora_rank, qk_rope_head_dim))
    check_weights("wqkv", wqkv_hbm, wqkv_scale_hbm, sizes["H"], qk_lora_rank + columns)
    check_weights("wq_b", wq_b_hbm, wq_b_scale_hbm, qk_lora_rank, n_heads * head_dim)
    check_gamma("q_norm_gamma_hbm", q_norm_gamma_hbm, qk_lora_rank)
    check_gamma("kv_norm_gamma_hbm", kv_norm_gamma_hbm, columns)
    limits.between("head_dim", head_dim, qk_rope_head_dim + 1, nl.tile_size.psum_bank_fmax, "a bank holds a head")
    batch, sequence, width = x_hbm.shape
    tokens = batch * sequence
    queries = streaming.result((tokens, n_heads, head_dim), nl.bfloat16)
    keys = streaming.result((tokens, columns), nl.bfloat16)
    first, up = Weights(wqkv_hbm, wqkv_scale_hbm), Weights(wq_b_hbm, wq_b_scale_hbm)
    gamma, eps = load_repeated(kv_norm_gamma_hbm, BLOCK, nl.float32), filled((BLOCK, 1), nl.float32, norm_eps)
    cos, sin = (each.reshape((tokens, qk_rope_head_dim)) for each in (cos_cache_hbm, sin_cache_hbm))
    for block in blocks_of_core(tokens, TOKENS):
        states = quantized_states(x_hbm.reshape((tokens, width))[block])
        parts = spans(size(block), BLOCK)
        turn = [angles(cos, sin, slice(block.start + part.start, block.start + part.stop)) for part in parts]
        latents = normalized(states, first, slice(0, qk_lora_rank), q_norm_gamma_hbm, eps)
        strips = [
            first.strip(slice(qk_lora_rank + part.start, qk_lora_rank + part.stop))
            for part in spans(columns, nl.tile_size.psum_bank_fmax)
        ]
        for part, angle in zip(parts, turn, strict=True):
            made = _keys(states, part, strips, gamma, eps, angle)
            streaming.store(keys[block.start + part.start : block.start + part.stop], made)
        for group in groups(latents, size(block), up, n_heads, head_dim):
            made = _queries(group, head_dim, turn[group.tokens.start // BLOCK], eps)
            here = slice(block.start + group.tokens.start, block.start + group.tokens.stop)
            streaming.store(queries[here, group.heads, :], made)
    if nl.num_programs(0) > 1:
        nisa.core_barrier(data=queries, cores=(0, 1))
        nisa.core_barrier(data=keys, cores=(0, 1))
    return queries.reshape((batch, sequence, n_heads, head_dim)), keys.reshape((batch, sequence, columns))


def _keys(states: Packed, tokens: slice, strips: list[Packed], gamma: Any, eps: Any, turn: tuple[Any, Any]) -> Any:
    """Normalized latents of keys and values (tokens, L + R), whose last columns are rotated."""
    found = projected(states, tokens, strips)
    scaled, made = sbuf(found.shape, nl.float32), sbuf(found.shape, nl.bfloat16)
    normalize_rows(found, gamma[0 : size(tokens), :], eps, scaled)
    plain = found.shape[1] - 2 * turn[0].shape[1]
    nisa.activation(dst=made[:, 0:plain], op=nl.copy, data=scaled[:, 0:plain])
    rotate(scaled[:, plain:].expand_dim(1), turn, made[:, plain:].expand_dim(1), interleaved=False)
    return made


def _queries(group: Group, each: int, turn: tuple[Any, Any], eps: Any) -> Any:
    """Queries of some heads and tokens, each normalized by itself, whose last columns are rotated."""
    tokens, heads, plain = size(group.tokens), size(group.heads), each - 2 * turn[0].shape[1]
    made, rest = sbuf((tokens, heads, each), nl.bfloat16), sbuf((tokens, heads, each - plain), nl.float32)
    found = [sums[:, head, :] for some, sums in group.sums for head in range(size(some))]
    scales = sbuf((tokens, heads), nl.float32)
    for head, values in enumerate(found):
        sum_squares(values, scales[:, head : head + 1])
    nisa.activation(dst=scales, op=nl.rsqrt, data=scales, scale=1.0 / each, bias=eps[0:tokens, :])
    for head, values in enumerate(found):
        scale = scales[:, head : head + 1]
        nisa.tensor_scalar(dst=made[:, head, 0:plain], data=values[:, 0:plain], op0=nl.multiply, operand0=scale)
        nisa.activation(dst=rest[:, head, :], op=nl.copy, data=values[:, plain:], scale=scale)
    rotate(rest, turn, made[:, :, plain:], interleaved=False)
    return made
