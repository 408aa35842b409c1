"""The MLP of a mixture of experts for many tokens, which come sorted into blocks by expert.

Math, for each block with expert e, its tokens x (B, H), and their affinities a to e::

    y = (activation(x @ gate[e]) * (x @ up[e])) @ down[e]
    output[tokens] += a * y

PRE_SCALE scales x instead of y. Scales of 8-bit weights, biases and clamps come between the products and what follows;
clamps after biases.

Layouts: hidden_states (T + 1, H), whose last row is padding, gate_up_proj_weight (E, H, 2, I), down_proj_weight
(E, I, H); place j of block n is token ``token_position_to_id[n * B + j]``, T for padding, or with `skip_dma.skip_token`
a number outside of T rows. bfloat16, float16 or float32, weights also in 8 bits with scales.

Limits: B at most 128 or a multiple of 128; each token at most once in a block; MX weights (trn3) are not built.

Engines: Tensor multiplies at its peak from B = 256 on, with weights that stream through SBUF; DMA gathers, transposes
and scatters rows meanwhile, Scalar computes the activation, and Vector products with it and the sums of rows.
Source: moe-cte.rst of the published library; Gale et al., "MegaBlocks", 2022.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import nki
import nki.language as nl
from nkilib import limits
from nkilib.core.moe.moe_cte import gradients, variants
from nkilib.core.moe.moe_cte.layer import Layer, layer_of
from nkilib.core.moe.moe_cte.moe_cte_utils import BlockShardStrategy, SkipMode
from nkilib.core.utils.common_types import ActFnType, ExpertAffinityScaleMode

__all__ = [
    "MoECTEImplementation",
    "MoECTESpec",
    "QuantizationConfig",
    "ShardOnBlockConfig",
    "ShardOnIConfig",
    "moe_cte",
]


class MoECTEImplementation(Enum):
    """Variants of `moe_cte`."""

    shard_on_block = 0
    """Each core has blocks of its own; at the end the cores add up their results."""
    shard_on_i = 1
    """The cores share each block: halves of the intermediate dimension, then halves of the result's columns."""
    shard_on_i_hybrid = 2
    """The same; how many of the last blocks there are is known when the kernel runs."""
    shard_on_i_dropping = 3
    """The same, with one block for each expert; what the backward pass needs is always returned."""
    shard_on_block_mx = 4
    shard_on_i_mx = 5
    shard_on_i_mx_hybrid = 6


@dataclass
class QuantizationConfig(nl.NKIObject):
    """Scales of weights in 8 bits.

    Attributes:
        gate_up_proj_scale: (E, 1, 2 * I), or None.
        down_proj_scale: (E, 1, H), or None.
    """

    gate_up_proj_scale: Any = None
    down_proj_scale: Any = None


@dataclass
class ShardOnBlockConfig(nl.NKIObject):
    """Settings of the variants whose cores have blocks of their own.

    Attributes:
        n_block_per_iter: 1; blocks are not grouped.
        block_sharding_strategy: which blocks a core has.
        n_static_blocks, n_dynamic_blocks: of the variant for trn3, which is not built.
    """

    n_block_per_iter: int = 1
    block_sharding_strategy: BlockShardStrategy = BlockShardStrategy.PING_PONG
    n_static_blocks: int = -1
    n_dynamic_blocks: int = 55


@dataclass
class ShardOnIConfig(nl.NKIObject):
    """Settings of the variants whose cores share each block.

    Attributes:
        checkpoint_activation: return what the backward pass needs too.
        expert_affinity_multiply_on_I: affinities scale what the last product gets, instead of its result.
        num_static_block: how many blocks shard_on_i_hybrid computes in any case; None for N - E.
    """

    checkpoint_activation: bool = False
    expert_affinity_multiply_on_I: bool = False  # noqa: N815 - the documented name
    num_static_block: int | None = None


@dataclass
class MoECTESpec(nl.NKIObject):
    """Which variant of `moe_cte` is meant, and its settings, which have defaults."""

    implementation: MoECTEImplementation
    shard_on_block: ShardOnBlockConfig | None = None
    shard_on_I: ShardOnIConfig | None = None  # noqa: N815 - the documented name

    def __post_init__(self) -> None:
        """Give the variant its settings."""
        if self.implementation in (MoECTEImplementation.shard_on_block, MoECTEImplementation.shard_on_block_mx):
            self.shard_on_block = self.shard_on_block or ShardOnBlockConfig()
        else:
            self.shard_on_I = self.shard_on_I or ShardOnIConfig()


