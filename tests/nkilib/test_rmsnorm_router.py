"""RMS norm and router in one, against NumPy in float64."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some
from ml_dtypes import bfloat16

import nki
import nki.language as nl
from nkilib.core.utils.common_types import QuantizationType, RouterActFnType
from nkilib.errors import KernelLimit
from nkilib.experimental.moe_block import rmsnorm_router_topk_tkg
from nkilib.experimental.moe_block.rmsnorm_router_topk_tkg_reference import rmsnorm_router_topk_tkg_reference

SOFTMAX, SIGMOID = RouterActFnType.SOFTMAX, RouterActFnType.SIGMOID


def call(tokens: int = 9, hidden: int = 130, experts: int = 13, dtype: Any = np.float32, **more: Any) -> dict[str, Any]:
    rng = np.random.default_rng(tokens + hidden + experts)
    return {
        "hidden_states": rng.standard_normal((1, tokens, hidden)).astype(dtype),
        "gamma": rng.uniform(0.5, 1.5, (1, hidden)).astype(dtype),
        "router_weights": (rng.standard_normal((hidden, experts)) / np.sqrt(hidden)).astype(dtype),
        "router_bias": rng.uniform(-0.1, 0.1, (1, experts)).astype(dtype),
        "top_k": min(3, experts),
        "router_mm_dtype": nl.float32 if dtype == np.float32 else nl.bfloat16,
        **more,
    }


def close(made: Any, given: dict[str, Any]) -> None:
    """The same experts, but for tokens whose next logit is nearer than a rounding of what is multiplied."""
    normal, index, affinities = (np.asarray(each) for each in made)
    wanted, chosen, exact = rmsnorm_router_topk_tkg_reference(**given)
    unit = 2.0**-8 if wanted.dtype == bfloat16 else 2.0**-20
    assert (normal.dtype, index.dtype, affinities.dtype) == (wanted.dtype, np.int32, bfloat16)
    np.testing.assert_allclose(normal.astype(np.float64), wanted.astype(np.float64), rtol=unit, atol=unit)
    same = (index == chosen).all(axis=1)
    assert same.mean() >= (0.9 if wanted.dtype == bfloat16 else 1)
    np.testing.assert_allclose(affinities.astype(np.float64)[same], exact[same], rtol=2.0**-7, atol=2.0**-12)
    assert ((affinities != 0).sum(axis=1) <= given["top_k"]).all()


@settings(max_examples=8, deadline=None)
@given(
    some.sampled_from([1, 2, 127, 129]),
    some.sampled_from([1, 127, 128, 513, 1030]),
    some.sampled_from([1, 7, 8, 129]),
    some.sampled_from([SOFTMAX, SIGMOID]),
    some.booleans(),
    some.integers(1, 2),
)
def test_odd_sizes(tokens: int, hidden: int, experts: int, act: Any, biased: bool, cores: int) -> None:
    given = call(tokens, hidden, experts, router_act_fn=act)
    given["router_bias"] = given["router_bias"] if biased else None
    close(nki.simulate(rmsnorm_router_topk_tkg)[cores](**given), given)


def test_16_bits_and_weights_of_another_dtype() -> None:
    given = call(150, 256, 16, bfloat16)
    close(rmsnorm_router_topk_tkg[2](**given), given)
    given["router_weights"] = given["router_weights"].astype(np.float32)
    close(nki.simulate(rmsnorm_router_topk_tkg)(**given), given)


def test_padded_features_do_not_count() -> None:
    given = call(hidden=128, hidden_actual=100)
    given["hidden_states"][:, :, 100:] = 0
    made = nki.simulate(rmsnorm_router_topk_tkg)(**given)
    close(made, given)
    x = given["hidden_states"][0, :, :100]
    norm = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * given["gamma"][:, :100]
    np.testing.assert_allclose(made[0][:, :100], norm, rtol=1e-5)


def test_torch_and_jax() -> None:
    given = call(batch := 4, 64, 8)
    tensors = {k: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for k, v in given.items()}
    normal, index, affinities = rmsnorm_router_topk_tkg(**tensors)
    close((normal.numpy(), index.numpy(), affinities.float().numpy().astype(bfloat16)), given)
    x = tensors["hidden_states"][0]
    wanted = torch.nn.functional.rms_norm(x, (64,), tensors["gamma"][0], 1e-6)
    logits = wanted @ tensors["router_weights"] + tensors["router_bias"]
    torch.testing.assert_close(normal, wanted, rtol=1e-5, atol=1e-5)
    assert index.shape == (batch, 3) and torch.equal(index.long(), logits.topk(3).indices)
    arrays = {k: jnp.asarray(v) if isinstance(v, np.ndarray) else v for k, v in given.items()}
    close(jax.jit(lambda x: rmsnorm_router_topk_tkg(**arrays | {"hidden_states": x}))(arrays["hidden_states"]), given)


REFUSED = [
    ("nkilib.shape", "hidden_states has 2 dimensions", {"hidden_states": np.ones((9, 130), np.float32)}),
    ("nkilib.shape", "dimension 1 of gamma is 129", {"gamma": np.ones((1, 129), np.float32)}),
    ("nkilib.shape", "dimension 0 of router_weights is 129", {"router_weights": np.ones((129, 13), np.float32)}),
    ("nkilib.shape", "dimension 1 of router_bias is 12", {"router_bias": np.ones((1, 12), np.float32)}),
    ("nkilib.dtype", "hidden_states is int32", {"hidden_states": np.ones((1, 9, 130), np.int32)}),
    ("nkilib.argument", "eps is -1", {"eps": -1.0}),
    ("nkilib.shape", "top_k is 9", {"top_k": 9}),
    ("nkilib.shape", "top_k is 0", {"top_k": 0}),
    ("nkilib.shape", "hidden_actual is 131", {"hidden_actual": 131}),
    ("nkilib.option", "router_act_fn is 'softmax'", {"router_act_fn": "softmax"}),
    ("nkilib.option", "router_mm_dtype is nl.int32", {"router_mm_dtype": nl.int32}),
    ("nkilib.option", "quantization_type is", {"quantization_type": QuantizationType.ROW}),
    ("nkilib.not-built", "does not have quantization_type", {"quantization_type": QuantizationType.MX}),
]


@pytest.mark.parametrize(("code", "words", "change"), REFUSED, ids=[words for _, words, _ in REFUSED])
def test_what_is_refused(code: str, words: str, change: dict[str, Any]) -> None:
    with pytest.raises(KernelLimit, match=words) as caught:
        nki.simulate(rmsnorm_router_topk_tkg)(**call() | change)
    assert caught.value.code == code
