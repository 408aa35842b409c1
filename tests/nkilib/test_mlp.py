"""The MLP: every option against float64, odd sizes on one and two cores, and what is refused."""

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
from nkilib.core.mlp import mlp, mlp_backward
from nkilib.core.mlp.mlp_backward import FUNCTIONS as backward_functions
from nkilib.core.mlp.mlp_backward_reference import mlp_backward_reference
from nkilib.core.mlp.mlp_reference import mlp_reference
from nkilib.core.utils.common_types import (
    ActFnType,
    ComputationMode,
    DtypeMode,
    MLPGateUpWeightLayout,
    NormType,
    QuantizationType,
)
from nkilib.errors import KernelLimit, WithoutEffect
from nkilib.streaming import result, store

FP8 = nl.float8_e4m3.numpy


def call(tokens: int = 3, h: int = 128, i: int = 256, dtype: Any = np.float32, **options: Any) -> dict[str, Any]:
    """Arguments; `bias`, `norm`, `add` and `fp8` bring the tensors that belong to them."""
    rng = np.random.default_rng(tokens + h + i)
    bias, norm, add = (options.pop(name, None) for name in ("bias", "norm", "add"))
    kind = options.pop("fp8", None)

    def normal(*shape: int, scale: float = 1.0, of: Any = dtype) -> Any:
        return (rng.standard_normal(shape) * scale).astype(of)

    weights = dtype if kind is None else FP8
    found = {
        "hidden_tensor": normal(1, tokens, h),
        "gate_proj_weights_tensor": normal(h, i, scale=h**-0.5, of=weights),
        "up_proj_weights_tensor": normal(h, i, scale=h**-0.5, of=weights),
        "down_proj_weights_tensor": normal(i, h, scale=i**-0.5, of=weights),
    }
    if bias:
        names = {"gate_proj_bias_tensor": i, "up_proj_bias_tensor": i, "down_proj_bias_tensor": h}
        found |= {name: normal(1, size) for name, size in names.items()}
    if norm is not None:
        found |= {"normalization_type": norm}
        if norm is not NormType.RMS_NORM_SKIP_GAMMA:
            found |= {"normalization_weights_tensor": normal(1, h)}
        if norm is NormType.LAYER_NORM:
            found |= {"normalization_bias_tensor": normal(1, h)}
    if add:
        found |= {"fused_add_tensor": normal(1, tokens, h), "store_fused_add_result": True}
    if kind is not None:
        row = kind is QuantizationType.ROW
        sizes = {"gate_w_scale": i, "up_w_scale": i, "down_w_scale": h}
        if not row:
            sizes |= {"gate_up_in_scale": 1, "down_in_scale": 1}
        found |= {"quantization_type": kind}
        for name, size in sizes.items():
            found[name] = rng.uniform(0.5, 2, (1, size if row else 1)).astype(np.float32).repeat(128, 0)
    return found | options


def close(made: Any, wanted: Any) -> None:
    """Within what rounds on the way: x, the inner features and the result; float32 sums of some hundred products."""
    assert len(made) == len(wanted)
    for a, b in zip(made, wanted, strict=True):
        unit = 2.0**-8 if a.dtype == bfloat16 else 2.0**-21
        assert a.shape == b.shape and np.abs(a.astype(np.float64) - b).max() <= 4 * unit * max(1.0, np.abs(b).max())


def check(cores: int = 1, **options: Any) -> None:
    given = call(**options)
    close(nki.simulate(mlp)[cores](**given), mlp_reference(**given))


@settings(max_examples=4, deadline=None)
@given(
    some.sampled_from([1, 2, 3, 127, 129, 260]),
    some.sampled_from([1, 65, 127, 129, 256]),
    some.sampled_from([1, 100, 128, 129, 513]),
    some.sampled_from([None, *NormType]),
    some.booleans(),
    some.booleans(),
    some.sampled_from([1, 2]),
)
def test_any_size(tokens: int, h: int, i: int, norm: Any, more: bool, short: bool, cores: int) -> None:
    norm = None if norm is NormType.NO_NORM or h == 1 else norm  # one feature has no variance
    check(cores, tokens=tokens, h=h, i=i, norm=norm, bias=more, add=more, dtype=bfloat16 if short else np.float32)


