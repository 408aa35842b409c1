"""The projections after latent attention: latents of each head to values, and all heads to the hidden size (trn3).

Math, with Q quantizing 32 neighbours to 8 bits and a power of two as `quantize_mxfp8` does::

    values[s, h] = Q(latents[s, h]) @ W_uv[h]        out[s] = Q(values[s]) @ W_o, over all heads

Layouts: out_attn (B, S, H * L), latent ``4 g + i`` of a head in column ``i * L / 4 + g``, as
`mla_sparse_attention_cte_kernel` writes it; weights packed, (H * L / 4, d_v) and (H * d_v / 4, N), with a scale for
128 x 128, as `packed` says. The result is (B, S, N).

Limits: L = 512, d_v = 128, H a multiple of 4, NeuronCore-v4.

Engines: Tensor multiplies, and bounds it, or DMA does, which streams W_o once for a block of tokens. Values of a head
leave PSUM with every fourth of them in one quadrant, by Vector and Scalar, because the second product contracts four
neighbours of a word; Vector quantizes. Two cores have half of the tokens each.
Source: mla-vup-oproj-cte.rst of the published library; DeepSeek-V2 (arXiv 2405.04434), section 2.1.
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib import limits, streaming
from nkilib.experimental.mla.deepseek.packed import (
    BLOCK,
    Packed,
    Weights,
    blocks_of_core,
    check_weights,
    even,
    product,
    turned,
)
from nkilib.experimental.quantize_mxfp8.swizzle import PACK, TILE
from nkilib.streaming import psum, sbuf, size, spans

LATENTS = 512

_HEADS = TILE // BLOCK
"""Whose values make a tile of the second product."""

_TOKENS = 512
"""Whose values of a head a bank of PSUM takes."""

_ROOM = 80 * 1024
"""Bytes of a partition that the values of a block of tokens may take."""


@nki.jit
def mla_vupmx_oproj_cte_kernel(
    out_attn_hbm: nl.NkiTensor,
    wuv_qtz_hbm: nl.NkiTensor,
    wuv_scale_hbm: nl.NkiTensor,
    wo_qtz_hbm: nl.NkiTensor,
    wo_scale_hbm: nl.NkiTensor,
) -> nl.NkiTensor:
    """The output projection of values that are made of latents.

    Args:
        out_attn_hbm: (B, S, H * L), bfloat16, latents of each head in the order of MX products.
        wuv_qtz_hbm: (H * L / 4, d_v), packed, what makes values of a head's latents.
        wuv_scale_hbm: (H * L / 128, 1), uint8.
        wo_qtz_hbm: (H * d_v / 4, N), packed.
        wo_scale_hbm: (H * d_v / 128, N / 128 rounded up), uint8.

    Returns:
        (B, S, N), bfloat16.
    """
    heads, width = _check(out_attn_hbm, wuv_qtz_hbm, wuv_scale_hbm, wo_qtz_hbm, wo_scale_hbm)
    batch, sequence, _ = out_attn_hbm.shape
    tokens = batch * sequence
    out = streaming.result((tokens, width), nl.bfloat16)
    latents = out_attn_hbm.reshape((tokens, heads, PACK, LATENTS // PACK))
    up = Weights(wuv_qtz_hbm, wuv_scale_hbm).strip(slice(0, BLOCK))
    project = Weights(wo_qtz_hbm, wo_scale_hbm)
    most = max(1, min(4, _ROOM * _HEADS // (heads * 5 * _TOKENS))) * _TOKENS
    for block in blocks_of_core(tokens, most):
        values = _values(latents[block], up)
        for columns in spans(width, nl.tile_size.psum_bank_fmax):
            strip = project.strip(columns)
            for number, rows in enumerate(spans(size(block), BLOCK)):
                held = slice(rows.start, rows.start + even(size(rows)))
                sums = product(values, held, strip, slice(0, size(columns)))
                tile = sbuf((size(rows), size(columns)), out.dtype)
                streaming.leave(tile, sums[0 : size(rows), :], number)
                streaming.store(out[block.start + rows.start : block.start + rows.stop, columns], tile)
    if nl.num_programs(0) > 1:
        nisa.core_barrier(data=out, cores=(0, 1))
    return out.reshape((batch, sequence, width))


def _values(latents: Any, up: Packed) -> Packed:
    """Values (H * d_v, tokens) of latents (tokens, H, 4, 128), quantized."""
    tokens, heads = latents.shape[0], latents.shape[1]
    values = Packed(heads // _HEADS, even(tokens))
    for part in spans(tokens, _TOKENS):
        width = even(size(part))
        for tile in range(values.tiles):
            found = sbuf((BLOCK, width, PACK), nl.bfloat16)
            for place in range(_HEADS):
                head = tile * _HEADS + place
                held = Packed(1, width)
                held.quantize(0, turned(latents[part, head], width))
                _leave(found[place * BLOCK // PACK : (place + 1) * BLOCK // PACK], _raised(up, head, held), head)
            values.quantize(tile, found.reshape((BLOCK, width * PACK)), part.start)
    return values


def _raised(up: Packed, head: int, latents: Packed) -> Any:
    """Values (d_v, tokens) of a head in PSUM: value ``4 j + q`` in row ``32 q + j``."""
    weights, scales = up.operand(head, slice(0, BLOCK))
    moving, moving_scales = latents.operand(0, slice(0, latents.data.shape[2]))
    sums = psum((BLOCK, moving.shape[1]))
    nisa.nc_matmul_mx(
        dst=sums,
        stationary=weights.reshape_dim(1, (BLOCK // PACK, PACK)).permute((0, 2, 1)),
        moving=moving,
        stationary_scale=scales.reshape_dim(1, (PACK, BLOCK // PACK)),
        moving_scale=moving_scales,
    )
    return sums


def _leave(target: Any, sums: Any, turn: int) -> None:
    """Each quarter of the rows of PSUM beside the others: (32, tokens, 4) of (128, tokens)."""
    rows = BLOCK // PACK
    for quarter in range(PACK):
        streaming.leave(target[:, :, quarter], sums[quarter * rows : (quarter + 1) * rows, :], turn + quarter)


def _check(latents: Any, up: Any, up_scales: Any, project: Any, project_scales: Any) -> tuple[int, int]:
    """H and N."""
    limits.generation("mla_vupmx_oproj_cte_kernel", 4, "it has instructions for MX numbers")
    limits.shape("out_attn_hbm", latents, ("B", "S", "H * L"))
    limits.dtype("out_attn_hbm", latents, (nl.bfloat16,))
    limits.multiple("H * L", latents.shape[2], LATENTS * _HEADS, "four heads of 512 latents make a tile of the output")
    heads = latents.shape[2] // LATENTS
    check_weights("wuv_qtz", up, up_scales, heads * LATENTS, BLOCK)
    return heads, check_weights("wo_qtz", project, project_scales, heads * BLOCK, None)[1]
