"""Projections of multi-head latent attention to queries, keys and values, in MX (trn3).

Math, with N the root-mean-square norm, Q the quantization to MX, and rotation of numbers that lie R / 2 apart::

    latent, kv, rotated = Q(x) @ W_a                     nope, pe = Q(N(latent) * gamma_q) @ W_qb, per head
    keys, v = Q(N(kv) * gamma_kv) @ W_kvb, per head      q = [nope, rotate(pe)]     k = [keys, rotate(rotated)]

Layouts: x (B, S, H), column ``i * H / 4 + 128 t + p`` holds feature ``512 t + 4 p + i``; weights packed, (H / 4,
R_q + L + R), (R_q / 4, heads * (D + R)) and (L / 4, heads * (D + D_v)), with a scale for 128 x 128, as `packed` says;
the first R_q and L columns of the first are permuted as x is. Results: q and k (B, S, heads, D + R), v (B, S, heads,
D_v).

Limits: H, R_q and L multiples of 512, D + R and D + D_v up to 512, R even and up to 128, NeuronCore-v4.

Engines: Tensor multiplies, and bounds it: latents are computed with features on partitions, as the next products want
them. DMA transposes x while it moves, and streams weights once for a block of 512 tokens; Vector normalizes, quantizes
and rotates. Two cores have half of the tokens each.
Source: qkv-cte-mla.rst of the published library; DeepSeek-V2 (arXiv 2405.04434), section 2.1.
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
    normalized,
    projected,
    quantized_states,
    rotate,
)
from nkilib.experimental.mla.deepseek.packed import BLOCK, Packed, Weights, blocks_of_core, check_weights
from nkilib.experimental.qkv.head_products import TOKENS, Group, check_gamma, check_states, groups
from nkilib.experimental.qkv.qkv_cte_mla_v4 import qkv_mla_mx_deepseek_v4
from nkilib.streaming import filled, sbuf, size, spans

__all__ = ["qkv_mla_mx", "qkv_mla_mx_deepseek_v4"]
"""The documentation has both at this path."""


@nki.jit
def qkv_mla_mx(
    x_hbm: nl.NkiTensor,
    wqkv_a_hbm: nl.NkiTensor,
    wqkv_a_scale_hbm: nl.NkiTensor,
    wq_b_hbm: nl.NkiTensor,
    wq_b_scale_hbm: nl.NkiTensor,
    q_norm_gamma_hbm: nl.NkiTensor,
    wkv_b_hbm: nl.NkiTensor,
    wkv_b_scale_hbm: nl.NkiTensor,
    kv_norm_gamma_hbm: nl.NkiTensor,
    cos_cache_hbm: nl.NkiTensor,
    sin_cache_hbm: nl.NkiTensor,
    n_heads: int,
    qk_nope_head_dim: int,
    qk_rope_head_dim: int,
    v_head_dim: int,
    kv_lora_rank: int,
    qk_lora_rank: int,
    norm_eps: float = 1e-6,
) -> tuple[nl.NkiTensor, nl.NkiTensor, nl.NkiTensor]:
    """Queries, keys and values.

    Args:
        x_hbm: (B, S, H), bfloat16, permuted.
        wqkv_a_hbm, wqkv_a_scale_hbm: (H / 4, R_q + L + R), packed.
        wq_b_hbm, wq_b_scale_hbm: (R_q / 4, heads * (D + R)), packed.
        q_norm_gamma_hbm, kv_norm_gamma_hbm: (1, R_q) and (1, L), bfloat16, in natural order.
        wkv_b_hbm, wkv_b_scale_hbm: (L / 4, heads * (D + D_v)), packed.
        cos_cache_hbm, sin_cache_hbm: (B, S, R), bfloat16, of which the first half counts.
        n_heads, qk_nope_head_dim, qk_rope_head_dim, v_head_dim, kv_lora_rank, qk_lora_rank: heads, D, R, D_v, L, R_q.
        norm_eps: added to mean squares.

    Returns:
        q, k (B, S, heads, D + R) and v (B, S, heads, D_v), bfloat16.
    """
    ranks, wide = (qk_lora_rank, kv_lora_rank, qk_rope_head_dim), qk_nope_head_dim + qk_rope_head_dim
    sizes = check_states("qkv_mla_mx", x_hbm, cos_cache_hbm, sin_cache_hbm, qk_rope_head_dim)
    check_ranks(ranks)
    check_weights("wqkv_a", wqkv_a_hbm, wqkv_a_scale_hbm, sizes["H"], sum(ranks))
    check_weights("wq_b", wq_b_hbm, wq_b_scale_hbm, qk_lora_rank, n_heads * wide)
    check_weights("wkv_b", wkv_b_hbm, wkv_b_scale_hbm, kv_lora_rank, n_heads * (qk_nope_head_dim + v_head_dim))
    check_gamma("q_norm_gamma_hbm", q_norm_gamma_hbm, qk_lora_rank)
    check_gamma("kv_norm_gamma_hbm", kv_norm_gamma_hbm, kv_lora_rank)
    bank = nl.tile_size.psum_bank_fmax
    limits.between("qk_nope_head_dim + qk_rope_head_dim", wide, 1, bank, "a bank of PSUM holds a head")
    limits.between("qk_nope_head_dim + v_head_dim", qk_nope_head_dim + v_head_dim, 1, bank, "a bank holds a head")
    batch, sequence, width = x_hbm.shape
    tokens = batch * sequence
    made = [streaming.result((tokens, n_heads, columns), nl.bfloat16) for columns in (wide, wide, v_head_dim)]
    first, eps = Weights(wqkv_a_hbm, wqkv_a_scale_hbm), filled((BLOCK, 1), nl.float32, norm_eps)
    up_queries, up_keys = Weights(wq_b_hbm, wq_b_scale_hbm), Weights(wkv_b_hbm, wkv_b_scale_hbm)
    cos, sin = (each.reshape((tokens, qk_rope_head_dim)) for each in (cos_cache_hbm, sin_cache_hbm))
    last = qk_lora_rank + kv_lora_rank
    for block in blocks_of_core(tokens, TOKENS):
        states = quantized_states(x_hbm.reshape((tokens, width))[block])
        turn = [angles(cos, sin, _within(block, part)) for part in spans(size(block), BLOCK)]
        shared = _shared_keys(states, first.strip(slice(last, last + qk_rope_head_dim)), turn, size(block))
        latents = normalized(states, first, slice(0, qk_lora_rank), q_norm_gamma_hbm, eps)
        for group in groups(latents, size(block), up_queries, n_heads, wide):
            _store_queries(made[0], block, group, turn, qk_nope_head_dim)
        latents = normalized(states, first, slice(qk_lora_rank, last), kv_norm_gamma_hbm, eps)
        for group in groups(latents, size(block), up_keys, n_heads, qk_nope_head_dim + v_head_dim):
            _store_keys(made[1], made[2], block, group, shared)
    if nl.num_programs(0) > 1:
        for each in made:
            nisa.core_barrier(data=each, cores=(0, 1))
    return tuple(each.reshape((batch, sequence, *each.shape[1:])) for each in made)


def _within(block: slice, part: slice) -> slice:
    return slice(block.start + part.start, block.start + part.stop)


def _shared_keys(states: Packed, strip: Packed, turn: list[Any], tokens: int) -> list[Any]:
    """The rotated part of keys, which all heads share, (tokens, 1, R) for every 128 tokens."""
    made = []
    for part, angle in zip(spans(tokens, BLOCK), turn, strict=True):
        keys = sbuf((size(part), 1, strip.data.shape[2]), nl.bfloat16)
        rotate(projected(states, part, [strip]).expand_dim(1), angle, keys, interleaved=False)
        made.append(keys)
    return made


def _store_queries(target: Any, block: slice, group: Group, turn: list[Any], plain: int) -> None:
    """Queries of some heads and tokens, of which the last columns are rotated."""
    made = sbuf((size(group.tokens), size(group.heads), target.shape[2]), target.dtype)
    rest = sbuf((size(group.tokens), size(group.heads), target.shape[2] - plain), nl.float32)
    for some, sums in group.sums:
        streaming.leave(made[:, some, 0:plain], sums[:, :, 0:plain], 1)
        streaming.leave(rest[:, some, :], sums[:, :, plain:], 1)
    rotate(rest, turn[group.tokens.start // BLOCK], made[:, :, plain:], interleaved=False)
    streaming.store(target[_within(block, group.tokens), group.heads, :], made)


def _store_keys(target: Any, values: Any, block: slice, group: Group, shared: list[Any]) -> None:
    """Keys of some heads and tokens, with the part that heads share behind, and values."""
    tokens, heads = size(group.tokens), size(group.heads)
    rotated = shared[group.tokens.start // BLOCK]
    plain = target.shape[2] - rotated.shape[2]
    keys, kept = (
        sbuf((tokens, heads, target.shape[2]), target.dtype),
        sbuf((tokens, heads, values.shape[2]), target.dtype),
    )
    nisa.tensor_copy(dst=keys[:, :, plain:], src=rotated.broadcast(1, heads), engine=nisa.engine.gpsimd)
    for some, sums in group.sums:
        streaming.leave(keys[:, some, 0:plain], sums[:, :, 0:plain], 1)
        streaming.leave(kept[:, some, :], sums[:, :, plain:], 0)
    here = _within(block, group.tokens)
    streaming.store(target[here, group.heads, :], keys)
    streaming.store(values[here, group.heads, :], kept)