@pytest.mark.parametrize("activation", list(ActFnType))
@pytest.mark.parametrize("alone", [False, True])
def test_activations_with_and_without_a_gate(activation: ActFnType, alone: bool) -> None:
    check(activation_fn=activation, skip_gate_proj=alone, bias=True)


def test_clamps_come_after_the_bias_and_before_the_activation() -> None:
    limits = {f"{name}_clamp_{side}_limit": value for name in ("gate", "up") for side, value in BOUNDS}
    check(bias=True, tokens=2, **limits)


BOUNDS = (("upper", 0.25), ("lower", -0.125))


@pytest.mark.parametrize("kind", [QuantizationType.ROW, QuantizationType.STATIC])
@pytest.mark.parametrize("cores", [1, 2])
def test_weights_of_8_bits_in_decoding(kind: QuantizationType, cores: int) -> None:
    check(cores, fp8=kind, dtype=bfloat16, tokens=3, i=384, norm=NormType.RMS_NORM)


@pytest.mark.parametrize(("tokens", "h", "i", "cores"), [(97, 384, 400, 1), (97, 384, 400, 2), (300, 130, 129, 2)])
@pytest.mark.parametrize("norm", [None, NormType.RMS_NORM_SKIP_GAMMA])
def test_activations_of_8_bits_in_prefill(tokens: int, h: int, i: int, cores: int, norm: Any) -> None:
    given = call(tokens, h, i, fp8=QuantizationType.STATIC, dtype=bfloat16, norm=norm)
    for name, scale in (("gate_up_in_scale", 1 / 64), ("down_in_scale", 1 / 32)):
        given[name] = np.full((128, 1), scale, np.float32)
    (made,), (wanted,) = nki.simulate(mlp)[cores](**given), mlp_reference(**given)
    (exact,) = mlp_reference(**given | {"mode": ComputationMode.DECODE})
    apart, coarse = (np.sqrt(np.mean((each - wanted) ** 2) / np.mean(wanted**2)) for each in (made, exact))
    # activations that a norm rounds to 16 bits before may round to other numbers of 8 bits than in float64
    assert apart < (3e-3 if norm is None else coarse) and 2e-2 < coarse < 8e-2


def test_row_scales_in_prefill() -> None:
    check(fp8=QuantizationType.ROW, dtype=bfloat16, tokens=130, i=130)


@pytest.mark.parametrize("tokens", [3, 130])
def test_weights_of_8_bits_without_scales(tokens: int) -> None:
    given = call(tokens, dtype=bfloat16, norm=NormType.RMS_NORM)
    for name in ("gate", "up", "down"):
        given[f"{name}_proj_weights_tensor"] = given[f"{name}_proj_weights_tensor"].astype(FP8)
    close(nki.simulate(mlp)(**given), mlp_reference(**given))


def test_products_of_8_bits_take_half_of_the_time() -> None:
    given = call(tokens=512, h=1024, i=2048, fp8=QuantizationType.STATIC, dtype=bfloat16)
    shapes = {name: nki.ShapeDtype(v.shape, v.dtype) if hasattr(v, "shape") else v for name, v in given.items()}
    plain = {name: shapes[name] for name in list(shapes)[:4]}
    plain |= {name: nki.ShapeDtype(each.shape, nl.bfloat16) for name, each in plain.items()}
    eight, sixteen = (nki.predict(mlp, target="trn2")(**each) for each in (shapes, plain))
    assert eight.busy_ns["tensor"] < 0.6 * sixteen.busy_ns["tensor"]


def test_blocks_of_tokens_on_one_and_two_cores() -> None:
    given = call(tokens=600, h=64, i=130, norm=NormType.RMS_NORM, add=True)
    made, again = mlp(**given), mlp[2](**given)
    close(made, mlp_reference(**given))
    assert all(np.array_equal(a, b) for a, b in zip(made, again, strict=True))


def test_the_result_and_the_sum_have_the_dtype_that_is_asked_for() -> None:
    given = call(tokens=4, dtype=bfloat16, add=True, output_dtype=nl.float32)
    made = nki.simulate(mlp)(**given)
    assert [each.dtype for each in made] == [np.float32, np.float32]
    assert np.array_equal(made[1], mlp_reference(**given)[1])


