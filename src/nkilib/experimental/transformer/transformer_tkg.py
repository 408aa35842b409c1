"""Layers of a transformer for the few new tokens of a decoding step, in one kernel.

Math, for hidden states x, layer by layer::

    x = x + sum over ranks of attention_block(norm(x))       see `attention_block_tkg`
    x = x + sum over ranks of mlp(norm(x))                    see `nkilib.core.mlp.mlp`

Layouts: x is (B, S, H); W_qkvs hold (H, (q_heads + 2) * d), W_outs (q_heads * d, H), W_gates and W_ups (H, I), W_downs
(I, H), the gammas (1, H), for each layer. Caches are (B, d, keys) and (B, keys, d), and are changed in place. bfloat16,
float16 or float32; weights of the MLP also float8 with a scale for each column. Limits: those of both kernels.

Plan: x stays in SBUF from the first layer to the last, spread over the partitions as both kernels take it, and what
they leave there is added to it. So weights and caches stream from HBM without a pause between layers, and their bytes
bound. Two cores divide each product, and give each other their halves of x after it.

Source: transformer-tkg.rst of the published library; Vaswani et al., arXiv:1706.03762.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import nki
import nki.collectives as ncc
import nki.isa as nisa
import nki.language as nl
from nkilib import limits
from nkilib.core.attention.decode import swap
from nkilib.core.mlp.mlp import mlp
from nkilib.core.utils.common_types import DtypeMode, NormType, QuantizationType
from nkilib.experimental.transformer.attention_block_tkg import attention_block_tkg
from nkilib.experimental.transformer.block_projection import FEW_EXCHANGED
from nkilib.streaming import result, sbuf

_OF_LAYERS = ("W_qkvs", "W_outs", "W_gates", "W_ups", "W_downs", "W_gamma_qkvs", "W_gamma_mlps", "K_caches", "V_caches")
_SCALES = ("W_gate_scales", "W_up_scales", "W_down_scales")


@nki.jit
def transformer_tkg(
    X: nl.NkiTensor,
    W_qkvs: Sequence[nl.NkiTensor],
    W_outs: Sequence[nl.NkiTensor],
    W_gates: Sequence[nl.NkiTensor],
    W_ups: Sequence[nl.NkiTensor],
    W_downs: Sequence[nl.NkiTensor],
    W_gamma_qkvs: Sequence[nl.NkiTensor],
    W_gamma_mlps: Sequence[nl.NkiTensor],
    K_caches: Sequence[nl.NkiTensor],
    V_caches: Sequence[nl.NkiTensor],
    RoPE_cos: nl.NkiTensor,
    RoPE_sin: nl.NkiTensor,
    attention_mask: nl.NkiTensor,
    position_ids: nl.NkiTensor | None,
    num_layers: int,
    eps: float = 1e-06,
    replica_groups: Sequence[Sequence[int]] | None = None,
    sbuf_residual_and_cc: bool = False,
    clamp_bound: float = 0.0,
    W_gate_scales: Sequence[nl.NkiTensor] | None = None,
    W_up_scales: Sequence[nl.NkiTensor] | None = None,
    W_down_scales: Sequence[nl.NkiTensor] | None = None,
    dtype_mode: DtypeMode = DtypeMode.NON_OCP,
) -> nl.NkiTensor:
    """Hidden states after all layers.

    Args:
        X: (B, S, H).
        W_qkvs, W_outs, W_gates, W_ups, W_downs, W_gamma_qkvs, W_gamma_mlps, K_caches, V_caches: a tensor for each
            layer.
        RoPE_cos, RoPE_sin: (d / 2, B, S).
        attention_mask: (keys, B, q_heads, S), 0 where a key does not count; the new tokens are the last keys.
        position_ids: (B, 1), where a sequence's first new token goes in the caches; None: nowhere. JAX arrays
            cannot change: with them it is None, or a kernel around this one returns the caches.
        num_layers: layers to compute, of which there may be more.
        eps: of all norms.
        replica_groups: ranks that sum up what each has computed; None: there is one rank.
        sbuf_residual_and_cc: whether ranks exchange from SBUF; otherwise through HBM.
        clamp_bound: 0; another one is not built.
        W_gate_scales, W_up_scales, W_down_scales: of float8 weights, (128, columns), rows are equal; all or none.
        dtype_mode: which float8 weights without a dtype are. Here all have one: OCP and AUTO have no effect, which is
            told.

    Returns:
        (B, S, H).

    Raises:
        KernelLimit: lists of other lengths, and what `attention_block_tkg` and `mlp` refuse.
    """
    given = SimpleNamespace(**locals())
    _check(given)
    hidden = _loaded(X)
    for layer in range(num_layers):
        block = {name: getattr(given, name)[layer] for name in _OF_LAYERS}
        scales = [None if getattr(given, name) is None else getattr(given, name)[layer] for name in _SCALES]
        hidden = _added(hidden, _attention(given, block, hidden), given)
        hidden = _added(hidden, _mlp(given, block, scales, hidden), given)
    return _stored(hidden, X)


def _check(given: Any) -> None:
    limits.not_built({"clamp_bound": given.clamp_bound or None}, "transformer_tkg")
    limits.one_of("dtype_mode", given.dtype_mode, list(DtypeMode))
    told = None if given.dtype_mode is DtypeMode.NON_OCP else given.dtype_mode
    limits.without_effect("transformer_tkg", "as weights have a dtype", dtype_mode=told)
    limits.shape("X", given.X, ("B", "S", "H"))
    features = given.X.shape[2]
    limits.multiple("H", features, 128 * int(nl.num_programs(0)), "each core adds 128 partitions")
    limits.between("num_layers", given.num_layers, 0, 1 << 16)
    scales = [name for name in _SCALES if getattr(given, name) is not None]
    together = len(scales) in (0, len(_SCALES))
    limits.need(together, "the scales", scales, "all projections of the MLP have scales, or none", "pass all three")
    for name in (*_OF_LAYERS, *scales):
        limits.between(f"len({name})", len(getattr(given, name)), given.num_layers, 1 << 16, "one for each layer")


def _loaded(x: Any) -> Any:
    """Hidden states (B, S, H) in SBUF, (128, B * S, cores, H / 128 / cores)."""
    tile = sbuf(_shape(x), x.dtype)
    nisa.dma_copy(dst=tile, src=_spread(x), dge_mode=nisa.dge_mode.none)
    return tile


def _stored(hidden: Any, x: Any) -> Any:
    """Hidden states in HBM again, like `x`; of two cores each stores its own part of H."""
    out, core = result(tuple(x.shape), x.dtype), int(nl.program_id(0))
    nisa.dma_copy(dst=_spread(out)[:, :, core], src=hidden[:, :, core])
    return out


def _shape(x: Any) -> tuple[int, int, int, int]:
    batch, new, features = x.shape
    rows, cores = int(nl.tile_size.pmax), int(nl.num_programs(0))
    return rows, batch * new, cores, features // rows // cores


def _spread(x: Any) -> Any:
    """(B, S, H) of HBM as a view (128, B * S, cores, H / 128 / cores)."""
    rows, tokens, cores, pieces = _shape(x)
    return x.reshape((tokens, cores, rows, pieces)).permute((2, 0, 1, 3))


def _attention(given: Any, block: dict[str, Any], hidden: Any) -> Any:
    """This core's part of what the attention of a layer adds, ``(128, H / 128 / cores, tokens)``."""
    rows, tokens, cores, pieces = hidden.shape
    added, _, _ = attention_block_tkg(
        X=hidden.reshape((rows, tokens, cores * pieces)),
        X_hidden_dim_actual=None,
        rmsnorm_X_enabled=True,
        rmsnorm_X_eps=given.eps,
        rmsnorm_X_gamma=block["W_gamma_qkvs"],
        W_qkv=block["W_qkvs"],
        bias_qkv=None,
        **_unquantized("qkv"),
        **_no_norm("pre", given.eps),
        cos=given.RoPE_cos,
        sin=given.RoPE_sin,
        rope_contiguous_layout=True,
        **_no_norm("post", given.eps),
        K_cache_transposed=True,
        active_blocks_table=None,
        K_cache=block["K_caches"],
        V_cache=block["V_caches"],
        attention_mask=given.attention_mask,
        sink=None,
        update_cache=given.position_ids is not None,
        kv_cache_update_idx=given.position_ids,
        W_out=block["W_outs"],
        bias_out=None,
        **_unquantized("out"),
        transposed_out=True,
        out_in_sb=True,
    )
    return added


