"""Mixtures of experts in blocks: every variant and option against the reference, odd sizes, and what is refused."""

from typing import Any

import jax
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ml_dtypes import bfloat16, float8_e4m3

import nki
import nki.language as nl
from nkilib.core.moe.moe_cte.bwmm_shard_on_block import bwmm_shard_on_block
from nkilib.core.moe.moe_cte.bwmm_shard_on_I import (
    blockwise_mm_baseline_shard_intermediate,
    blockwise_mm_baseline_shard_intermediate_hybrid,
    blockwise_mm_shard_intermediate_dropping,
)
from nkilib.core.moe.moe_cte.moe_cte_reference import moe_cte_reference
from nkilib.core.moe_cte import (
    BlockShardStrategy,
    MoECTEImplementation,
    MoECTESpec,
    QuantizationConfig,
    ShardOnBlockConfig,
    ShardOnIConfig,
    SkipMode,
    moe_cte,
)
from nkilib.core.utils.common_types import ActFnType, ExpertAffinityScaleMode
from nkilib.errors import KernelLimit
from nkilib.experimental.moe.forward.bwmm_shard_on_H import blockwise_mm_baseline_shard_hidden

ON_BLOCK = MoECTESpec(MoECTEImplementation.shard_on_block)
ON_I = MoECTESpec(MoECTEImplementation.shard_on_i)
HYBRID = MoECTESpec(MoECTEImplementation.shard_on_i_hybrid, shard_on_I=ShardOnIConfig(num_static_block=1))


def arguments(
    spec: Any = ON_I,
    tokens: int = 40,
    hidden: int = 128,
    inner: int = 40,
    experts: int = 3,
    blocks: int = 3,
    block: int = 32,
    dtype: Any = np.float32,
    **more: Any,
) -> dict[str, Any]:
    """Of a call; every other block ends with padding."""
    rng = np.random.default_rng(5)
    skipping = more.get("skip_dma", SkipMode()).skip_token
    rows = tokens if skipping else tokens + 1
    ids = np.full((blocks, block), -1 if skipping else tokens)
    for number in range(blocks):
        count = min(tokens, max(1, block - 3 * (number % 2)))
        ids[number, :count] = rng.permutation(tokens)[:count]
    affinities = rng.random((rows, experts))
    affinities[tokens:] = 0
    return {
        "hidden_states": rng.standard_normal((rows, hidden)).astype(dtype),
        "expert_affinities_masked": affinities.reshape(-1, 1).astype(dtype),
        "gate_up_proj_weight": rng.uniform(-0.3, 0.3, (experts, hidden, 2, inner)).astype(dtype),
        "down_proj_weight": rng.uniform(-0.3, 0.3, (experts, inner, hidden)).astype(dtype),
        "token_position_to_id": ids.reshape(-1).astype(np.int32),
        "block_to_expert": rng.integers(0, experts, (blocks, 1)).astype(np.int32),
        "block_size": block,
        "spec": spec,
        "compute_dtype": nl.bfloat16 if dtype is bfloat16 else nl.float32,
        **more,
    }


def same(made: Any, given: dict[str, Any], tolerance: float = 1e-4) -> None:
    """Each result differs by a part of the reference's largest number at most; the row of padding does not count."""
    wanted = moe_cte_reference(**given)
    made, wanted = (each if isinstance(each, tuple) else (each,) for each in (made, wanted))
    assert len(made) == len(wanted)
    skipping = given.get("skip_dma", SkipMode()).skip_token
    for place, (some, exact) in enumerate(zip(made, wanted, strict=True)):
        some, exact = np.asarray(some, np.float64), np.asarray(exact)
        if place == 0 and not skipping:
            some, exact = some[:-1], exact[:-1]
        assert np.abs(some - exact).max() <= tolerance * np.abs(exact).max()


def biases(hidden: int = 128, inner: int = 40, experts: int = 3, dtype: Any = np.float32) -> dict[str, Any]:
    rng = np.random.default_rng(6)
    return {
        "gate_and_up_proj_bias": rng.standard_normal((experts, 2, inner)).astype(dtype),
        "down_proj_bias": rng.standard_normal((experts, hidden)).astype(dtype),
    }


CLAMPS = {"gate_clamp_upper_limit": 1.5, "up_clamp_upper_limit": 1.0, "up_clamp_lower_limit": -1.0}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {**biases(), "activation_function": ActFnType.Swish},
        {**biases(), **CLAMPS, "activation_function": ActFnType.GELU_Tanh_Approx},
        {"expert_affinities_scaling_mode": ExpertAffinityScaleMode.PRE_SCALE, **biases()},
        {"expert_affinities_scaling_mode": ExpertAffinityScaleMode.NO_SCALE, "is_tensor_update_accumulating": True},
        {"spec": MoECTESpec(MoECTEImplementation.shard_on_i, shard_on_I=ShardOnIConfig(True, True)), **biases()},
        {"spec": MoECTESpec(MoECTEImplementation.shard_on_i_dropping), **CLAMPS, **biases()},
        {"skip_dma": SkipMode(True, True), "hidden": 100},
        {"spec": HYBRID, "conditions": np.array([1, 1, 0, 0], np.int32)},
    ],
    ids=["plain", "swish", "clamped", "pre-scale", "no-scale", "checkpoint", "dropping", "skipping", "hybrid"],
)
def test_options(options: dict[str, Any]) -> None:
    if "hidden" in options:
        options = {**options, "tokens": 39}
    given = arguments(**options)
    same(nki.simulate(moe_cte)(**given), given)


