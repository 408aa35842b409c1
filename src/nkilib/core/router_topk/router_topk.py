"""The router of a mixture of experts: logits of all experts, the k best of each token, and the affinities to them.

Math, for a token x of H numbers, weights w (H, E) and bias b::

    logits = x @ w + b
    chosen = the k largest logits
    affinities = softmax(logits) or sigmoid(logits), of all experts (router_pre_norm) or of the chosen ones

With `router_pre_norm` alone the affinities of all experts are returned. With `norm_topk_prob` as well, and without
`router_pre_norm`, those of experts that were not chosen are 0: divided by the sum of the chosen ones, or computed of
the chosen logits. A softmax of the chosen logits, and one of all logits divided by the chosen ones' sum, are the same.

Layouts: x is (H, T) or (T, H) in HBM, or lies in SBUF as `layouts` says. T tokens in tiles of 128 on partitions,
experts along the free dimension. bfloat16, float16 or float32; logits are summed and compared in float32.

Limits: k <= 8, H a multiple of 128, E <= 16,384; T <= 128 where a result lies in SBUF.

Engines: Tensor sums the product in PSUM; Vector finds the eight largest and marks those that were chosen; Scalar
computes exponentials or sigmoids with their sum. Loading x bounds it: the product is too thin to keep Tensor busy.
Source: router-topk.rst of the published library; Shazeer et al., "Outrageously Large Neural Networks", 2017.
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib import streaming
from nkilib.core.router_topk.choices import LOWEST, route
from nkilib.core.router_topk.layouts import (
    XHBMLayout_H_T__0,
    XHBMLayout_T_H__1,
    XSBLayout__128_Hdiv128_T__3,
    XSBLayout_tp102__0,
    XSBLayout_tp201__2,
    XSBLayout_tp2013__1,
    router_topk_input_w_load,
    router_topk_input_x_load,
)
from nkilib.core.router_topk.plan import Router, check, chunks, eager_result, hidden_states, in_sbuf
from nkilib.core.utils.common_types import RouterActFnType
from nkilib.streaming import sbuf

__all__ = [
    "XHBMLayout_H_T__0",
    "XHBMLayout_T_H__1",
    "XSBLayout__128_Hdiv128_T__3",
    "XSBLayout_tp102__0",
    "XSBLayout_tp201__2",
    "XSBLayout_tp2013__1",
    "router_topk",
    "router_topk_input_w_load",
    "router_topk_input_x_load",
]


@nki.jit
def router_topk(
    x: nl.NkiTensor,
    w: nl.NkiTensor,
    w_bias: nl.NkiTensor | None,
    router_logits: nl.NkiTensor,
    expert_affinities: nl.NkiTensor,
    expert_index: nl.NkiTensor,
    act_fn: RouterActFnType,
    k: int,
    x_hbm_layout: int,
    x_sb_layout: int,
    router_pre_norm: bool = True,
    norm_topk_prob: bool = False,
    use_column_tiling: bool = False,
    use_indirect_dma_scatter: bool = False,
    return_eager_affi: bool = False,
    use_PE_broadcast_w_bias: bool = False,
    shard_on_tokens: bool = False,
    skip_store_expert_index: bool = False,
    skip_store_router_logits: bool = False,
) -> list[nl.NkiTensor]:
    """Logits, the k best experts of every token in descending order, and the affinities to them.

    Args:
        x: (H, T) or (T, H) in HBM, or a tile in SBUF.
        w: (H, E) in HBM, of the dtype of `x`.
        w_bias: (1, E) or (E,) in HBM, or None.
        router_logits: (T, E) in HBM, written.
        expert_affinities: (T, E) in HBM or SBUF, written.
        expert_index: (T, k), uint32 in HBM or SBUF, written.
        act_fn: SOFTMAX or SIGMOID.
        k: experts of a token, at most 8.
        x_hbm_layout: 0 for (H, T), 1 for (T, H); it does not count if `x` lies in SBUF.
        x_sb_layout: 0 to 3, see `layouts`; it does not count if `x` lies in HBM.
        router_pre_norm: affinities are computed of all logits, otherwise of the chosen ones.
        norm_topk_prob: the affinities of the chosen experts sum up to 1, those of the others are 0.
        use_column_tiling: with at most 64 tokens, several parts of H share the columns of the Tensor engine.
        use_indirect_dma_scatter: the chosen affinities go to zeroed rows of HBM by DMA; otherwise whole rows are made
            on chip, which is faster.
        return_eager_affi: the affinities of the chosen experts, (T, k) in float32, are the fourth result; where
            `expert_index` lies.
        use_PE_broadcast_w_bias: the Tensor engine adds the bias in its product, otherwise Vector does.
        shard_on_tokens: two cores share the tokens; where a result lies in SBUF, both need all of it and compute it.
        skip_store_expert_index, skip_store_router_logits: this result is not written.

    Returns:
        [router_logits, expert_index, expert_affinities], and the affinities of the chosen experts.
    """
    hidden, experts = w.shape
    router = Router(
        act_fn=act_fn,
        k=k,
        experts=experts,
        of_all=router_pre_norm,
        normed=norm_topk_prob,
        indirect=use_indirect_dma_scatter,
        column_tiling=use_column_tiling,
        bias_by_tensor=use_PE_broadcast_w_bias,
        shared=shard_on_tokens and not any(in_sbuf(each) for each in (expert_index, expert_affinities)),
        logits=None if skip_store_router_logits else router_logits,
        index=None if skip_store_expert_index else expert_index,
        affinities=expert_affinities,
        eager=eager_result(return_eager_affi, expert_index),
    )
    tokens, source = hidden_states(x, hidden, x_hbm_layout, x_sb_layout)
    check(router, x, w, w_bias, tokens)
    weights = router_topk_input_w_load(w, source.weights_like)
    parts = [weights[:, j] for j in range(weights.shape[1])]
    bias = load_bias(router, w_bias)
    for chunk in chunks(router, tokens, source):
        part = source.load(chunk)
        for rows in streaming.spans(streaming.size(chunk), nl.tile_size.pmax):
            logits = logits_of(router, source.tiles(part, rows), parts, bias)
            route(router, logits, slice(chunk.start + rows.start, chunk.start + rows.stop))
    if nl.num_programs(0) > 1 and not in_sbuf(expert_affinities):
        nisa.core_barrier(data=expert_affinities, cores=(0, 1))
    results = [router_logits, expert_index, expert_affinities]
    return results if router.eager is None else [*results, router.eager]


def load_bias(router: Router, w_bias: Any) -> Any:
    """The bias as one row, or as a row for every token."""
    if w_bias is None:
        return None
    row = w_bias.reshape((1, router.experts))
    return streaming.load(row) if router.bias_by_tensor else streaming.load_repeated(row, nl.tile_size.pmax)


def logits_of(router: Router, tiles: list[Any], weights: list[Any], bias: Any) -> Any:
    """(tokens, width) in float32: the sum of products of tiles (128, tokens) with weights (128, E), and the bias."""
    tokens = tiles[0].shape[1]
    logits = sbuf((tokens, router.width), nl.float32)
    if router.width > router.experts:
        nisa.memset(dst=logits[:, router.experts :], value=LOWEST)
    for experts in streaming.spans(router.experts, nl.tile_size.psum_bank_fmax):
        parts = _product(router, tiles, [tile[:, experts] for tile in weights])
        if bias is not None and router.bias_by_tensor:
            ones = streaming.filled((1, tokens), bias.dtype, 1.0)
            nisa.nc_matmul(dst=parts[0], stationary=ones, moving=bias[:, experts], accumulate=True)
        if bias is not None and not router.bias_by_tensor:
            nisa.tensor_tensor(dst=logits[:, experts], data1=parts[0], data2=bias[:tokens, experts], op=nl.add)
        else:
            nisa.tensor_copy(dst=logits[:, experts], src=parts[0])
        for part in parts[1:]:
            nisa.tensor_tensor(dst=logits[:, experts], data1=logits[:, experts], data2=part, op=nl.add)
    return logits


def _product(router: Router, tiles: list[Any], weights: list[Any]) -> list[Any]:
    """What sums up to ``tiles.T @ weights``, in PSUM: one part, or with column tiling one for each group of columns."""
    tokens, experts = tiles[0].shape[1], weights[0].shape[1]
    width = 128
    if router.column_tiling and tokens <= 64:
        width = 32 if tokens <= 32 else 64
    groups = min(128 // width, len(tiles))
    whole = streaming.psum((width * (groups - 1) + tokens, experts))
    parts = [whole[width * group : width * group + tokens, :] for group in range(groups)]
    for place, (left, right) in enumerate(zip(tiles, weights, strict=True)):
        group = place % groups
        tiling: dict[str, Any] = {"tile_position": (0, width * group), "tile_size": (128, width)} if groups > 1 else {}
        nisa.nc_matmul(dst=parts[group], stationary=left, moving=right, accumulate=place >= groups, **tiling)
    return parts
