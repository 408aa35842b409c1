"""Attention over a cache of blocks: every option against NumPy, any sizes, any scores, and what it refuses."""

from typing import Any

import jax
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ml_dtypes import bfloat16

import nki
from nkilib.core.attention.attention_segmented_cte import attention_segmented_cte
from nkilib.core.attention.attention_segmented_cte_reference import attention_segmented_cte_reference
from nkilib.errors import KernelLimit

EAGER = attention_segmented_cte.simulated()
ERROR = 0.02
"""Weights and results round to bfloat16, whose step is 2**-8; values are normal, of variance 1."""


def call(
    queries: int,
    prior: int,
    block: int = 32,
    heads: tuple[int, int, int] = (1, 1, 1),
    d: int = 16,
    *,
    sharp: float = 1.0,
    behind: int = 1,
    segment: int = 128,
    **options: Any,
) -> dict[str, Any]:
    """Arguments; heads are sequences, heads of queries and of keys; scores have a standard deviation of `sharp`."""
    rng = np.random.default_rng(5)
    sequences, h, h_kv = heads
    each = -(-(prior + queries) // block)
    shape = sequences * each + 3, h_kv, block, d
    table = np.full((sequences, each + behind), -1, np.int32)
    table[:, :each] = rng.permutation(shape[0])[: sequences * each].reshape(sequences, each)

    dtype = options.pop("dtype", bfloat16)

    def normal(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(dtype)

    q = normal(*((sequences * h, queries, d) if options.get("tp_q", True) else (sequences * h, d, queries)))
    return {
        "q": q,
        "k_cache": normal(*shape),
        "v_cache": normal(*shape),
        "block_tables": table,
        "prior_tokens": np.array([[prior]], np.int32),
        "block_size": block,
        "prior_seg_size": segment,
        "scale": sharp * d**-0.5,
        "num_q_heads": h,
        **options,
    }


def compare(arguments: dict[str, Any], kernel: Any = EAGER) -> None:
    made, exact = np.asarray(kernel(**arguments)), attention_segmented_cte_reference(**arguments)
    assert made.shape == exact.shape
    assert made.dtype == exact.dtype
    bound = ERROR * np.maximum(1.0, np.abs(exact.astype(np.float64)))
    assert (np.abs(made.astype(np.float64) - exact.astype(np.float64)) <= bound).all()


SCALES = np.linspace(0.5, 2.0, 128, dtype=np.float32).reshape(128, 1)
CALLS = {
    "groups of heads of two sequences": call(150, 160, heads=(2, 4, 2), d=64),
    "no prefix": call(130, 0, 64, tp_out=True),
    "sinks": call(64, 256, 16, heads=(1, 2, 1), sink=np.array([[3.0], [-2.0]], np.float32), tp_q=False),
    "large blocks": call(100, 512, 256, segment=256),
    "odd blocks": call(64, 144, 48, segment=144),
    "float32": call(40, 64, dtype=np.float32),
    "a window": call(150, 288, 32, (1, 2, 1), sliding_window=70),
    "a window and sinks": call(150, 288, 32, sliding_window=200, sink=np.array([[1.0]], np.float32)),
    "large scores": call(140, 160, heads=(2, 2, 1), sharp=60.0, sink=np.full((4, 1), 40.0, np.float32)),
    "scales": call(64, 128, 32, k_scale=SCALES, v_scale=SCALES[::-1].copy()),
    "scales of large scores": call(64, 128, 32, k_scale=np.full((128, 1), 64.0, np.float32), v_scale=SCALES),
}


@pytest.mark.parametrize("name", CALLS)
def test_call(name: str) -> None:
    compare(CALLS[name])


def test_two_cores_share_the_last_head() -> None:
    compare(call(200, 96, heads=(1, 3, 1)), attention_segmented_cte[2].simulated())


def test_more_queries_than_sums_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nkilib.core.attention.segmented.order._SUMS_BYTES", 100)
    compare(call(130, 96, heads=(1, 2, 1), sharp=60.0))


def test_segments_behind_the_prefix_are_not_computed() -> None:
    arguments = call(64, 96, behind=40)
    for name in ("k_cache", "v_cache"):
        arguments[name] = arguments[name].copy()
        arguments[name][np.setdiff1d(np.arange(len(arguments[name])), arguments["block_tables"])] = np.nan
    arguments["block_tables"] = np.where(arguments["block_tables"] < 0, 99, arguments["block_tables"])
    assert np.isfinite(np.asarray(EAGER(**arguments)).astype(np.float32)).all()


@settings(max_examples=5, deadline=None)
@given(
    queries=st.sampled_from([1, 127, 129, 200]),
    blocks=st.integers(0, 9),
    block=st.sampled_from([1, 16, 24, 128]),
    heads=st.sampled_from([(1, 1, 1), (2, 2, 1)]),
    d=st.sampled_from([1, 65, 128]),
    window=st.sampled_from([None, 1, 100]),
)
def test_any_sizes(queries: int, blocks: int, block: int, heads: Any, d: int, window: int | None) -> None:
    compare(call(queries, blocks * block, block, heads, d, segment=8 * block, sliding_window=window))


def test_compiled_torch_and_jax() -> None:
    arguments = call(64, 64, heads=(1, 2, 1))
    made = np.asarray(attention_segmented_cte(**arguments))
    compare(arguments, lambda **_: made)
    arrays = {name: each for name, each in arguments.items() if isinstance(each, np.ndarray)}
    tensors = {
        name: torch.tensor(each.astype(np.float32)).bfloat16() if each.dtype == bfloat16 else torch.tensor(each)
        for name, each in arrays.items()
    }
    assert (attention_segmented_cte(**arguments | tensors).float().numpy() == made.astype(np.float32)).all()
    values = {name: jax.numpy.asarray(each) for name, each in arrays.items()}
    assert (np.asarray(attention_segmented_cte(**arguments | values)) == made).all()


REFUSED = [
    ("nkilib.shape", "d is 129", {**call(8, 0, d=129)}),
    ("nkilib.shape", "dimension 2 of k_cache is 32", {**call(8, 0), "block_size": 16}),
    ("nkilib.shape", "dimension 3 of v_cache is 8", {**call(8, 0), "v_cache": call(8, 0, d=8)["v_cache"]}),
    ("nkilib.shape", "prior_seg_size is 100", {**call(8, 0), "prior_seg_size": 100}),
    ("nkilib.shape", "prior_seg_size is 16384", {**call(8, 0), "prior_seg_size": 16384}),
    ("nkilib.shape", "prior_tokens has 1 dim", {**call(8, 0), "prior_tokens": np.zeros(1, np.int32)}),
    ("nkilib.shape", "dimension 0 of k_scale is 16", {**call(8, 0), "k_scale": SCALES[:16]}),
    ("nkilib.shape", "dimension 0 of sink is 2", {**call(8, 0), "sink": SCALES[:2]}),
    ("nkilib.shape", "num_q_heads is 3", {**call(8, 0, heads=(1, 3, 2))}),
    ("nkilib.argument", "num_q_heads is 2", {**call(8, 0), "num_q_heads": 2}),
    ("nkilib.argument", "scale is 0", {**call(8, 0), "scale": 0.0}),
    ("nkilib.argument", "sliding_window is -1", {**call(8, 0), "sliding_window": -1}),
    ("nkilib.dtype", "q is int32", {**call(8, 0), "q": np.zeros((1, 8, 16), np.int32)}),
    ("nkilib.dtype", "prior_tokens is float32", {**call(8, 0), "prior_tokens": np.zeros((1, 1), np.float32)}),
    ("nkilib.dtype", "block_tables is float32", {**call(8, 0), "block_tables": np.zeros((1, 1), np.float32)}),
    ("nkilib.not-built", "k_pre_transposed", {**call(8, 0), "k_pre_transposed": True}),
    ("nkilib.not-built", "fp8_packed", {**call(8, 0), "fp8_packed": True}),
    ("nkilib.not-built", "kvp_group_size", {**call(8, 0), "kvp_group_size": 2}),
]


@pytest.mark.parametrize(("code", "words", "given"), REFUSED, ids=[words for _, words, _ in REFUSED])
def test_what_is_refused(code: str, words: str, given: dict[str, Any]) -> None:
    with pytest.raises(KernelLimit, match=words) as caught:
        nki.simulate(attention_segmented_cte)(**given)
    assert caught.value.code == code


def test_an_old_target_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn1")
    with pytest.raises(KernelLimit, match="NeuronCore-v2"):
        nki.simulate(attention_segmented_cte)(**call(8, 0))
