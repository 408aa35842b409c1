"""What the projection to queries, keys and values refuses."""

from __future__ import annotations

from typing import Any

import nki.language as nl
from nkilib import limits
from nkilib.core.output_projection.checks import FLOAT8, FLOATS, checked_scale
from nkilib.core.utils.common_types import NormType, QKVOutputLayout, QKVWeightLayout, QuantizationType

_BUILT = (QuantizationType.NONE, QuantizationType.STATIC, QuantizationType.ROW)


def check(given: Any) -> dict[str, int]:
    """Refuse what does not fit together and what is not built, and give the sizes by name."""
    _not_built(given)
    sizes = _shapes(given)
    _heads(given, sizes)
    _quantization(given, sizes)
    _norms(given, sizes)
    _rotation(given, sizes)
    _caches(given, sizes)
    return sizes


def _not_built(given: Any) -> None:
    asked = {
        "quantization_type": None if given.quantization_type in _BUILT else given.quantization_type,
        "weight_layout": None if given.weight_layout is QKVWeightLayout.CONTIGUOUS else given.weight_layout,
        "is_h_dim_4h_transposed": given.is_h_dim_4h_transposed or None,
        "transpose_k_cache": given.transpose_k_cache or None,
        "fp8_packed": given.fp8_packed or None,
        "strided_input_config": given.strided_input_config,
    }
    for place in ("pre", "post"):
        config = getattr(given, f"qk_norm_{place}_rope")
        for kind in ("q", "k"):
            norm = None if config is None else getattr(config, f"{kind}_norm")
            built = norm in (None, NormType.NO_NORM, NormType.RMS_NORM)
            asked[f"qk_norm_{place}_rope.{kind}_norm"] = None if built else norm
            asked[f"qk_norm_{place}_rope_{kind}_beta"] = getattr(given, f"qk_norm_{place}_rope_{kind}_beta")
            beta = None if config is None else getattr(config, f"{kind}_beta_norm_weights")
            asked[f"qk_norm_{place}_rope.{kind}_beta_norm_weights"] = beta
    limits.not_built(asked, "qkv")
    allocation = {"sbm": given.sbm, "use_auto_allocation": given.use_auto_allocation or None}
    limits.without_effect("qkv", "as the compiler allocates memory", **allocation)


def _shapes(given: Any) -> dict[str, int]:
    sizes: dict[str, int] = {}
    inside = given.input.buffer == nl.sbuf
    if inside:
        sizes = limits.shape("input", given.input, (128, "B * S", "H / 128"))
        sizes |= {"B": 1, "S": sizes["B * S"], "H": 128 * sizes["H / 128"]}
        limits.between("B * S", sizes["S"], 1, nl.tile_size.pmax, "tokens in SBUF become one tile")
    else:
        limits.shape("input", given.input, ("B", "H", "S") if given.transposed_in else ("B", "S", "H"), sizes)
    limits.shape("fused_qkv_weights", given.fused_qkv_weights, ("H", "I"), sizes)
    limits.dtype("input", given.input, FLOATS)
    if given.bias is not None:
        limits.shape("bias", given.bias, (1, "I"), sizes)
    together = given.fused_residual_add
    for name in ("mlp_prev", "attention_prev"):
        residual = _exactly(given, name, together, "fused_residual_add")
        if residual is not None:
            limits.shape(name, residual, ("B", "S", "H"), sizes)
    limits.same_dtype(input=given.input, mlp_prev=given.mlp_prev, attention_prev=given.attention_prev)
    for name, wanted in (("transposed_in", given.transposed_in), ("input in SBUF", inside)):
        limits.not_built({f"fused_residual_add of {name}": (wanted and together) or None}, "qkv")
    return sizes


def _heads(given: Any, sizes: dict[str, int]) -> None:
    counts = (given.d_head, given.num_q_heads, given.num_kv_heads)
    if None not in counts:
        head, queries, keys = counts
        limits.need(
            (queries + 2 * keys) * head == sizes["I"],
            "I",
            sizes["I"],
            f"I is (num_q_heads + 2 * num_kv_heads) * d_head, here ({queries} + 2 * {keys}) * {head}",
            "pass the numbers of heads that the weights have",
        )
    for kind in "qkv":
        sums = getattr(given, f"{kind}_squared_sum_out")
        if sums is not None:
            _need_heads(given, "squares of queries, keys and values are summed")
            limits.shape(f"{kind}_squared_sum_out", sums, ("B", "S", 1), sizes)
            limits.dtype(f"{kind}_squared_sum_out", sums, FLOATS)
    if given.output_layout is not QKVOutputLayout.BSD:
        limits.need(given.d_head is not None, "d_head", None, "layouts by head need d_head", "pass d_head")
        limits.multiple("I", sizes["I"], given.d_head, "of heads of d_head columns")
        limits.between("d_head", given.d_head, 1, nl.tile_size.pmax, "a head lies on the partitions")
    if given.store_output_in_sbuf:
        limits.one_of("output_layout", given.output_layout, (QKVOutputLayout.BSD,))
        limits.between("B * S", sizes["B"] * sizes["S"], 1, nl.tile_size.pmax, "the result lies on so many partitions")
        limits.need(nl.num_programs(0) == 1, "cores", nl.num_programs(0), "one core has its result", "launch one core")
        limits.need(given.output_hbm is None, "output_hbm", "given", "the result has one place", "omit output_hbm")


