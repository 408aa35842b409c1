"""Mixtures of experts for few tokens: all and chosen experts against the reference, odd sizes, and what is refused."""

from typing import Any

import jax
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ml_dtypes import bfloat16, float8_e4m3

import nki
import nki.isa as nisa
from nkilib import streaming
from nkilib.core.moe.moe_tkg.moe_tkg_reference import moe_tkg_reference
from nkilib.core.moe_tkg import moe_tkg
from nkilib.core.router_topk import router_topk_input_x_load
from nkilib.core.utils.common_types import ActFnType, DtypeMode, ExpertAffinityScaleMode
from nkilib.errors import KernelLimit

POST = ExpertAffinityScaleMode.POST_SCALE
RANK = {"rank_id": np.ones((1, 1), np.int32), "expert_affinities_scaling_mode": POST}


def arguments(
    tokens: int = 3,
    hidden: int = 128,
    inner: int = 40,
    experts: int = 8,
    k: int = 2,
    every: bool = False,
    ranks: int = 1,
    dtype: Any = np.float32,
    **more: Any,
) -> dict[str, Any]:
    """Of a call."""
    rng = np.random.default_rng(8)
    return {
        "hidden_input": rng.standard_normal((tokens, hidden)).astype(dtype),
        "expert_gate_up_weights": rng.uniform(-0.3, 0.3, (experts, hidden, 2, inner)).astype(dtype),
        "expert_down_weights": rng.uniform(-0.3, 0.3, (experts, inner, hidden)).astype(dtype),
        "expert_affinities": rng.random((tokens, experts * ranks)).astype(np.float32),
        "expert_index": np.stack([rng.permutation(experts * ranks)[:k] for _ in range(tokens)]).astype(np.uint32),
        "is_all_expert": every,
        **more,
    }


def extras(hidden: int = 128, inner: int = 40, experts: int = 8) -> dict[str, Any]:
    """Biases and clamps."""
    rng = np.random.default_rng(9)
    return {
        "expert_gate_up_bias": rng.standard_normal((experts, 2, inner)).astype(np.float32),
        "expert_down_bias": rng.standard_normal((experts, hidden)).astype(np.float32),
        "gate_clamp_upper_limit": 1.5,
        "up_clamp_upper_limit": 1.0,
        "up_clamp_lower_limit": -1.0,
    }


def same(made: Any, given: dict[str, Any], tolerance: float = 1e-5) -> None:
    """Numbers differ by a part of the largest one at most."""
    wanted = moe_tkg_reference(**given)
    assert np.abs(np.asarray(made, np.float64) - wanted).max() <= tolerance * np.abs(wanted).max()


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(
    "options",
    [
        {"every": True, "inner": 41, "experts": 3},
        {"every": True, "ranks": 2, "tokens": 130, **RANK, **extras()},
        {"every": True, "ranks": 2, "mask_unselected_experts": True, **RANK},
        {"expert_affinities_scaling_mode": POST, "activation_fn": ActFnType.Swish, **extras()},
        {"tokens": 1, "expert_affinities_scaling_mode": POST, "activation_fn": ActFnType.GELU, **extras()},
        {"tokens": 4},
        {"tokens": 5, "expert_affinities_scaling_mode": POST},
        {"expert_affinities_scaling_mode": POST, "expert_affinities_eager": np.full((3, 2), 0.25, np.float32)},
    ],
    ids=["all", "rank", "masked", "chosen", "one", "two", "dense", "eager"],
)
def test_options(options: dict[str, Any], cores: int) -> None:
    given = arguments(**options)
    same(nki.simulate(moe_tkg)[cores](**given), given)