@nki.jit
def moe_cte(
    hidden_states: nl.NkiTensor,
    expert_affinities_masked: nl.NkiTensor,
    gate_up_proj_weight: nl.NkiTensor,
    down_proj_weight: nl.NkiTensor,
    token_position_to_id: nl.NkiTensor,
    block_to_expert: nl.NkiTensor,
    block_size: int,
    spec: MoECTESpec,
    conditions: nl.NkiTensor | None = None,
    gate_and_up_proj_bias: nl.NkiTensor | None = None,
    down_proj_bias: nl.NkiTensor | None = None,
    quantization_config: QuantizationConfig | None = None,
    gate_up_proj_scale: nl.NkiTensor | None = None,
    down_proj_scale: nl.NkiTensor | None = None,
    gate_up_activations_T: nl.NkiTensor | None = None,
    down_activations: nl.NkiTensor | None = None,
    activation_function: ActFnType = ActFnType.SiLU,
    skip_dma: SkipMode | None = None,
    compute_dtype: Any = nl.bfloat16,
    is_tensor_update_accumulating: bool = True,
    expert_affinities_scaling_mode: ExpertAffinityScaleMode = ExpertAffinityScaleMode.POST_SCALE,
    gate_clamp_upper_limit: float | None = None,
    gate_clamp_lower_limit: float | None = None,
    up_clamp_upper_limit: float | None = None,
    up_clamp_lower_limit: float | None = None,
    gate_up_in_scale: nl.NkiTensor | None = None,
    down_in_scale: nl.NkiTensor | None = None,
    accumulation_dtype: Any = None,
    skip_gate_proj: bool = False,
) -> Any:
    """The sum of the experts' results of each token.

    Args:
        hidden_states: (T + 1, H), or (T, H) with ``skip_dma.skip_token``.
        expert_affinities_masked: of each row of `hidden_states` to each expert, (rows * E, 1).
        gate_up_proj_weight: (E, H, 2, I).
        down_proj_weight: (E, I, H).
        token_position_to_id: (N * B,), int32: the token in each place of each block.
        block_to_expert: (N, 1), int32: the expert of each block.
        block_size: B.
        spec: how two cores share the work.
        conditions: int32, with shard_on_i_hybrid: its sum is the number of blocks that have tokens.
        gate_and_up_proj_bias: (E, 2, I), or None.
        down_proj_bias: (E, H), or None.
        quantization_config: scales, unless they are given as arguments.
        gate_up_proj_scale: (E, 1, 2 * I), for weights in 8 bits.
        down_proj_scale: (E, 1, H), for weights in 8 bits.
        gate_up_activations_T: (N, 2, I, B) that the arguments of the activation and its factors are written to.
        down_activations: (N, B, H) that the experts' results are written to, before affinities scale them.
        activation_function: SiLU, GELU, GELU_Tanh_Approx, Swish (x * sigmoid(1.702 * x)) or ReLU.
        skip_dma: what need not be moved; None for everything.
        compute_dtype: of activations in products, and of weights unless they have 8 bits.
        is_tensor_update_accumulating: whether tokens may be in several blocks. If not, no two results are added, and
            rows of tokens in no block are not written.
        expert_affinities_scaling_mode: what affinities scale.
        gate_clamp_upper_limit, gate_clamp_lower_limit: of the activation's argument.
        up_clamp_upper_limit, up_clamp_lower_limit: of its factor.
        gate_up_in_scale, down_in_scale: not built.
        accumulation_dtype: None or float32, in which products are summed.
        skip_gate_proj: not built.

    Returns:
        (rows of hidden_states, H). With ``spec.shard_on_I.checkpoint_activation``, and with shard_on_i_dropping, a
        tuple of that, the (N, 2, I, B), and unless affinities scale the intermediate dimension the (N, B, H) of above.
    """
    given = dict(locals())
    absent = {"gate_up_in_scale": gate_up_in_scale, "down_in_scale": down_in_scale}
    limits.not_built({**absent, "skip_gate_proj": skip_gate_proj or None}, "moe_cte")
    limits.one_of("accumulation_dtype", accumulation_dtype, (None, nl.float32))
    scales = quantization_config or QuantizationConfig()
    settings = spec.shard_on_I or ShardOnIConfig()
    layer = layer_of(
        given,
        gate_up_scale=gate_up_proj_scale if gate_up_proj_scale is not None else scales.gate_up_proj_scale,
        down_scale=down_proj_scale if down_proj_scale is not None else scales.down_proj_scale,
        scale_intermediate=settings.expert_affinity_multiply_on_I,
    )
    return _variant(spec, layer, conditions)


def _variant(spec: MoECTESpec, layer: Layer, conditions: Any) -> Any:
    on_block, on_i = spec.shard_on_block or ShardOnBlockConfig(), spec.shard_on_I or ShardOnIConfig()
    match spec.implementation:
        case MoECTEImplementation.shard_on_block:
            return variants.shard_on_block(layer, on_block.block_sharding_strategy, on_block.n_block_per_iter)
        case MoECTEImplementation.shard_on_i:
            return variants.shard_on_i(layer, on_i.checkpoint_activation)
        case MoECTEImplementation.shard_on_i_hybrid:
            return variants.shard_on_i_hybrid(layer, conditions, on_i.num_static_block)
        case MoECTEImplementation.shard_on_i_dropping:
            return variants.shard_on_i_dropping(layer)
    return limits.not_built({"spec.implementation": spec.implementation.name}, "moe_cte")


moe_cte.defvjp(gradients.forward, gradients.backward)