def _quantization(given: Any, sizes: dict[str, int]) -> None:
    kind = given.quantization_type
    static, row = kind is QuantizationType.STATIC, kind is QuantizationType.ROW
    if kind is QuantizationType.NONE:
        limits.same_dtype(input=given.input, fused_qkv_weights=given.fused_qkv_weights)
    else:
        limits.dtype("fused_qkv_weights", given.fused_qkv_weights, FLOAT8)
    columns = sizes["I"] if row else 3
    given.qkv_w_scale = checked_scale("qkv", "qkv_w_scale", given.qkv_w_scale, static or row, columns)
    given.qkv_in_scale = checked_scale("qkv", "qkv_in_scale", given.qkv_in_scale, static)
    if static:
        _need_heads(given, "STATIC has a scale for queries, one for keys and one for values")


def _norms(given: Any, sizes: dict[str, int]) -> None:
    kind = given.fused_norm_type
    weighted = kind in (NormType.RMS_NORM, NormType.LAYER_NORM)
    _exactly(given, "gamma_norm_weights", weighted, "fused_norm_type")
    if weighted:
        limits.shape("gamma_norm_weights", given.gamma_norm_weights, (1, "H"), sizes)
    if given.layer_norm_bias is not None and _exactly(
        given, "layer_norm_bias", kind is NormType.LAYER_NORM, "fused_norm_type"
    ):
        limits.shape("layer_norm_bias", given.layer_norm_bias, (1, "H"), sizes)
    if given.hidden_actual is not None:
        limits.between("hidden_actual", given.hidden_actual, 1, sizes["H"], "it is a part of H")
    normed = kind is not NormType.NO_NORM
    limits.not_built({"fused_norm_type of transposed_in": (given.transposed_in and normed) or None}, "qkv")
    inside = given.input.buffer == nl.sbuf and kind is NormType.LAYER_NORM
    limits.not_built({"fused_norm_type LAYER_NORM of input in SBUF": inside or None}, "qkv")


def _rotation(given: Any, sizes: dict[str, int]) -> None:
    for name in ("cos_cache", "sin_cache"):
        _exactly(given, name, given.fused_rope, "fused_rope")
    if given.fused_rope:
        _need_heads(given, "fused_rope rotates heads")
        sizes["d_head"] = given.d_head
        limits.multiple("d_head", given.d_head, 2, "halves of a head are rotated")
    _exactly(given, "k_sin_cache", given.k_cos_cache is not None, "k_cos_cache")
    for name in ("cos_cache", "sin_cache", "k_cos_cache", "k_sin_cache"):
        cache = getattr(given, name)
        if cache is not None:
            limits.need(
                given.fused_rope, name, list(cache.shape), f"{name} goes with fused_rope", "pass fused_rope=True"
            )
            limits.shape(name, cache, ("B", "S", "d_head"), sizes)
    for place in ("pre", "post"):
        config = getattr(given, f"qk_norm_{place}_rope")
        names = [f"qk_norm_{place}_rope_{kind}_gamma" for kind in "qk"]
        present = [name for name in names if getattr(given, name) is not None]
        gammas = {name: _exactly(given, name, config is not None, f"qk_norm_{place}_rope") for name in present}
        if config is not None:
            _need_heads(given, "QK norms normalise heads")
            sizes["d_head"] = given.d_head
            gammas |= {f"{kind}_gamma_norm_weights": getattr(config, f"{kind}_gamma_norm_weights") for kind in "qk"}
        for name, gamma in gammas.items():
            if gamma is not None:
                limits.shape(name, gamma, (1, "d_head"), sizes)


def _caches(given: Any, sizes: dict[str, int]) -> None:
    wanted = given.k_cache is not None or given.v_cache is not None
    _exactly(given, "v_cache", wanted, "k_cache")
    _exactly(given, "k_cache", wanted, "v_cache")
    for name in ("k_scale", "v_scale"):
        if getattr(given, name) is not None:
            _exactly(given, name, wanted, "k_cache")
    _exactly(given, "v_scale", given.k_scale is not None, "k_scale")
    for name in ("block_size", "slot_mapping"):
        _exactly(given, name, given.use_block_kv, "use_block_kv")
    if not wanted:
        limits.need(not given.use_block_kv, "use_block_kv", True, "blocks are those of the caches", "pass k_cache")
        return
    limits.one_of("output_layout", given.output_layout, (QKVOutputLayout.BSD,))
    _need_heads(given, "keys and values go to caches")
    sizes["columns"] = given.num_kv_heads * given.d_head
    for name, cache, scale in (("k_cache", given.k_cache, given.k_scale), ("v_cache", given.v_cache, given.v_scale)):
        first = ("blocks", given.block_size) if given.use_block_kv else ("B", "most")
        limits.shape(name, cache, (*first, "columns"), sizes)
        limits.dtype(name, cache, FLOATS if scale is None else FLOAT8)
        limits.dtype(name, cache, (given.kv_dtype or cache.dtype,))
        if scale is not None:
            checked_scale("qkv", name.replace("cache", "scale"), scale, True)
    if given.use_block_kv:
        limits.shape("slot_mapping", given.slot_mapping, ("B", "S"), sizes)
    else:
        limits.between("S", sizes["S"], 1, sizes["most"], "the caches have room for so many tokens")


def _need_heads(given: Any, why: str) -> None:
    for name in ("d_head", "num_q_heads", "num_kv_heads"):
        limits.need(getattr(given, name) is not None, name, None, f"{name} is given where {why}", f"pass {name}")


def _exactly(given: Any, name: str, wanted: bool, reason: str) -> Any:
    """An argument that another one asks for; one that nobody reads is told, and None from now on."""
    kept = limits.belonging("qkv", name, getattr(given, name), bool(wanted), reason)
    setattr(given, name, kept)
    return kept
