"""Gradients of mixtures of experts in blocks: against the reference and torch, odd sizes, and what is refused."""

from typing import Any

import jax
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ml_dtypes import bfloat16

import nki
from nkilib.core.moe.moe_cte.moe_cte_reference import moe_cte_reference
from nkilib.core.moe_cte import MoECTEImplementation, MoECTESpec, ShardOnIConfig, SkipMode, moe_cte
from nkilib.core.utils.common_types import ActFnType
from nkilib.errors import KernelLimit, WithoutEffect
from nkilib.experimental.moe.bwd import AffinityOption, ClampLimits, KernelTypeOption, ShardOption, blockwise_mm_bwd
from nkilib.experimental.moe.bwd.blockwise_mm_backward_reference import blockwise_mm_bwd_reference
from tests.nkilib.test_moe_cte import arguments as forward
from tests.nkilib.test_moe_cte import biases

LIMITS = ClampLimits(0.8, -0.8, 1.0, None)


def arguments(dtype: Any = np.float32, inside: bool = False, bias: bool = False, **more: Any) -> dict[str, Any]:
    """Of a call; what the forward pass saves is the reference's."""
    spec = MoECTESpec(MoECTEImplementation.shard_on_i, shard_on_I=ShardOnIConfig(True, inside))
    options = {key: more.pop(key) for key in ("clamp_limits", "activation_type") if key in more}
    given = forward(spec, dtype=dtype, **more)
    sizes = {"hidden": more.get("hidden", 128), "inner": more.get("inner", 40)}
    added: dict[str, Any] = biases(**sizes, dtype=dtype) if bias else {}
    if "clamp_limits" in options:
        added |= {"up_clamp_upper_limit": 0.8, "up_clamp_lower_limit": -0.8, "gate_clamp_upper_limit": 1.0}
    _, gate_up, *down = moe_cte_reference(**given, **added)
    rng = np.random.default_rng(14)
    kept = {name: value for name, value in given.items() if name != "spec"}
    return {
        **kept,
        "gate_up_proj_act_checkpoint_T": gate_up.astype(dtype),
        "down_proj_act_checkpoint": down[0].astype(dtype) if down else None,
        "output_hidden_states_grad": rng.standard_normal(given["hidden_states"].shape).astype(dtype),
        "affinity_option": AffinityOption.AFFINITY_ON_I if inside else AffinityOption.AFFINITY_ON_H,
        "bias": bias,
        **options,
    }


def same(made: Any, given: dict[str, Any], tolerance: float = 1e-5) -> None:
    """Each gradient differs by a part of its largest number at most; rows of padding do not count."""
    wanted = blockwise_mm_bwd_reference(**given)
    assert len(made) == len(wanted)
    rows = len(given["hidden_states"])
    for place, (some, exact) in enumerate(zip(made, wanted, strict=True)):
        some = np.asarray(some, np.float64)
        if place < 2 and not given.get("skip_dma", SkipMode()).skip_token:
            some, exact = (each.reshape(rows, -1)[:-1] for each in (some, exact))
        assert np.abs(some - exact).max() <= tolerance * np.abs(exact).max()


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bias": True, "activation_type": ActFnType.Swish},
        {"bias": True, "inside": True, "activation_type": ActFnType.GELU},
        {"clamp_limits": LIMITS},
        {"skip_dma": SkipMode(True, False)},
    ],
    ids=["plain", "bias", "inside", "clamped", "skipping"],
)
def test_options(options: dict[str, Any], cores: int) -> None:
    given = arguments(**options)
    same(nki.simulate(blockwise_mm_bwd)[cores](**given), given)


def test_compiled_on_two_cores() -> None:
    given = arguments(bfloat16, hidden=256, inner=136, block=128, tokens=150, blocks=2)
    same(blockwise_mm_bwd[2](**given), given, 2e-2)


def test_gradients_are_added_to_what_is_there() -> None:
    given = arguments(blocks=1)
    names = ("hidden_states", "expert_affinities_masked", "gate_up_proj_weight", "down_proj_weight")
    outs = {f"{name}_grad_out": np.ones_like(given[name]) for name in names}
    made = nki.simulate(blockwise_mm_bwd)(**given, **outs, skip_grad_initialization=True)
    plain = nki.simulate(blockwise_mm_bwd)(**given)
    for place in (0, 2, 3):
        np.testing.assert_allclose(np.asarray(made[place])[:-1], np.asarray(plain[place])[:-1] + 1, atol=1e-5)


