"""``_private_kernels.blockwise_mm``: a mixture of experts whose tokens come sorted into blocks, and its gradients.

Outputs are parameters. Layouts are those of the published kernels: hidden states (T + 1, H), whose last row is padding,
affinities ((T + 1) * E, 1), weights (E, H, 2, I) and (E, I, H).
"""

from __future__ import annotations

from typing import Any

import nki.language as nl
from nkilib import limits
from nkilib.core.moe.moe_cte import variants
from nkilib.core.moe.moe_cte.layer import layer_of
from nkilib.core.moe.moe_cte.moe_cte_utils import BlockShardStrategy, SkipMode
from nkilib.core.utils.common_types import ExpertAffinityScaleMode
from nkilib.experimental.moe.bwd.blockwise_mm_backward import blockwise_mm_bwd as _blockwise_mm_bwd
from nkilib.neuronxcc_kernels.not_served import NOT_SERVED as NOT_SERVED
from nkilib.neuronxcc_kernels.outputs import give

__all__ = [
    "TILE_SIZE",
    "BlockShardStrategy",
    "SkipMode",
    "blockwise_mm",
    "blockwise_mm_baseline",
    "blockwise_mm_baseline_shard_hidden",
    "blockwise_mm_bwd",
    "blockwise_mm_bwd_baseline_shard_hidden",
    "check_blockwise_mm_kernel_compatibility",
]

TILE_SIZE = 128
"""Tokens of a tile."""
PLAIN = frozenset({"check_blockwise_mm_kernel_compatibility"})
"""What is no kernel."""


def check_blockwise_mm_kernel_compatibility(hidden_size: int, block_size: int, intermediate_size_tp: int) -> None:
    """Whether there is a kernel for these sizes.

    Raises:
        KernelLimit: there is none.
    """
    limits.between("hidden_size", hidden_size, 1, 1 << 20)
    limits.between("intermediate_size_tp", intermediate_size_tp, 1, 1 << 20)
    if block_size > TILE_SIZE:
        limits.multiple("block_size", block_size, TILE_SIZE, "tiles of 128 tokens lie on partitions")


def blockwise_mm_baseline(
    hidden_states: Any,
    expert_affinities_masked: Any,
    gate_up_proj_weight: Any,
    down_proj_weight: Any,
    block_size: int,
    token_position_to_id: Any,
    block_to_expert: Any,
    output: Any,
    gate_up_activations_T: Any = None,
    down_activations: Any = None,
    skip_dma: SkipMode | None = None,
    compute_dtype: Any = nl.bfloat16,
    is_tensor_update_accumulating: bool = True,
    expert_affinities_scaling_mode: ExpertAffinityScaleMode = ExpertAffinityScaleMode.POST_SCALE,
) -> None:
    """The layer; two cores share each block.

    Args:
        hidden_states: (T + 1, H).
        expert_affinities_masked: ((T + 1) * E, 1).
        gate_up_proj_weight: (E, H, 2, I).
        down_proj_weight: (E, I, H).
        block_size: tokens of a block.
        token_position_to_id: (N * block_size,) int32, the token in each place; T where there is none.
        block_to_expert: (N,) or (N, 1) int32.
        output: (T + 1, H), written.
        gate_up_activations_T: (N, 2, I, block_size) or None, written: the sums of the first products.
        down_activations: (N, block_size, H) or None, written: results of experts before affinities scale them.
        skip_dma: what need not be moved.
        compute_dtype: of the operands of products.
        is_tensor_update_accumulating: whether tokens may be in several blocks.
        expert_affinities_scaling_mode: what affinities scale.

    Raises:
        KernelLimit: what `moe_cte` refuses.
    """
    made = variants.shard_on_i(layer_of(locals()))
    give(made[0] if isinstance(made, tuple) else made, output, "output")


blockwise_mm_baseline_shard_hidden = blockwise_mm_baseline
"""The same, which was for two cores alone."""


