"""Projections of latent attention whose queries are absorbed: they meet latents, not keys (trn3).

Math, with N the root-mean-square norm, Q the quantization to MX, x quantized already, and rotation of neighbours::

    latent, kv, rotated = x @ W_a                       c_kv = N(kv) * gamma_kv        k_pe = rotate(rotated)
    nope, pe = Q(N(latent) * gamma_q) @ W_b, per head   q_lift = nope @ W_uk           q_pe = rotate(pe)

Layouts: x (B, S, H + ceil(H / 2048) * 128), a row has H numbers of 8 bits, and then scales in the order of `packed`;
weights packed, (H / 4, R_q + L + R) and (R_q / 4, heads * (128 + R)), with a scale for 128 x 128; the first R_q and L
columns of the first are permuted as `latents` says. Results: (B, S, heads, L), (B, S, heads, R), (B, S, L), (B, S, R).

Limits: H, R_q and L multiples of 512, the part that is not rotated 128, R even and up to 128, NeuronCore-v4.

Engines: Tensor multiplies, and bounds it: the latents of queries and what meets W_uk are computed with features on
partitions, as the next product wants them. DMA streams weights once for a block of up to 512 tokens; Vector normalizes,
quantizes and rotates; Scalar brings results out of PSUM. Two cores have half of the tokens each.
Source: mla-qkv-cte.rst of the published library; DeepSeek-V2 (arXiv 2405.04434), section 2.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib import limits, streaming
from nkilib.experimental.mla.deepseek.latents import (
    TOKENS,
    angles,
    check_ranks,
    normalize_rows,
    normalized,
    packed_states,
    projected,
    rotate,
)
from nkilib.experimental.mla.deepseek.packed import (
    BLOCK,
    X4,
    Packed,
    Weights,
    blocks_of_core,
    check_weights,
    even,
    product,
)
from nkilib.experimental.quantize_mxfp8.swizzle import PACK, TILE
from nkilib.streaming import ceil_div, filled, load_repeated, psum, sbuf, size, spans

_BLOCK_TOKENS = 512
"""For which weights are streamed once."""

_NOPE = 128
"""Of a head's queries that are not rotated: what W_uk contracts."""

_HEADS = 4
"""Whose queries are made together: with more of them, results wait in SBUF for longer than products take."""


@dataclass(frozen=True)
class _Call:
    """Sizes and tensors of a call, all with tokens of all batches in one dimension.

    Attributes:
        heads, rotated, rank, query_rank: sizes, R, L and R_q.
        up: W_b.
        absorb: W_uk, (128, heads, L) in HBM.
        cos, sin: (tokens, R) in HBM.
        eps: (128, 1) in SBUF.
        q_lift, q_pe, c_kv, k_pe: the results.
    """

    heads: int
    rotated: int
    rank: int
    query_rank: int
    up: Weights
    absorb: Any
    cos: Any
    sin: Any
    eps: Any
    q_lift: Any
    q_pe: Any
    c_kv: Any
    k_pe: Any


