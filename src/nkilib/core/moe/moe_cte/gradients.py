"""The derivative of `moe_cte`: a forward pass that keeps what the backward pass needs, and that one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import nki
import nki.language as nl
from nkilib import limits
from nkilib.core.moe.moe_cte import variants
from nkilib.core.moe.moe_cte.layer import make_layer
from nkilib.core.moe.moe_cte.moe_cte_utils import SkipMode
from nkilib.core.utils.common_types import ActFnType, ExpertAffinityScaleMode
from nkilib.experimental.moe.bwd.blockwise_mm_backward import blockwise_mm_bwd
from nkilib.experimental.moe.bwd.moe_bwd_parameters import AffinityOption, ClampLimits

_ARRAYS = (
    "hidden_states",
    "expert_affinities_masked",
    "gate_up_proj_weight",
    "down_proj_weight",
    "token_position_to_id",
    "block_to_expert",
)
_REFUSED = (
    "quantization_config",
    "gate_up_proj_scale",
    "down_proj_scale",
    "gate_up_activations_T",
    "down_activations",
)
_OPTIONS = (
    ("activation", "activation_function", ActFnType.SiLU),
    ("skip", "skip_dma", None),
    ("dtype", "compute_dtype", nl.bfloat16),
    ("accumulating", "is_tensor_update_accumulating", True),
)
_BIASES = ("gate_and_up_proj_bias", "down_proj_bias")


@nki.jit
def _kept(
    hidden: nl.NkiTensor,
    affinities: nl.NkiTensor,
    gate_up: nl.NkiTensor,
    down: nl.NkiTensor,
    ids: nl.NkiTensor,
    experts: nl.NkiTensor,
    gate_up_bias: nl.NkiTensor | None,
    down_bias: nl.NkiTensor | None,
    block: int,
    inside: bool,
    options: dict[str, Any],
) -> Any:
    """The result, arguments of the activation with its factors, and unless affinities scale those, experts' results."""
    tensors = {"hidden": hidden, "affinities": affinities, "gate_up": gate_up, "down": down, "ids": ids}
    biases = {"gate_up_bias": gate_up_bias, "down_bias": down_bias}
    given = {**tensors, **biases, **options, "experts": experts, "block": block, "scale_intermediate": inside}
    return variants.shard_on_i(make_layer(None, None, **given), saving=True)


def forward(*arguments: Any, **named: Any) -> tuple[Any, Any]:
    """The result of `moe_cte`, and the arrays that `backward` needs."""
    given = {**dict(zip((*_ARRAYS, "block_size", "spec"), arguments, strict=False)), **named}
    limits.not_built({name: given.get(name) for name in _REFUSED}, "the derivative of moe_cte")
    mode = given.get("expert_affinities_scaling_mode", ExpertAffinityScaleMode.POST_SCALE)
    limits.one_of("expert_affinities_scaling_mode", mode, (ExpertAffinityScaleMode.POST_SCALE,))
    arrays, biases = [given[name] for name in _ARRAYS], [given.get(name) for name in _BIASES]
    kept: Any = _kept
    out, *saved = kept(*arrays, *biases, given["block_size"], _inside(given["spec"]), _options(given))
    return out, (arrays, saved, [bias for bias in biases if bias is not None])


def _options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of the layer that are no tensors, of arguments of `moe_cte`."""
    options = {field: given.get(name, usual) for field, name, usual in _OPTIONS}
    options["skip"] = options["skip"] or SkipMode()
    for which in ("gate", "up"):
        options[f"{which}_clamp"] = tuple(given.get(f"{which}_clamp_{side}_limit") for side in ("lower", "upper"))
    return options


def _inside(spec: Any) -> bool:
    """Whether affinities scale the intermediate dimension."""
    return bool(spec.shard_on_I and spec.shard_on_I.expert_affinity_multiply_on_I)


def backward(residuals: Any, gradient: Any, **constants: Any) -> dict[str, Any]:
    """The gradients of hidden states, affinities, weights and biases, by name."""
    (arrays, saved, biases), options = residuals, _options(constants)
    (gate_least, gate_most), (up_least, up_most) = options["gate_clamp"], options["up_clamp"]
    inside = _inside(constants["spec"])
    kernel: Any = blockwise_mm_bwd
    found = kernel(
        *arrays[:4],
        saved[0],
        None if inside else saved[1],
        *arrays[4:],
        gradient,
        constants["block_size"],
        skip_dma=options["skip"],
        compute_dtype=options["dtype"],
        is_tensor_update_accumulating=options["accumulating"],
        affinity_option=AffinityOption.AFFINITY_ON_I if inside else AffinityOption.AFFINITY_ON_H,
        clamp_limits=ClampLimits(up_most, up_least, gate_most, gate_least),
        bias=len(biases) == len(_BIASES),
        activation_type=options["activation"],
    )
    return dict(zip((*_ARRAYS[:4], *_BIASES), found, strict=False))