@pytest.mark.parametrize("every", [True, False])
def test_weights_in_eight_bits(every: bool) -> None:
    given = arguments(every=every, dtype=bfloat16)
    rng = np.random.default_rng(10)
    for name in ("expert_gate_up_weights", "expert_down_weights"):
        given[name] = rng.uniform(-40, 40, given[name].shape).astype(float8_e4m3)
    given["expert_gate_up_weights_scale"] = rng.uniform(0.005, 0.01, (8, 2, 40)).astype(np.float32)
    given["expert_down_weights_scale"] = rng.uniform(0.005, 0.01, (8, 128)).astype(np.float32)
    same(nki.simulate(moe_tkg)(**given), given, 2e-2)


@pytest.mark.parametrize("every", [True, False])
def test_compiled_on_two_cores(every: bool) -> None:
    given = arguments(tokens=4, hidden=256, inner=136, every=every, dtype=bfloat16, **RANK)
    given["rank_id"] = np.zeros((1, 1), np.int32)
    same(moe_tkg[2](**given), given, 2e-2)


@nki.jit
def within(x, gate_up, down, affinities, index, every, parts):
    """The experts as a part of a kernel: hidden states and the result in SBUF."""
    tile = router_topk_input_x_load(x, 1, 1 if parts == 2 else 0)
    result = moe_tkg(tile, gate_up, down, affinities, index, every, output_in_sbuf=True)
    stored = streaming.result(result.shape, result.dtype)
    nisa.dma_copy(dst=stored, src=result)
    return stored


@pytest.mark.parametrize("every", [True, False])
@pytest.mark.parametrize("cores", [1, 2])
def test_hidden_states_in_sbuf(every: bool, cores: int) -> None:
    given = arguments(hidden=512, every=every)
    parts = cores if every else 1
    positional = [given[name] for name in list(given)[:5]]
    made = np.asarray(nki.simulate(within)[cores](*positional, every, parts))
    halves = made.reshape(128, 3, parts, 4 // parts).transpose(1, 2, 0, 3)
    same(halves.reshape(3, 512), given)


@settings(max_examples=6, deadline=None)
@given(
    tokens=st.sampled_from([1, 2, 5]),
    hidden=st.sampled_from([1, 127, 129, 513]),
    inner=st.sampled_from([2, 127, 129, 257]),
    every=st.booleans(),
    cores=st.sampled_from([1, 2]),
)
def test_odd_sizes(tokens: int, hidden: int, inner: int, every: bool, cores: int) -> None:
    given = arguments(tokens, hidden, inner, experts=5, every=every)
    same(nki.simulate(moe_tkg)[cores](**given), given)


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        ({"expert_down_weights": np.zeros((8, 41, 128), np.float32)}, "nkilib.shape", "dimension 1 of expert_down_wei"),
        ({"hidden_input": np.zeros((3, 128), bfloat16)}, "nkilib.dtype", "expert_gate_up_weights is float32"),
        ({"is_all_expert": True, "expert_affinities_scaling_mode": POST}, "nkilib.argument", "rank_id is None"),
        ({"expert_affinities_scaling_mode": ExpertAffinityScaleMode.PRE_SCALE}, "nkilib.option", "scaling_mode is"),
        ({"output_in_sbuf": True}, "nkilib.argument", "output_in_sbuf is True"),
        ({"is_all_expert_dynamic": True}, "nkilib.not-built", "is_all_expert_dynamic"),
        ({"dtype_mode": DtypeMode.OCP}, "nkilib.not-built", "dtype_mode"),
    ],
)
def test_what_is_refused(change: dict[str, Any], code: str, text: str) -> None:
    with pytest.raises(KernelLimit, match=text) as caught:
        nki.simulate(moe_tkg)(**{**arguments(), **change})
    assert caught.value.code == code


def test_more_tokens_than_can_choose_are_refused() -> None:
    with pytest.raises(KernelLimit, match="T is 129"):
        nki.simulate(moe_tkg)(**arguments(129))


def test_from_torch_and_jax() -> None:
    given = arguments(2, 32, 8)
    for convert in (torch.from_numpy, jax.numpy.asarray):
        moved = {name: convert(value) if isinstance(value, np.ndarray) else value for name, value in given.items()}
        same(np.asarray(moe_tkg(**moved)), given)
