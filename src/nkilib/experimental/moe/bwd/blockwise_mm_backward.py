"""Gradients of the MLP of a mixture of experts whose tokens lie in blocks: the backward pass of `moe_cte`.

Math, for each block with expert e, its tokens x, their affinities a, and the gradient dy of their results::

    m = activation(g) * u                       g, u: the saved arguments of the activation, and its factors
    arriving = dy @ down[e].T
    d affinity = sum of arriving * m over I     with biases that affinities scaled: of dy * results over H
    d down[e] += (a * m).T @ dy
    dg, du = a * arriving * u * activation'(g), a * arriving * activation(g)
    d gate[e], d up[e] += x.T @ dg, x.T @ du
    d hidden[tokens] += dg @ gate[e].T + du @ up[e].T

Layouts: those of `moe_cte`, and (N, 2, I, B) and (N, B, H) for what the forward pass saved. bfloat16, float16 or
float32; products and sums within a block in float32, sums over blocks in the dtype of the gradient.

Limits: B at most 128 or a multiple of 128; SiLU, GELU and Swish; on two cores I is even.

Engines: Tensor multiplies twice for each weight and token; DMA transposes weights and gradients as it loads them, and
Vector adds to what it brings of the gradients so far. Two cores have half of I, and half of the columns of d hidden.
Source: blockwise-mm-backward.rst of the published library.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import nki
import nki.language as nl
from nkilib import limits, streaming
from nkilib.core.moe.moe_cte.block import Share, share_of
from nkilib.core.moe.moe_cte.blockwise import meet
from nkilib.core.moe.moe_cte.layer import Layer, layer_of
from nkilib.core.moe.moe_cte.moe_cte_utils import SkipMode
from nkilib.core.utils.common_types import ActFnType
from nkilib.experimental.moe.bwd.inner import SLOPES, inner_of
from nkilib.experimental.moe.bwd.job import Job, load_tokens
from nkilib.experimental.moe.bwd.moe_bwd_parameters import AffinityOption, ClampLimits, KernelTypeOption, ShardOption
from nkilib.experimental.moe.bwd.rows import add_rows, put_affinities
from nkilib.experimental.moe.bwd.sums import add_weights, sums_so_far
from nkilib.streaming import size

_ROOM = 160 * 1024
"""Bytes of a partition that blocks may take; the rest is for weights and sums."""


@nki.jit
def blockwise_mm_bwd(
    hidden_states: nl.NkiTensor,
    expert_affinities_masked: nl.NkiTensor,
    gate_up_proj_weight: nl.NkiTensor,
    down_proj_weight: nl.NkiTensor,
    gate_up_proj_act_checkpoint_T: nl.NkiTensor,
    down_proj_act_checkpoint: nl.NkiTensor | None,
    token_position_to_id: nl.NkiTensor,
    block_to_expert: nl.NkiTensor,
    output_hidden_states_grad: nl.NkiTensor,
    block_size: int,
    skip_dma: SkipMode | None = None,
    compute_dtype: Any = nl.bfloat16,
    is_tensor_update_accumulating: bool = True,
    skip_grad_initialization: bool = False,
    shard_option: ShardOption = ShardOption.SHARD_ON_HIDDEN,
    affinity_option: AffinityOption = AffinityOption.AFFINITY_ON_H,
    kernel_type_option: KernelTypeOption = KernelTypeOption.DROPLESS,
    clamp_limits: ClampLimits | None = None,
    bias: bool = False,
    activation_type: ActFnType = ActFnType.SiLU,
    block_tile_size: int | None = None,
    blocking_params: Any = None,
    hidden_states_grad_out: nl.NkiTensor | None = None,
    expert_affinities_masked_grad_out: nl.NkiTensor | None = None,
    gate_up_proj_weight_grad_out: nl.NkiTensor | None = None,
    down_proj_weight_grad_out: nl.NkiTensor | None = None,
    accumulation_dtype: Any = None,
    skip_gate_proj: bool = False,
) -> tuple[nl.NkiTensor, ...]:
    """The gradients of all tensors of the layer.

    Args:
        hidden_states, expert_affinities_masked, gate_up_proj_weight, down_proj_weight, token_position_to_id,
            block_to_expert, block_size, skip_dma, compute_dtype: those of the forward pass.
        gate_up_proj_act_checkpoint_T: (N, 2, I, B), which the forward pass returned.
        down_proj_act_checkpoint: (N, B, H), which it returned; read with biases that affinities scaled, else not.
        output_hidden_states_grad: the gradient of the result, of its shape.
        is_tensor_update_accumulating: whether tokens may be in several blocks.
        skip_grad_initialization: gradients are added to what the four tensors ``..._grad_out`` hold.
        shard_option: of no effect, which is told where it is not the default: two cores share both dimensions.
        affinity_option: what affinities scaled; it makes a difference with biases.
        kernel_type_option: DROPLESS, or DROPPING for one block for each expert; computed the same way.
        clamp_limits: of the forward pass.
        bias: gradients of biases are computed too.
        activation_type: SiLU, GELU or Swish.
        hidden_states_grad_out, expert_affinities_masked_grad_out, gate_up_proj_weight_grad_out,
            down_proj_weight_grad_out: written; None for new tensors.
        block_tile_size, blocking_params, accumulation_dtype, skip_gate_proj: not built but for their defaults.

    Returns:
        The gradients of the first four arguments, and with `bias` those of biases (E, 2, I) and (E, H).
    """
    given = dict(locals())
    limits.not_built(
        {
            "block_tile_size": block_tile_size,
            "blocking_params": blocking_params,
            "accumulation_dtype": accumulation_dtype,
            "skip_gate_proj": skip_gate_proj or None,
        },
        "blockwise_mm_bwd",
    )
    limits.one_of("shard_option", shard_option, tuple(ShardOption))
    other = None if shard_option == ShardOption.SHARD_ON_HIDDEN else shard_option
    limits.without_effect("blockwise_mm_bwd", "as two cores share both dimensions", shard_option=other)
    layer = layer_of(
        given,
        saved_gate_up=gate_up_proj_act_checkpoint_T,
        saved_down=down_proj_act_checkpoint,
        activation=activation_type,
        scale_intermediate=affinity_option == AffinityOption.AFFINITY_ON_I,
    )
    outs = (
        hidden_states_grad_out,
        expert_affinities_masked_grad_out,
        gate_up_proj_weight_grad_out,
        down_proj_weight_grad_out,
    )
    job = _job(layer, output_hidden_states_grad, outs, bias, clamp_limits or ClampLimits())
    _check(job, kernel_type_option, skip_grad_initialization and any(out is None for out in outs))
    share = share_of(layer, shared=True)
    if not skip_grad_initialization:
        _clear(job, share)
    _add_blocks(job, share)
    results = (job.hidden, job.affinities, job.gate_up, job.down, job.gate_up_bias, job.down_bias)
    for result in results:
        if result is not None:
            meet(result)
    return results if bias else results[:4]


def _add_blocks(job: Job, share: Share) -> None:
    """All blocks; where SBUF has room for two, each is loaded before the one before is computed."""
    numbers = range(job.layer.blocks)
    ahead = 1 if _two_fit(job.layer, share) else 0
    loaded = [load_tokens(job, number) for number in numbers[:ahead]]
    for number in numbers:
        loaded += [load_tokens(job, later) for later in numbers[number + ahead : number + ahead + 1]]
        tokens = loaded.pop(0)
        so_far = sums_so_far(job, share, tokens)
        inner = inner_of(job, share, tokens)
        add_weights(job, share, tokens, inner, so_far)
        add_rows(job, share, tokens, inner)
        put_affinities(job, share, tokens, inner)


def _two_fit(layer: Layer, share: Share) -> bool:
    """Whether SBUF holds tokens and gradients of two blocks, beside what follows from one of them."""
    each = 3 * layer.hidden.shape[1] * layer.block * layer.dtype.itemsize // nl.tile_size.pmax
    inner = 6 * size(share.middle) * layer.block * layer.dtype.itemsize // nl.tile_size.pmax
    return 2 * each + inner <= _ROOM


def _job(layer: Layer, gradient: Any, outs: Sequence[Any], bias: bool, clamps: ClampLimits) -> Job:
    """The job, with new tensors for gradients that the caller has none for."""
    tensors = (layer.hidden, layer.affinities, layer.gate_up, layer.down)
    made = [
        streaming.result(tensor.shape, tensor.dtype) if out is None else out
        for tensor, out in zip(tensors, outs, strict=True)
    ]
    experts, inner, hidden = layer.down.shape
    shapes = ((experts, 2, inner), (experts, hidden))
    first, last = (streaming.result(shape, layer.dtype) if bias else None for shape in shapes)
    return Job(layer, gradient, made[0], made[1], made[2], made[3], first, last, clamps)


def _check(job: Job, kind: KernelTypeOption, missing: bool) -> None:
    layer = job.layer
    limits.one_of("activation_type", layer.activation, tuple(SLOPES))
    limits.shape("output_hidden_states_grad", job.gradient, tuple(layer.hidden.shape))
    limits.same_dtype(
        output_hidden_states_grad=job.gradient, hidden_states=layer.hidden, gate_up_proj_weight=layer.gate_up
    )
    limits.multiple("I", layer.down.shape[1], nl.num_programs(0), "the cores exchange parts of one shape")
    limits.need(
        kind == KernelTypeOption.DROPLESS or layer.blocks == layer.down.shape[0],
        "kernel_type_option",
        f"{kind.name} with {layer.blocks} blocks",
        f"DROPPING has a block for each of {layer.down.shape[0]} experts",
        "pass KernelTypeOption.DROPLESS",
    )
    limits.need(
        not missing, "skip_grad_initialization", "True", "gradients are added to tensors", "pass the four ..._grad_out"
    )
    limits.need(
        job.gate_up_bias is None or layer.scale_intermediate or layer.saved_down is not None,
        "down_proj_act_checkpoint",
        "None with bias",
        "affinities that scaled biases need the results of experts",
        "pass what the forward pass returned",
    )


def _clear(job: Job, share: Share) -> None:
    """Zeros in what this core adds to, and in the gradients of affinities."""
    experts, _, hidden = job.down.shape
    _zeros(job.hidden[:, share.columns])
    _zeros(job.gate_up.reshape((experts * hidden, 2, job.gate_up.shape[3]))[:, :, share.middle])
    for expert in range(experts):
        _zeros(job.down[expert, share.middle])
    if job.gate_up_bias is not None:
        _zeros(job.gate_up_bias[:, :, share.middle])
        _zeros(job.down_bias[:, share.columns])
    if nl.program_id(0) == 0:
        _zeros(job.affinities.reshape((job.layer.hidden.shape[0], experts)))


def _zeros(target: Any) -> None:
    """Zeros in a part of HBM, by transfers of up to 128 rows."""
    zeros = streaming.filled((nl.tile_size.pmax, *target.shape[1:]), target.dtype, 0.0)
    for rows in streaming.spans(target.shape[0], nl.tile_size.pmax):
        streaming.store(target[rows], zeros[0 : size(rows)])
