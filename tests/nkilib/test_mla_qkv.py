"""Projections of absorbed latent attention against the reference and against what is not quantized, and refusals."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ml_dtypes import bfloat16, float8_e4m3fn

import nki
from nkilib.errors import KernelLimit
from nkilib.experimental.mla.deepseek import mla_qkv_cte_kernel
from nkilib.experimental.mla.deepseek.latents_reference import packed_states
from nkilib.experimental.mla.deepseek.mla_qkv_cte_reference import mla_qkv_cte_kernel_reference
from nkilib.experimental.mla.deepseek.packed_reference import weights
from tests.nkilib.mla import RNG, close, close_in_mean, normal, packed, same_in_frameworks

KERNEL = nki.simulate(mla_qkv_cte_kernel)


@pytest.fixture(autouse=True)
def _trn3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")


def call(
    batch: int, tokens: int, width: int = 512, heads: int = 2, ranks: tuple[int, int, int] = (512, 512, 64)
) -> dict[str, Any]:
    query_rank, rank, rotated = ranks
    scales = RNG.integers(122, 128, (batch, tokens, -(-width // 2048) * 128)).astype(np.uint8)
    first, second = packed(width, sum(ranks)), packed(query_rank, heads * (128 + rotated))
    turn = RNG.uniform(0, 6, (batch, tokens, rotated))
    return {
        "x_hbm_mx": np.concatenate(
            [normal(batch, tokens, width).astype(float8_e4m3fn), scales.view(float8_e4m3fn)], axis=-1
        ),
        "wqkv_a_hbm": first[0],
        "wqkv_a_scale_hbm": first[1],
        "wq_b_hbm": second[0],
        "wq_b_scale_hbm": second[1],
        "q_norm_gamma_hbm": normal(1, query_rank),
        "kv_norm_gamma_hbm": normal(1, rank),
        "wuk_hbm": normal(128, heads * rank),
        "cos_cache_hbm": np.cos(turn).astype(bfloat16),
        "sin_cache_hbm": np.sin(turn).astype(bfloat16),
        "n_heads": heads,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": rotated,
        "kv_lora_rank": rank,
        "qk_lora_rank": query_rank,
    }


def check(made: Any, arguments: dict[str, Any]) -> None:
    wanted = mla_qkv_cte_kernel_reference(**arguments)
    close_in_mean(made[:2], wanted[:2], 1e-2)
    close_in_mean(made[2:], wanted[2:], 3e-3)  # bfloat16 has 8 bits


@settings(max_examples=3, deadline=None)
@given(
    sizes=st.sampled_from([(1, 1), (1, 127), (2, 65), (1, 513)]),
    width=st.sampled_from([512, 2560]),
    heads=st.sampled_from([1, 3]),
    ranks=st.sampled_from([(512, 512, 64), (1024, 512, 2), (512, 1024, 128), (512, 512, 96)]),
    cores=st.sampled_from([1, 2]),
)
def test_any_size(sizes: tuple[int, int], width: int, heads: int, ranks: tuple[int, int, int], cores: int) -> None:
    arguments = call(*sizes, width, heads, ranks)
    check(nki.simulate(mla_qkv_cte_kernel)[cores](**arguments), arguments)


def test_near_what_is_not_quantized() -> None:
    arguments = call(1, 8)
    first = weights(arguments["wqkv_a_hbm"], arguments["wqkv_a_scale_hbm"])
    latent = (packed_states(arguments["x_hbm_mx"], 512) @ first)[0, :, :512].reshape(8, 4, 128)
    natural = latent.swapaxes(1, 2).reshape(8, 512)  # one tile: column 128 i + p is feature 4 p + i
    natural /= np.sqrt((natural**2).mean(-1, keepdims=True) + 1e-6)
    queries = natural * arguments["q_norm_gamma_hbm"].astype(float)
    queries = (queries @ weights(arguments["wq_b_hbm"], arguments["wq_b_scale_hbm"])).reshape(8, 2, 192)[..., :128]
    absorb = arguments["wuk_hbm"].astype(float).reshape(128, 2, 512)
    exact = np.einsum("shn,nhl->shl", queries, absorb)[None]
    close(KERNEL(**arguments)[0], exact, 0.2)  # 4 bits of each latent


def test_latents_of_queries_for_the_indexer() -> None:
    arguments = call(1, 130, ranks=(1024, 512, 64))
    exported = {
        "qr_qtz_hbm": np.zeros((2, 128, 2, 128), np.uint32),
        "qr_scale_hbm": np.zeros((2, 128, 2, 128), np.uint8),
    }
    KERNEL(**arguments, **exported)
    numbers = exported["qr_qtz_hbm"].view(float8_e4m3fn).astype(float).reshape(2, 128, 2, 128, 4)
    scales = exported["qr_scale_hbm"].reshape(2, 4, 32, 2, 128)[:, :, :4]  # four in a quadrant, of eight rows each
    factors = np.repeat(2.0 ** (scales.reshape(2, 16, 2, 128).astype(float) - 127), 8, axis=1)
    latent = (numbers * factors[..., None]).transpose(0, 3, 2, 1, 4).reshape(256, 1024)[:130]
    queries = latent @ weights(arguments["wq_b_hbm"], arguments["wq_b_scale_hbm"])
    absorb = arguments["wuk_hbm"].astype(float).reshape(128, 2, 512)
    nope = queries.reshape(1, 130, 2, 192)[..., :128]
    close_in_mean(KERNEL(**arguments)[0], np.einsum("bshn,nhl->bshl", nope, absorb), 5e-3)
    assert not exported["qr_qtz_hbm"][1, :, :, 2:].any()


def test_frameworks() -> None:
    same_in_frameworks(mla_qkv_cte_kernel, call(1, 2))


@pytest.mark.parametrize(
    ("changed", "code", "text"),
    [
        ({"qk_nope_head_dim": 64}, "nkilib.argument", "qk_nope_head_dim is 64"),
        ({"qk_lora_rank": 500}, "nkilib.shape", "qk_lora_rank is 500"),
        ({"qk_rope_head_dim": 63}, "nkilib.shape", "qk_rope_head_dim is 63"),
        ({"n_heads": 3}, "nkilib.shape", "dimension 1 of wq_b_hbm is 384, not 576"),
        ({"x_hbm_mx": np.zeros((1, 2, 512), float8_e4m3fn)}, "nkilib.shape", "dimension 2 of x_hbm_mx is 512, not 640"),
        ({"x_hbm_mx": normal(1, 2, 640)}, "nkilib.dtype", "x_hbm_mx is bfloat16"),
        ({"wuk_hbm": np.zeros((128, 1024), np.float32)}, "nkilib.dtype", "wuk_hbm is float32"),
        ({"cos_cache_hbm": normal(1, 3, 64)}, "nkilib.shape", "dimension 1 of cos_cache_hbm is 3"),
        ({"kv_norm_gamma_hbm": normal(1, 500)}, "nkilib.shape", "dimension 1 of kv_norm_gamma_hbm is 500"),
        ({"qr_scale_hbm": np.zeros((1, 128, 1, 128), np.uint8)}, "nkilib.argument", "qr_scale_hbm is given without"),
    ],
)
def test_what_is_refused(changed: dict[str, Any], code: str, text: str) -> None:
    with pytest.raises(KernelLimit, match=text) as caught:
        KERNEL(**call(1, 2) | changed)
    assert caught.value.code == code


def test_an_older_target_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    with pytest.raises(KernelLimit, match="NeuronCore-v3"):
        KERNEL(**call(1, 2))
