"""Quantised rows, with every norm and sum before: what the numbers and their scales mean, against float64."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some
from ml_dtypes import bfloat16, float8_e4m3

import nki
from nkilib.core.rmsnorm.rmsnorm_quant_reference import rmsnorm_quant_kernel_reference
from nkilib.core.rmsnorm_quant.rmsnorm_quant import RmsNormQuantKernelArgs, rmsnorm_quant_kernel
from nkilib.core.utils.common_types import DtypeMode, NormType, QuantizationType
from nkilib.errors import KernelLimit

SIZES = some.sampled_from([1, 3, 127, 129, 300])
SCALE = np.full((128, 1), 0.02, np.float32)
STATIC, NO_NORM = {"quantization_type": QuantizationType.STATIC}, {"norm_type": NormType.NO_NORM}
KINDS = [{}, {"lower_bound": 0.7}, {"lower_bound": 0.7, **NO_NORM}, NO_NORM, STATIC, STATIC | NO_NORM]


def normal(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def numbers(quantised: Any, row: bool) -> Any:
    if not row:
        return quantised.astype(np.float64)
    return quantised[..., :-4].astype(np.float64) * np.ascontiguousarray(quantised[..., -4:]).view(np.float32)


def compare(given: dict[str, Any], cores: int = 1) -> None:
    """Numbers round to the same, or, where a rounding before decides, to a neighbour; scales and sums are close."""
    made = nki.simulate(rmsnorm_quant_kernel)[cores](**given)
    wanted = rmsnorm_quant_kernel_reference(**given)
    short = given["hidden"].dtype == bfloat16
    if "residual" in given:
        assert np.allclose(made[1].astype(np.float64), wanted[1].astype(np.float64), atol=2e-2 if short else 1e-5)
        made, wanted = made[0], wanted[0]
    row = given["kargs"].is_row_quant()
    a, b = numbers(made, row), numbers(wanted, row)
    assert made.dtype == float8_e4m3 and made.shape == wanted.shape
    step = np.maximum(np.abs(b), np.abs(b).max(-1, keepdims=True) / 2**13) * 2.0**-3  # to the next number at most
    assert (np.abs(a - b) <= 1.05 * step).all()
    assert (np.abs(a - b) > 0.1 * step).sum() <= 2 + (0.06 if short else 1e-3) * a.size


@settings(max_examples=12, deadline=None)
@given(
    SIZES, SIZES, some.sampled_from(KINDS), some.booleans(), some.booleans(), some.booleans(), some.sampled_from([1, 2])
)
def test_any_row(
    rows: int, columns: int, kind: dict[str, Any], short: bool, residual: bool, before: bool, cores: int
) -> None:
    dtype = bfloat16 if short else np.float32
    given = {"hidden": normal(rows, columns, dtype=dtype), "ln_w": normal(columns, seed=1, dtype=dtype)}
    given["kargs"] = RmsNormQuantKernelArgs(**kind)
    if "quantization_type" in kind:
        given["input_dequant_scale"] = SCALE
    if residual:
        given["residual"] = normal(rows, columns, seed=2, dtype=dtype)
    if before:
        given["pre_norm_gamma"] = normal(1, columns, seed=3, dtype=dtype)
    compare(given, cores)


def test_rows_of_several_pieces_in_three_dimensions() -> None:
    compare({"hidden": normal(2, 3, 2500), "ln_w": normal(1, 2500), "kargs": RmsNormQuantKernelArgs(eps=0.1)})


def test_a_row_of_zeros_has_the_least_scale() -> None:
    made = rmsnorm_quant_kernel(np.zeros((2, 8), np.float32), None, RmsNormQuantKernelArgs(**NO_NORM))
    scale = np.ascontiguousarray(made[:, -4:]).view(np.float32)
    assert (made[:, :8].astype(float) == 0).all() and np.allclose(scale, 1e-6)


def test_torch_and_jax() -> None:
    x, gamma, kargs = normal(3, 40), normal(40, seed=1), RmsNormQuantKernelArgs()
    wanted = rmsnorm_quant_kernel(x, gamma, kargs).view("u1")
    made = rmsnorm_quant_kernel(jnp.asarray(x), jnp.asarray(gamma), kargs)
    assert np.array_equal(np.asarray(made).view("u1"), wanted)
    of_torch = rmsnorm_quant_kernel(torch.from_numpy(x), torch.from_numpy(gamma), kargs)
    assert of_torch.dtype == torch.uint8 and np.array_equal(of_torch.numpy(), wanted)


@pytest.mark.parametrize(
    ("code", "words", "change"),
    [
        ("nkilib.argument", "ln_w is None", {"ln_w": None}),
        ("nkilib.shape", "the number of elements of ln_w is 5", {"ln_w": normal(5)}),
        ("nkilib.argument", "hidden is [8]", {"hidden": normal(8)}),
        ("nkilib.argument", "input_dequant_scale is [128, 1]", {"input_dequant_scale": SCALE}),
        ("nkilib.argument", "input_dequant_scale is None", {"kargs": RmsNormQuantKernelArgs(**STATIC)}),
        (
            "nkilib.shape",
            "dimension 0 of input_dequant_scale is 1, not 128",
            {"kargs": RmsNormQuantKernelArgs(**STATIC), "input_dequant_scale": SCALE[:1]},
        ),
        ("nkilib.shape", "dimension 0 of residual is 2, not 3", {"residual": normal(2, 8)}),
        ("nkilib.dtype", "residual is bfloat16", {"residual": normal(3, 8, dtype=bfloat16)}),
        ("nkilib.shape", "H is 40000", {"hidden": normal(1, 40000), "ln_w": normal(40000)}),
    ],
)
def test_what_is_refused(code: str, words: str, change: dict[str, Any]) -> None:
    given = {"hidden": normal(3, 8), "ln_w": normal(8), "kargs": RmsNormQuantKernelArgs()} | change
    with pytest.raises(KernelLimit) as caught:
        rmsnorm_quant_kernel(**given)
    assert caught.value.code == code and words in caught.value.message


def test_settings_are_checked_where_they_are_made() -> None:
    for change, code in (
        ({"norm_type": NormType.LAYER_NORM}, "nkilib.option"),
        ({"quantization_type": QuantizationType.MX}, "nkilib.option"),
        ({"eps": -1.0}, "nkilib.argument"),
    ):
        with pytest.raises(KernelLimit) as caught:
            RmsNormQuantKernelArgs(**change)
        assert caught.value.code == code


def test_the_other_format_needs_a_target_that_computes_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    given = (normal(3, 8), normal(8), RmsNormQuantKernelArgs(), None, None, None, DtypeMode.OCP)
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    with pytest.raises(KernelLimit) as caught:
        rmsnorm_quant_kernel(*given)
    assert caught.value.code == "nkilib.target" and "NeuronCore-v3" in caught.value.message
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
    made, wanted = rmsnorm_quant_kernel(*given), rmsnorm_quant_kernel_reference(*given)
    assert made.dtype == wanted.dtype and np.array_equal(made[:, :8].view("u1"), wanted[:, :8].view("u1"))
