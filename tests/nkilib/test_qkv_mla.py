"""Projections of latent attention to queries, keys and values against the references, and refusals."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ml_dtypes import bfloat16

import nki
from nkilib.errors import KernelLimit
from nkilib.experimental.mla.deepseek.latents_reference import normalized, unpermuted
from nkilib.experimental.mla.deepseek.packed_reference import weights
from nkilib.experimental.qkv import qkv_cte_mla, qkv_mla_mx, qkv_mla_mx_deepseek_v4
from nkilib.experimental.qkv.qkv_cte_mla_reference import qkv_mla_mx_reference
from nkilib.experimental.qkv.qkv_cte_mla_v4_reference import qkv_mla_mx_deepseek_v4_reference
from tests.nkilib.mla import RNG, close, close_in_mean, normal, packed, same_in_frameworks


@pytest.fixture(autouse=True)
def _trn3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")


def weighed(name: str, depth: int, columns: int) -> dict[str, Any]:
    data, scales = packed(depth, columns)
    return {f"{name}_hbm": data, f"{name}_scale_hbm": scales}


def common(batch: int, tokens: int, width: int, heads: int, ranks: tuple[int, int, int]) -> dict[str, Any]:
    turn = RNG.uniform(0, 6, (batch, tokens, ranks[2]))
    return {
        "x_hbm": normal(batch, tokens, width),
        "q_norm_gamma_hbm": normal(1, ranks[0]),
        "cos_cache_hbm": np.cos(turn).astype(bfloat16),
        "sin_cache_hbm": np.sin(turn).astype(bfloat16),
        "n_heads": heads,
        "qk_rope_head_dim": ranks[2],
        "kv_lora_rank": ranks[1],
        "qk_lora_rank": ranks[0],
    }


def call(
    batch: int,
    tokens: int,
    width: int = 512,
    heads: int = 2,
    ranks: tuple[int, int, int] = (512, 512, 64),
    plain: int = 128,
    values: int = 128,
) -> dict[str, Any]:
    return {
        **common(batch, tokens, width, heads, ranks),
        **weighed("wqkv_a", width, sum(ranks)),
        **weighed("wq_b", ranks[0], heads * (plain + ranks[2])),
        **weighed("wkv_b", ranks[1], heads * (plain + values)),
        "kv_norm_gamma_hbm": normal(1, ranks[1]),
        "qk_nope_head_dim": plain,
        "v_head_dim": values,
    }


def call_v4(
    batch: int,
    tokens: int,
    width: int = 512,
    heads: int = 2,
    ranks: tuple[int, int, int] = (512, 512, 64),
    columns: int = 512,
) -> dict[str, Any]:
    return {
        **common(batch, tokens, width, heads, ranks),
        **weighed("wqkv", width, sum(ranks)),
        **weighed("wq_b", ranks[0], heads * columns),
        "kv_norm_gamma_hbm": normal(1, ranks[1] + ranks[2]),
        "head_dim": columns,
    }


SIZES = st.sampled_from([(1, 1), (1, 127), (2, 65), (1, 513)])
RANKS = st.sampled_from([(512, 512, 64), (1024, 512, 2), (512, 1024, 96)])


@settings(max_examples=3, deadline=None)
@given(
    sizes=SIZES,
    width=st.sampled_from([512, 2560]),
    heads=st.sampled_from([1, 5]),
    ranks=RANKS,
    plain=st.sampled_from([(128, 128), (31, 127), (1, 400)]),
    cores=st.sampled_from([1, 2]),
)
def test_any_size(sizes: Any, width: int, heads: int, ranks: Any, plain: tuple[int, int], cores: int) -> None:
    arguments = call(*sizes, width, heads, ranks, *plain)
    close_in_mean(nki.simulate(qkv_mla_mx)[cores](**arguments), qkv_mla_mx_reference(**arguments), 1e-2)


@settings(max_examples=2, deadline=None)
@given(sizes=SIZES, heads=st.sampled_from([1, 3]), ranks=RANKS, columns=st.sampled_from([512, 129]), cores=st.just(2))
def test_any_size_of_v4(sizes: Any, heads: int, ranks: Any, columns: int, cores: int) -> None:
    arguments = call_v4(*sizes, 512, heads, ranks, columns)
    made, wanted = (
        nki.simulate(qkv_mla_mx_deepseek_v4)[cores](**arguments),
        qkv_mla_mx_deepseek_v4_reference(**arguments),
    )
    close_in_mean(made[:1], wanted[:1], 1e-2)
    close_in_mean(made[1:], wanted[1:], 3e-3)  # bfloat16 has 8 bits


def test_where_the_documentation_has_it() -> None:
    assert qkv_cte_mla.qkv_mla_mx_deepseek_v4 is qkv_mla_mx_deepseek_v4


def test_near_what_is_not_quantized() -> None:
    arguments = call(1, 8)
    states = unpermuted(arguments["x_hbm"].astype(np.float64))
    latents = states @ weights(arguments["wqkv_a_hbm"], arguments["wqkv_a_scale_hbm"])
    kv = normalized(unpermuted(latents[..., 512:1024]), arguments["kv_norm_gamma_hbm"], 1e-6)
    exact = (kv @ weights(arguments["wkv_b_hbm"], arguments["wkv_b_scale_hbm"])).reshape(1, 8, 2, 256)
    values = nki.simulate(qkv_mla_mx)(**arguments)[2]
    close(values, exact[..., 128:], 0.25)  # 4 bits of each number, twice


def test_frameworks() -> None:
    same_in_frameworks(qkv_mla_mx, call(1, 2))
    same_in_frameworks(qkv_mla_mx_deepseek_v4, call_v4(1, 2))


@pytest.mark.parametrize(
    ("changed", "code", "text"),
    [
        ({"x_hbm": normal(1, 2, 500)}, "nkilib.shape", "H is 500"),
        ({"x_hbm": normal(1, 2, 1024)}, "nkilib.shape", "dimension 0 of wqkv_a_hbm is 128, not 256"),
        ({"x_hbm": np.zeros((1, 2, 512), np.float32)}, "nkilib.dtype", "x_hbm is float32"),
        ({"kv_lora_rank": 576}, "nkilib.shape", "kv_lora_rank is 576"),
        ({"qk_rope_head_dim": 32}, "nkilib.shape", "dimension 2 of cos_cache_hbm is 64, not 32"),
        ({"v_head_dim": 64}, "nkilib.shape", "dimension 1 of wkv_b_hbm is 512, not 384"),
        ({"q_norm_gamma_hbm": np.zeros((1, 512), np.float32)}, "nkilib.dtype", "q_norm_gamma_hbm is float32"),
        ({"wkv_b_scale_hbm": np.zeros((4, 3), np.uint8)}, "nkilib.shape", "dimension 1 of wkv_b_scale_hbm is 3"),
    ],
)
def test_what_is_refused(changed: dict[str, Any], code: str, text: str) -> None:
    with pytest.raises(KernelLimit, match=text) as caught:
        nki.simulate(qkv_mla_mx)(**call(1, 2) | changed)
    assert caught.value.code == code


def test_heads_that_are_too_wide_and_an_older_target(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KernelLimit, match="qk_nope_head_dim \\+ v_head_dim is 513"):
        nki.simulate(qkv_mla_mx)(**call(1, 2, values=385))
    with pytest.raises(KernelLimit, match="head_dim is 513"):
        nki.simulate(qkv_mla_mx_deepseek_v4)(**call_v4(1, 2, columns=513))
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    for kernel, arguments in ((qkv_mla_mx, call(1, 2)), (qkv_mla_mx_deepseek_v4, call_v4(1, 2))):
        with pytest.raises(KernelLimit, match="NeuronCore-v3"):
            nki.simulate(kernel)(**arguments)
