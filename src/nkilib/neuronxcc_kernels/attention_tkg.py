"""``_private_kernels.attention``: attention of a decoding step that rotates queries and keys itself."""

from __future__ import annotations

from typing import Any

from nkilib import limits
from nkilib.core.attention.attention_tkg import attended, check_step, new_tokens, plan
from nkilib.core.attention.attention_tkg_utils import AttnTKGConfig
from nkilib.neuronxcc_kernels.decoding import repeated
from nkilib.streaming import load

__all__ = ["attention_tkg_fwd_isa_kernel"]


def attention_tkg_fwd_isa_kernel(
    q: Any,
    k_active: Any,
    v_active: Any,
    k_prior: Any,
    v_prior: Any,
    pos_id: Any,
    active_mask: Any,
    inv_freqs: Any,
    rope_pos_ids: Any,
    out: Any,
    k_out: Any,
    kernel_name: str = "AttentionTkgFwd",
    curr_sprior: int | None = None,
    full_sprior: int | None = None,
    tp_k_prior: bool = False,
    use_pos_id: bool = True,
    fuse_rope: bool = True,
    strided_mm1: bool = True,
    use_dma_tp: bool = False,
) -> None:
    """Attention of new tokens over the keys of a cache before their positions, and themselves.

    Args:
        q: (B, N, S, d).
        k_active, v_active: (B, 1, S, d).
        k_prior: (B, 1, d, keys), or with `tp_k_prior` (B, 1, keys, d).
        v_prior: (B, 1, keys, d).
        pos_id: (B, 1): how many keys of the cache count.
        active_mask: (S, B, N, S), for each new key where a query does not see it 0.
        inv_freqs: (d / 2, 1) float32, with `fuse_rope`.
        rope_pos_ids: (B, S), with `fuse_rope`: the positions that queries and keys are rotated by.
        out: (B, N, d, S), written.
        k_out: (B, 1, d, S), written: the rotated keys.
        kernel_name: "AttentionTkgFwd".
        curr_sprior: keys of the cache that are looked at, the places of the new ones included; None for all.
        full_sprior: the keys that the cache has room for; None for what it has.
        tp_k_prior: which of its layouts k_prior has.
        use_pos_id: True.
        fuse_rope: queries and new keys are rotated, and queries divided by the root of d; otherwise they are used as
            they are, and `k_out` is not written.
        strided_mm1, use_dma_tp: choices of the published kernel; the first one is taken over, and this kernel chooses
            how to transpose, which is told.

    Raises:
        KernelLimit: another name or shape, and what `attention_tkg` refuses.
    """
    limits.one_of("kernel_name", kernel_name, ("AttentionTkgFwd",))
    limits.not_built({"use_pos_id": None if use_pos_id else False}, "attention_tkg_fwd_isa_kernel")
    limits.without_effect(
        "attention_tkg_fwd_isa_kernel", "as this kernel chooses how to transpose", use_dma_tp=use_dma_tp or None
    )
    sizes = limits.shape("q", q, ("B", "N", "S", "d"))
    _check(sizes, k_active, v_active, pos_id, out, k_out)
    if fuse_rope:
        limits.multiple("d", sizes["d"], 2, "elements are turned in pairs")
        limits.shape("inv_freqs", inv_freqs, (sizes["d"] // 2, 1))
        limits.shape("rope_pos_ids", rope_pos_ids, ("B", "S"), sizes)
    length = v_prior.shape[2]
    limits.one_of("full_sprior", full_sprior, (None, length))
    cfg = AttnTKGConfig(
        bs=sizes["B"],
        q_head=sizes["N"],
        s_active=sizes["S"],
        curr_sprior=curr_sprior or length,
        full_sprior=length,
        d_head=sizes["d"],
        tp_k_prior=tp_k_prior,
        strided_mm1=strided_mm1,
        use_pos_id=True,
        fuse_rope=fuse_rope,
    )
    check_step(cfg, {"k_prior": k_prior}, {"v_prior": v_prior}, {"active_mask": active_mask}, None)
    queries, keys = new_tokens(q, k_active, (inv_freqs, rope_pos_ids), k_out, cfg)
    new = (queries, keys, lambda there: load(v_active[there].permute((2, 0, 1, 3))))
    ends = repeated(pos_id, cfg.s_active)
    attended(*plan(cfg, new, (k_prior, v_prior, None), (active_mask, ends, None), None), out)


def _check(sizes: dict[str, int], k_active: Any, v_active: Any, pos_id: Any, out: Any, k_out: Any) -> None:
    for name, tensor, shape in (
        ("k_active", k_active, ("B", 1, "S", "d")),
        ("v_active", v_active, ("B", 1, "S", "d")),
        ("pos_id", pos_id, ("B", 1)),
        ("out", out, ("B", "N", "d", "S")),
        ("k_out", k_out, ("B", 1, "d", "S")),
    ):
        limits.shape(name, tensor, shape, sizes)
