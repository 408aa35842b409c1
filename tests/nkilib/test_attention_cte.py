"""Attention for prefill: every option against NumPy, any sizes, any scores, and what it refuses."""

import re
from typing import Any

import jax
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ml_dtypes import bfloat16

import nki
import nki.language as nl
from nkilib.core.attention.attention_cte import attention_cte
from nkilib.core.attention.attention_cte_reference import attention_cte_reference
from nkilib.errors import KernelLimit

EAGER = attention_cte.simulated()
ERROR = 0.02
"""Weights and results round to bfloat16, whose step is 2**-8; values are normal, of variance 1."""


def call(
    queries: int, keys: int, d: int = 16, batch: int = 1, batch_kv: int = 1, *, sharp: float = 1.0, **options: Any
) -> dict[str, Any]:
    """Arguments; scores have a standard deviation of `sharp`."""
    rng = np.random.default_rng(5)

    def normal(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(bfloat16)

    tp_q, tp_k = options.get("tp_q", True), options.get("tp_k", False)
    return {
        "q": normal(batch, queries, d) if tp_q else normal(batch, d, queries),
        "k": normal(batch_kv, keys, d) if tp_k else normal(batch_kv, d, keys),
        "v": normal(batch_kv, keys, d),
        "scale": sharp * d**-0.5,
        **options,
    }


def compare(arguments: dict[str, Any], kernel: Any = EAGER) -> None:
    """Every result is near its reference."""
    made = kernel(**arguments)
    wanted = attention_cte_reference(**{name: value for name, value in arguments.items() if name != "tiles"})
    for some, exact in zip(leaves(made), leaves(wanted), strict=True):
        assert some.shape == exact.shape
        assert some.dtype == exact.dtype
        bound = ERROR * np.maximum(1.0, np.abs(exact.astype(np.float64)))
        assert (np.abs(some.astype(np.float64) - exact.astype(np.float64)) <= bound).all()


def leaves(value: Any) -> list[Any]:
    return [np.asarray(each) for each in (value if isinstance(value, tuple) else (value,))]


def prior(length: int, used: int, d: int = 16, batch_kv: int = 1) -> dict[str, Any]:
    rng = np.random.default_rng(6)
    return {
        "k_prior": rng.standard_normal((batch_kv, d, length)).astype(bfloat16),
        "v_prior": rng.standard_normal((batch_kv, length, d)).astype(bfloat16),
        "prior_used_len": np.array([used], np.int32),
    }


def bounds(queries: int, *stops: int) -> dict[str, Any]:
    """Sequences that are packed into one; the last queries see nothing if `stops` do not reach them."""
    low, high, start = np.zeros((1, queries), np.int32), np.zeros((1, queries), np.int32), 0
    for stop in stops:
        low[:, start:stop], high[:, start:stop], start = start, stop, stop
    return {"bound_min": low, "bound_max": high}


OFFSET = np.array([[150]], np.int32)
SINK = np.array([[3.0], [-2.0]], np.float32)
BIAS = np.random.default_rng(8).standard_normal((2, 130, 512 + 130)).astype(np.float32)
CALLS = {
    "a group of heads, sinks": call(150, 150, 128, batch=2, sink=SINK),
    "all keys, other layouts": call(130, 300, causal_mask=False, tp_q=False, tp_k=True, tp_out=True),
    "a window": call(400, 400, sliding_window=70),
    "a prefix, more queries than keys": call(160, 130, **prior(200, 131)),
    "sums": call(150, 150, batch=2, sink=SINK, cache_softmax=True),
    "a prefix that is not used, and a window": call(130, 130, sliding_window=100, **prior(140, 0)),
    "a prefix and a window": call(150, 150, sliding_window=100, **prior(200, 131)),
    "a rank's queries": call(150, 450, cp_offset=OFFSET, global_cp_deg=3),
    "every third query": call(
        150, 450, cp_offset=OFFSET // 100, global_cp_deg=3, cp_strided_q_slicing=True, sliding_window=90
    ),
    "striped, before the diagonal": call(
        150, 150, cp_offset=OFFSET - 151, global_cp_deg=2, cp_striped_input=True, cache_softmax=True,
        skip_output_normalization=True,
    ),
    "packed": call(200, 200, **bounds(200, 7, 140, 190)),
    "packed, all keys": call(140, 140, batch=2, causal_mask=False, **bounds(140, 7, 140)),
    "a bias": call(130, 130, batch=2, position_bias=BIAS, **prior(140, 131)),
}  # fmt: skip
FAST = list(CALLS)[:4]
"""Calls for which no maxima are taken at first, if there is enough to do."""


@pytest.mark.parametrize("name", CALLS)
def test_every_option_with_maxima(name: str) -> None:
    compare(CALLS[name])


@pytest.mark.parametrize("sharp", [1.0, 100.0])
@pytest.mark.parametrize("name", FAST)
def test_scores_of_any_size_without_maxima(name: str, sharp: float) -> None:
    """Weights overflow and underflow with the larger scores, so that everything is computed again."""
    compare(CALLS[name] | {"scale": CALLS[name]["scale"] * sharp, "tiles": {"exact": 0}})


@pytest.mark.parametrize("sharp", [1.0, 100.0])
def test_compiled(sharp: float) -> None:
    """The loop that computes everything again is a loop of the device."""
    compare(CALLS[FAST[3]] | {"scale": sharp, "tiles": {"exact": 0}}, attention_cte)


def test_values_that_are_not_numbers_are_not_lost() -> None:
    arguments = call(130, 130, tiles={"exact": 0})
    arguments["k"][0, :, 5] = np.nan
    made = np.asarray(EAGER(**arguments)).astype(np.float32)
    assert np.isnan(made[0, 5:]).all()
    assert not np.isnan(made[0, :5]).any()


@pytest.mark.parametrize(("batch", "exact"), [(3, 0), (1, 0), (1, 100)])
def test_two_cores_share_heads_and_the_queries_of_the_last_one(batch: int, exact: int) -> None:
    for sharp in (1.0, 100.0):
        compare(call(256, 256, batch=batch, sharp=sharp, tiles={"exact": exact}), EAGER[2])


@pytest.mark.parametrize("exact", [0, 100])
@pytest.mark.parametrize("sharp", [1.0, 100.0])
def test_keys_in_sections(exact: int, sharp: float) -> None:
    compare(call(140, 1100, sharp=sharp, causal_mask=False, tiles={"exact": exact, "section": 512}))


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_other_dtypes_are_multiplied_as_bfloat16(dtype: type) -> None:
    arguments = call(130, 130, tp_k=True)
    compare(arguments | {name: arguments[name].astype(dtype) for name in "qkv"})


SIZES = st.sampled_from([1, 2, 127, 128, 129, 257, 513])


@settings(max_examples=6, deadline=None, derandomize=True)
@given(SIZES, SIZES, st.sampled_from([1, 5, 64, 128]), st.booleans(), st.sampled_from([0, 1, 129]), st.booleans())
def test_any_sizes(queries: int, keys: int, d: int, causal: bool, window: int, fast: bool) -> None:
    options = {"causal_mask": causal, "sliding_window": window, "tiles": {"exact": 0 if fast else 10**6}}
    compare(call(queries, keys, d, **options))


def test_torch_and_jax_call_it() -> None:
    arguments = call(130, 130)
    wanted = attention_cte(**arguments).astype(np.float32)
    tensors = {
        name: torch.from_numpy(value.view(np.int16)).view(torch.bfloat16) if isinstance(value, np.ndarray) else value
        for name, value in arguments.items()
    }
    assert np.array_equal(attention_cte(**tensors).float().numpy(), wanted)
    arrays = {name: jax.numpy.asarray(arguments[name]) for name in "qkv"}
    made = jax.jit(lambda q, k, v: attention_cte(q, k, v, arguments["scale"]))(**arrays)
    assert np.array_equal(np.asarray(made).astype(np.float32), wanted)


REFUSED = {
    "d": ("nkilib.shape", "d is 129", call(4, 4, 129)),
    "k": ("nkilib.shape", "dimension 1 of k is 8, not d=16", call(4, 4) | {"k": call(4, 4, 8)["k"]}),
    "batch": ("nkilib.shape", "batch is 3, 1 more than a multiple of 2", call(4, 4, batch=3, batch_kv=2)),
    "sink": ("nkilib.shape", "dimension 0 of sink is 2, not batch=1", call(4, 4, sink=SINK)),
    "dtype": ("nkilib.dtype", "q is int32", {n: np.ones((1, 4, 4), np.int32) for n in "qkv"}),
    "dtypes": ("nkilib.dtype", "k is float32", call(4, 4) | {"k": call(4, 4)["k"].astype(np.float32)}),
    "scale": ("nkilib.argument", "scale is -0.25", call(4, 4, sharp=-1.0)),
    "window": ("nkilib.argument", "sliding_window is -3", call(4, 4, sliding_window=-3)),
    "softmax": ("nkilib.option", "softmax_dtype is nl.int32", call(4, 4, softmax_dtype=nl.int32)),
    "unnormalized": ("nkilib.argument", "cache_softmax is False", call(4, 4, skip_output_normalization=True)),
    "half a prefix": ("nkilib.argument", "k_prior alone", call(4, 4, k_prior=call(4, 4)["k"])),
    "prior_used_len": ("nkilib.shape", "not 1", call(4, 4, **prior(5, 5) | {"prior_used_len": np.zeros(2, np.int32)})),
    "degree": ("nkilib.argument", "cp_offset is None", call(4, 4, global_cp_deg=2)),
    "strided": ("nkilib.argument", "global_cp_deg is None", call(4, 4, cp_offset=OFFSET, cp_strided_q_slicing=True)),
    "striped": ("nkilib.argument", "cp_striped_input is True", call(4, 4, cp_striped_input=True)),
    "offset": ("nkilib.argument", "[2, 1]", call(4, 4, cp_offset=np.zeros((2, 1), np.int32), global_cp_deg=2)),
    "one bound": ("nkilib.argument", "bound_min alone", call(4, 4, bound_min=np.zeros((1, 4), np.int32))),
    "bounds": ("nkilib.argument", "bound_min is [1, 5]", call(4, 4, **bounds(5, 5))),
    "bounds and a prefix": ("nkilib.argument", "bound_min is given with", call(4, 4, **bounds(4, 4), **prior(5, 5))),
    "bias": ("nkilib.shape", "dimension 2 of position_bias is 5, not 4", call(4, 4, position_bias=BIAS[:1, :4, :5])),
    "banded": ("nkilib.not-built", "bias_layout", call(4, 4, bias_layout="banded")),
    "section": ("nkilib.shape", "section", call(4, 4, tiles={"section": 100})),
}


@pytest.mark.parametrize("name", REFUSED)
def test_limits_are_named(name: str) -> None:
    code, words, arguments = REFUSED[name]
    with pytest.raises(KernelLimit, match=re.escape(words)) as refused:
        nki.predict(attention_cte, target="trn2")(**arguments)
    assert refused.value.code == code


def test_the_target_has_to_be_new_enough() -> None:
    with pytest.raises(KernelLimit, match="NeuronCore-v2") as refused:
        nki.predict(attention_cte, target="trn1")(**call(4, 4))
    assert refused.value.code == "nkilib.target"


def test_queries_later_on_see_more_and_cores_share_that() -> None:
    """Both cores of a launch take nearly the same time for one causal head."""
    shapes = {
        name: nki.ShapeDtype(value.shape, nl.bfloat16) for name, value in call(2048, 2048, 64).items() if name in "qkv"
    }
    first, second = nki.predict(attention_cte, target="trn2")[2](**shapes, tiles={"exact": 0}).cores_ns
    assert abs(first - second) < 0.1 * first
