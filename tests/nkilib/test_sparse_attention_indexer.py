"""The indexer of sparse attention against its reference: scores, keys, positions of the largest, and refusals."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ml_dtypes import bfloat16, float8_e4m3fn

import nki
from nkilib.errors import KernelLimit, WithoutEffect
from nkilib.experimental.sparse_attention_indexer import sparse_attention_indexer_mx_bf16score as indexer
from nkilib.experimental.sparse_attention_indexer.sparse_attention_indexer_mx_bf16score_reference import (
    sparse_attention_indexer_mx_bf16score_reference as wanted_of,
)
from tests.nkilib.mla import RNG, close_in_mean, normal, of_torch, same_in_frameworks

pytestmark = pytest.mark.filterwarnings("ignore::nkilib.errors.WithoutEffect")


@pytest.fixture(autouse=True)
def _trn3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")


def words(*shape: int) -> Any:
    return RNG.standard_normal((*shape, 4)).astype(float8_e4m3fn).view(np.uint32)[..., 0]


def scales(*shape: int) -> Any:
    return RNG.integers(120, 125, shape).astype(np.uint8)


def call(
    batch: int = 1, tokens: int = 2, start: int = 20, heads: int = 2, width: int = 512, rank: int = 512, k: int = 16
) -> dict[str, Any]:
    end, tiles, turn = start + tokens, batch * -(-tokens // 128), RNG.uniform(0, 6, (tokens, 32))
    hidden = np.where(np.arange(end) > start + np.arange(tokens)[:, None], -np.inf, 0).astype(np.float32)
    return {
        "x": normal(batch * tokens, width),
        "wq_b": words(rank // 4, heads * 128),
        "wk": words(width // 4, 128),
        "k_norm_gamma": normal(128),
        "k_norm_beta": normal(128),
        "weights_proj": normal(heads, width),
        "cos": np.cos(turn).astype(np.float32),
        "sin": np.sin(turn).astype(np.float32),
        "k_cache": normal(batch, 128, end + 3),
        "mask": np.tile(hidden, (batch, 1)),
        "n_heads": heads,
        "head_dim": 128,
        "rope_head_dim": 64,
        "index_topk": k,
        "start_pos": start,
        "batch_size": batch,
        "wq_b_scale": scales(rank // 32, heads * 128),
        "wk_scale": scales(width // 32, 128),
        "qr_qtz_hbm": words(tiles, 128, rank // 512, 128),
        "qr_scale_hbm": scales(tiles, 128, rank // 512, 128),
    }


def check(arguments: dict[str, Any], cores: int = 1) -> tuple[Any, Any]:
    """Scores and the keys in the cache are those of the reference; positions are those of the largest scores."""
    copy = {**arguments, "k_cache": arguments["k_cache"].copy()}
    scores, places = nki.simulate(indexer)[cores](**arguments)
    wanted, order = wanted_of(**copy)
    seen = np.isfinite(wanted)
    assert np.array_equal(np.isfinite(scores), seen)
    close_in_mean(scores[seen], wanted[seen], 1e-2)
    close_in_mean(arguments["k_cache"], copy["k_cache"].astype(np.float64), 3e-3)
    assert places.shape == order.shape and places.dtype == order.dtype
    narrow = scores.astype(bfloat16).astype(np.float64)
    for row, found in enumerate(rows_of(places, len(scores), arguments)):
        assert len(set(found.tolist())) == len(found)
        largest = np.sort(narrow[row])[-len(found) :]
        assert np.array_equal(np.sort(narrow[row, found]), largest)
        if not arguments.get("emit_flat_topk"):
            assert np.array_equal(narrow[row, found], largest)
    return scores, places


def rows_of(places: Any, rows: int, arguments: dict[str, Any]) -> Any:
    """Positions of each row, from any of their forms."""
    if arguments.get("emit_flat_topk"):
        return places
    batch, k = arguments["batch_size"], arguments["index_topk"]
    parts = places[..., : -(-k // 16)].reshape(batch, -1, 16, places.shape[-1] and -(-k // 16)).swapaxes(2, 3)
    return parts.reshape(batch, -1, parts.shape[2] * 16)[:, : rows // batch, :k].reshape(rows, k).astype(int)


@settings(max_examples=2, deadline=None)
@given(
    sizes=st.sampled_from([(1, 1, 30), (1, 129, 0), (2, 65, 7), (1, 127, 386)]),
    heads=st.sampled_from([1, 9]),
    depths=st.sampled_from([(512, 1024), (2560, 512)]),
    k=st.sampled_from([1, 16, 31]),
    cores=st.sampled_from([1, 2]),
)
def test_any_size(sizes: Any, heads: int, depths: tuple[int, int], k: int, cores: int) -> None:
    check(call(*sizes, heads, *depths, k), cores)


@pytest.mark.parametrize("form", ["emit_flat_topk", "emit_tiled_topk"])
def test_forms_of_positions(form: str) -> None:
    check(call(2, 9) | {form: True})


def test_keys_first_and_scores_after_them() -> None:
    arguments = call(1, 8)
    scores, _ = check(arguments)
    keys = np.zeros((8, 128), bfloat16)
    nki.simulate(indexer)(**arguments | {"phase": "kproj", "k_seq_out_hbm": keys})
    assert np.array_equal(keys.T, arguments["k_cache"][0, :, 20:28])
    later = arguments | {"phase": "score", "start_pos": 0, "end_pos_arg": 28, "wk": np.zeros_like(arguments["wk"])}
    assert np.array_equal(nki.simulate(indexer)(**later)[0], scores)


def test_states_that_are_given_in_other_forms() -> None:
    arguments = call(1, 5)
    given = {"x_mx_data": words(1, 128, 128), "x_mx_scale": scales(1, 128, 128), "x_non_mx": normal(5, 512)}
    check(arguments | given)
    check(arguments | {"x": arguments["x"].astype(np.float32)})


def test_frameworks() -> None:
    arguments = call(1, 2)
    same_in_frameworks(indexer, arguments | {"phase": "score", "emit_flat_topk": True})
    keys, cache = np.zeros((2, 128), bfloat16), of_torch(arguments["k_cache"])
    given = {name: of_torch(value) for name, value in arguments.items()}
    indexer(**given | {"k_cache": cache})  # in place; JAX has "kproj" for it
    made = indexer(**given_to_jax(arguments) | {"phase": "kproj", "k_seq_out_hbm": jnp.asarray(keys)})[0]
    assert np.array_equal(cache[0, :, 20:22].float().numpy().T, np.asarray(made).astype(np.float32))


def given_to_jax(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: jnp.asarray(each) if isinstance(each, np.ndarray) else each for name, each in arguments.items()}


@pytest.mark.parametrize(
    ("changed", "code", "text"),
    [
        ({"x": normal(2, 500)}, "nkilib.shape", "dim is 500"),
        ({"batch_size": 2, "x": normal(3, 512)}, "nkilib.shape", "B \\* S is 3"),
        ({"head_dim": 64}, "nkilib.shape", "head_dim is 64"),
        ({"rope_head_dim": 62}, "nkilib.shape", "dimension 1 of cos is 32, not 31"),
        ({"index_topk": 23}, "nkilib.shape", "index_topk is 23"),
        ({"index_topk": 9, "emit_flat_topk": True}, "nkilib.shape", "index_topk is 9"),
        ({"start_pos": 24}, "nkilib.shape", "dimension 1 of mask is 22, not 26"),
        ({"wk_scale": None}, "nkilib.argument", "wk_scale is left out"),
        ({"wq_b_scale": scales(4, 256)}, "nkilib.shape", "dimension 0 of wq_b_scale is 4, not 16"),
        ({"qr_scale_hbm": None}, "nkilib.argument", "qr_scale_hbm is left out"),
        ({"x_mx_data": words(1, 128, 128)}, "nkilib.argument", "x_mx_scale is left out"),
        ({"phase": "kproj"}, "nkilib.argument", "k_seq_out_hbm is left out"),
        ({"phase": "both"}, "nkilib.option", "phase is 'both'"),
        ({"emit_flat_topk": True, "emit_tiled_topk": True}, "nkilib.argument", "emit_tiled_topk is given"),
        ({"k_cache": np.zeros((1, 128, 30), np.float32)}, "nkilib.dtype", "k_cache is float32"),
        ({"weights_proj": normal(3, 512)}, "nkilib.shape", "dimension 0 of weights_proj is 3, not 2"),
    ],
)
def test_what_is_refused(changed: dict[str, Any], code: str, text: str) -> None:
    with pytest.raises(KernelLimit, match=text) as caught:
        nki.simulate(indexer)(**call() | changed)
    assert caught.value.code == code


def test_an_older_target_and_arguments_without_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.warns(WithoutEffect, match="use_hadamard"):
        nki.simulate(indexer)(**call() | {"use_hadamard": True})
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    with pytest.raises(KernelLimit, match="NeuronCore-v3"):
        nki.simulate(indexer)(**call())