def test_pytorch_has_the_same_derivatives() -> None:
    given = arguments(tokens=20, blocks=2, block=16)
    names = ("hidden_states", "expert_affinities_masked", "gate_up_proj_weight", "down_proj_weight")
    x, a, gate_up, down = (torch.from_numpy(given[name]).double().requires_grad_() for name in names)
    total = torch.zeros(x.shape, dtype=torch.float64)
    for number, tokens in enumerate(torch.from_numpy(given["token_position_to_id"]).reshape(2, 16).long()):
        e = int(given["block_to_expert"][number, 0])
        gate, up = x[tokens] @ gate_up[e, :, 0], x[tokens] @ gate_up[e, :, 1]
        result = (torch.nn.functional.silu(gate) * up) @ down[e]
        total = total.index_add(0, tokens, a.reshape(21, 3)[tokens, e][:, None] * result)
    total[:20].backward(torch.from_numpy(given["output_hidden_states_grad"]).double()[:20])
    made = nki.simulate(blockwise_mm_bwd)(**given)
    for some, exact in zip(made, (x.grad, a.grad, gate_up.grad, down.grad), strict=True):
        rows = slice(0, 60) if some.shape == (63, 1) else slice(0, 20) if some.shape == (21, 128) else slice(None)
        np.testing.assert_allclose(np.asarray(some)[rows], exact.numpy()[rows], rtol=1e-3, atol=1e-4)


@settings(max_examples=4, deadline=None)
@given(
    hidden=st.sampled_from([1, 127, 129, 513]),
    inner=st.sampled_from([2, 128, 130, 258]),
    block=st.sampled_from([1, 16, 127, 128]),
    cores=st.sampled_from([1, 2]),
)
def test_odd_sizes(hidden: int, inner: int, block: int, cores: int) -> None:
    given = arguments(hidden=hidden, inner=inner, block=block, tokens=20, blocks=2)
    same(nki.simulate(blockwise_mm_bwd)[cores](**given), given)


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        (
            {"output_hidden_states_grad": np.zeros((40, 128), np.float32)},
            "nkilib.shape",
            "output_hidden_states_grad is 40",
        ),
        ({"activation_type": ActFnType.ReLU}, "nkilib.option", "activation_type is"),
        ({"kernel_type_option": KernelTypeOption.DROPPING}, "nkilib.argument", "DROPPING with 2 blocks"),
        ({"skip_grad_initialization": True}, "nkilib.argument", "skip_grad_initialization is True"),
        ({"block_tile_size": 512}, "nkilib.not-built", "block_tile_size"),
        ({"bias": True, "down_proj_act_checkpoint": None}, "nkilib.argument", "down_proj_act_checkpoint is None"),
    ],
)
def test_what_is_refused(change: dict[str, Any], code: str, text: str) -> None:
    with pytest.raises(KernelLimit, match=text) as caught:
        nki.simulate(blockwise_mm_bwd)(**{**arguments(blocks=2), **change})
    assert caught.value.code == code


NAMES = ("hidden_states", "expert_affinities_masked", "gate_up_proj_weight", "down_proj_weight", "down_proj_bias")


def by_torch(given: dict[str, Any]) -> dict[str, Any]:
    """Derivatives of the sum of squares of the result of `moe_cte`."""
    moved = {name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value for name, value in given.items()}
    for name in NAMES:
        moved[name].requires_grad_()
    moe_cte(**moved)[:20].square().sum().backward()
    return {name: moved[name].grad.numpy() for name in NAMES}


def test_derivatives_of_the_forward_pass() -> None:
    given = forward(tokens=20, hidden=32, inner=8, blocks=2, block=16, **biases(32, 8))
    weights = given["down_proj_weight"]
    bump = np.random.default_rng(15).standard_normal(weights.shape)
    moved_on = [{**given, "down_proj_weight": weights + step * bump} for step in (1e-5, -1e-5)]
    change = [np.square(moe_cte_reference(**each)[:20]).sum() for each in moved_on]
    slope = float((by_torch(given)["down_proj_weight"] * bump).sum())
    assert abs(slope - (change[0] - change[1]) / 2e-5) <= 1e-4 * abs(slope)


@pytest.mark.slow
def test_jax_has_the_derivatives_that_torch_has() -> None:
    given = forward(tokens=20, hidden=32, inner=8, blocks=2, block=16, **biases(32, 8))

    def loss(arrays: Any) -> Any:
        return (moe_cte(**{**given, **arrays})[:20] ** 2).sum()

    by_jax, wanted = jax.grad(loss)({name: jax.numpy.asarray(given[name]) for name in NAMES}), by_torch(given)
    for name in NAMES:
        np.testing.assert_allclose(np.asarray(by_jax[name]), wanted[name], rtol=1e-4, atol=1e-4)


def test_what_cores_share_is_told_to_have_no_effect() -> None:
    given = arguments(tokens=20, hidden=32, inner=8, blocks=2, block=16)
    with pytest.warns(WithoutEffect, match="shard_option has no effect as two cores share both dimensions"):
        made = nki.simulate(blockwise_mm_bwd)[2](**given, shard_option=ShardOption.SHARD_ON_INTERMEDIATE)
    same(made, given)