@nki.jit
def mla_qkv_cte_kernel(
    x_hbm_mx: nl.NkiTensor,
    wqkv_a_hbm: nl.NkiTensor,
    wqkv_a_scale_hbm: nl.NkiTensor,
    wq_b_hbm: nl.NkiTensor,
    wq_b_scale_hbm: nl.NkiTensor,
    q_norm_gamma_hbm: nl.NkiTensor,
    kv_norm_gamma_hbm: nl.NkiTensor,
    wuk_hbm: nl.NkiTensor,
    cos_cache_hbm: nl.NkiTensor,
    sin_cache_hbm: nl.NkiTensor,
    n_heads: int,
    qk_nope_head_dim: int,
    qk_rope_head_dim: int,
    kv_lora_rank: int,
    qk_lora_rank: int,
    norm_eps: float = 1e-6,
    qr_qtz_hbm: nl.NkiTensor | None = None,
    qr_scale_hbm: nl.NkiTensor | None = None,
) -> tuple[nl.NkiTensor, nl.NkiTensor, nl.NkiTensor, nl.NkiTensor]:
    """Queries that meet latents, and what they meet.

    Args:
        x_hbm_mx: (B, S, H + scales), 8-bit numbers.
        wqkv_a_hbm, wqkv_a_scale_hbm: (H / 4, R_q + L + R), packed.
        wq_b_hbm, wq_b_scale_hbm: (R_q / 4, heads * (128 + R)), packed.
        q_norm_gamma_hbm, kv_norm_gamma_hbm: (1, R_q) and (1, L), bfloat16, in natural order.
        wuk_hbm: (128, heads * L), bfloat16.
        cos_cache_hbm, sin_cache_hbm: (B, S, R), bfloat16, of which the first half counts.
        n_heads, qk_nope_head_dim, qk_rope_head_dim, kv_lora_rank, qk_lora_rank: heads, 128, R, L, R_q.
        norm_eps: added to mean squares.
        qr_qtz_hbm, qr_scale_hbm: where the quantized latents of queries go, (tiles of 128 tokens, 128, R_q / 512, 128),
            words and uint8, for the indexer of sparse attention; or None. Rows of scales that no product reads stay.

    Returns:
        q_lift (B, S, heads, L), q_pe (B, S, heads, R), c_kv (B, S, L), k_pe (B, S, R), all bfloat16.
    """
    ranks = (qk_lora_rank, kv_lora_rank, qk_rope_head_dim)
    width = _check_states(x_hbm_mx, wqkv_a_hbm, wqkv_a_scale_hbm, cos_cache_hbm, sin_cache_hbm, ranks)
    limits.need(qk_nope_head_dim == _NOPE, "qk_nope_head_dim", qk_nope_head_dim, "it is 128", "pad it to 128")
    check_weights("wq_b", wq_b_hbm, wq_b_scale_hbm, qk_lora_rank, n_heads * (_NOPE + qk_rope_head_dim))
    _check_rest(q_norm_gamma_hbm, kv_norm_gamma_hbm, wuk_hbm, n_heads, ranks)
    batch, sequence, row = x_hbm_mx.shape
    tokens = batch * sequence
    exported = _check_export(qr_qtz_hbm, qr_scale_hbm, tokens, qk_lora_rank)
    shapes = [(n_heads, kv_lora_rank), (n_heads, qk_rope_head_dim), (kv_lora_rank,), (qk_rope_head_dim,)]
    results = [streaming.result((tokens, *shape), nl.bfloat16) for shape in shapes]
    call = _Call(
        n_heads,
        qk_rope_head_dim,
        kv_lora_rank,
        qk_lora_rank,
        Weights(wq_b_hbm, wq_b_scale_hbm),
        wuk_hbm.reshape((_NOPE, n_heads, kv_lora_rank)),
        cos_cache_hbm.reshape((tokens, qk_rope_head_dim)),
        sin_cache_hbm.reshape((tokens, qk_rope_head_dim)),
        filled((BLOCK, 1), nl.float32, norm_eps),
        *results,
    )
    first, states = Weights(wqkv_a_hbm, wqkv_a_scale_hbm), x_hbm_mx.reshape((tokens, row))
    gamma = _gamma_of_columns(kv_norm_gamma_hbm)
    for block in blocks_of_core(tokens, _BLOCK_TOKENS, BLOCK):
        held = packed_states(states[block], width)
        latents = normalized(held, first, slice(0, qk_lora_rank), q_norm_gamma_hbm, call.eps)
        _keys(call, held, first, gamma, block)
        _queries(call, latents, block)
        if exported:
            _export(latents, block, qr_qtz_hbm, qr_scale_hbm)
    if nl.num_programs(0) > 1:
        for made in results:
            nisa.core_barrier(data=made, cores=(0, 1))
    return tuple(made.reshape((batch, sequence, *shape)) for made, shape in zip(results, shapes, strict=True))


