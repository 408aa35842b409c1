"""``kernels.attention``: attention and its gradients, in the layouts of the published kernels.

Scores, maxima and sums are float32, and products have the dtype of the operands, whatever `mixed_precision` says: where
it is True for operands of float32, the published kernels round them to bfloat16, and results here are closer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib import limits
from nkilib.core.attention.attention_bwd import attention_bwd
from nkilib.core.attention.attention_cte import attention_cte
from nkilib.neuronxcc_kernels.attention_tkg import attention_tkg_fwd_isa_kernel
from nkilib.neuronxcc_kernels.attn_fwd import CAUSAL, transposes_are_chosen
from nkilib.neuronxcc_kernels.not_served import NOT_SERVED as NOT_SERVED
from nkilib.neuronxcc_kernels.outputs import give, meet
from nkilib.streaming import load, load_transposed, result, sbuf, share, spans, store

__all__ = [
    "FlashConfig",
    "allocated_fused_self_attn_for_SD_small_head_size",
    "attention_isa_kernel",
    "attention_tkg_fwd_isa_kernel",
    "flash_attn_bwd",
    "flash_fwd",
    "fused_self_attn_for_SD_small_head_size",
]

_DIFFUSION_SCALE = 0.125
"""Of scores, in the kernels for Stable Diffusion."""


@dataclass(frozen=True)
class FlashConfig:
    """Options of `flash_fwd`.

    Attributes:
        seq_tile_size, attn_core_tile_size: tiles of the published kernel; this one chooses its own, which is told where
            they are not the published defaults.
        training: whether the logarithms of the sums are returned, which gradients need.
        should_transpose_v: whether values come as (b, heads_kv, d, S_k), and are transposed first.
        lse_dtype: name of a dtype of `nki.language`; "" for float32, or the dtype of `q` without mixed precision.
    """

    seq_tile_size: int = 2048
    attn_core_tile_size: int = 256
    training: bool = True
    should_transpose_v: bool = False
    lse_dtype: str = ""


def attention_isa_kernel(
    q: Any,
    k: Any,
    v: Any,
    scale: float,
    out: Any,
    kernel_name: str = "AttentionMMSoftmaxMMWithoutSwap",
    use_dma_transpose: bool = False,
    global_n_tiles: int = 1,
    tile_i: Any = None,
    strided_q_slicing: bool = False,
    sink: Any = None,
    sliding_window: int | None = None,
) -> None:
    """``out = softmax(scale * q.T @ k) @ v`` of each of B sequences and heads.

    Args:
        q: (B, d, S_q).
        k: (B, d, S_k).
        v: (B, S_k, d).
        scale: of the scores.
        out: (B, d, S_q) or (B, S_q, d), written.
        kernel_name: "AttentionMMSoftmaxMMWithoutSwap", or with "Causal" before it.
        use_dma_transpose: a choice of the published kernel; this one chooses for itself, which is told.
        global_n_tiles, tile_i, strided_q_slicing: where a rank has a part of the queries; not built.
        sink: (B, 1), or None.
        sliding_window: keys that a query sees; None or 0 for all.

    Raises:
        KernelLimit: another name; an `out` whose layout its shape does not tell; and what `attention_cte` refuses.
    """
    limits.one_of("kernel_name", kernel_name, tuple(CAUSAL))
    limits.not_built(
        {
            "global_n_tiles": global_n_tiles if global_n_tiles != 1 else None,
            "tile_i": tile_i,
            "strided_q_slicing": strided_q_slicing or None,
        },
        "attention_isa_kernel",
    )
    transposes_are_chosen("attention_isa_kernel", use_dma_transpose)
    batch, d, queries = q.shape
    causal = CAUSAL[kernel_name]
    limits.layout(
        d != queries or causal,
        "out",
        f"{list(out.shape)}, which is both (batch, d, queries) and (batch, queries, d)",
        "without a causal mask the shape of out says which of the two it is",
        "call it for another number of queries",
    )
    turned = tuple(out.shape) == (batch, d, queries)
    made = attention_cte(
        q,
        k,
        v,
        scale=scale,
        causal_mask=causal,
        sink=sink,
        sliding_window=sliding_window,
        tp_q=False,
        tp_out=turned,
    )
    give(made, out)


def flash_fwd(
    q: Any,
    k: Any,
    v: Any,
    seed: Any,
    logit_bias: Any = None,
    softmax_scale: float | None = None,
    use_causal_mask: bool = True,
    sliding_window: int = -1,
    mixed_precision: bool = True,
    dropout_p: float = 0.0,
    config: FlashConfig | None = None,
    *,
    grid: tuple[int, ...] = (),
) -> Any:
    """Attention, launched on the grid (batch, heads of keys).

    Args:
        q: (b, heads, d, S_q).
        k: (b, heads_kv, d, S_k).
        v: (b, heads_kv, S_k, d), or with ``config.should_transpose_v`` (b, heads_kv, d, S_k).
        seed: of the dropout, which is not built.
        logit_bias: None.
        softmax_scale: of the scores; by default d**-0.5.
        use_causal_mask: query i sees the keys up to i.
        sliding_window: keys that a query sees, its own among them; at most 0 for all. It is causal.
        mixed_precision: decides the dtype of the logarithms alone.
        dropout_p: 0.
        config: see `FlashConfig`.
        grid: what the kernel is launched on.

    Returns:
        (b, heads, S_q, d) in the dtype of `q`; in training also the logarithms of the sums of the exponentials of the
        scaled scores, (b, heads, 128, S_q / 128), of query 128 * t + p at [p, t].

    Raises:
        KernelLimit: another grid, what is not built, and what `attention_cte` refuses.
    """
    config = config or FlashConfig()
    limits.not_built(
        {
            "logit_bias": logit_bias,
            "dropout_p": dropout_p or None,
        },
        "flash_fwd",
    )
    tiles = (config.seq_tile_size, config.attn_core_tile_size)
    limits.without_effect(
        "flash_fwd", "as this kernel chooses its own tiles", config=None if tiles == (2048, 256) else config
    )
    b, heads, d, queries = q.shape
    heads_kv, keys = k.shape[1], k.shape[3]
    _launched(grid, (b, heads_kv), "flash_fwd")
    made = attention_cte(
        q.reshape((b * heads, d, queries)),
        k.reshape((b * heads_kv, d, keys)),
        _rows(v.reshape((b * heads_kv, d, keys))) if config.should_transpose_v else v.reshape((b * heads_kv, keys, d)),
        scale=softmax_scale or d**-0.5,
        causal_mask=use_causal_mask or sliding_window > 0,
        sliding_window=sliding_window if sliding_window > 0 else None,
        tp_q=False,
        cache_softmax=config.training,
    )
    if not config.training:
        return made.reshape((b, heads, queries, d))
    out, negated_largest, inverse_sums = made
    dtype = getattr(nl, config.lse_dtype) if config.lse_dtype else nl.float32 if mixed_precision else q.dtype
    lse = _logarithms(negated_largest, inverse_sums, dtype)
    return out.reshape((b, heads, queries, d)), lse.reshape((b, heads, *lse.shape[1:]))


def flash_attn_bwd(
    q_ref: Any,
    k_ref: Any,
    v_ref: Any,
    o_ref: Any,
    dy_ref: Any,
    lse_ref: Any,
    seed_ref: Any,
    logit_bias_ref: Any = None,
    use_causal_mask: bool = False,
    mixed_precision: bool = False,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    sliding_window: int = -1,
    sinks: Any = None,
    *,
    grid: tuple[int, ...] = (),
) -> Any:
    """Gradients of `flash_fwd`, launched on the grid (batch, heads of keys).

    Args:
        q_ref, o_ref, dy_ref: (b, heads, d, S_q): queries, the result, and its gradient.
        k_ref, v_ref: (b, heads_kv, d, S_k).
        lse_ref: (b, heads, 128, S_q / 128) float32, of `flash_fwd`.
        seed_ref: of the dropout, which is not built.
        logit_bias_ref: None.
        use_causal_mask: query i sees the keys up to i.
        mixed_precision: sums are float32 either way.
        dropout_p: 0.
        softmax_scale: of the scores; by default d**-0.5.
        sliding_window: keys that a query sees; at most 0 for all.
        sinks: (b, heads), or None.
        grid: what the kernel is launched on.

    Returns:
        (dq, dk, dv), and the gradient of the sinks, each like its argument.

    Raises:
        KernelLimit: another grid, what is not built, and what `attention_bwd` refuses.
    """
    limits.not_built({"logit_bias_ref": logit_bias_ref, "dropout_p": dropout_p or None}, "flash_attn_bwd")
    _launched(grid, (q_ref.shape[0], k_ref.shape[1]), "flash_attn_bwd")
    return attention_bwd(
        q_ref,
        k_ref,
        v_ref,
        o_ref,
        dy_ref,
        lse_ref,
        sinks_ref=sinks,
        use_causal_mask=use_causal_mask,
        softmax_scale=softmax_scale,
        sliding_window=sliding_window if sliding_window > 0 else None,
    )


def fused_self_attn_for_SD_small_head_size(
    q_ref: Any,
    k_ref: Any,
    v_ref: Any,
    use_causal_mask: bool = False,
    mixed_precision: bool = True,
    *,
    grid: tuple[int, ...] = (),
) -> Any:
    """Attention with scores scaled by 0.125, launched on the grid (batch,).

    Args:
        q_ref: (B, d, S).
        k_ref, v_ref: (B, S, d).
        use_causal_mask: query i sees the keys up to i.
        mixed_precision: products have the dtype of the operands either way.
        grid: what the kernel is launched on.

    Returns:
        (B, S, d).

    Raises:
        KernelLimit: another grid, and what `attention_cte` refuses.
    """
    _launched(grid, (q_ref.shape[0],), "fused_self_attn_for_SD_small_head_size")
    scale, causal = _DIFFUSION_SCALE, use_causal_mask
    return attention_cte(q_ref, k_ref, v_ref, scale=scale, causal_mask=causal, tp_q=False, tp_k=True)


def allocated_fused_self_attn_for_SD_small_head_size(
    q_ref: Any,
    k_ref: Any,
    v_ref: Any,
    use_causal_mask: bool = False,
    mixed_precision: bool = True,
    *,
    grid: tuple[int, ...] = (),
) -> Any:
    """`fused_self_attn_for_SD_small_head_size` of keys (B, d, S), with a result (B, d, S)."""
    _launched(grid, (q_ref.shape[0],), "allocated_fused_self_attn_for_SD_small_head_size")
    scale, causal = _DIFFUSION_SCALE, use_causal_mask
    return attention_cte(q_ref, k_ref, v_ref, scale=scale, causal_mask=causal, tp_q=False, tp_out=True)


def _launched(grid: tuple[int, ...], wanted: tuple[int, ...], kernel: str) -> None:
    """Refuse a grid that would leave a part of the result out."""
    limits.need(
        grid == wanted,
        "grid",
        list(grid),
        f"{kernel} has a program for each of {list(wanted)}",
        f"launch it as {kernel}[{', '.join(map(str, wanted))}](...)",
    )


def _rows(turned: Any) -> Any:
    """Values (B, d, S) as (B, S, d) in HBM; the cores of the launch divide the sequences."""
    batch, d, keys = turned.shape
    made = result((batch, keys, d), turned.dtype)
    for each in share(range(batch)):
        for part, tile in zip(spans(keys, nl.tile_size.pmax), load_transposed(turned[each]), strict=True):
            store(made[each, part], tile)
    meet(made)
    return made


def _logarithms(negated_largest: Any, inverse_sums: Any, dtype: Any) -> Any:
    """``log(sum(exp(x))) = largest - log(1 / sum(exp(x - largest)))``; the cores of the launch divide the sequences."""
    batch, rows, tiles = negated_largest.shape
    lse = result((batch, rows, tiles), dtype)
    for made in (negated_largest, inverse_sums):
        meet(made)
    for each in share(range(batch)):
        logarithm = sbuf((rows, tiles), nl.float32)
        nisa.activation(dst=logarithm, op=nl.log, data=load(inverse_sums[each]))
        total = sbuf((rows, tiles), dtype)
        nisa.scalar_tensor_tensor(
            dst=total,
            data=load(negated_largest[each]),
            op0=nl.multiply,
            operand0=-1.0,
            op1=nl.subtract,
            operand1=logarithm,
        )
        store(lse[each], total)
    return lse
