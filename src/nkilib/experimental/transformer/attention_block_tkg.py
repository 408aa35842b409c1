"""The attention half of a transformer's layer for the few new tokens of a decoding step, in one kernel.

Math, for hidden states x of B sequences with S new tokens::

    x = x / sqrt(mean(x^2) + eps) * gamma                    rmsnorm_X
    q, k, v = x @ W_qkv + bias                               sums in float32
    q, k = each head / sqrt(mean(head^2) + eps) * gamma      rmsnorm_QK_pre_rope
    q, k = each head turned by cos and sin                   see `nkilib.core.embeddings.rope`
    q, k = each head normalised again                        rmsnorm_QK_post_rope
    a = softmax(scale * q . (K, k)) @ (V, v)                 see `nkilib.core.attention.attention_tkg`
    K[at], V[at] = k, v                                      update_cache, in place
    out = a @ W_out + bias

Layouts: x is (B, S, H) in HBM, (128, B * S, H / 128) in SBUF, or with transposed_in (128, cores, H / 128 / cores, B *
S) in HBM. Caches are (B, keys, d), keys also (B, d, keys), each with or without a dimension 1 behind B; paged (blocks,
block length, d). Masks are those of attention_tkg. bfloat16, float16 or float32; weights may be float8 (STATIC, ROW),
and caches too, with scales for new keys and values.

Limits: one head of keys and values; d even and at most 128; H a multiple of 128; B * S * (q_heads + 1) at most 512, of
which q_heads * S at most 128.

Plan: weights and the cache stream through the Tensor engine, which their transfers bound; everything between is tiles
of a few KiB in SBUF, whose chain of short instructions the loading of the cache hides. Two cores divide the columns of
the first projection, then keys or sequences, then hidden features.

Source: attention-block-tkg.rst of the published library; Dao et al., Flash-Decoding, 2023.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib.core.attention.attention_tkg import attended, plan
from nkilib.core.attention.attention_tkg_utils import AttnTKGConfig
from nkilib.core.output_projection.output_projection_tkg import output_projection_tkg
from nkilib.core.utils.common_types import DtypeMode, QuantizationType
from nkilib.core.utils.kernel_helpers import get_max_positive_value_for_dtype
from nkilib.experimental.transformer.block_cache import Places, write_columns, write_rows
from nkilib.experimental.transformer.block_checks import check
from nkilib.experimental.transformer.block_heads import HeadNorm, HeadPlan, by_token, quantized
from nkilib.experimental.transformer.block_projection import Projection, Tokens
from nkilib.streaming import result, sbuf, store, transpose

_EPS = 1e-3


@nki.jit
def attention_block_tkg(
    X: nl.NkiTensor,
    X_hidden_dim_actual: int | None,
    rmsnorm_X_enabled: bool,
    rmsnorm_X_eps: float | None,
    rmsnorm_X_gamma: nl.NkiTensor | None,
    W_qkv: nl.NkiTensor,
    bias_qkv: nl.NkiTensor | None,
    quantization_type_qkv: QuantizationType,
    weight_dequant_scale_qkv: nl.NkiTensor | None,
    input_dequant_scale_qkv: nl.NkiTensor | None,
    rmsnorm_QK_pre_rope_enabled: bool,
    rmsnorm_QK_pre_rope_eps: float,
    rmsnorm_QK_pre_rope_W_Q: nl.NkiTensor | None,
    rmsnorm_QK_pre_rope_W_K: nl.NkiTensor | None,
    cos: nl.NkiTensor | None,
    sin: nl.NkiTensor | None,
    rope_contiguous_layout: bool,
    rmsnorm_QK_post_rope_enabled: bool,
    rmsnorm_QK_post_rope_eps: float,
    rmsnorm_QK_post_rope_W_Q: nl.NkiTensor | None,
    rmsnorm_QK_post_rope_W_K: nl.NkiTensor | None,
    K_cache_transposed: bool,
    active_blocks_table: nl.NkiTensor | None,
    K_cache: nl.NkiTensor,
    V_cache: nl.NkiTensor,
    attention_mask: nl.NkiTensor,
    sink: nl.NkiTensor | None,
    update_cache: bool,
    kv_cache_update_idx: nl.NkiTensor | None,
    W_out: nl.NkiTensor | None,
    bias_out: nl.NkiTensor | None,
    quantization_type_out: QuantizationType,
    weight_dequant_scale_out: nl.NkiTensor | None,
    input_dequant_scale_out: nl.NkiTensor | None,
    transposed_out: bool,
    out_in_sb: bool,
    transposed_in: bool = False,
    softmax_scale: float | None = None,
    enable_fa_s_prior_tiling: bool = True,
    fp8_packed: bool = False,
    k_scale: nl.NkiTensor | None = None,
    v_scale: nl.NkiTensor | None = None,
    sbm: Any = None,
    skip_attention: bool = False,
    is_h_transposed_by_4: bool = False,
    KVDP: int = 1,
    KVDP_replica_group: Any = None,
    KVDP_collective_mode: Any = None,
    KVDP_rank: nl.NkiTensor | None = None,
    pos_ids: nl.NkiTensor | None = None,
    swa_start_pos_ids: nl.NkiTensor | None = None,
    S_ctx: int | None = None,
    max_context_len: nl.NkiTensor | None = None,
    dtype_mode: DtypeMode = DtypeMode.NON_OCP,
    CP: int = 1,
    CP_replica_group: Any = None,
    CP_collective_mode: Any = None,
) -> tuple[nl.NkiTensor, nl.NkiTensor, nl.NkiTensor]:
    """Attention of new tokens, from hidden states to hidden states.

    Args:
        X: hidden states.
        X_hidden_dim_actual: features that count, where the others are padding with zeros; None for all.
        rmsnorm_X_enabled, rmsnorm_X_eps, rmsnorm_X_gamma: norm of the hidden states, 1e-3 by default; (1, H) or None.
        W_qkv, bias_qkv: (H, (q_heads + 2) * d) and (1, (q_heads + 2) * d) or None.
        quantization_type_qkv: NONE, STATIC or ROW.
        weight_dequant_scale_qkv: with STATIC (128, 1), or (128, 3) for queries, keys and values; with ROW (128,
            columns).
        input_dequant_scale_qkv: with STATIC (128, 1).
        rmsnorm_QK_pre_rope_enabled, rmsnorm_QK_pre_rope_eps, rmsnorm_QK_pre_rope_W_Q, rmsnorm_QK_pre_rope_W_K: norm of
            heads before they are turned; (1, d) or None.
        cos, sin: (d / 2, B, S), or None: heads are not turned.
        rope_contiguous_layout: pairs are elements of the two halves of a head; otherwise neighbours.
        rmsnorm_QK_post_rope_enabled and its three arguments: the same after they are turned.
        K_cache_transposed: keys are stored as (d, keys).
        active_blocks_table: (B, blocks) of a paged cache.
        K_cache, V_cache: caches; with update_cache they are changed.
        attention_mask: (keys, B, q_heads, S), or with `pos_ids` (S, B, q_heads, S).
        sink: (q_heads, 1) or None.
        update_cache: whether new keys and values are written; otherwise they are returned.
        kv_cache_update_idx: (B, 1), where a sequence's first new token goes; of a paged cache counted through all
            blocks, also (B, S). Below 0, or the largest uint32, or where a sequence has not enough rows left: nowhere.
            What attention looks at must not be written.
        W_out, bias_out: (q_heads * d, H) or None for no projection; (1, H) or None.
        quantization_type_out, weight_dequant_scale_out, input_dequant_scale_out: as of `output_projection_tkg`.
        transposed_out, out_in_sb: layout and place of the result.
        transposed_in: see the top of this file.
        softmax_scale: of scores, by default 1 / sqrt(d).
        enable_fa_s_prior_tiling: as of `AttnTKGConfig`.
        k_scale, v_scale: (128, 1) or (1, 1): new keys and values are multiplied with them and clipped to float8.
        sbm: the caller's manager of SBUF, or None. It has no effect, which is told: the compiler places tiles around
            what it gave out.
        skip_attention: queries take the place of attention's result, for tests.
        pos_ids, swa_start_pos_ids: (B, S): see `rope_pos_ids` and `start_pos_ids` of `attention_tkg`.
        S_ctx: keys that are looked at, with `pos_ids`.
        dtype_mode: which float8 STATIC computes with.
        fp8_packed, is_h_transposed_by_4, KVDP and its three arguments, max_context_len, CP and its two: not built.

    Returns:
        The result: (B * S, H), transposed (128, cores, H / 128 / cores, B * S), or in SBUF this core's part of either;
        without W_out (B, q_heads, d, S), in SBUF (d, B * q_heads * S). Then both caches, or the new keys (d, B, S) and
        values (B, 1, S, d).

    Raises:
        KernelLimit: arguments that do not belong together, sizes beyond the limits, options that are not built.
    """
    given = SimpleNamespace(**locals())
    cfg = check(given)
    projected = _projected(given, cfg)
    heads = _head_plan(given, cfg).of(projected)
    queries, keys, values = _divided(given, cfg, heads, projected)
    inside = W_out is not None or out_in_sb
    shape = (cfg.bs, cfg.q_head, cfg.d_head, cfg.s_active)
    columns = (cfg.d_head, cfg.bs * cfg.rows)
    attention = sbuf(columns, X.dtype) if inside else result(shape, X.dtype)
    if skip_attention:
        attention = _as_attention(heads, cfg, attention)
    else:
        _attend(given, cfg, (queries, keys, values), attention)
    caches = _write(given, cfg, keys, values) if update_cache else _new(cfg, keys, values)
    if W_out is None:
        return attention, *caches
    of_heads = attention.reshape((cfg.d_head, cfg.bs, cfg.q_head, cfg.s_active))
    scales = (quantization_type_out, weight_dequant_scale_out, input_dequant_scale_out)
    out = output_projection_tkg(of_heads, W_out, bias_out, *scales, transposed_out, out_in_sb, None, dtype_mode)
    return out, *caches


def _projected(given: Any, cfg: AttnTKGConfig) -> Any:
    """Queries, keys and values as the projection gives them, ``(B * S, columns)`` in SBUF."""
    tokens = Tokens.of(given.X, given.X_hidden_dim_actual, given.transposed_in)
    if given.rmsnorm_X_enabled:
        eps = _EPS if given.rmsnorm_X_eps is None else given.rmsnorm_X_eps
        tokens = tokens.normalised(eps, given.rmsnorm_X_gamma)
    scales = (given.weight_dequant_scale_qkv, given.input_dequant_scale_qkv)
    ends = tuple((cfg.q_head + more) * cfg.d_head for more in range(3))
    weights = Projection(given.W_qkv, given.bias_qkv, *scales, ends, given.dtype_mode)
    return weights.of(tokens.stack(), cfg.bs * cfg.s_active, given.X.dtype)


def _head_plan(given: Any, cfg: AttnTKGConfig) -> HeadPlan:
    before, after = (_head_norm(given, place) for place in ("pre", "post"))
    sizes = (cfg.bs, cfg.q_head, cfg.s_active, cfg.d_head)
    return HeadPlan(*sizes, before, after, given.cos, given.sin, given.rope_contiguous_layout)


def _head_norm(given: Any, place: str) -> HeadNorm | None:
    """The norm of heads before ("pre") or after ("post") they are turned."""
    enabled, eps, queries, keys = (
        getattr(given, f"rmsnorm_QK_{place}_rope_{name}") for name in ("enabled", "eps", "W_Q", "W_K")
    )
    return HeadNorm(eps, queries, keys) if enabled else None


def _divided(given: Any, cfg: AttnTKGConfig, heads: Any, projected: Any) -> tuple[Any, Any, Any]:
    """Queries ``(d, B * H * S)``, and keys ``(d, B * S)`` and values ``(B * S, d)`` of the caches' dtype."""
    head, tokens, kind = cfg.d_head, cfg.bs * cfg.s_active, given.K_cache.dtype
    scale = head**-0.5 if given.softmax_scale is None else given.softmax_scale
    queries = sbuf((head, cfg.bs, cfg.q_head, cfg.s_active), heads.dtype)
    nisa.tensor_scalar(dst=queries, data=heads[:, :, 0 : cfg.q_head], op0=nl.multiply, operand0=scale)
    keys = _stored(heads[:, :, cfg.q_head], (head, tokens), given.k_scale, kind)
    values = _stored(projected[:, -head:], (tokens, head), given.v_scale, kind)
    return queries.reshape((head, cfg.bs * cfg.rows)), keys, values