@pytest.mark.parametrize("cores", [1, 2])
def test_columns_of_the_down_projection_in_tiles(cores: int) -> None:
    h, given = 512, call(h=512)
    plain = mlp_reference(**given)
    down = given["down_proj_weights_tensor"]
    parted = down.reshape(-1, cores, 128, h // 128 // cores).transpose(0, 1, 3, 2).reshape(down.shape)
    given |= {"down_proj_weights_tensor": parted, "use_tkg_down_proj_column_tiling": False}
    given["use_tkg_down_proj_optimized_layout"] = True
    close(nki.simulate(mlp)[cores](**given), plain)
    assert cores > 1 or np.array_equal(mlp_reference(**given), plain)


@nki.jit
def two_in_a_row(hidden, gate, up, down, turned):
    (tile,) = mlp(hidden, gate, up, down, store_output_in_sbuf=True, use_tkg_down_proj_column_tiling=not turned)
    out = result(tile.shape, tile.dtype)
    store(out, tile)
    return out


@pytest.mark.parametrize("turned", [False, True])
def test_a_result_that_stays_in_sbuf(turned: bool) -> None:
    given = call(h=256)
    (wanted,) = mlp_reference(**given)
    made = nki.simulate(two_in_a_row)(*given.values(), turned)
    close([made], [wanted[0].T.reshape(128, 2, 3) if turned else wanted[0]])


@nki.jit
def from_sbuf(hidden, gate, up, down, weights, residual, norm):
    tile = nl.ndarray(hidden.shape, dtype=hidden.dtype, buffer=nl.sbuf)
    nki.isa.dma_copy(dst=tile, src=hidden)
    return mlp(
        tile,
        gate,
        up,
        down,
        normalization_weights_tensor=weights,
        normalization_type=norm,
        fused_add_tensor=residual,
        store_fused_add_result=True,
    )


@pytest.mark.parametrize("norm", [NormType.RMS_NORM, NormType.LAYER_NORM])
@pytest.mark.parametrize("cores", [1, 2])
def test_tokens_that_are_in_sbuf(norm: NormType, cores: int) -> None:
    h, given = 512, call(tokens=5, h=512, norm=norm, add=True)
    given.pop("normalization_bias_tensor", None)
    names = [*list(given)[:4], "normalization_weights_tensor", "fused_add_tensor"]
    tensors = {name: given[name] for name in names}
    spread = given["hidden_tensor"].reshape(5, cores, 128, h // cores // 128).transpose(2, 0, 1, 3)
    tensors["hidden_tensor"] = spread.reshape(128, 5, h // 128)
    close(nki.simulate(from_sbuf)[cores](*tensors.values(), norm), mlp_reference(**given))


@pytest.mark.parametrize("cores", [1, 2])
def test_hidden_states_and_result_on_partitions_of_each_core(cores: int) -> None:
    given = call(tokens=40, h=512, norm=NormType.RMS_NORM, use_tkg_down_proj_column_tiling=False)
    hidden = given["hidden_tensor"].reshape(40, cores, 128, 512 // cores // 128).transpose(2, 1, 3, 0)
    given |= {"transposed_in": True, "transposed_out": True}
    (made,) = nki.simulate(mlp)[cores](**given | {"hidden_tensor": hidden})
    close([made.transpose(3, 1, 0, 2).reshape(1, 40, 512)], mlp_reference(**given))


@settings(max_examples=3, deadline=None)
@given(
    some.sampled_from([1, 3, 32]),
    some.sampled_from(list(NormType)),
    some.booleans(),
    some.booleans(),
    some.sampled_from([1, 2]),
)
def test_few_tokens_of_many_features(tokens: int, norm: NormType, add: bool, short: bool, cores: int) -> None:
    norm_of = {} if norm is NormType.NO_NORM else {"norm": norm}
    check(cores, tokens=tokens, h=1024, i=130, add=add, dtype=bfloat16 if short else np.float32, **norm_of)


def test_decoding_reads_each_weight_once_and_two_cores_half_of_them() -> None:
    shapes = {name: nki.ShapeDtype(each.shape, nl.bfloat16) for name, each in call(tokens=4, h=512, i=1536).items()}
    weights = 3 * 512 * 1536 * 2
    one, two = (nki.predict(mlp, target="trn2")[cores](**shapes) for cores in (1, 2))
    assert weights <= one.dma_bytes < 1.02 * weights and two.dma_bytes < 0.52 * weights


def test_torch_and_jax() -> None:
    given = call()
    wanted = mlp(**given)[0]
    assert np.array_equal(mlp(*map(torch.from_numpy, given.values()))[0].numpy(), wanted)
    assert np.array_equal(np.asarray(mlp(*map(jnp.asarray, given.values()))[0]), wanted)


ONES = np.ones((1, 128), np.float32)


@pytest.mark.parametrize(
    ("code", "words", "change"),
    [
        (
            "nkilib.shape",
            "dimension 0 of down_proj_weights_tensor is 255, not I=256",
            {"down_proj_weights_tensor": 255},
        ),
        ("nkilib.shape", "dimension 1 of gate_proj_bias_tensor is 128", {"gate_proj_bias_tensor": ONES}),
        ("nkilib.shape", "fused_add_tensor is [1, 2, 128]", {"fused_add_tensor": np.ones((1, 2, 128), np.float32)}),
        ("nkilib.shape", "hidden_tensor has 4 dimensions", {"hidden_tensor": np.ones((1, 1, 3, 128), np.float32)}),
        ("nkilib.dtype", "hidden_tensor is int32", {"hidden_tensor": np.ones((1, 3, 128), np.int32)}),
        ("nkilib.dtype", "fused_add_tensor is bfloat16", {"fused_add_tensor": np.ones((1, 3, 128), bfloat16)}),
        ("nkilib.argument", "gate_w_scale is left out", {"quantization_type": QuantizationType.ROW}),
        (
            "nkilib.argument",
            "normalization_weights_tensor is left out",
            {"normalization_type": NormType.RMS_NORM},
        ),
        ("nkilib.argument", "eps is 0.0", {"eps": 0.0}),
        ("nkilib.argument", "store_fused_add_result is True", {"store_fused_add_result": True}),
        ("nkilib.argument", "3 tokens of prefill", {"store_output_in_sbuf": True, "force_cte_mode": True}),
        ("nkilib.argument", "column_tiling=False", {"use_tkg_down_proj_optimized_layout": True}),
        ("nkilib.option", "activation_fn is 'silu'", {"activation_fn": "silu"}),
        ("nkilib.argument", "column_tiling=False", {"transposed_out": True}),
        ("nkilib.shape", "hidden_tensor is (128, 1, 1, S)", {"transposed_in": True}),
        ("nkilib.not-built", "quant_clipping_bound", {"quant_clipping_bound": 1.0}),
        ("nkilib.not-built", "quantization_type", {"quantization_type": QuantizationType.MX}),
        ("nkilib.not-built", "gate_up_w_layout", {"gate_up_w_layout": MLPGateUpWeightLayout.H_X4_MIDDLE}),
        ("nkilib.not-built", "dtype_mode", {"dtype_mode": DtypeMode.OCP}),
        ("nkilib.not-built", "use_contiguous_x4_gate_up", {"use_contiguous_x4_gate_up": True}),
        ("nkilib.not-built", "mx_dummy_scale_hbm", {"mx_dummy_scale_hbm": np.ones((1, 1), np.uint8)}),
    ],
)
def test_what_is_refused(code: str, words: str, change: dict[str, Any]) -> None:
    given = call()
    for name, value in change.items():
        given[name] = given[name][:value] if type(value) is int else value
    with pytest.raises(KernelLimit) as caught:
        mlp(**given)
    assert caught.value.code == code and words in f"{caught.value.message} {caught.value.rule} {caught.value.fix}"


def test_weights_that_are_not_quantised_are_told_where_they_should_be() -> None:
    given = call(fp8=QuantizationType.ROW, dtype=bfloat16)
    given["gate_proj_weights_tensor"] = given["gate_proj_weights_tensor"].astype(np.float32)
    with pytest.raises(KernelLimit, match="gate_proj_weights_tensor is float32"):
        mlp(**given)


@pytest.mark.parametrize(
    "change",
    [
        {"gate_w_scale": np.full((128, 256), 3, np.float32)},
        {"normalization_weights_tensor": 3 * ONES},
        {"normalization_bias_tensor": 3 * ONES},
        {"sbm": "manager"},
        {"use_tkg_gate_up_proj_column_tiling": False},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_nobody_reads_is_told(change: dict[str, Any]) -> None:
    given = call()
    (name,) = change
    with pytest.warns(WithoutEffect, match=f"mlp: {name} has no effect"):
        (made,) = mlp(**given | change)
    (wanted,) = mlp(**given)
    assert np.array_equal(made, wanted)


def test_what_only_decoding_has() -> None:
    with pytest.raises(KernelLimit, match="True for 130 tokens of prefill"):
        mlp(**call(tokens=130, store_output_in_sbuf=True))
    given = call(tokens=97, h=200) | {"store_output_in_sbuf": True, "mode": ComputationMode.DECODE}
    with pytest.raises(KernelLimit, match="H is 200, 72 more than a multiple of 128"):
        mlp(**given, use_tkg_down_proj_column_tiling=False)
    with pytest.raises(KernelLimit, match="tokens is 129"):
        mlp(**call(tokens=129, store_output_in_sbuf=True, mode=ComputationMode.DECODE))
    with pytest.raises(KernelLimit, match="down_in_scale is left out"):
        mlp(**call(fp8=QuantizationType.STATIC, dtype=bfloat16) | {"down_in_scale": None})


@settings(max_examples=3, deadline=None)
@given(
    some.sampled_from([1, 127, 130, 600]),
    some.sampled_from([1, 129, 256]),
    some.sampled_from([3, 128, 200]),
    some.sampled_from(list(backward_functions)),
    some.sampled_from([1, 2]),
)
def test_gradients_of_any_size(tokens: int, h: int, i: int, function: ActFnType, cores: int) -> None:
    given = call(tokens=tokens, h=h, i=i, activation_fn=function)
    given["gradient"] = np.random.default_rng(1).standard_normal((1, tokens, h)).astype(np.float32)
    close(nki.simulate(mlp_backward)[cores](**given), mlp_backward_reference(**given))


def test_the_reference_of_gradients_is_that_of_autograd() -> None:
    arrays = list(call(tokens=4, h=8, i=12).values())
    x, gate, up, down = tensors = [torch.from_numpy(each).double().requires_grad_() for each in arrays]
    for function, name in ((ActFnType.SiLU, torch.nn.functional.silu), (ActFnType.GELU, torch.nn.functional.gelu)):
        dy = torch.randn(1, 4, 8, dtype=torch.float64)
        wanted = torch.autograd.grad((name(x @ gate) * (x @ up)) @ down, tensors, dy)
        for made, right in zip(mlp_backward_reference(*arrays, dy.numpy(), function), wanted, strict=True):
            assert np.allclose(made, right, atol=1e-12)


def test_autograd_and_jax_differentiate_it() -> None:
    arrays = list(call(tokens=4).values())
    wanted = mlp_backward(*arrays, np.ones_like(arrays[0]))
    tensors = [torch.from_numpy(each.copy()).requires_grad_() for each in arrays]
    mlp(*tensors)[0].sum().backward()
    found = jax.grad(lambda *each: mlp(*each)[0].sum(), (0, 1, 2, 3))(*map(jnp.asarray, arrays))
    for tensor, other, right in zip(tensors, found, wanted, strict=True):
        assert np.allclose(tensor.grad, right, atol=1e-5) and np.allclose(other, right, atol=1e-5)


@pytest.mark.parametrize("options", [{"bias": True}, {"norm": NormType.RMS_NORM_SKIP_GAMMA}, {"skip_gate_proj": True}])
def test_a_derivative_that_is_not_built(options: dict[str, Any]) -> None:
    given = {name: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for name, v in call(**options).items()}
    given["hidden_tensor"].requires_grad_()
    with pytest.raises(KernelLimit, match=r"mlp does not have \w+ in a derivative yet"):
        mlp(**given)[0].sum().backward()


@pytest.mark.parametrize(
    ("code", "words", "change"),
    [
        ("nkilib.shape", "dimension 1 of gradient is 4", {"gradient": np.ones((1, 4, 128), np.float32)}),
        ("nkilib.dtype", "gradient is bfloat16", {"gradient": np.ones((1, 3, 128), bfloat16)}),
        ("nkilib.option", "activation_fn is", {"activation_fn": ActFnType.ReLU}),
    ],
)
def test_what_the_gradients_refuse(code: str, words: str, change: dict[str, Any]) -> None:
    given = call() | {"gradient": np.ones((1, 3, 128), np.float32)} | change
    with pytest.raises(KernelLimit) as caught:
        mlp_backward(**given)
    assert caught.value.code == code and words in caught.value.message
