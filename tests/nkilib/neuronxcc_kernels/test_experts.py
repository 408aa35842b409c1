"""Mixtures of experts under the names of ``neuronxcc.nki``, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from ml_dtypes import bfloat16

from nki.beta1.language import nc
from nkilib.errors import KernelLimit
from tests.nkilib.neuronxcc_kernels.calls import close, kernel, normal, silu, wide


def blocks_of_tokens(
    rng: np.random.Generator, tokens: int, experts: int, block: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tokens of two experts each in blocks: affinities (T + 1, E), the token in each place, and the blocks' experts."""
    affinities = np.zeros((tokens + 1, experts))
    places, of_block = [], []
    chosen = np.array([rng.permutation(experts)[:2] for _ in range(tokens)])
    for token, some in enumerate(chosen):
        affinities[token, some] = rng.uniform(0.2, 0.8, 2)
    for expert in range(experts):
        mine = np.flatnonzero((chosen == expert).any(1))
        for start in range(0, len(mine), block):
            part = mine[start : start + block]
            places.append(np.pad(part, (0, block - len(part)), constant_values=tokens))
            of_block.append(expert)
    return affinities, np.concatenate(places).astype(np.int32), np.array(of_block, np.int32)


def test_experts_of_blocks_and_their_gradients() -> None:
    """As a training step calls them: activations are kept, and gradients are written."""
    import torch
    from neuronxcc.nki.compiler.backends.neuron.dimensions import VNC

    tokens, h, i, experts, block = 200, 256, 128, 4, 128
    affinities, places, of_block = blocks_of_tokens(np.random.default_rng(2), tokens, experts, block)
    n = len(of_block)
    x, gate_up, down = (
        normal(tokens + 1, h),
        normal(experts, h, 2, i) / bfloat16(16),
        normal(experts, i, h) / bfloat16(8),
    )
    x[tokens] = 0
    scales = affinities.reshape(-1, 1).astype(bfloat16)
    out, kept, results = (
        np.zeros((tokens + 1, h), bfloat16),
        *(np.zeros(shape, bfloat16) for shape in ((n, 2, i, block), (n, block, h))),
    )
    check = kernel("_pre_prod_kernels.blockwise_mm", "check_blockwise_mm_kernel_compatibility")
    check(hidden_size=h, block_size=block, intermediate_size_tp=i)
    kernel("_pre_prod_kernels.blockwise_mm", "blockwise_mm_baseline_shard_hidden")[VNC(2)](
        hidden_states=x,
        expert_affinities_masked=scales,
        gate_up_proj_weight=gate_up,
        down_proj_weight=down,
        block_size=block,
        token_position_to_id=places,
        block_to_expert=of_block,
        output=out,
        gate_up_activations_T=kept,
        down_activations=results,
        is_tensor_update_accumulating=True,
    )
    tensors = [torch.tensor(wide(each), requires_grad=True) for each in (x, scales, gate_up, down)]
    tx, ta, tg, td = tensors
    both = torch.einsum("th,ehci->teci", tx, tg)
    made = torch.einsum("tei,eih->teh", torch.nn.functional.silu(both[:, :, 0]) * both[:, :, 1], td)
    wanted = (made * ta.reshape(tokens + 1, experts, 1)).sum(1)
    close(out[:tokens], wanted.detach().numpy()[:tokens], 3e-2)
    gradient = normal(tokens + 1, h)
    gradient[tokens] = 0
    found = [np.zeros_like(each) for each in (x, scales, gate_up, down)]
    kernel("_private_kernels.blockwise_mm_bwd", "blockwise_mm_bwd")(
        x,
        found[0],
        scales,
        found[1],
        gate_up,
        found[2],
        kept,
        down,
        found[3],
        results,
        places,
        of_block,
        gradient,
        block_size=block,
        is_tensor_update_accumulating=True,
    )
    wanted.backward(torch.tensor(wide(gradient)))
    used = affinities.reshape(-1, 1) != 0
    close(found[0][:tokens], tx.grad.numpy()[:tokens], 4e-2)
    close(np.where(used, wide(found[1]), 0), np.where(used, ta.grad.numpy(), 0), 4e-2)
    close(found[2], tg.grad.numpy(), 4e-2)
    close(found[3], td.grad.numpy(), 4e-2)


