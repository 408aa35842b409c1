"""What the attention half of a layer refuses, and the sizes that its arguments say."""

from __future__ import annotations

from typing import Any

import nki.language as nl
from nkilib import limits
from nkilib.core.attention.attention_tkg import check_step
from nkilib.core.attention.attention_tkg_utils import AttnTKGConfig
from nkilib.core.utils.common_types import QuantizationType

_FLOATS = (nl.bfloat16, nl.float16, nl.float32)
_FLOAT8 = (nl.float8_e4m3, nl.float8_e4m3fn, nl.float8_e5m2)
_BUILT = (QuantizationType.NONE, QuantizationType.STATIC, QuantizationType.ROW)
_MOST = 512
"""float32 of a bank of PSUM, which holds all heads of all new tokens."""


def check(given: Any) -> AttnTKGConfig:
    """Refuse what does not fit together and what is not built; the sizes of the step of attention."""
    limits.generation("attention_block_tkg", 3, "it transposes while data moves")
    _not_built(given)
    limits.without_effect("attention_block_tkg", "as the compiler allocates memory", sbm=given.sbm)
    cfg = _sizes(given)
    _input(given, cfg)
    _weights(given, cfg)
    _heads(given, cfg)
    _updates(given, cfg)
    keys, values = (_four(cache, cfg) for cache in (given.K_cache, given.V_cache))
    mask = {"attention_mask": given.attention_mask}
    check_step(cfg, {"K_cache": keys}, {"V_cache": values}, mask, given.active_blocks_table)
    return cfg


def _not_built(given: Any) -> None:
    asked = {
        name: getattr(given, name)
        for name in ("KVDP_replica_group", "KVDP_collective_mode", "KVDP_rank", "max_context_len", "CP_replica_group")
    }
    asked |= {name: getattr(given, name) or None for name in ("fp8_packed", "is_h_transposed_by_4")}
    asked |= {name: None if getattr(given, name) == 1 else getattr(given, name) for name in ("KVDP", "CP")}
    asked["CP_collective_mode"] = given.CP_collective_mode
    for name in ("quantization_type_qkv", "quantization_type_out"):
        kind = getattr(given, name)
        asked[name] = None if kind in _BUILT else kind
    limits.not_built(asked, "attention_block_tkg")


def _sizes(given: Any) -> AttnTKGConfig:
    """The sizes, as the mask and the cache have them."""
    mask = limits.shape("attention_mask", given.attention_mask, ("keys", "batch", "heads", "new tokens"))
    paged, keys = given.active_blocks_table is not None, given.K_cache
    limits.need(
        len(keys.shape) == 3 or (len(keys.shape) == 4 and not paged),
        "the rank of K_cache",
        len(keys.shape),
        "K_cache is (B, keys, d), (B, d, keys), or paged (blocks, block length, d)",
        "reshape K_cache",
    )
    need = given.pos_ids is None or given.S_ctx is not None
    limits.need(need, "S_ctx", None, "pos_ids needs the number of keys", "pass S_ctx")
    last, before = keys.shape[-1], keys.shape[-2]
    length = last if given.K_cache_transposed else before
    seen = mask["keys"] if given.pos_ids is None else given.S_ctx
    return AttnTKGConfig(
        bs=mask["batch"],
        q_head=mask["heads"],
        s_active=mask["new tokens"],
        curr_sprior=seen,
        full_sprior=seen if paged else length,
        d_head=before if given.K_cache_transposed else last,
        block_len=before if paged else 0,
        tp_k_prior=not given.K_cache_transposed,
        strided_mm1=not paged,
        use_pos_id=given.pos_ids is not None,
        qk_in_sb=True,
        out_in_sb=given.W_out is not None or given.out_in_sb,
        enable_fa_s_prior_tiling=given.enable_fa_s_prior_tiling,
    )


def _input(given: Any, cfg: AttnTKGConfig) -> None:
    tokens, width = cfg.bs * cfg.s_active, given.W_qkv.shape[0]
    limits.multiple("H", width, 128, "features lie on all partitions")
    limits.between("B * S", tokens, 1, 128, "tokens lie on partitions")
    limits.between("B * S * (q_heads + 1)", tokens * (cfg.q_head + 1), 1, _MOST, "a bank of PSUM holds them")
    limits.dtype("X", given.X, _FLOATS)
    pieces = width // 128
    if given.transposed_in:
        shape = limits.shape("X", given.X, (128, "chunks", "pieces", tokens))
        found = shape["chunks"] * shape["pieces"]
        limits.need(found == pieces, "chunks * pieces of X", found, f"they are H / 128 = {pieces}", "reshape X")
    elif given.X.buffer == nl.sbuf:
        limits.shape("X", given.X, (128, tokens, pieces))
        limits.multiple("H / 128", pieces, int(nl.num_programs(0)), "it is stored in as many chunks as there are cores")
    else:
        limits.shape("X", given.X, (cfg.bs, cfg.s_active, width))
    if given.X_hidden_dim_actual is not None:
        limits.between("X_hidden_dim_actual", given.X_hidden_dim_actual, 1, width)
    enabled, gamma = given.rmsnorm_X_enabled, given.rmsnorm_X_gamma
    limits.need(enabled or gamma is None, "rmsnorm_X_gamma", "given", "it belongs to rmsnorm_X", "enable rmsnorm_X")
    if gamma is not None:
        limits.shape("rmsnorm_X_gamma", gamma, (1, width))