def _unquantized(place: str) -> dict[str, Any]:
    scales = {f"{kind}_dequant_scale_{place}": None for kind in ("weight", "input")}
    return {f"quantization_type_{place}": QuantizationType.NONE, **scales}


def _no_norm(place: str, eps: float) -> dict[str, Any]:
    prefix = f"rmsnorm_QK_{place}_rope"
    return {f"{prefix}_enabled": False, f"{prefix}_eps": eps, f"{prefix}_W_Q": None, f"{prefix}_W_K": None}


def _mlp(given: Any, block: dict[str, Any], scales: list[Any], hidden: Any) -> Any:
    """This core's part of what the MLP of a layer adds, ``(128, H / 128 / cores, tokens)``."""
    rows, tokens, cores, pieces = hidden.shape
    return mlp(
        hidden.reshape((rows, tokens, cores * pieces)),
        block["W_gates"],
        block["W_ups"],
        block["W_downs"],
        normalization_weights_tensor=block["W_gamma_mlps"],
        normalization_type=NormType.RMS_NORM,
        quantization_type=QuantizationType.NONE if scales[0] is None else QuantizationType.ROW,
        **dict(zip(("gate_w_scale", "up_w_scale", "down_w_scale"), scales, strict=True)),
        store_output_in_sbuf=True,
        eps=given.eps,
        use_tkg_down_proj_column_tiling=False,
    )[0]


