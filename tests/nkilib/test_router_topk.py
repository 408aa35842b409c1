"""The router: logits, chosen experts and affinities in every layout, and what it refuses."""

from typing import Any

import jax
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ml_dtypes import bfloat16

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib import streaming
from nkilib.core.router_topk import router_topk, router_topk_input_x_load
from nkilib.core.router_topk.router_topk_reference import router_topk_reference
from nkilib.core.utils.common_types import RouterActFnType
from nkilib.errors import KernelLimit

SOFTMAX, SIGMOID = RouterActFnType.SOFTMAX, RouterActFnType.SIGMOID


def arguments(
    tokens: int,
    hidden: int,
    experts: int,
    k: int,
    act: Any = SOFTMAX,
    layout: int = 0,
    dtype: Any = np.float32,
    **more: Any,
) -> dict[str, Any]:
    """Of a call; logits are multiples of 1/64 in float32, so that equal ones are equal in every order of sums."""
    rng = np.random.default_rng(3)
    x = rng.integers(-4, 5, (hidden, tokens) if layout == 0 else (tokens, hidden)) / 8
    return {
        "x": x.astype(dtype),
        "w": (rng.integers(-2, 3, (hidden, experts)) / 8).astype(dtype),
        "w_bias": (rng.integers(-2, 3, (1, experts)) / 8).astype(dtype),
        "router_logits": np.zeros((tokens, experts), np.float32),
        "expert_affinities": np.zeros((tokens, experts), np.float32),
        "expert_index": np.zeros((tokens, k), np.uint32),
        "act_fn": act,
        "k": k,
        "x_hbm_layout": layout,
        "x_sb_layout": 0,
        **more,
    }


def same(made: Any, given: dict[str, Any]) -> None:
    """Logits and indices are exact, also of equal logits; affinities are as exact as exponentials."""
    wanted = router_topk_reference(**given)
    assert len(made) == len(wanted)
    assert np.array_equal(made[0], wanted[0])
    assert np.array_equal(made[1], wanted[1])
    for some, exact in zip(made[2:], wanted[2:], strict=True):
        np.testing.assert_allclose(np.asarray(some, np.float64), exact, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("act", [SOFTMAX, SIGMOID])
@pytest.mark.parametrize(
    "options",
    [
        {"router_pre_norm": True},
        {"router_pre_norm": True, "norm_topk_prob": True, "use_PE_broadcast_w_bias": True},
        {"router_pre_norm": False, "use_column_tiling": True, "return_eager_affi": True},
        {"router_pre_norm": False, "norm_topk_prob": True, "use_indirect_dma_scatter": True},
    ],
    ids="-".join,
)
def test_affinities_of_every_kind(layout: int, act: Any, options: dict[str, bool]) -> None:
    given = arguments(9, 384, 13, 3, act, layout, **options)
    same(nki.simulate(router_topk)(**given), given)


@settings(max_examples=8, deadline=None)
@given(
    tokens=st.sampled_from([1, 2, 127, 129]),
    experts=st.sampled_from([1, 7, 8, 127, 513]),
    k=st.integers(1, 8),
    layout=st.sampled_from([0, 1]),
    indirect=st.booleans(),
)
def test_odd_sizes(tokens: int, experts: int, k: int, layout: int, indirect: bool) -> None:
    given = arguments(tokens, 128, experts, min(k, experts), layout=layout, router_pre_norm=False)
    same(nki.simulate(router_topk)(**given, use_indirect_dma_scatter=indirect), given)


def test_compiled_on_two_cores_in_bfloat16() -> None:
    given = arguments(259, 256, 16, 4, dtype=bfloat16, norm_topk_prob=True, shard_on_tokens=True)
    same(router_topk[2](**given), given)


def test_results_that_are_not_wanted_stay_as_they_are() -> None:
    given = arguments(3, 128, 8, 2, skip_store_expert_index=True, skip_store_router_logits=True)
    logits, index, _ = nki.simulate(router_topk)(**given)
    assert not logits.any()
    assert not index.any()


@nki.jit
def within(x, w, experts, k, layout):
    """The router as a part of a kernel: hidden states and results in SBUF."""
    if layout == 3:
        loaded = router_topk_input_x_load(x, 0, 3)
        tokens = x.shape[1]
    else:
        loaded = router_topk_input_x_load(x, 1, layout)
        tokens = x.shape[0]
    logits = streaming.result((tokens, experts), nl.float32)
    affinities, index = streaming.sbuf((tokens, experts), nl.float32), streaming.sbuf((tokens, k), nl.uint32)
    router_topk(loaded, w, None, logits, affinities, index, SOFTMAX, k, 0, layout, router_pre_norm=False)
    stored, places = streaming.result((tokens, experts), nl.float32), streaming.result((tokens, k), nl.uint32)
    nisa.dma_copy(dst=stored, src=affinities)
    nisa.dma_copy(dst=places, src=index)
    return logits, places, stored


@pytest.mark.parametrize("layout", [0, 1, 2, 3])
def test_hidden_states_in_sbuf(layout: int) -> None:
    given = arguments(5, 512, 16, 4, layout=0 if layout == 3 else 1, dtype=bfloat16, router_pre_norm=False)
    given["w_bias"] = None
    same(nki.simulate(within)(given["x"], given["w"], 16, 4, layout), given)


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        ({"k": 9}, "nkilib.shape", "k is 9"),
        (
            {"x": np.zeros((130, 3), np.float32), "w": np.zeros((130, 8), np.float32)},
            "nkilib.shape",
            "H is 130",
        ),
        ({"w": np.zeros((128, 8), bfloat16)}, "nkilib.dtype", "w is bfloat16"),
        ({"act_fn": RouterActFnType.NOAUX_TC}, "nkilib.option", "act_fn is"),
        ({"x_hbm_layout": 2}, "nkilib.option", "x_hbm_layout is 2"),
        ({"shard_on_tokens": True}, "nkilib.argument", "shard_on_tokens is True on one core"),
        ({"expert_index": np.zeros((3, 4), np.uint32)}, "nkilib.shape", "dimension 1 of expert_index is 4"),
    ],
)
def test_what_is_refused(change: dict[str, Any], code: str, text: str) -> None:
    with pytest.raises(KernelLimit, match=text) as caught:
        nki.simulate(router_topk)(**{**arguments(3, 128, 8, 2), **change})
    assert caught.value.code == code


def test_from_torch_and_jax() -> None:
    given = arguments(3, 128, 8, 2, norm_topk_prob=True)
    for convert in (torch.from_numpy, jax.numpy.asarray):
        moved = {name: convert(value) if isinstance(value, np.ndarray) else value for name, value in given.items()}
        same([np.asarray(each) for each in router_topk(**moved)], given)
