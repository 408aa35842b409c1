"""The projection to queries, keys and values, against float64: norms, residuals, rotation, layouts, caches, float8."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some
from ml_dtypes import bfloat16, float8_e4m3

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib.core.qkv import qkv
from nkilib.core.qkv.qkv_reference import qkv_reference
from nkilib.core.utils.common_types import (
    NormType,
    QKNormConfig,
    QKVOutputLayout,
    QKVWeightLayout,
    QuantizationType,
    StridedInputConfig,
)
from nkilib.errors import KernelLimit, WithoutEffect

HEADS = {"d_head": 32, "num_q_heads": 3, "num_kv_heads": 2}
WIDTH = 7 * 32


def normal(*shape: int, dtype: Any = bfloat16) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def hidden(batch: int, length: int, width: int, columns: int = WIDTH, dtype: Any = bfloat16) -> dict[str, Any]:
    weights = normal(width, columns, dtype=np.float64) / np.sqrt(width)
    return {"input": normal(batch, length, width, dtype=dtype), "fused_qkv_weights": weights.astype(dtype)}


def rotation(batch: int, length: int, head: int, dtype: Any = bfloat16) -> dict[str, Any]:
    turns = np.random.default_rng(length).uniform(0, 6, (batch, length, head))
    return {"fused_rope": True, "cos_cache": np.cos(turns).astype(dtype), "sin_cache": np.sin(turns).astype(dtype)}


def rms(width: int, dtype: Any = bfloat16) -> dict[str, Any]:
    return {"fused_norm_type": NormType.RMS_NORM, "gamma_norm_weights": normal(1, width, dtype=dtype)}


def residual(batch: int, length: int, width: int) -> dict[str, Any]:
    added = {name: normal(batch, length, width + 1)[..., :width] for name in ("mlp_prev", "attention_prev")}
    return {"fused_residual_add": True, **added}


def close(made: Any, wanted: Any, units: float = 2.0) -> None:
    """Within some units in the last place of the largest result."""
    made, wanted = (each if isinstance(each, (tuple, list)) else (each,) for each in (made, wanted))
    for a, b in zip(made, wanted, strict=True):
        unit = {bfloat16: 2.0**-8, float8_e4m3: 2.0**-4}.get(b.dtype.type, 2.0**-20)
        assert a.shape == b.shape and a.dtype == b.dtype
        difference = np.abs(np.asarray(a, np.float64) - b.astype(np.float64)).max()
        assert difference <= units * unit * np.abs(b.astype(np.float64)).max()


def agrees(arguments: dict[str, Any], cores: int = 1, units: float = 2.0) -> None:
    wanted = qkv_reference(**arguments)
    close(nki.simulate(qkv)[cores](**arguments), wanted, units)


@settings(max_examples=6, deadline=None)
@given(
    some.integers(1, 3),
    some.sampled_from([1, 3, 63, 65, 129]),
    some.sampled_from([1, 127, 129, 256, 300]),
    some.sampled_from([1, 130, 224, 513]),
    some.sampled_from([NormType.NO_NORM, NormType.RMS_NORM_SKIP_GAMMA]),
    some.integers(1, 2),
)
def test_any_size(batch: int, length: int, width: int, columns: int, norm: NormType, cores: int) -> None:
    agrees({**hidden(batch, length, width, columns), "fused_norm_type": norm}, cores)


@pytest.mark.parametrize("tokens", [(2, 70), (2, 3)])
@pytest.mark.parametrize("kind", [NormType.RMS_NORM, NormType.LAYER_NORM, NormType.RMS_NORM_SKIP_GAMMA])
def test_norms_residuals_and_biases(tokens: tuple[int, int], kind: NormType) -> None:
    given = {**hidden(*tokens, 256), **residual(*tokens, 256), "fused_norm_type": kind, "bias": normal(1, WIDTH)}
    if kind is not NormType.RMS_NORM_SKIP_GAMMA:
        given["gamma_norm_weights"] = normal(1, 256)
    if kind is NormType.LAYER_NORM:
        given["layer_norm_bias"] = normal(1, 256)
    agrees(given, units=3)  # sums of three numbers are rounded before they are normalised


@pytest.mark.parametrize("tokens", [(2, 70), (2, 3)])
@pytest.mark.parametrize("kind", [NormType.RMS_NORM, NormType.LAYER_NORM])
def test_features_that_are_padding(tokens: tuple[int, int], kind: NormType) -> None:
    given = {**hidden(*tokens, 256), "fused_norm_type": kind, "gamma_norm_weights": normal(1, 256)}
    given["input"][..., 200:] = 0
    given["gamma_norm_weights"][..., 200:] = 0
    plain = {**given, "input": given["input"][..., :200], "fused_qkv_weights": given["fused_qkv_weights"][:200]}
    plain["gamma_norm_weights"] = given["gamma_norm_weights"][:, :200]
    close(nki.simulate(qkv)(**given, hidden_actual=200), qkv_reference(**plain))


@pytest.mark.parametrize("tokens", [(2, 70), (2, 3)])
@pytest.mark.parametrize("layout", list(QKVOutputLayout))
def test_rotated_heads_in_each_layout(tokens: tuple[int, int], layout: QKVOutputLayout) -> None:
    given = {**hidden(*tokens, 256), **HEADS, **rotation(*tokens, 32), "output_layout": layout}
    agrees(given, cores=2)


def test_norms_of_heads_around_the_rotation() -> None:
    given = {**hidden(2, 9, 256), **HEADS, **rotation(2, 9, 32)}
    others = rotation(2, 10, 32)
    given |= {"k_cos_cache": others["cos_cache"][:, :9], "k_sin_cache": others["sin_cache"][:, :9]}
    given |= {"qk_norm_pre_rope": QKNormConfig(), "qk_norm_pre_rope_q_gamma": normal(1, 32)}
    agrees({**given, "qk_norm_post_rope": QKNormConfig(q_norm=None, eps=0.1, k_gamma_norm_weights=normal(1, 32))})


@pytest.mark.parametrize("tokens", [(2, 70), (2, 3)])
@pytest.mark.parametrize("kind", [QuantizationType.ROW, QuantizationType.STATIC])
def test_float8_weights(tokens: tuple[int, int], kind: QuantizationType) -> None:
    scales: dict[str, Any] = {"qkv_w_scale": np.random.default_rng(0).uniform(0.5, 1, (1, WIDTH)).astype(np.float32)}
    if kind is QuantizationType.STATIC:
        scales["qkv_w_scale"] = np.tile(np.array([[0.5, 0.75, 1.0]], np.float32), (128, 1))
        scales["qkv_in_scale"] = np.full((128, 1), 0.02, np.float32)
    given = {**hidden(*tokens, 256), **HEADS, **scales, "quantization_type": kind, "bias": normal(1, WIDTH)}
    given["fused_qkv_weights"] = normal(256, WIDTH, dtype=float8_e4m3)
    agrees(given, cores=2)
    agrees({**given, "fused_norm_type": NormType.RMS_NORM_SKIP_GAMMA}, units=2 if kind is QuantizationType.ROW else 8)


@pytest.mark.parametrize("rotated", [True, False])
def test_sums_of_squares(rotated: bool) -> None:
    given = {**hidden(2, 70, 256, 40 * 32, np.float32), "d_head": 32, "num_q_heads": 36, "num_kv_heads": 2}
    given |= rotation(2, 70, 32, np.float32) if rotated else {}
    names = [f"{kind}_squared_sum_out" for kind in "qkv"]
    made, wanted = ({name: np.zeros((2, 70, 1), np.float32) for name in names} for _ in range(2))
    nki.simulate(qkv)[2](**given, **made)
    qkv_reference(**given, **wanted)
    for name in names:
        assert np.allclose(made[name], wanted[name], rtol=1e-5)


def caches(*shape: int, scaled: bool) -> dict[str, Any]:
    dtype = float8_e4m3 if scaled else bfloat16
    found: dict[str, Any] = {name: np.zeros((*shape, 64), dtype) for name in ("k_cache", "v_cache")}
    if scaled:
        found |= {"k_scale": np.full((128, 1), 0.02, np.float32), "v_scale": np.full((1, 1), 0.01, np.float32)}
    return found


@pytest.mark.parametrize("scaled", [True, False])
def test_caches_of_keys_and_values(scaled: bool) -> None:
    agrees({**hidden(2, 70, 256), **HEADS, **caches(2, 80, scaled=scaled)}, cores=2)
    slots = np.random.default_rng(0).permutation(160)[:140].reshape(2, 70).astype(np.uint32)
    blocks = {"use_block_kv": True, "block_size": 16, "slot_mapping": slots}
    agrees({**hidden(2, 70, 256), **HEADS, **caches(10, 16, scaled=scaled), **blocks})


def test_clipping_for_caches() -> None:
    given = {**hidden(1, 5, 256), **HEADS, **caches(1, 5, scaled=True), "fp8_max": 16.0, "fp8_min": -2.0}
    _, keys, values = qkv(**given)
    for cache in (keys, values):
        assert cache.astype(np.float32).max() == 16 and cache.astype(np.float32).min() == -2


def test_input_with_tokens_last_and_a_given_result() -> None:
    given = {**hidden(2, 70, 256), "output_hbm": np.zeros((2, 70, WIDTH), bfloat16)}
    wanted = qkv_reference(**given)
    turned = np.ascontiguousarray(given["input"].swapaxes(1, 2))
    close(qkv(**{**given, "input": turned, "transposed_in": True}), wanted)


@nki.jit
def inside(x, weights, gamma):
    """The input (128, tokens, H / 128) and the result in SBUF."""
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    made = qkv(tile, weights, fused_norm_type=NormType.RMS_NORM, gamma_norm_weights=gamma, store_output_in_sbuf=True)
    out = nl.ndarray(made.shape, dtype=made.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=made)
    return out


def test_input_and_result_in_sbuf() -> None:
    given = {**hidden(1, 20, 256), **rms(256)}
    spread = np.ascontiguousarray(given["input"].reshape(20, 128, 2).transpose(1, 0, 2))
    wanted = qkv_reference(**given)[0]
    close(inside(spread, given["fused_qkv_weights"], given["gamma_norm_weights"]), wanted)


def test_torch_and_jax() -> None:
    arrays = list(hidden(1, 5, 128, dtype=np.float32).values())
    options = {"fused_norm_type": NormType.RMS_NORM_SKIP_GAMMA}
    wanted = qkv(*arrays, **options)
    assert np.array_equal(qkv(*map(torch.from_numpy, arrays), **options).numpy(), wanted)
    assert np.array_equal(np.asarray(qkv(*map(jnp.asarray, arrays), **options)), wanted)


def test_the_layer_of_a_transformer_in_torch() -> None:
    """RMS norm, three projections and the rotation, as transformers writes them for Llama, in float32."""
    given = {**hidden(2, 70, 256, dtype=np.float32), **HEADS, **rotation(2, 70, 32, np.float32)} | rms(256, np.float32)
    given["cos_cache"], given["sin_cache"] = (np.tile(given[f"{name}_cache"][..., :16], 2) for name in ("cos", "sin"))
    x, weights = torch.from_numpy(given["input"]), torch.from_numpy(given["fused_qkv_weights"])
    gamma, cos, sin = (torch.from_numpy(given[name]) for name in ("gamma_norm_weights", "cos_cache", "sin_cache"))
    normed = torch.nn.functional.rms_norm(x, (256,), gamma[0], 1e-6)
    heads = (normed @ weights).view(2, 70, 7, 32).transpose(1, 2)
    turned = heads[:, :5] * cos[:, None] + torch.cat((-heads[:, :5, :, 16:], heads[:, :5, :, :16]), -1) * sin[:, None]
    wanted = torch.cat((turned, heads[:, 5:]), 1).transpose(0, 1)
    made = nki.simulate(qkv)(**given, output_layout=QKVOutputLayout.NBSd)
    assert np.allclose(made, wanted.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("code", "words", "change"),
    [
        (
            "nkilib.shape",
            "dimension 0 of fused_qkv_weights is 127, not H=128",
            {"fused_qkv_weights": normal(127, WIDTH)},
        ),
        ("nkilib.shape", "input has 2 dimensions", {"input": normal(5, 128)}),
        ("nkilib.shape", "bias is [1, 5]", {"bias": normal(1, 5)}),
        (
            "nkilib.shape",
            "d_head is 160",
            {"output_layout": QKVOutputLayout.NBSd, "d_head": 160, "num_q_heads": None, "I": 160},
        ),
        ("nkilib.shape", "d_head is 31, 1 more", {"d_head": 31, "I": 31 * 7, **rotation(1, 5, 31)}),
        ("nkilib.shape", "hidden_actual is 129", {**rms(128), "hidden_actual": 129}),
        ("nkilib.shape", "S is 5", caches(1, 4, scaled=False)),
        ("nkilib.dtype", "input is int32", {"input": np.ones((1, 5, 128), np.int32)}),
        ("nkilib.dtype", "fused_qkv_weights is float32", {"fused_qkv_weights": normal(128, WIDTH, dtype=np.float32)}),
        ("nkilib.dtype", "k_cache is bfloat16", {**caches(1, 8, scaled=False), "kv_dtype": nl.float16}),
        ("nkilib.argument", "I is 224", {"num_q_heads": 4}),
        ("nkilib.argument", "d_head is None", {"output_layout": QKVOutputLayout.NBSd, "d_head": None}),
        ("nkilib.argument", "mlp_prev is left out", {"fused_residual_add": True}),
        ("nkilib.argument", "gamma_norm_weights is left out", {"fused_norm_type": NormType.RMS_NORM}),
        ("nkilib.argument", "cos_cache is left out", {"fused_rope": True}),
        ("nkilib.argument", "v_cache is left out", {"k_cache": normal(1, 8, 64)}),
        (
            "nkilib.argument",
            "slot_mapping is left out",
            {**caches(1, 8, scaled=False), "use_block_kv": True, "block_size": 8},
        ),
        ("nkilib.argument", "qkv_in_scale is left out", {"quantization_type": QuantizationType.STATIC}),
        ("nkilib.not-built", "quantization_type", {"quantization_type": QuantizationType.MX}),
        ("nkilib.not-built", "weight_layout", {"weight_layout": QKVWeightLayout.MX_CONTIGUOUS}),
        ("nkilib.not-built", "transpose_k_cache", {"transpose_k_cache": True}),
        ("nkilib.not-built", "strided_input_config", {"strided_input_config": StridedInputConfig(1, 2, 0, 2)}),
        ("nkilib.not-built", "qk_norm_pre_rope.q_norm", {"qk_norm_pre_rope": QKNormConfig(q_norm=NormType.LAYER_NORM)}),
        ("nkilib.not-built", "fused_norm_type of transposed_in", {"transposed_in": True, **rms(5)}),
    ],
)
def test_what_is_refused(code: str, words: str, change: dict[str, Any]) -> None:
    change = dict(change)
    arguments = {**hidden(1, 5, 128, change.pop("I", WIDTH)), **HEADS} | change
    if change.get("quantization_type") is QuantizationType.STATIC:
        arguments["fused_qkv_weights"] = normal(128, WIDTH, dtype=float8_e4m3)
        arguments["qkv_w_scale"] = np.ones((128, 3), np.float32)
    if change.get("transposed_in"):
        arguments["fused_qkv_weights"] = normal(5, WIDTH)
    with pytest.raises(KernelLimit) as caught:
        qkv(**arguments)
    assert caught.value.code == code and words in caught.value.message


def test_what_nobody_reads_is_told() -> None:
    arguments = {**hidden(1, 5, 128, WIDTH), **HEADS}
    unread = {
        "gamma_norm_weights": normal(1, 128),
        "qkv_w_scale": np.full((128, 3), 3, np.float32),
        "cos_cache": normal(1, 5, 32),
        "use_auto_allocation": True,
    }
    for name, value in unread.items():
        with pytest.warns(WithoutEffect, match=f"qkv: {name} has no effect"):
            made = qkv(**arguments, **{name: value})
        assert np.array_equal(made, qkv(**arguments))
