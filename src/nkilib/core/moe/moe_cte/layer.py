"""What a mixture of experts over blocks of tokens is given: tensors, settings, and their limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import nki.language as nl
from nkilib import limits
from nkilib.core.moe.moe_cte.moe_cte_utils import SkipMode
from nkilib.core.utils.common_types import ActFnType, ExpertAffinityScaleMode
from nkilib.core.utils.kernel_helpers import get_nl_act_fn_from_type

Clamp = tuple[float | None, float | None]
"""The least and the largest value that are let through."""


@dataclass(frozen=True)
class Layer:
    """Tensors in HBM, and what is asked for.

    Attributes:
        hidden: (T + 1, H), or (T, H) with ``skip.skip_token``.
        affinities: ((T + 1) * E, 1): of each token, to each expert.
        gate_up: (E, H, 2, I).
        down: (E, I, H).
        ids: (N * B,), int32: the token in each place of each block.
        experts: (N, 1), int32: the expert of each block.
        block: tokens of a block, B.
        gate_up_bias, gate_up_scale: (E, 2, I), or None.
        down_bias, down_scale: (E, H), or None.
        saved_gate_up: (N, 2, I, B) for the arguments of the activation and its factors, or None.
        saved_down: (N, B, H) for the results of experts, or None.
        dtype: of activations in products.
        scale_intermediate: POST_SCALE scales what the second product gets, which is linear in it.
    """

    hidden: Any
    affinities: Any
    gate_up: Any
    down: Any
    ids: Any
    experts: Any
    block: int
    gate_up_bias: Any = None
    down_bias: Any = None
    gate_up_scale: Any = None
    down_scale: Any = None
    saved_gate_up: Any = None
    saved_down: Any = None
    activation: ActFnType = ActFnType.SiLU
    skip: SkipMode = field(default_factory=SkipMode)
    dtype: Any = nl.bfloat16
    accumulating: bool = True
    scaling: ExpertAffinityScaleMode = ExpertAffinityScaleMode.POST_SCALE
    scale_intermediate: bool = False
    gate_clamp: Clamp = (None, None)
    up_clamp: Clamp = (None, None)

    @property
    def blocks(self) -> int:
        """Number of blocks, N."""
        return int(self.ids.shape[0]) // self.block

    @property
    def function(self) -> Any:
        """The activation function."""
        return get_nl_act_fn_from_type(self.activation)

    @property
    def scales_input(self) -> bool:
        """Whether the first products are scaled with affinities; scaling their input is the same."""
        return self.scaling in (ExpertAffinityScaleMode.PRE_SCALE, ExpertAffinityScaleMode.PRE_SCALE_DELAYED)

    @property
    def scales_result(self) -> bool:
        """Whether the result of an expert is scaled with affinities."""
        return self.scaling == ExpertAffinityScaleMode.POST_SCALE and not self.scale_intermediate

    @property
    def scales_middle(self) -> bool:
        """Whether what the last product gets is scaled with affinities."""
        return self.scaling == ExpertAffinityScaleMode.POST_SCALE and self.scale_intermediate


_NAMES = {
    "hidden_states": "hidden",
    "expert_affinities_masked": "affinities",
    "gate_up_proj_weight": "gate_up",
    "down_proj_weight": "down",
    "token_position_to_id": "ids",
    "block_to_expert": "experts",
    "block_size": "block",
    "gate_and_up_proj_bias": "gate_up_bias",
    "down_proj_bias": "down_bias",
    "gate_up_activations_T": "saved_gate_up",
    "down_activations": "saved_down",
    "activation_function": "activation",
    "compute_dtype": "dtype",
    "is_tensor_update_accumulating": "accumulating",
    "expert_affinities_scaling_mode": "scaling",
    "expert_affinity_multiply_on_I": "scale_intermediate",
}
"""What kernels call the attributes of a layer."""


def layer_of(given: Mapping[str, Any], **more: Any) -> Layer:
    """The checked layer of a call.

    Args:
        given: arguments by name, ``locals()`` where a kernel begins; those that are of no layer are left out.
        more: attributes for which the kernel has names of its own.

    Raises:
        KernelLimit: the kernel does not compute it.
    """
    found = {attribute: given[name] for name, attribute in _NAMES.items() if name in given}
    for name in ("gate", "up"):
        if f"{name}_clamp_upper_limit" in given:
            found[f"{name}_clamp"] = (given[f"{name}_clamp_lower_limit"], given[f"{name}_clamp_upper_limit"])
    scales = {f"{name}_scale": given.get(f"{name}_proj_scale") for name in ("gate_up", "down")}
    return make_layer(**{**scales, **found, "skip": given["skip_dma"] or SkipMode(), **more})


def make_layer(gate_up_scale: Any, down_scale: Any, **given: Any) -> Layer:
    """A checked layer; scales get the shapes that they have in it.

    Raises:
        KernelLimit: the kernel does not compute it.
    """
    experts, inner, hidden = given["down"].shape
    sized = (("gate_up_scale", gate_up_scale, (experts, 2, inner)), ("down_scale", down_scale, (experts, hidden)))
    for name, scale, shape in sized:
        fits = scale is None or scale.size == shape[0] * shape[1] * (shape[2] if len(shape) > 2 else 1)
        given[name] = scale if scale is None or not fits else scale.reshape(shape)
    bias = given.get("down_bias")
    given["down_bias"] = bias if bias is None or bias.size != experts * hidden else bias.reshape((experts, hidden))
    return checked(Layer(**given))


def checked(layer: Layer) -> Layer:
    """The layer, if the kernel computes it.

    Raises:
        KernelLimit: it does not.
    """
    sizes = limits.shape("hidden_states", layer.hidden, ("T", "H"))
    limits.shape("gate_up_proj_weight", layer.gate_up, ("E", "H", 2, "I"), sizes)
    limits.shape("down_proj_weight", layer.down, ("E", "I", "H"), sizes)
    _check_blocks(layer)
    limits.need(
        layer.affinities.size == sizes["T"] * sizes["E"],
        "expert_affinities_masked",
        f"of {layer.affinities.size} elements",
        f"there are T * E = {sizes['T']} * {sizes['E']} affinities for the rows of hidden_states",
        "pass one for each row and expert, those of padding being 0",
    )
    limits.between("T * E", layer.affinities.size, 1, 1 << 24, "places of affinities are computed in float32")
    for name, tensor, shape in (
        ("gate_and_up_proj_bias", layer.gate_up_bias, ("E", 2, "I")),
        ("down_proj_bias", layer.down_bias, ("E", "H")),
        ("gate_up_proj_scale", layer.gate_up_scale, ("E", 2, "I")),
        ("down_proj_scale", layer.down_scale, ("E", "H")),
        ("gate_up_activations_T", layer.saved_gate_up, (layer.blocks, 2, "I", layer.block)),
        ("down_activations", layer.saved_down, (layer.blocks, layer.block, "H")),
    ):
        if tensor is not None:
            limits.shape(name, tensor, shape, sizes)
    for name, tensor in (("token_position_to_id", layer.ids), ("block_to_expert", layer.experts)):
        limits.dtype(name, tensor, (nl.int32,))
    check_numbers(layer, "hidden_states", "gate_up_proj_weight", "down_proj_weight")
    limits.one_of("expert_affinities_scaling_mode", layer.scaling, tuple(ExpertAffinityScaleMode))
    return layer


def _check_blocks(layer: Layer) -> None:
    block, places = layer.block, int(layer.ids.shape[0])
    limits.need(
        block <= nl.tile_size.pmax or block % nl.tile_size.pmax == 0,
        "block_size",
        block,
        "block_size is at most 128 or a multiple of 128: tiles of 128 tokens lie on partitions",
        f"pass blocks of {-(-block // nl.tile_size.pmax) * nl.tile_size.pmax} tokens",
    )
    limits.shape("token_position_to_id", layer.ids, ("places",))
    limits.multiple("len(token_position_to_id)", places, block, "it has a place for each token of each block")
    limits.need(
        layer.experts.size == layer.blocks,
        "block_to_expert",
        f"of {layer.experts.size} elements",
        f"each of {layer.blocks} blocks has an expert",
        "pass an expert for each block",
    )


def check_numbers(layer: Layer, hidden: str, gate_up: str, down: str) -> None:
    """Refuse dtypes, and activation functions, that products of blocks do not have.

    Args:
        hidden, gate_up, down: names of the arguments.
    """
    quantized = layer.gate_up_scale is not None
    limits.dtype(hidden, layer.hidden, (nl.bfloat16, nl.float16, nl.float32))
    for name, tensor in ((gate_up, layer.gate_up), (down, layer.down)):
        limits.dtype(name, tensor, _narrow() if quantized else (layer.dtype,))
    limits.need(
        (layer.down_scale is not None) == quantized,
        "a scale",
        f"missing for {down if quantized else gate_up}",
        "both products have scales, or none of them",
        "pass both scales",
    )
    limits.one_of("the activation function", layer.activation, tuple(ActFnType)[:5])


def _narrow() -> Sequence[Any]:
    return (nl.float8_e4m3, nl.float8_e4m3fn, nl.float8_e5m2)
