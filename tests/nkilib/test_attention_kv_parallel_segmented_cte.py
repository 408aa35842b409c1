"""Attention over a cache of blocks that ranks share, on several ranks against NumPy, and what is refused."""

from typing import Any

import jax
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ml_dtypes import bfloat16

import nki
from nki.collectives import ReplicaGroup
from nki.runtime import run_ranks
from nkilib.core.attention import attention_kv_parallel_segmented_cte
from nkilib.core.attention.attention_kv_parallel_segmented_cte_reference import (
    attention_kv_parallel_segmented_cte_reference,
)
from nkilib.errors import KernelLimit

ERROR = 0.02
"""Weights and results round to bfloat16, whose step is 2**-8; values are normal, of variance 1."""


def arguments(
    queries: int, prior: int, ranks: int = 2, block: int = 16, d: int = 16, in_turns: bool = False, **options: Any
) -> list[dict[str, Any]]:
    """Of each rank, which has all keys up to the last query and some more."""
    local = -(-(prior + queries) // (block * ranks)) + 1
    heads, heads_kv = options.pop("heads", (1, 1))
    each = []
    for rank in range(ranks):
        rng = np.random.default_rng(rank)
        shape = local + 2, heads_kv, block, d
        offset = prior if in_turns else prior - rank * local * block
        each.append(
            {
                "q": rng.standard_normal((heads, queries, d)).astype(bfloat16),
                "k_cache": rng.standard_normal(shape).astype(bfloat16),
                "v_cache": rng.standard_normal(shape).astype(bfloat16),
                "block_tables": rng.permutation(local + 2)[:local].reshape(1, -1).astype(np.int32),
                "kvp_q_offset": np.array([[offset]], np.int32),
                "replica_groups": ReplicaGroup([list(range(ranks))]),
                "group_size": ranks,
                "block_size": block,
                "seg_size": 4 * block,
                "scale": d**-0.5,
                **({"kvp_rank_id": np.array([[rank]], np.int32), "kvp_group_size": ranks} if in_turns else {}),
                **options,
            }
        )
    return each


def compare(each: list[dict[str, Any]], cores: int = 1) -> None:
    @nki.jit
    def called(arrays: dict[str, Any]) -> Any:
        return attention_kv_parallel_segmented_cte(**arrays)

    made = run_ranks(nki.simulate(called)[cores], [(one,) for one in each])
    together = {
        key: [one[key] for one in each] if isinstance(value, np.ndarray) else value for key, value in each[0].items()
    }
    for some, exact in zip(made, attention_kv_parallel_segmented_cte_reference(**together), strict=True):
        assert some.shape == exact.shape
        assert some.dtype == exact.dtype
        bound = ERROR * np.maximum(1.0, np.abs(exact.astype(np.float64)))
        assert (np.abs(some.astype(np.float64) - exact.astype(np.float64)) <= bound).all()


CALLS = {
    "keys that follow each other": arguments(140, 100, heads=(2, 2), tp_out=True),
    "blocks in turns": arguments(64, 300, ranks=3, in_turns=True),
    "a window": arguments(100, 200, sliding_window=70),
    "a window, blocks in turns": arguments(40, 200, in_turns=True, sliding_window=50, heads=(2, 1)),
    "large scores": arguments(64, 64, in_turns=True, scale=20.0),
}


@pytest.mark.parametrize("name", CALLS)
def test_call(name: str) -> None:
    compare(CALLS[name])


def test_two_cores() -> None:
    compare(arguments(64, 64, heads=(1, 1), in_turns=True), cores=2)


@settings(max_examples=3, deadline=None)
@given(
    queries=st.sampled_from([1, 127, 129]),
    prior=st.sampled_from([0, 31, 200]),
    block=st.sampled_from([1, 24, 32]),
    d=st.sampled_from([1, 65, 128]),
    in_turns=st.booleans(),
)
def test_any_sizes(queries: int, prior: int, block: int, d: int, in_turns: bool) -> None:
    compare(arguments(queries, prior, 2, block, d, in_turns))


def test_torch_and_jax() -> None:
    one = arguments(40, 30, ranks=1)[0]
    made = np.asarray(attention_kv_parallel_segmented_cte(**one))
    arrays = {name: each for name, each in one.items() if isinstance(each, np.ndarray)}
    tensors = {
        name: torch.tensor(each.astype(np.float32)).bfloat16() if each.dtype == bfloat16 else torch.tensor(each)
        for name, each in arrays.items()
    }
    found = attention_kv_parallel_segmented_cte(**one | tensors)
    assert (found.float().numpy() == made.astype(np.float32)).all()
    values = {name: jax.numpy.asarray(each) for name, each in arrays.items()}
    assert (np.asarray(attention_kv_parallel_segmented_cte(**one | values)) == made).all()


ONE = arguments(8, 0, ranks=1)[0]
REFUSED = [
    ("nkilib.shape", "d is 129", arguments(8, 0, 1, d=129)[0]),
    ("nkilib.shape", "dimension 2 of k_cache is 16", ONE | {"block_size": 8}),
    ("nkilib.shape", "seg_size is 24", ONE | {"seg_size": 24}),
    (
        "nkilib.shape",
        "heads of all ranks is 1",
        ONE | {name: np.zeros((2, 2, 16, 16), bfloat16) for name in ("k_cache", "v_cache")},
    ),
    ("nkilib.dtype", "kvp_q_offset is float32", ONE | {"kvp_q_offset": np.zeros((1, 1), np.float32)}),
    ("nkilib.dtype", "q is int32", ONE | {"q": np.zeros((1, 8, 16), np.int32)}),
    ("nkilib.argument", "scale is 0", ONE | {"scale": 0.0}),
    ("nkilib.argument", "sliding_window is -1", ONE | {"sliding_window": -1}),
    ("nkilib.argument", "kvp_rank_id is left out", ONE | {"kvp_group_size": 2}),
    ("nkilib.argument", "valid_num_prior_tokens is left out", ONE | {"apc_mode": True}),
]


@pytest.mark.parametrize(("code", "words", "given"), REFUSED, ids=[words for _, words, _ in REFUSED])
def test_what_is_refused(code: str, words: str, given: dict[str, Any]) -> None:
    with pytest.raises(KernelLimit, match=words) as caught:
        nki.simulate(attention_kv_parallel_segmented_cte)(**given)
    assert caught.value.code == code
