"""What `moe_tkg` refuses."""

from __future__ import annotations

from typing import Any

import nki.language as nl
from nkilib import limits
from nkilib.core.moe.moe_cte.layer import Layer, check_numbers
from nkilib.core.moe.moe_tkg.tokens import Tokens
from nkilib.core.utils.common_types import ExpertAffinityScaleMode


def check(layer: Layer, tokens: Tokens, target: Any) -> None:
    """Refuse shapes, dtypes and options that neither way of computing has."""
    if tokens.in_sbuf:
        limits.shape("hidden_input", tokens.tensor, (128, "T", "H / 128"))
        limits.multiple("H / 128", tokens.tensor.shape[2], tokens.parts, "each core has a part of H")
    else:
        limits.shape("hidden_input", tokens.tensor, ("T", "H"))
    sizes = {"T": tokens.count, "H": tokens.hidden}
    limits.shape("expert_gate_up_weights", layer.gate_up, ("E", "H", 2, "I"), sizes)
    limits.shape("expert_down_weights", layer.down, ("E", "I", "H"), sizes)
    for name, tensor, shape in (
        ("expert_gate_up_bias", layer.gate_up_bias, ("E", 2, "I")),
        ("expert_down_bias", layer.down_bias, ("E", "H")),
        ("expert_gate_up_weights_scale", layer.gate_up_scale, ("E", 2, "I")),
        ("expert_down_weights_scale", layer.down_scale, ("E", "H")),
    ):
        if tensor is not None:
            limits.shape(name, tensor, shape, sizes)
    limits.between("I", sizes["I"], nl.num_programs(0), 1 << 20, "each core has a part of it")
    check_numbers(layer, "hidden_input", "expert_gate_up_weights", "expert_down_weights")
    limits.one_of(
        "expert_affinities_scaling_mode",
        layer.scaling,
        (ExpertAffinityScaleMode.NO_SCALE, ExpertAffinityScaleMode.POST_SCALE),
    )
    in_sbuf = target.buffer == nl.sbuf
    limits.between("T", tokens.count, 1, 128 if in_sbuf else 1 << 24, "a result in SBUF comes from one tile of tokens")
    limits.need(
        tokens.in_sbuf or not in_sbuf,
        "output_in_sbuf",
        "True",
        "hidden_input lies in SBUF too",
        "load hidden_input first",
    )
    if not in_sbuf:
        limits.shape("output", target, ("T", "H"), sizes)


def check_all(layer: Layer, rank: Any, eager: Any) -> None:
    """Refuse what computing all experts does not take."""
    limits.not_built({"expert_affinities_eager": eager}, "moe_tkg with is_all_expert")
    if not layer.scales_result:
        return
    limits.need(rank is not None, "rank_id", "None", "affinities are those to the experts of a rank", "pass rank_id")
    limits.shape("expert_affinities", layer.affinities, (layer.block, "all experts"))
    limits.multiple("all experts", layer.affinities.shape[1], layer.down.shape[0], "each rank has as many")
    limits.need(
        layer.affinities.buffer != nl.sbuf, "expert_affinities", "in SBUF", "a rank's part is loaded", "keep it in HBM"
    )


def check_chosen(layer: Layer, tokens: Tokens, eager: Any) -> None:
    """Refuse what computing chosen experts does not take."""
    limits.between("T", tokens.count, 1, nl.tile_size.pmax, "tokens that choose experts lie on partitions")
    sizes = limits.shape("expert_index", layer.experts, (tokens.count, "K"), {"T": tokens.count})
    if eager is not None:
        limits.shape("expert_affinities_eager", eager, ("T", "K"), sizes)
    elif layer.scales_result:
        limits.shape("expert_affinities", layer.affinities, ("T", layer.down.shape[0]), sizes)
