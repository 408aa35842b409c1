"""Output projections for many and few tokens, against float64: any size, both layouts, float8, two cores, SBUF."""

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
from nkilib.core.output_projection.output_projection_cte import output_projection_cte
from nkilib.core.output_projection.output_projection_cte.output_projection_cte_reference import (
    output_projection_cte_reference,
)
from nkilib.core.output_projection.output_projection_tkg import output_projection_tkg
from nkilib.core.output_projection.output_projection_tkg_reference import output_projection_tkg_reference
from nkilib.core.utils.common_types import DtypeMode, QuantizationType
from nkilib.errors import KernelLimit, WithoutEffect

NONE, STATIC, ROW = QuantizationType.NONE, QuantizationType.STATIC, QuantizationType.ROW
LENGTHS = some.sampled_from([1, 3, 127, 129])
COUNTS, WIDTHS, HEADS = some.integers(1, 4), some.integers(1, 700), some.sampled_from([1, 10, 48, 64, 128])


def normal(*shape: int, dtype: Any = bfloat16) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def close(made: Any, wanted: Any, units: float = 2.0) -> None:
    """Within some units in the last place of the largest result: the sums of products are float32."""
    unit = 2.0**-8 if wanted.dtype == bfloat16 else 2.0**-20
    wide = np.asarray(wanted, np.float64)
    assert made.shape == wanted.shape and made.dtype == wanted.dtype
    assert np.abs(np.asarray(made, np.float64) - wide).max() <= units * unit * np.abs(wide).max()


def cte(batch: int, heads: int, head: int, length: int, hidden: int, kind: Any = NONE, dtype: Any = bfloat16) -> Any:
    given = {"attention": normal(batch, heads, head, length, dtype=dtype), "bias": normal(1, hidden, dtype=dtype)}
    given["weight"] = normal(heads * head, hidden, dtype=dtype if kind is NONE else float8_e4m3)
    if kind is STATIC:
        scales = {
            "input_scales": np.full((128, 1), 0.02, np.float32),
            "weight_scales": np.full((1, 1), 0.5, np.float32),
        }
        given |= {"quantization_type": STATIC, **scales}
    return given


def tkg(batch: int, heads: int, head: int, length: int, hidden: int, kind: Any = NONE, dtype: Any = bfloat16) -> Any:
    given = {"attention": normal(head, batch, heads, length, dtype=dtype), "bias": normal(1, hidden, dtype=dtype)}
    given["weight"] = normal(heads * head, hidden, dtype=dtype if kind is NONE else float8_e4m3)
    given["quantization_type"] = kind
    if kind is STATIC:
        given |= {name: np.full((128, 1), 0.02, np.float32) for name in ("input_scale", "weight_scale")}
    if kind is ROW:
        factors = np.random.default_rng(0).uniform(0.5, 1, (1, hidden)).astype(np.float32)
        given["weight_scale"] = np.tile(factors, (128, 1))
    return given


@settings(max_examples=7, deadline=None)
@given(COUNTS, COUNTS, HEADS, LENGTHS, WIDTHS, some.booleans())
def test_many_tokens_of_any_size(batch: int, heads: int, head: int, length: int, hidden: int, short: bool) -> None:
    given = cte(batch, heads, head, length, hidden, dtype=bfloat16 if short else np.float32)
    close(nki.simulate(output_projection_cte)(**given), output_projection_cte_reference(**given))


@settings(max_examples=7, deadline=None)
@given(COUNTS, COUNTS, HEADS, LENGTHS, WIDTHS, some.booleans())
def test_few_tokens_of_any_size(batch: int, heads: int, head: int, length: int, hidden: int, short: bool) -> None:
    given = tkg(batch, heads, head, min(length, 3), hidden, dtype=bfloat16 if short else np.float32)
    close(nki.simulate(output_projection_tkg)(**given), output_projection_tkg_reference(**given))


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("kind", [NONE, STATIC, ROW])
def test_transposed_results(kind: QuantizationType, cores: int) -> None:
    given = tkg(3, 5, 48, 2, 512, kind)
    made = nki.simulate(output_projection_tkg)[cores](**given, TRANSPOSE_OUT=True)
    wanted = output_projection_tkg_reference(**given).reshape(6, cores, 128, -1).transpose(2, 1, 3, 0)
    close(made, wanted)
    if cores == 1:
        assert np.array_equal(wanted, output_projection_tkg_reference(**given, TRANSPOSE_OUT=True))


@pytest.mark.parametrize("bias", [True, False])
def test_float8(bias: bool) -> None:
    many, few, rows = cte(2, 3, 96, 150, 300, STATIC), tkg(2, 5, 96, 2, 300, STATIC), tkg(2, 4, 128, 2, 300, ROW)
    for each in (many, few, rows) if not bias else ():
        each["bias"] = None
    close(nki.simulate(output_projection_cte)[2](**many), output_projection_cte_reference(**many))
    for each in (few, rows):
        close(nki.simulate(output_projection_tkg)[2](**each), output_projection_tkg_reference(**each))