def test_experts_of_blocks_that_return_their_result() -> None:
    """As inference calls them: the blocks that have tokens are counted at run time, or all are computed."""
    from neuronxcc.nki._pre_prod_kernels import ActFnType, ExpertAffinityScaleMode
    from neuronxcc.nki._pre_prod_kernels.blockwise_mm import BlockShardStrategy, SkipMode

    tokens, h, i, experts, block = 200, 256, 128, 4, 128
    affinities, places, of_block = blocks_of_tokens(np.random.default_rng(4), tokens, experts, block)
    x, gate_up, down = (
        normal(tokens + 1, h),
        normal(experts, h, 2, i) / bfloat16(16),
        normal(experts, i, h) / bfloat16(8),
    )
    x[tokens] = 0
    both = np.einsum("th,ehci->teci", wide(x), wide(gate_up))
    made = np.einsum("tei,eih->teh", silu(both[:, :, 0]) * both[:, :, 1], wide(down))
    wanted = (made * affinities[:, :, None]).sum(1)[:tokens]
    call = {
        "hidden_states": x,
        "expert_affinities_masked": affinities.reshape(-1, 1).astype(bfloat16),
        "gate_up_proj_weight": gate_up,
        "down_proj_weight": down,
        "block_size": block,
        "token_position_to_id": places,
        "block_to_expert": of_block,
        "skip_dma": SkipMode(False, False),
        "is_tensor_update_accumulating": True,
        "expert_affinities_scaling_mode": ExpertAffinityScaleMode.POST_SCALE,
        "activation_function": ActFnType.SiLU,
    }
    one = kernel("_pre_prod_kernels.blockwise_mm_shard_on_I", "blockwise_mm_baseline_shard_intermediate")[(nc(2),)]
    close(one(**call)[:tokens], wanted, 3e-2)
    hybrid = "blockwise_mm_baseline_shard_intermediate_hybrid"
    conditions = np.append(np.ones(len(of_block), np.int32), 0).astype(np.int32)
    counted = kernel("_pre_prod_kernels.blockwise_mm_shard_on_I", hybrid)[(nc(2),)]
    close(counted(conditions=conditions, num_static_block=2, **call)[:tokens], wanted, 3e-2)
    shared = kernel("_pre_prod_kernels.blockwise_matmul", "bwmm_shard_on_block")[(nc(2),)]
    with pytest.warns(UserWarning, match="conditions has no effect"):
        found = shared(conditions=conditions, block_sharding_strategy=BlockShardStrategy.HI_LO, **call)
    close(found[0, :tokens], wanted, 3e-2)
    out = np.zeros_like(x)
    for name in ("skip_dma", "activation_function"):
        del call[name]
    kernel("_pre_prod_kernels.blockwise_mm", "blockwise_mm")[(nc(2),)](output=out, lnc=2, **call)
    close(out[:tokens], wanted, 3e-2)
    with pytest.raises(KernelLimit, match="lnc is 1"):
        kernel("_pre_prod_kernels.blockwise_mm", "blockwise_mm")[(nc(2),)](output=out, **call)


def test_router_and_largest_elements() -> None:
    from neuronxcc.nki._pre_prod_kernels import RouterActFnType

    tokens, h, experts, k = 20, 256, 16, 4
    x, w = normal(h, tokens, dtype=np.float32), normal(h, experts, dtype=np.float32) / 16
    logits, affinities = np.zeros((2, tokens, experts), np.float32)
    index = np.zeros((tokens, k), np.int32)
    with pytest.warns(UserWarning, match="shard_on_hidden has no effect"):
        kernel("_private_kernels.router_topk", "router_topk_isa_kernel")[(nc(2),)](
            x=x,
            w=w,
            k=k,
            router_logits=logits,
            expert_affinities=affinities,
            expert_index=index,
            act_fn=RouterActFnType.SOFTMAX,
            shard_on_hidden=True,
        )
    wanted = x.T @ w
    close(logits, wanted, 1e-5)
    close(affinities, np.exp(wanted) / np.exp(wanted).sum(1, keepdims=True), 1e-4)
    np.testing.assert_array_equal(index, np.argsort(-wanted, 1)[:, :k])
    values, places = kernel("_pre_prod_kernels.topk.topk", "topk")(logits, 8)
    np.testing.assert_array_equal(values, -np.sort(-logits, 1)[:, :8])
    np.testing.assert_array_equal(np.take_along_axis(logits, places.astype(np.int64), 1), values)