def _added(hidden: Any, part: Any, given: Any) -> Any:
    """Hidden states and what all ranks and cores add to them."""
    rows, tokens, cores, pieces = hidden.shape
    core, flat = int(nl.program_id(0)), (rows, pieces * tokens)
    gathered = sbuf((rows, cores, pieces, tokens), hidden.dtype)
    mine = gathered[:, core].reshape(flat)
    if given.replica_groups is None:
        nisa.tensor_copy(dst=mine, src=part.reshape(flat))
    else:
        _reduce(part.reshape(flat), mine, given)
    if cores > 1:
        swap(mine, gathered[:, 1 - core].reshape(flat), through_gpsimd=pieces * tokens <= FEW_EXCHANGED)
    made = sbuf(tuple(hidden.shape), hidden.dtype)
    nisa.tensor_tensor(dst=made, data1=hidden, data2=gathered.permute((0, 3, 1, 2)), op=nl.add)
    return made


def _reduce(part: Any, into: Any, given: Any) -> None:
    """The sum over ranks of a tile ``(128, n)``."""
    group = ncc.ReplicaGroup([list(ranks) for ranks in given.replica_groups])
    if given.sbuf_residual_and_cc:
        ncc.all_reduce(srcs=[part], dsts=[into], replica_group=group, op=nl.add)
        return
    source, total = (nl.ndarray(tuple(part.shape), dtype=part.dtype, buffer=nl.private_hbm) for _ in range(2))
    nisa.dma_copy(dst=source, src=part)
    ncc.all_reduce(srcs=[source], dsts=[total], replica_group=group, op=nl.add)
    nisa.dma_copy(dst=into, src=total)