def test_clipping_at_the_largest_float8() -> None:
    given = tkg(1, 1, 4, 1, 8, STATIC) | {"bias": None}
    given["attention"] = np.full_like(given["attention"], 100.0)  # 5000 times the scale, of which 240 are left
    wanted = 240 * 0.02 * 0.02 * given["weight"].astype(np.float64).sum(0)
    assert np.allclose(np.asarray(output_projection_tkg(**given), np.float64)[0], wanted, rtol=2.0**-7)


@nki.jit
def chained(attention, weight, transpose=False):
    """The input and the result of the projection in SBUF."""
    tile = nl.ndarray(attention.shape, dtype=attention.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=attention)
    made = output_projection_tkg(tile, weight, TRANSPOSE_OUT=transpose, OUT_IN_SB=True)
    out = nl.ndarray(made.shape, dtype=made.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=made)
    return out


@pytest.mark.parametrize("head", [64, 128])
def test_results_that_stay_in_sbuf(head: int) -> None:
    attention, weight = normal(head, 2, 3, 2), normal(3 * head, 384)
    close(chained(attention, weight), output_projection_tkg_reference(attention, weight))
    wanted = output_projection_tkg_reference(attention, weight, TRANSPOSE_OUT=True)
    close(chained(attention, weight, True), wanted[:, 0])


def test_another_dtype_of_the_result() -> None:
    given = cte(1, 2, 16, 9, 40) | {"output_dtype": nl.float32}
    made = output_projection_cte(**given)
    assert made.dtype == np.float32
    assert np.allclose(made, output_projection_cte_reference(**given), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("kernel", "make"), [(output_projection_cte, cte), (output_projection_tkg, tkg)])
def test_torch_and_jax(kernel: Any, make: Any) -> None:
    arrays = [make(1, 2, 16, 5, 24, dtype=np.float32)[name] for name in ("attention", "weight", "bias")]
    wanted = kernel(*arrays)
    assert np.array_equal(kernel(*map(torch.from_numpy, arrays)).numpy(), wanted)
    assert np.array_equal(np.asarray(kernel(*map(jnp.asarray, arrays))), wanted)


_SCALE = np.ones((128, 1), np.float32)


@pytest.mark.parametrize(
    ("code", "words", "change"),
    [
        ("nkilib.shape", "D is 130", {"attention": normal(1, 2, 130, 5)}),
        ("nkilib.shape", "attention has 3 dimensions", {"attention": normal(2, 16, 5)}),
        ("nkilib.shape", "dimension 0 of weight is 31, not N * D=32", {"weight": normal(31, 24)}),
        ("nkilib.shape", "dimension 1 of bias is 23", {"bias": normal(1, 23)}),
        ("nkilib.dtype", "attention is int32", {"attention": np.ones((1, 2, 16, 5), np.int32)}),
        ("nkilib.dtype", "weight is float32", {"weight": normal(32, 24, dtype=np.float32)}),
        ("nkilib.dtype", "weight is bfloat16", {"quantization_type": STATIC, "input_scales": _SCALE}),
        ("nkilib.not-built", "quantization_type", {"quantization_type": QuantizationType.MX}),
        ("nkilib.not-built", "compact_weight_scales", {"compact_weight_scales": True}),
    ],
)
def test_what_many_tokens_refuse(code: str, words: str, change: dict[str, Any]) -> None:
    refused(output_projection_cte, cte(1, 2, 16, 5, 24) | change, code, words)


@pytest.mark.parametrize(
    ("code", "words", "change"),
    [
        ("nkilib.shape", "D is 130", {"attention": normal(130, 1, 2, 5)}),
        ("nkilib.shape", "H is 24, 24 more than a multiple of 128", {"TRANSPOSE_OUT": True}),
        ("nkilib.shape", "B * S is 130", {"attention": normal(16, 26, 2, 5), "OUT_IN_SB": True}),
        (
            "nkilib.argument",
            "weight_scale is left out",
            {"quantization_type": ROW, "weight": normal(32, 24, dtype=float8_e4m3)},
        ),
        ("nkilib.not-built", "quantization_type", {"quantization_type": QuantizationType.ROW_MX}),
    ],
)
def test_what_few_tokens_refuse(code: str, words: str, change: dict[str, Any]) -> None:
    refused(output_projection_tkg, tkg(1, 2, 16, 5, 24) | change, code, words)


def test_a_format_that_the_target_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    refused(output_projection_tkg, tkg(1, 2, 16, 5, 24, STATIC) | {"dtype_mode": DtypeMode.OCP}, "nkilib.target", "v3")


def test_what_nobody_reads_is_told() -> None:
    given = cte(1, 2, 16, 5, 24)
    with pytest.warns(WithoutEffect, match="input_scales has no effect with this quantization_type"):
        made = output_projection_cte(**given, input_scales=3 * _SCALE)
    assert np.array_equal(made, output_projection_cte(**given))
    given = tkg(1, 2, 16, 5, 24)
    with pytest.warns(WithoutEffect, match="sbm has no effect"):
        made = output_projection_tkg(**given, sbm="manager")
    assert np.array_equal(made, output_projection_tkg(**given))


def refused(kernel: Any, given: dict[str, Any], code: str, words: str) -> None:
    with pytest.raises(KernelLimit) as caught:
        kernel(**given)
    assert caught.value.code == code and words in caught.value.message
