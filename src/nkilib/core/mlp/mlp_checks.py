"""Limits of the MLP kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import nki.language as nl
from nkilib import limits
from nkilib.core.utils.common_types import (
    ActFnType,
    ComputationMode,
    DtypeMode,
    MLPGateUpWeightLayout,
    NormType,
    QuantizationType,
)

FLOATS = (nl.float32, nl.bfloat16, nl.float16)
FLOATS_OF_8_BITS = (nl.float8_e4m3, nl.float8_e5m2)

DECODED = 96
"""Tokens, of which at most so many are decoded unless `mode` says otherwise."""


def is_decoding(tokens: int, mode: ComputationMode, force_cte_mode: bool) -> bool:
    """Whether a call counts as decoding, which may leave its result in SBUF, and keeps activations in 16 bits."""
    if force_cte_mode or mode is ComputationMode.PREFILL:
        return False
    return mode is ComputationMode.DECODE or tokens <= DECODED


def check_shapes(matrices: Mapping[str, Any], inner: Mapping[str, Any], outer: Mapping[str, Any]) -> dict[str, int]:
    """The sizes H and I of weights, biases and weights of the norm.

    Args:
        matrices: gate, up and down projection by the names of their arguments, in this order; None is left out.
        inner, outer: vectors ``(1, I)`` and ``(1, H)``; None is left out.
    """
    sizes: dict[str, int] = {}
    *ins, (last, down) = matrices.items()
    for name, tensor in ins:
        if tensor is not None:
            limits.shape(name, tensor, ("H", "I"), sizes)
    limits.shape(last, down, ("I", "H"), sizes)
    for vectors, size in ((inner, "I"), (outer, "H")):
        for name, tensor in vectors.items():
            if tensor is not None:
                limits.shape(name, tensor, (1, size), sizes)
                limits.dtype(name, tensor, FLOATS)
    return sizes


def check_hidden(options: Mapping[str, Any], sizes: dict[str, int]) -> tuple[int, int]:
    """Batch and sequence of the hidden states, and that the residual is like them."""
    hidden, residual = options["hidden_tensor"], options["fused_add_tensor"]
    names: tuple[int | str, ...] = ("S", "H") if len(hidden.shape) == 2 else ("B", "S", "H")
    spread = options["transposed_in"] or hidden.buffer == nl.sbuf
    if spread:
        cores, pmax = nl.num_programs(0), nl.tile_size.pmax
        limits.multiple("H", sizes["H"], pmax * cores, "hidden_tensor lies on 128 partitions of each core")
        tiles = sizes["H"] // pmax
        names = (pmax, cores, tiles // cores, "S") if options["transposed_in"] else (pmax, "S", tiles)
    limits.shape("hidden_tensor", hidden, names, sizes)
    limits.dtype("hidden_tensor", hidden, FLOATS)
    if spread:
        limits.between("tokens", sizes["S"], 1, nl.tile_size.psum_bank_fmax, "all stay in SBUF")
    if residual is not None:
        shape = ("S", "H") if len(residual.shape) == 2 and "B" not in sizes else ("B", "S", "H")
        limits.shape("fused_add_tensor", residual, shape, sizes)
        limits.same_dtype(hidden_tensor=hidden, fused_add_tensor=residual)
    return sizes.get("B", 1), sizes["S"]


def check_weights(matrices: Mapping[str, Any], scales: Mapping[str, Any], kind: QuantizationType) -> None:
    """dtypes of the weights, and that scales are there if they are quantised.

    Args:
        matrices, scales: by the names of their arguments, in the same order; matrices that are None have no scale.
    """
    limits.one_of("quantization_type", kind, (QuantizationType.NONE, QuantizationType.STATIC, QuantizationType.ROW))
    for (name, weights), (named, scale) in zip(matrices.items(), scales.items(), strict=True):
        if weights is None:
            continue
        limits.dtype(name, weights, FLOATS + FLOATS_OF_8_BITS if kind is QuantizationType.NONE else FLOATS_OF_8_BITS)
        if scale is not None:
            check_scale(named, scale, weights.shape[1] if kind is QuantizationType.ROW else 1)


def check_scale(name: str, scale: Any, columns: int) -> None:
    """Shape and dtype of scales: a row on each of 128 partitions."""
    limits.shape(name, scale, (nl.tile_size.pmax, columns))
    limits.dtype(name, scale, (nl.float32,))


def leave_out(options: dict[str, Any]) -> None:
    """Make None, and tell, what the kinds of quantization and norm do not read; what they need is there.

    Args:
        options: arguments of a call by name, changed in place.
    """
    kind, norm = options["quantization_type"], options["normalization_type"]
    limits.one_of("normalization_type", norm, tuple(NormType))
    quantized, static = kind is not QuantizationType.NONE, kind is QuantizationType.STATIC
    wanted = {
        "gate_w_scale": (quantized and not options["skip_gate_proj"], "quantization_type"),
        "up_w_scale": (quantized, "quantization_type"),
        "down_w_scale": (quantized, "quantization_type"),
        "gate_up_in_scale": (static, "quantization_type"),
        "down_in_scale": (static, "quantization_type"),
        "normalization_weights_tensor": (norm is NormType.RMS_NORM, "normalization_type"),
        "normalization_bias_tensor": (False, "normalization_type"),
    }
    if norm is NormType.LAYER_NORM:  # which has either of them or not
        del wanted["normalization_weights_tensor"], wanted["normalization_bias_tensor"]
    for name, (needed, by) in wanted.items():
        options[name] = limits.belonging("mlp", name, options[name], needed, by)
    limits.without_effect("mlp", "as the compiler allocates memory", sbm=options["sbm"])
    name = "use_tkg_gate_up_proj_column_tiling"
    limits.without_effect("mlp", "as weights stand still in any case", **{name: None if options[name] else False})


def check_not_built(options: Mapping[str, Any]) -> None:
    """Documented options that are refused."""
    layout, fp8 = options["gate_up_w_layout"], options["dtype_mode"]
    flags = ("use_contiguous_x4_gate_up", "mx_dummy_scale_hbm")
    limits.not_built(
        {
            "quantization_type": options["quantization_type"] if options["quantization_type"].is_mx() else None,
            "gate_up_w_layout": None if layout is MLPGateUpWeightLayout.CONTIGUOUS else layout,
            "dtype_mode": fp8 if fp8 is DtypeMode.OCP else None,
            "quant_clipping_bound": options["quant_clipping_bound"] or None,
            **{name: options[name] or None for name in flags},
        },
        "mlp",
    )


def check_decoding(options: Mapping[str, Any], tokens: int, features: int) -> None:
    """What only decoding has: results that stay together, and another order of the down projection."""
    decoding = is_decoding(tokens, options["mode"], options["force_cte_mode"])
    eight = options["quantization_type"] is QuantizationType.STATIC and not decoding
    spread = options["transposed_in"] or options["hidden_tensor"].buffer == nl.sbuf
    asked = f"{tokens} tokens of prefill" if eight and spread else None
    limits.not_built({"STATIC with transposed hidden states or such in SBUF": asked}, "mlp")
    rule = f"decoding has it: up to {DECODED} tokens, or mode=ComputationMode.DECODE"
    together = ("store_output_in_sbuf", "use_tkg_down_proj_optimized_layout", "transposed_out")
    for name in together:
        limits.need(decoding or not options[name], name, f"True for {tokens} tokens of prefill", rule, f"omit {name}")
    rows, in_sbuf = options["use_tkg_down_proj_column_tiling"], options["store_output_in_sbuf"]
    by_tiles = options["use_tkg_down_proj_optimized_layout"]
    if any(options[name] for name in together):
        limits.between("tokens", tokens, 1, nl.tile_size.pmax, "each lies on a partition of the result")
    if by_tiles or options["transposed_out"] or (in_sbuf and not rows):
        limits.multiple("H", features, nl.tile_size.pmax * nl.num_programs(0), "each core has whole tiles of 128")
    for name in together[1:]:
        limits.need(
            not (options[name] and rows),
            name,
            True,
            "it comes with use_tkg_down_proj_column_tiling=False",
            "pass use_tkg_down_proj_column_tiling=False",
        )
    rule = "the result is in SBUF, or transposed in HBM"
    limits.need(not (in_sbuf and options["transposed_out"]), "store_output_in_sbuf", True, rule, "omit transposed_out")


def check_mlp(options: dict[str, Any]) -> tuple[int, int, int, int]:
    """All limits of a call; its arguments by name, of which those that nobody reads become None.

    The result is batch, sequence, H and I.
    """
    check_not_built(options)
    leave_out(options)
    limits.one_of("activation_fn", options["activation_fn"], tuple(ActFnType))
    names = ("gate", "up", "down")
    matrices = {f"{name}_proj_weights_tensor": options[f"{name}_proj_weights_tensor"] for name in names}
    if options["skip_gate_proj"]:
        matrices["gate_proj_weights_tensor"] = None
    vectors = ("down_proj_bias_tensor", "normalization_weights_tensor", "normalization_bias_tensor")
    sizes = check_shapes(
        matrices,
        {f"{name}_proj_bias_tensor": options[f"{name}_proj_bias_tensor"] for name in ("gate", "up")},
        {name: options[name] for name in vectors},
    )
    batch, sequence = check_hidden(options, sizes)
    kind = options["quantization_type"]
    check_weights(matrices, {f"{name}_w_scale": options[f"{name}_w_scale"] for name in names}, kind)
    for name in ("gate_up_in_scale", "down_in_scale"):
        if options[name] is not None:
            check_scale(name, options[name], 1)
    limits.need(options["eps"] > 0, "eps", options["eps"], "eps is above 0", "pass 1e-6")
    limits.need(
        options["fused_add_tensor"] is not None or not options["store_fused_add_result"],
        "store_fused_add_result",
        True,
        "a sum is stored if there is a fused_add_tensor",
        "omit store_fused_add_result",
    )
    check_decoding(options, batch * sequence, sizes["H"])
    return batch, sequence, sizes["H"], sizes["I"]
