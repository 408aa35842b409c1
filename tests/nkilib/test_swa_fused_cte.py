"""A block of sliding-window attention over a cache of blocks, against NumPy in float64."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some
from ml_dtypes import bfloat16, float8_e5m2

import nki
from nkilib.errors import KernelLimit
from nkilib.experimental.attention import swa_fused_cte
from nkilib.experimental.attention.swa_fused_cte_reference import swa_fused_cte_reference


def call(
    batch: int = 1,
    new: int = 9,
    prior: int = 5,
    slots: int = 4,
    window: int = 6,
    heads: tuple[int, int] = (4, 2),
    d: int = 8,
    hidden: int = 24,
    dtype: Any = np.float32,
) -> dict[str, Any]:
    """Arguments; what is in the caches beyond the prior tokens is not a number."""
    rng = np.random.default_rng(new + prior)
    queries, keys = heads
    each = -(-prior // slots) + -(-new // slots)
    tables = rng.permutation(batch * each + 2)[: batch * each].reshape(batch, each).astype(np.int32)
    caches = [np.full((batch * each + 2, keys, slots, d), np.nan, np.float32) for _ in range(2)]
    for cache in caches:
        for b in range(batch):
            for p in range(prior):
                cache[tables[b, p // slots], :, p % slots] = rng.standard_normal((keys, d))
    angles = np.tile(rng.uniform(0, 3, (batch, new, d // 2)), 2)
    wide = (queries + 2 * keys) * d
    values: dict[str, Any] = {
        "hidden_states": rng.standard_normal((batch, new, hidden)),
        "qkv_weight": rng.standard_normal((hidden, wide)) / np.sqrt(hidden),
        "op_weight": rng.standard_normal((queries * d, hidden)) / np.sqrt(queries * d),
        "k_cache": caches[0],
        "v_cache": caches[1],
        "block_tables": tables,
        "cos_cache": np.cos(angles).astype(np.float32),
        "sin_cache": np.sin(angles).astype(np.float32),
        "sink": rng.standard_normal((batch, queries)).astype(np.float32),
        "prior_tokens": np.array([[prior]], np.int32),
        "qkv_bias": rng.standard_normal((1, wide)) / 4,
        "op_bias": rng.standard_normal((1, hidden)) / 4,
    }
    short = ("hidden_states", "qkv_weight", "op_weight", "k_cache", "v_cache", "qkv_bias", "op_bias")
    return values | {
        **{name: values[name].astype(dtype) for name in short},
        **{"scale": d**-0.5, "sliding_window": window, "block_size": slots},
        **{"num_q_heads": queries, "num_kv_heads": keys, "d_head": d},
    }


def copied(given: dict[str, Any]) -> dict[str, Any]:
    return {name: each.copy() if isinstance(each, np.ndarray) else each for name, each in given.items()}


def close(made: Any, given: dict[str, Any]) -> None:
    """Attention multiplies in bfloat16; caches get what was projected, and the rest of them stays."""
    wanted = swa_fused_cte_reference(**given)
    tolerances = (3e-2, 2e-2, 2e-2) if given["k_cache"].dtype == bfloat16 else (2e-2, 1e-4, 1e-4)
    for a, b, tolerance in zip(made, wanted, tolerances, strict=True):
        assert a.dtype == given["k_cache"].dtype
        np.testing.assert_allclose(np.asarray(a, np.float64), b, rtol=tolerance, atol=tolerance)


@settings(max_examples=5, deadline=None)
@given(
    some.integers(1, 2),
    some.sampled_from([1, 2, 127, 129]),
    some.sampled_from([0, 1, 4, 5, 130]),
    some.sampled_from([1, 4, 32]),
    some.sampled_from([1, 6, 129]),
    some.sampled_from([(1, 1), (4, 2), (3, 3)]),
    some.sampled_from([2, 8, 66]),
    some.integers(1, 2),
)
def test_odd_sizes(
    batch: int, new: int, prior: int, slots: int, window: int, heads: tuple[int, int], d: int, cores: int
) -> None:
    given = call(batch, new, prior, slots, window, heads, d)
    close(nki.simulate(swa_fused_cte)[cores](**copied(given)), given)


def test_one_compiled_kernel_serves_every_number_of_prior_tokens() -> None:
    for prior in (0, 7, 3):
        given = call(new=9, prior=8, dtype=bfloat16)
        given["prior_tokens"][...] = prior
        close(swa_fused_cte[2](**copied(given)), given)


def test_torch_and_jax() -> None:
    given = call(new=5)
    tensors = {k: torch.from_numpy(v.copy()) if isinstance(v, np.ndarray) else v for k, v in given.items()}
    out, keys, values = swa_fused_cte(**tensors)
    close((out.numpy(), keys.numpy(), values.numpy()), given)
    assert torch.equal(tensors["k_cache"].nan_to_num(), keys.nan_to_num())
    arrays = {k: jnp.asarray(v) if isinstance(v, np.ndarray) else v for k, v in given.items()}
    close(jax.jit(lambda x: swa_fused_cte(**arrays | {"hidden_states": x}))(arrays["hidden_states"]), given)


def test_a_table_that_is_too_short_is_an_error() -> None:
    given = call()
    given["prior_tokens"][...] = 60
    with pytest.raises(nki.errors.NkiError):
        nki.simulate(swa_fused_cte)(**given)


G = call()
REFUSED: list[tuple[str, str, dict[str, Any]]] = [
    ("nkilib.shape", "hidden_states has 2 dimensions", {"hidden_states": G["hidden_states"][0]}),
    ("nkilib.shape", "dimension 1 of qkv_weight is 63, not I=64", {"qkv_weight": G["qkv_weight"][:, 1:]}),
    ("nkilib.shape", "dimension 0 of op_weight is 31", {"op_weight": G["op_weight"][1:]}),
    ("nkilib.shape", "dimension 0 of v_cache is", {"v_cache": G["v_cache"][1:]}),
    ("nkilib.shape", "dimension 1 of sink is 3", {"sink": G["sink"][:, 1:]}),
    ("nkilib.shape", "dimension 1 of cos_cache is 8", {"cos_cache": G["cos_cache"][:, 1:]}),
    ("nkilib.shape", "prior_tokens has 1 dimensions", {"prior_tokens": G["prior_tokens"][0]}),
    ("nkilib.shape", "num_q_heads is 5", {"num_q_heads": 5}),
    ("nkilib.shape", "d_head is 130", {"d_head": 130}),
    ("nkilib.shape", "sliding_window is 0", {"sliding_window": 0}),
    ("nkilib.argument", "block_size is 3", {"block_size": 3}),
    ("nkilib.argument", "scale is 0", {"scale": 0.0}),
    ("nkilib.dtype", "dtypes differ", {"op_weight": G["op_weight"].astype(bfloat16)}),
    ("nkilib.dtype", "block_tables is float32", {"block_tables": G["block_tables"].astype(np.float32)}),
    ("nkilib.not-built", "does not have k_cache", {"k_cache": G["k_cache"].astype(float8_e5m2)}),
    ("nkilib.not-built", "does not have v_scale", {"v_scale": np.ones((1, 1), np.float32)}),
]


@pytest.mark.parametrize(("code", "words", "change"), REFUSED, ids=[words for _, words, _ in REFUSED])
def test_what_is_refused(code: str, words: str, change: dict[str, Any]) -> None:
    with pytest.raises(KernelLimit, match=words) as caught:
        nki.simulate(swa_fused_cte)(**G | change)
    assert caught.value.code == code


def test_trainium1_has_no_dma_by_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn1")
    with pytest.raises(KernelLimit, match="the target has NeuronCore-v2"):
        swa_fused_cte(**G)