def _weights(given: Any, cfg: AttnTKGConfig) -> None:
    columns, kind = (cfg.q_head + 2) * cfg.d_head, given.quantization_type_qkv
    limits.shape("W_qkv", given.W_qkv, ("H", columns))
    limits.dtype("W_qkv", given.W_qkv, (given.X.dtype,) if kind is QuantizationType.NONE else _FLOAT8)
    if given.bias_qkv is not None:
        limits.shape("bias_qkv", given.bias_qkv, (1, columns))
    scale, inputs = given.weight_dequant_scale_qkv, given.input_dequant_scale_qkv
    for name, tensor, wanted in (
        ("weight_dequant_scale_qkv", scale, kind is not QuantizationType.NONE),
        ("input_dequant_scale_qkv", inputs, kind is QuantizationType.STATIC),
    ):
        rule = f"quantization_type_qkv {kind.name} has {name if wanted else 'no ' + name}"
        actual = None if tensor is None else list(tensor.shape)
        limits.need((tensor is not None) is wanted, name, actual, rule, f"{'pass' if wanted else 'omit'} {name}")
    if scale is not None:
        allowed = (columns,) if kind is QuantizationType.ROW else (1, 3)
        limits.one_of("columns of weight_dequant_scale_qkv", scale.shape[1], allowed)
    if given.W_out is None:
        limits.need(
            not given.transposed_out, "transposed_out", True, "it is a layout of the second projection", "pass W_out"
        )
        limits.need(given.bias_out is None, "bias_out", "given", "it belongs to W_out", "pass W_out")
    else:
        limits.shape("W_out", given.W_out, (cfg.q_head * cfg.d_head, "H"))


def _heads(given: Any, cfg: AttnTKGConfig) -> None:
    limits.multiple("d", cfg.d_head, 2, "elements of a head are turned in pairs")
    both = (given.cos is None) is (given.sin is None)
    limits.need(both, "sin", "without cos" if given.cos is None else None, "cos and sin come together", "pass both")
    for name in ("cos", "sin"):
        tensor = getattr(given, name)
        if tensor is not None:
            limits.shape(name, tensor, (cfg.d_head // 2, cfg.bs, cfg.s_active))
    for place in ("pre", "post"):
        for kind in ("Q", "K"):
            name = f"rmsnorm_QK_{place}_rope_W_{kind}"
            tensor, enabled = getattr(given, name), getattr(given, f"rmsnorm_QK_{place}_rope_enabled")
            limits.need(enabled or tensor is None, name, "given", "its norm is enabled", f"omit {name}")
            if tensor is not None:
                limits.shape(name, tensor, (1, cfg.d_head))
    for name, tensor, shape in (
        ("sink", given.sink, (cfg.q_head, 1)),
        ("pos_ids", given.pos_ids, (cfg.bs, cfg.s_active)),
        ("swa_start_pos_ids", given.swa_start_pos_ids, (cfg.bs, cfg.s_active)),
    ):
        if tensor is not None:
            limits.shape(name, tensor, shape)
    windows = given.swa_start_pos_ids is None or given.pos_ids is not None
    limits.need(windows, "swa_start_pos_ids", "given", "windows need pos_ids", "pass pos_ids")


def _updates(given: Any, cfg: AttnTKGConfig) -> None:
    index, dtype = given.kv_cache_update_idx, given.K_cache.dtype
    limits.need(
        index is not None or not given.update_cache,
        "kv_cache_update_idx",
        None,
        "update_cache needs positions",
        "pass kv_cache_update_idx",
    )
    if index is not None:
        several = bool(cfg.block_len) and index.shape[-1] == cfg.s_active
        limits.shape("kv_cache_update_idx", index, (cfg.bs, cfg.s_active if several else 1))
        limits.dtype("kv_cache_update_idx", index, (nl.int32, nl.uint32))
    both = (given.k_scale is None) is (given.v_scale is None)
    limits.need(both, "v_scale", "without k_scale" if given.k_scale is None else None, "both or none", "pass both")
    if given.k_scale is not None:
        limits.dtype("K_cache", given.K_cache, _FLOAT8)
    if dtype in _FLOAT8:
        limits.dtype("X", given.X, (nl.bfloat16, nl.float16))  # float32 is multiplied with nothing else
    else:
        limits.same_dtype(X=given.X, K_cache=given.K_cache)


def _four(cache: Any, cfg: AttnTKGConfig) -> Any:
    """A cache with the dimension of its one head, for checks."""
    if cfg.block_len or len(cache.shape) != 3:
        return cache
    return cache.reshape((cache.shape[0], 1, *cache.shape[1:]))