def _gamma_of_columns(gamma: Any) -> Any:
    """Gamma (128, L) on all partitions, in the permuted order of columns."""
    rank = gamma.shape[1]
    natural = load_repeated(gamma, BLOCK, nl.float32).reshape((BLOCK, rank // TILE, BLOCK, PACK))
    made = sbuf((BLOCK, PACK, rank // TILE, BLOCK), nl.float32)
    nisa.tensor_copy(dst=made, src=natural.permute((0, 3, 1, 2)))
    return made.reshape((BLOCK, rank))


def _keys(call: _Call, states: Packed, weights: Weights, gamma: Any, block: slice) -> None:
    """Latents of keys and values, and the keys' rotated part, of a block of tokens."""
    first, last = call.query_rank, call.query_rank + call.rank
    strips = [weights.strip(slice(first + part.start, first + part.stop)) for part in spans(call.rank, TILE)]
    strips.append(weights.strip(slice(last, last + call.rotated)))
    for part in spans(size(block), BLOCK):
        here = slice(block.start + part.start, block.start + part.stop)
        found = projected(states, part, strips)
        kept = sbuf((size(part), call.rank // TILE, BLOCK, PACK), nl.bfloat16)
        normalize_rows(found[:, 0 : call.rank], gamma[0 : size(part)], call.eps, kept.permute((0, 3, 1, 2)))
        streaming.store(call.c_kv[here], kept.reshape((size(part), call.rank)))
        keys = sbuf((size(part), 1, call.rotated), nl.bfloat16)
        turn = angles(call.cos, call.sin, here)
        rotate(found[:, call.rank :].expand_dim(1), turn, keys, interleaved=True)
        streaming.store(call.k_pe[here], keys.reshape((size(part), call.rotated)))


def _queries(call: _Call, latents: Packed, block: slice) -> None:
    """Queries of a block of tokens, some heads at a time, whose weights begin with a block of scales."""
    unit, each = BLOCK // gcd(call.rotated, BLOCK), _NOPE + call.rotated
    turns = [
        angles(call.cos, call.sin, slice(block.start + part.start, block.start + part.stop))
        for part in spans(size(block), BLOCK)
    ]
    for heads in spans(call.heads, ceil_div(_HEADS, unit) * unit):
        strip = call.up.strip(slice(heads.start * each, heads.stop * each))
        absorb = streaming.load(call.absorb[:, heads, :])
        nope = _nope(latents, strip, size(heads), each)
        for number, part in enumerate(spans(size(block), BLOCK)):
            here = slice(block.start + part.start, block.start + part.stop)
            lifted = sbuf((size(part), size(heads), call.rank), nl.bfloat16)
            for head in range(size(heads)):
                for columns in spans(call.rank, nl.tile_size.psum_bank_fmax):
                    sums = psum((size(part), size(columns)))
                    nisa.nc_matmul(dst=sums, stationary=nope[:, head, part], moving=absorb[:, head, columns])
                    streaming.leave(lifted[:, head, columns], sums, head)
            streaming.store(call.q_lift[here, heads, :], lifted)
            made = sbuf((size(part), size(heads), call.rotated), nl.bfloat16)
            _rotated(latents, part, strip, each, turns[number], made)
            streaming.store(call.q_pe[here, heads, :], made)


def _nope(latents: Packed, strip: Packed, heads: int, each: int) -> Any:
    """(128, heads, tokens): what W_uk contracts, as its product wants it."""
    tokens = latents.data.shape[2]
    made = sbuf((_NOPE, heads, tokens), nl.bfloat16)
    for head in range(heads):
        for part in spans(tokens, TOKENS):
            sums = product(strip, slice(head * each, head * each + _NOPE), latents, part)
            streaming.leave(made[:, head, part], sums, 1)
    return made


def _rotated(latents: Packed, tokens: slice, strip: Packed, each: int, turn: tuple[Any, Any], into: Any) -> None:
    """The rotated part of some heads' queries, as many as a bank of PSUM takes at a time."""
    _, heads, width = into.shape
    held = slice(tokens.start, tokens.start + even(size(tokens)))
    for some in spans(heads, nl.tile_size.psum_bank_fmax // width):
        sums = psum((even(size(tokens)), size(some), width))
        for tile in range(latents.tiles):
            a, a_scales = latents.operand(tile, held)
            b, b_scales = (
                operand.reshape_dim(1, (size(some), each))[:, :, _NOPE:]
                for operand in strip.operand(tile, slice(some.start * each, some.stop * each))
            )
            nisa.nc_matmul_mx(
                dst=sums,
                stationary=a,
                moving=b,
                stationary_scale=a_scales,
                moving_scale=b_scales,
                accumulate=tile > 0,
            )
        rotate(sums[0 : size(tokens)], turn, into[:, some, :], interleaved=True)


def _export(latents: Packed, block: slice, words: Any, scales: Any) -> None:
    """Words and scales of a block of tokens, tile by tile; scales begin at the first row of their quadrant."""
    for part in spans(size(block), BLOCK):
        place, count = (block.start + part.start) // BLOCK, slice(0, size(part))
        target = words.view(X4) if words.dtype != X4 else words
        streaming.store(target[place][:, :, count], latents.data[:, :, part])
        for tile in range(latents.tiles):
            found = latents.scales_of(tile)[:, part]
            for quadrant in range(0, BLOCK, 32):
                streaming.store(scales[place, quadrant : quadrant + 4, tile, count], found[quadrant : quadrant + 4])


def _check_states(x: Any, weights: Any, scales: Any, cos: Any, sin: Any, ranks: tuple[int, int, int]) -> int:
    """H."""
    limits.generation("mla_qkv_cte_kernel", 4, "it has instructions for MX numbers")
    check_ranks(ranks)
    width, _ = check_weights("wqkv_a", weights, scales, None, sum(ranks))
    sizes = limits.shape("x_hbm_mx", x, ("B", "S", width + ceil_div(width, 4 * TILE) * BLOCK))
    limits.dtype("x_hbm_mx", x, (nl.float8_e4m3fn, nl.float8_e4m3))
    for name, tensor in (("cos_cache_hbm", cos), ("sin_cache_hbm", sin)):
        limits.shape(name, tensor, ("B", "S", ranks[2]), sizes)
        limits.dtype(name, tensor, (nl.bfloat16,))
    return width


def _check_rest(q_gamma: Any, kv_gamma: Any, absorb: Any, heads: int, ranks: tuple[int, int, int]) -> None:
    for name, tensor, shape in (
        ("q_norm_gamma_hbm", q_gamma, (1, ranks[0])),
        ("kv_norm_gamma_hbm", kv_gamma, (1, ranks[1])),
        ("wuk_hbm", absorb, (_NOPE, heads * ranks[1])),
    ):
        limits.shape(name, tensor, shape)
        limits.dtype(name, tensor, (nl.bfloat16,))


def _check_export(words: Any, scales: Any, tokens: int, rank: int) -> bool:
    """Whether latents of queries are exported."""
    both = (words is None) == (scales is None)
    limits.need(both, "qr_scale_hbm", "given without qr_qtz_hbm, or the reverse", "both are given", "pass both")
    if words is None:
        return False
    shape = (ceil_div(tokens, BLOCK), BLOCK, rank // TILE, BLOCK)
    limits.shape("qr_qtz_hbm", words, shape)
    limits.dtype("qr_qtz_hbm", words, (X4, nl.uint32))
    limits.shape("qr_scale_hbm", scales, shape)
    limits.dtype("qr_scale_hbm", scales, (nl.uint8,))
    return True