def blockwise_mm(
    hidden_states: Any,
    expert_affinities_masked: Any,
    gate_up_proj_weight: Any,
    down_proj_weight: Any,
    block_size: int,
    token_position_to_id: Any,
    block_to_expert: Any,
    output: Any,
    gate_up_proj_scale: Any = None,
    down_proj_scale: Any = None,
    gate_up_activations_T: Any = None,
    down_activations: Any = None,
    skip_dma: SkipMode | None = None,
    compute_type: Any = nl.bfloat16,
    is_tensor_update_accumulating: bool = True,
    expert_affinities_scaling_mode: ExpertAffinityScaleMode = ExpertAffinityScaleMode.POST_SCALE,
    lnc: int = 1,
) -> None:
    """`blockwise_mm_baseline`, with scales (E, 2, I) and (E, H) of weights in 8 bits.

    The kernel is launched on `lnc` cores.
    """
    cores = int(nl.num_programs(0))
    limits.need(lnc == cores, "lnc", lnc, f"the kernel is launched on {cores} cores", f"pass lnc={cores}")
    made = variants.shard_on_i(layer_of(locals(), dtype=compute_type))
    give(made[0] if isinstance(made, tuple) else made, output, "output")


def blockwise_mm_bwd(
    hidden_states: Any,
    hidden_states_grad: Any,
    expert_affinities_masked: Any,
    expert_affinities_masked_grad: Any,
    gate_up_proj_weight: Any,
    gate_up_proj_weight_grad: Any,
    gate_up_activations_T: Any,
    down_proj_weight: Any,
    down_proj_weight_grad: Any,
    down_activations: Any,
    token_position_to_id: Any,
    block_to_expert: Any,
    output_hidden_states_grad: Any,
    block_size: int = 512,
    skip_dma: SkipMode | None = None,
    compute_type: Any = nl.bfloat16,
    is_tensor_update_accumulating: bool = True,
    lnc: int = 1,
) -> None:
    """Gradients of `blockwise_mm_baseline`, written to the four parameters ``..._grad``, each like its tensor.

    Args:
        gate_up_activations_T, down_activations: what `blockwise_mm_baseline` wrote.
        output_hidden_states_grad: (T + 1, H), the gradient of its result.
        lnc: how many cores the kernel is launched on.

    Raises:
        KernelLimit: what `nkilib.experimental.moe.bwd.blockwise_mm_bwd` refuses.
    """
    cores = int(nl.num_programs(0))
    limits.need(lnc == cores, "lnc", lnc, f"the kernel is launched on {cores} cores", f"pass lnc={cores}")
    _backward(dict(locals()), gate_up_activations_T, down_activations, compute_type)


def blockwise_mm_bwd_baseline_shard_hidden(
    hidden_states: Any,
    hidden_states_grad: Any,
    expert_affinities_masked: Any,
    expert_affinities_masked_grad: Any,
    gate_up_proj_weight: Any,
    gate_up_proj_weight_grad: Any,
    gate_up_proj_act_checkpoint_T: Any,
    down_proj_weight: Any,
    down_proj_weight_grad: Any,
    down_proj_act_checkpoint: Any,
    token_position_to_id: Any,
    block_to_expert: Any,
    output_hidden_states_grad: Any,
    block_size: int = 512,
    skip_dma: SkipMode | None = None,
    compute_dtype: Any = nl.bfloat16,
    is_tensor_update_accumulating: bool = True,
) -> None:
    """`blockwise_mm_bwd`, on two cores."""
    _backward(dict(locals()), gate_up_proj_act_checkpoint_T, down_proj_act_checkpoint, compute_dtype)


def _backward(given: dict[str, Any], saved_gate_up: Any, saved_down: Any, dtype: Any) -> None:
    outs = ("hidden_states", "expert_affinities_masked", "gate_up_proj_weight", "down_proj_weight")
    same = (*outs, "token_position_to_id", "block_to_expert", "output_hidden_states_grad", "block_size", "skip_dma")
    _blockwise_mm_bwd(
        **{name: given[name] for name in same},
        gate_up_proj_act_checkpoint_T=saved_gate_up,
        down_proj_act_checkpoint=saved_down,
        compute_dtype=dtype,
        is_tensor_update_accumulating=given["is_tensor_update_accumulating"],
        **{f"{name}_grad_out": given[f"{name}_grad"] for name in outs},
    )