@pytest.mark.parametrize("strategy", list(BlockShardStrategy))
@pytest.mark.parametrize("accumulating", [True, False])
def test_cores_with_blocks_of_their_own(strategy: Any, accumulating: bool) -> None:
    spec = MoECTESpec(MoECTEImplementation.shard_on_block, ShardOnBlockConfig(block_sharding_strategy=strategy))
    given = arguments(spec, tokens=90, is_tensor_update_accumulating=accumulating)
    if not accumulating:
        given["token_position_to_id"] = np.arange(96).clip(max=90).astype(np.int32)
    same(nki.simulate(moe_cte)[2](**given), given)


@pytest.mark.parametrize("inner", [40, 41])
def test_cores_that_share_blocks(inner: int) -> None:
    given = arguments(inner=inner)
    same(nki.simulate(moe_cte)[2](**given), given)


def test_weights_in_eight_bits() -> None:
    given = arguments(dtype=bfloat16)
    rng = np.random.default_rng(7)
    for name in ("gate_up_proj_weight", "down_proj_weight"):
        given[name] = rng.uniform(-40, 40, given[name].shape).astype(float8_e4m3)
    scales = (
        rng.uniform(0.005, 0.01, (3, 1, 80)).astype(np.float32),
        rng.uniform(0.005, 0.01, (3, 1, 128)).astype(np.float32),
    )
    given["quantization_config"] = QuantizationConfig(*scales)
    same(nki.simulate(moe_cte)(**given), given, 2e-2)


@pytest.mark.parametrize(("spec", "cores"), [(ON_BLOCK, 2), (ON_I, 2), (HYBRID, 2), (ON_I, 1)])
def test_compiled_in_bfloat16(spec: Any, cores: int) -> None:
    given = arguments(spec, tokens=150, inner=136, block=128, dtype=bfloat16)
    if spec is HYBRID:
        given["conditions"] = np.array([1, 1, 0, 0], np.int32)
    same(moe_cte[cores](**given), given, 2e-2)


@settings(max_examples=6, deadline=None)
@given(
    hidden=st.sampled_from([1, 127, 129, 513]),
    inner=st.sampled_from([1, 127, 129, 257]),
    block=st.sampled_from([1, 16, 127, 128]),
    cores=st.sampled_from([1, 2]),
    spec=st.sampled_from([ON_I, ON_BLOCK]),
)
def test_odd_sizes(hidden: int, inner: int, block: int, cores: int, spec: Any) -> None:
    given = arguments(spec, hidden=hidden, inner=inner, block=block, tokens=20, blocks=2)
    same(nki.simulate(moe_cte)[cores](**given), given)


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        ({"block_size": 33}, "nkilib.shape", "96, 30 more than a multiple of 33"),
        ({"block_to_expert": np.zeros((4, 1), np.int32)}, "nkilib.argument", "of 4 elements"),
        ({"token_position_to_id": np.zeros(96, np.uint32)}, "nkilib.dtype", "token_position_to_id is uint32"),
        ({"compute_dtype": nl.bfloat16}, "nkilib.dtype", "gate_up_proj_weight is float32"),
        ({"expert_affinities_masked": np.zeros((5, 1), np.float32)}, "nkilib.argument", "of 5 elements"),
        ({"skip_gate_proj": True}, "nkilib.not-built", "skip_gate_proj"),
        ({"spec": MoECTESpec(MoECTEImplementation.shard_on_i_mx)}, "nkilib.not-built", "shard_on_i_mx"),
        ({"spec": HYBRID}, "nkilib.argument", "conditions is None"),
    ],
)
def test_what_is_refused(change: dict[str, Any], code: str, text: str) -> None:
    with pytest.raises(KernelLimit, match=text) as caught:
        nki.simulate(moe_cte)(**{**arguments(), **change})
    assert caught.value.code == code


def test_from_torch_and_jax() -> None:
    given = arguments(tokens=10, hidden=32, inner=8, blocks=1, block=16)
    for convert in (torch.from_numpy, jax.numpy.asarray):
        moved = {name: convert(value) if isinstance(value, np.ndarray) else value for name, value in given.items()}
        same(np.asarray(moe_cte(**moved)), given)


@pytest.mark.parametrize("cores", [1, 2])
def test_names_that_older_callers_know(cores: int) -> None:
    given = arguments()
    positional = {name: value for name, value in given.items() if name != "spec"}
    pair = nki.simulate(bwmm_shard_on_block)[cores](**positional)
    assert not np.asarray(pair)[:, 1].any()
    same(pair[:, 0], given)
    for kernel in (blockwise_mm_baseline_shard_intermediate, blockwise_mm_baseline_shard_hidden):
        post = {"expert_affinities_scaling_mode": ExpertAffinityScaleMode.POST_SCALE}
        same(nki.simulate(kernel)[cores](**positional, **post), given)
    dropping = {**given, "spec": MoECTESpec(MoECTEImplementation.shard_on_i_dropping)}
    dropping["expert_affinities_scaling_mode"] = ExpertAffinityScaleMode.PRE_SCALE
    same(nki.simulate(blockwise_mm_shard_intermediate_dropping)[cores](**positional), dropping)
    last = np.array([1, 1, 1, 0], np.int32)
    same(nki.simulate(blockwise_mm_baseline_shard_intermediate_hybrid)[cores](last, **positional), given)