def _stored(source: Any, shape: tuple[int, int], scale: Any, dtype: Any) -> Any:
    """A new tile with what a cache stores of keys or values."""
    if scale is not None:
        return quantized(source, scale, dtype, get_max_positive_value_for_dtype(dtype) or 0.0).reshape(shape)
    tile = sbuf(shape, dtype)
    nisa.tensor_copy(dst=tile.reshape(tuple(source.shape)), src=source)
    return tile


def _attend(given: Any, cfg: AttnTKGConfig, new: tuple[Any, Any, Any], attention: Any) -> None:
    queries, keys, values = new
    caches = [_with_heads(cache, cfg) for cache in (given.K_cache, given.V_cache)]
    step, mine = plan(
        cfg,
        (queries, keys, lambda there: by_token(values, cfg.s_active, there)),
        (*caches, given.active_blocks_table),
        (given.attention_mask, given.pos_ids, given.swa_start_pos_ids),
        given.sink,
    )
    attended(step, mine, attention)


def _with_heads(cache: Any, cfg: AttnTKGConfig) -> Any:
    """A cache with a dimension of one head."""
    if cfg.block_len or len(cache.shape) == 4:
        return cache
    return cache.reshape((cache.shape[0], 1, *cache.shape[1:]))


def _as_attention(heads: Any, cfg: AttnTKGConfig, attention: Any) -> Any:
    """The queries in the place of attention's result."""
    tile = sbuf((cfg.d_head, cfg.bs, cfg.q_head, cfg.s_active), attention.dtype)
    nisa.tensor_copy(dst=tile, src=heads[:, :, 0 : cfg.q_head])
    if attention.buffer == nl.sbuf:
        return tile.reshape((cfg.d_head, cfg.bs * cfg.rows))
    nisa.dma_copy(dst=attention.permute((2, 0, 1, 3)), src=tile)
    return attention


def _write(given: Any, cfg: AttnTKGConfig, keys: Any, values: Any) -> tuple[Any, Any]:
    """The caches, with the new tokens; of two cores one writes keys, the other one values."""
    cores, core = int(nl.num_programs(0)), int(nl.program_id(0))
    places = Places(given.kv_cache_update_idx, cfg.bs, cfg.s_active, 0 if cfg.block_len else cfg.full_sprior)
    rows = places.rows()
    if core == 0 and given.K_cache_transposed:
        write_columns(_with_heads(given.K_cache, cfg), keys, places.columns())
    elif core == 0:
        write_rows(given.K_cache, transpose(keys), rows)
    if core == cores - 1:
        write_rows(given.V_cache, values, rows)
    return given.K_cache, given.V_cache


def _new(cfg: AttnTKGConfig, keys: Any, values: Any) -> tuple[Any, Any]:
    """The new keys (d, B, S) and values (B, 1, S, d) in HBM, written by the first core."""
    made = result((cfg.d_head, cfg.bs, cfg.s_active), keys.dtype)
    other = result((cfg.bs, 1, cfg.s_active, cfg.d_head), values.dtype)
    if int(nl.program_id(0)) == 0:
        store(made, keys)
        store(other, values)
    return made, other
