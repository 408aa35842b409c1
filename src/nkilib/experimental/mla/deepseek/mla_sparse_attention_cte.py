"""Sparse attention over latents: each query attends to the rows of a cache that its indices name (DeepSeek's MLA).

Math, for query s, head h and the rows ``C = c_kv[topk[s]]``, ``E = k_pe[topk[s]]``::

    scores = softmax_scale * (q_lift[s, h] @ C.T + q_pe[s, h] @ E.T)        out[s, h] = softmax(scores) @ C

C is key and value at once: what makes keys and values of it is part of the queries, and of the next kernel
(`mla_vupmx_oproj_cte_kernel`). A row that is named twice counts twice.

Layouts: q_lift (1, S, H, L), q_pe (1, S, H, R), c_kv (1, S_kv, L), k_pe (1, S_kv, R); the indices (1, S, K), or in
tiles (ceil(S / 128), 16, 128, K / 16), where those of a query follow each other too. The result is (1, S, H * L):
latent ``4 g + i`` of a head stands in column ``i * L / 4 + g``, so that the next kernel transposes runs of L / 4.

Limits: bfloat16, L = 512, H and R up to 128, K a multiple of 128 up to 2,048, NeuronCore-v3.

Engines: one transfer gathers the keys of a query and transposes them, for the scores; the values are the same rows, of
which DMA gathers some tiles again as they lie, and Tensor turns the others back, so that GpSimd, which writes
descriptors, and Tensor, which multiplies and bounds it, have equally much to do. Two cores have half of the queries
each.
Source: mla-sparse-attention-cte.rst of the published library; DeepSeek-V3.2-Exp (DeepSeek Sparse Attention); MLA with
absorbed projections is of DeepSeek-V2 (arXiv 2405.04434), section 2.1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib import limits, streaming
from nkilib.experimental.mla.deepseek.packed import blocks_of_core
from nkilib.streaming import psum, sbuf, size, spans

PACK = 4
"""Latents beside each other in a row of an MX product."""

LATENTS = 512
"""Of a head: what one tile of MX products contracts."""

_TILE = 128

_MOST_KEYS = 2048
"""Of a query, whose scores take half of PSUM."""

_GATHERED, _TURNED = 840, 213
"""Nanoseconds that GpSimd takes to start a gathering transfer, and Tensor to turn a tile of values back."""

_AHEAD = 3
"""Queries whose keys are on their way while the products of another one are made."""

_TOGETHER = 4
"""Tiles of weights that are turned before Vector copies them."""

_PRODUCTS = 534
"""Nanoseconds of the products of a query with a tile of keys and of values."""


@nki.jit
def mla_sparse_attention_cte_kernel(
    q_lift_hbm: nl.NkiTensor,
    q_pe_hbm: nl.NkiTensor,
    c_kv_hbm: nl.NkiTensor,
    k_pe_hbm: nl.NkiTensor,
    topk_indices_hbm: nl.NkiTensor,
    softmax_scale: float,
    topk_tiled: bool = False,
) -> nl.NkiTensor:
    """Sums of latents, weighed by the softmax of scores.

    Args:
        q_lift_hbm: (1, S, H, L), queries times what makes keys of latents.
        q_pe_hbm: (1, S, H, R), the rotated part of the queries.
        c_kv_hbm: (1, S_kv, L), the cache of latents.
        k_pe_hbm: (1, S_kv, R), the cache of rotated keys.
        topk_indices_hbm: int32 rows of the caches, (1, S, K), or in tiles.
        softmax_scale: of the scores, positive.
        topk_tiled: whether the indices are (ceil(S / 128), 16, 128, K / 16).

    Returns:
        (1, S, H * L), bfloat16, latents of each head in the order of the next kernel.
    """
    sizes = _check(q_lift_hbm, q_pe_hbm, c_kv_hbm, k_pe_hbm, topk_indices_hbm, softmax_scale, topk_tiled)
    queries, keys = sizes["S"], sizes["K"]
    out = streaming.result((1, queries, sizes["H"] * LATENTS), nl.bfloat16)
    chosen = topk_indices_hbm.reshape((topk_indices_hbm.size // keys, _TILE, keys // _TILE))
    ahead: list[_Gathered] = []
    weighed = None
    for block in blocks_of_core(queries, _TILE):
        rows = sbuf((_TILE, size(block), keys // _TILE), nl.int32)
        streaming.copy(rows, chosen[block].permute((1, 0, 2)))
        for number in range(size(block)):
            query = block.start + number
            left = [*streaming.load_transposed(q_lift_hbm[0, query]), *streaming.load_transposed(q_pe_hbm[0, query])]
            ahead.append(_gather(query, left, c_kv_hbm[0], k_pe_hbm[0], rows[:, number, :]))
            if len(ahead) > _AHEAD:
                weighed = _step(out, c_kv_hbm[0], ahead.pop(0), weighed, softmax_scale)
    for gathered in ahead:
        weighed = _step(out, c_kv_hbm[0], gathered, weighed, softmax_scale)
    _finish(out, weighed)
    if nl.num_programs(0) > 1:
        nisa.core_barrier(data=out, cores=(0, 1))
    return out


class _Gathered(NamedTuple):
    """A query and what it attends to.

    Attributes:
        query: its number.
        left: the query itself, (L + R, H) as a panel.
        keys: (L + R, K) as a panel.
        rows: of the cache, (128, K / 128).
    """

    query: int
    left: list[Any]
    keys: list[Any]
    rows: Any


def _gather(query: int, left: list[Any], latents: Any, rotated: Any, rows: Any) -> _Gathered:
    """The keys of a query."""
    tiles = _gather_turned(latents, rows)
    keys = [tiles[:, part, :] for part in range(tiles.shape[1])]
    return _Gathered(query, left, [*keys, _gather_turned(rotated, rows)[:, 0, :]], rows)


def _step(out: Any, latents: Any, gathered: _Gathered, weighed: Any, scale: float) -> Any:
    """Weights of one query, and the result of the one before: while Tensor makes that, others find the weights."""
    scores, largest = _scores(gathered.left, gathered.keys)
    weights, share = _softmax(scores, largest, scale)
    count = gathered.rows.shape[1]
    by_dma = max(0, (count * (_PRODUCTS + _TURNED) - 2 * _GATHERED) // (_GATHERED + _TURNED))
    values = [
        _gathered(latents, gathered.rows[:, n : n + 1]) if n * by_dma % count < by_dma else _turned(gathered.keys, n)
        for n in range(count)
    ]
    _finish(out, weighed)
    return gathered.query, values, weights, share


def _finish(out: Any, made: tuple[int, list[Any], Any, Any] | None) -> None:
    """The sums of a query's values, while Vector and Scalar work at the softmax of the next one."""
    if made is None:
        return
    query, values, weights, share = made
    heads = weights.shape[0]
    sums, place = psum((heads, LATENTS)), 0
    for together in spans(len(values), _TOGETHER):
        turned = psum((_TILE, size(together), heads), weights.dtype)
        held = sbuf(turned.shape, weights.dtype)
        for number in range(size(together)):
            first = (together.start + number) * _TILE
            nisa.nc_transpose(dst=turned[:, number, :], data=weights[:, first : first + _TILE])
        nisa.tensor_copy(dst=held, src=turned)
        for number in range(size(together)):
            nisa.nc_matmul(dst=sums, stationary=held[:, number, :], moving=values[place], accumulate=place > 0)
            place += 1
    tile = sbuf((heads, PACK, LATENTS // PACK), out.dtype)
    groups = sums.reshape_dim(1, (LATENTS // PACK, PACK)).permute((0, 2, 1))
    nisa.activation(dst=tile, op=nl.copy, data=groups, scale=share)
    streaming.store(out[0, query].reshape((heads, LATENTS)), tile.reshape((heads, LATENTS)))


def _gather_turned(cache: Any, rows: Any) -> Any:
    """Rows of a cache (S_kv, columns) as (128 or columns, columns / 128, K), transposed on the way."""
    columns, keys = cache.shape[1], rows.size
    width = min(columns, _TILE)
    turned = sbuf((width, columns // width, keys), cache.dtype)
    source = cache.ap(
        [[columns, keys], [columns, 1], [width, columns // width], [1, width]],
        vector_offset=rows.view(nl.uint32),
        indirect_dim=0,
    )
    nisa.dma_transpose(dst=turned.reshape((width, 1, columns // width, keys)), src=source)
    return turned


def _gathered(latents: Any, rows: Any) -> Any:
    """(128, L): the rows of a tile, by DMA."""
    tile = sbuf((_TILE, LATENTS), latents.dtype)
    nisa.dma_copy(dst=tile, src=latents.vector_select(0, rows))
    return tile


def _turned(keys: list[Any], number: int) -> Any:
    """(128, L): the same out of the keys, by Tensor."""
    turned, tile = psum((_TILE, LATENTS), keys[0].dtype), sbuf((_TILE, LATENTS), keys[0].dtype)
    for part in range(LATENTS // _TILE):
        here = slice(part * _TILE, (part + 1) * _TILE)
        nisa.nc_transpose(dst=turned[:, here], data=keys[part][:, number * _TILE : (number + 1) * _TILE])
    nisa.tensor_copy(dst=tile, src=turned)
    return tile


def _scores(left: list[Any], keys: list[Any]) -> tuple[list[Any], Any]:
    """Scores (H, 512 or less) in PSUM, bank by bank, and the largest of each."""
    heads, parts = left[0].shape[1], spans(keys[0].shape[1], nl.tile_size.psum_bank_fmax)
    scores, largest = [], sbuf((heads, len(parts)), nl.float32)
    for number, part in enumerate(parts):
        scores.append(streaming.contract(left, streaming.columns_of(keys, part), psum((heads, size(part)))))
        nisa.tensor_reduce(dst=largest[:, number : number + 1], op=nl.maximum, data=scores[-1], axis=(1,))
    return scores, largest


def _softmax(scores: list[Any], largest: Any, scale: float) -> tuple[Any, Any]:
    """Weights (H, K) that are not divided yet, and 1 / their sum."""
    heads, count = largest.shape[0], sum(each.shape[1] for each in scores)
    parts = spans(count, nl.tile_size.psum_bank_fmax)
    bias, sums = sbuf((heads, 1), nl.float32), sbuf((heads, len(parts)), nl.float32)
    nisa.tensor_reduce(dst=bias, op=nl.maximum, data=largest, axis=(1,), negate=True)
    nisa.tensor_scalar(dst=bias, data=bias, op0=nl.multiply, operand0=scale)
    weights = sbuf((heads, count), nl.bfloat16)
    for number, part in enumerate(parts):
        nisa.activation(
            dst=weights[:, part],
            op=nl.exp,
            data=scores[number],
            bias=bias,
            scale=scale,
            reduce_op=nl.add,
            reduce_res=sums[:, number : number + 1],
            reduce_cmd=nisa.reduce_cmd.reset_reduce,
        )
    total = sbuf((heads, 1), nl.float32)
    nisa.tensor_reduce(dst=total, op=nl.add, data=sums, axis=(1,))
    nisa.reciprocal(dst=total, data=total)
    return weights, total


def _check(q_lift: Any, q_pe: Any, c_kv: Any, k_pe: Any, indices: Any, scale: float, tiled: bool) -> dict[str, int]:
    """The sizes S, H, R, S_kv and K."""
    limits.generation("mla_sparse_attention_cte_kernel", 3, "DMA gathers and transposes there")
    sizes = limits.shape("q_lift_hbm", q_lift, (1, "S", "H", LATENTS))
    limits.shape("q_pe_hbm", q_pe, (1, "S", "H", "R"), sizes)
    limits.shape("c_kv_hbm", c_kv, (1, "S_kv", LATENTS), sizes)
    limits.shape("k_pe_hbm", k_pe, (1, "S_kv", "R"), sizes)
    for name, tensor in (("q_lift_hbm", q_lift), ("q_pe_hbm", q_pe), ("c_kv_hbm", c_kv), ("k_pe_hbm", k_pe)):
        limits.dtype(name, tensor, (nl.bfloat16,))
    limits.dtype("topk_indices_hbm", indices, (nl.int32,))
    if tiled:
        wanted = (streaming.ceil_div(sizes["S"], _TILE), 16, _TILE, "K / 16")
        sizes["K"] = limits.shape("topk_indices_hbm", indices, wanted)["K / 16"] * 16
    else:
        limits.shape("topk_indices_hbm", indices, (1, "S", "K"), sizes)
    limits.between("H", sizes["H"], 1, _TILE, "heads lie on partitions")
    limits.between("R", sizes["R"], 1, _TILE, "it is contracted at once")
    limits.between("K", sizes["K"], _TILE, _MOST_KEYS, "scores of all keys of a query stay in PSUM")
    limits.multiple("K", sizes["K"], _TILE, "keys are gathered in tiles of 128")
    limits.need(scale > 0, "softmax_scale", scale, "softmax_scale is positive", "scale and negate the queries")
    return sizes
