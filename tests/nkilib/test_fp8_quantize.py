"""Quantisation in SBUF: static, of rows, and of tokens that lie on all partitions, against float64."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some
from ml_dtypes import bfloat16

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib.core.quantization import pre_combine_dequant_scales, row_quantization, static_quantization
from nkilib.core.quantization.fp8_quantize_reference import (
    of_tokens_reference,
    pre_combine_dequant_scales_reference,
    row_quantization_reference,
    static_quantization_reference,
)
from nkilib.core.utils.allocator import SbufManager
from nkilib.errors import KernelLimit

SIZES = some.sampled_from([1, 3, 33, 127, 128])


def loaded(tensor: Any) -> Any:
    tile = nl.ndarray(tensor.shape, dtype=tensor.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=tensor)
    return tile


def stored(tile: Any) -> Any:
    out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


@nki.jit
def static(x, scale, dtype=nl.float8_e4m3, inverse=False, managed=False):
    tile, scales = loaded(x), loaded(scale)
    known = None
    if inverse:
        known = nl.ndarray(scales.shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.reciprocal(dst=known, data=scales)
    sbm = SbufManager(0, 64 * 1024) if managed else None
    if sbm is not None:
        sbm.open_scope()
    found, same = static_quantization(tile, scales, known, dtype, sbm)
    assert same is scales
    return stored(found), stored(tile)


@nki.jit
def rows(x, dtype=nl.float8_e4m3, output_dtype=None, given=False):
    tile = loaded(x)
    targets = {}
    if given:
        targets["quantized"] = nl.ndarray(x.shape, dtype=output_dtype or x.dtype, buffer=nl.sbuf)
        shape = (x.shape[0], 1 if len(x.shape) == 2 else x.shape[1])
        targets["dequant_scale"] = nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)
    found, scale = row_quantization(tile, dtype, output_dtype=output_dtype, **targets)
    return stored(found), stored(scale), stored(tile)


@nki.jit
def combined(a, b):
    return stored(pre_combine_dequant_scales(loaded(a), loaded(b)))


def normal(*shape: int, dtype: Any = np.float32) -> Any:
    return (4 * np.random.default_rng(sum(shape)).standard_normal(shape)).astype(dtype)


def near(made: Any, wanted: Any) -> None:
    """The same, but for what a rounding before decides: then the next number, at most."""
    a, b = made.astype(np.float64), wanted.astype(np.float64)
    step = 2.0 ** (-3 if made.dtype.itemsize == 1 else -7 if made.dtype == bfloat16 else -20)
    assert made.dtype == wanted.dtype and (np.abs(a - b) <= 1.05 * step * np.maximum(np.abs(b), 2.0**-6)).all()
    assert (a != b).sum() <= 2 + 0.05 * a.size or made.dtype.itemsize > 1


@settings(max_examples=6, deadline=None)
@given(SIZES, SIZES, some.booleans(), some.sampled_from([nl.float8_e4m3, nl.float8_e5m2]), some.booleans())
def test_static(partitions: int, columns: int, short: bool, dtype: Any, inverse: bool) -> None:
    x = normal(partitions, columns, dtype=bfloat16 if short else np.float32)
    scale = np.full((partitions, 1), 0.02, np.float32)
    found, kept = nki.simulate(static)(x, scale, dtype, inverse)
    near(found, static_quantization_reference(x, scale, dtype=dtype)[0])
    assert np.array_equal(kept, x)


def test_tiles_may_be_placed_by_a_manager() -> None:
    x, scale = normal(5, 60), np.full((5, 1), 0.02, np.float32)
    near(static(x, scale, managed=True)[0], static_quantization_reference(x, scale, dtype=nl.float8_e4m3)[0])


@settings(max_examples=8, deadline=None)
@given(
    SIZES,
    some.sampled_from([None, 1, 5, 128]),
    some.sampled_from([1, 7, 65]),
    some.booleans(),
    some.sampled_from([None, nl.float8_e4m3]),
    some.booleans(),
)
def test_rows_and_tokens(
    partitions: int, tokens: int | None, columns: int, short: bool, output: Any, targets: bool
) -> None:
    shape = (partitions, columns) if tokens is None else (partitions, tokens, columns)
    x = normal(*shape, dtype=bfloat16 if short else np.float32)
    found, scale, kept = nki.simulate(rows)(x, output_dtype=output, given=targets)
    if tokens is None:
        wanted, scales = row_quantization_reference(x, nl.float8_e4m3, output_dtype=output)
    else:
        wanted, scales = of_tokens_reference(x, nl.float8_e4m3, output)
    near(found, wanted)
    assert scale.shape == scales.shape and np.allclose(scale, scales, rtol=1e-6) and np.array_equal(kept, x)


def test_scales_are_combined() -> None:
    a, b = np.full((7, 1), 0.5, np.float32), normal(7, 3)
    assert np.array_equal(combined(a, b), 0.5 * b)


@settings(max_examples=4, deadline=None)
@given(some.sampled_from([(1,), (127,), (3, 43), (129, 513), (2, 5, 70)]), some.booleans(), some.integers(1, 2))
def test_tensors_in_hbm(shape: tuple[int, ...], short: bool, cores: int) -> None:
    x, scale = normal(*shape, dtype=bfloat16 if short else np.float32), np.full((128, 1), 0.02, np.float32)
    found, same = nki.simulate(static_quantization)[cores](x, scale, dtype=nl.float8_e4m3)
    near(found, static_quantization_reference(x, scale, dtype=nl.float8_e4m3)[0])
    assert np.array_equal(same, scale)
    inverse = np.full((128, 1), 30.0, np.float32)
    near(
        nki.simulate(static_quantization)(x, scale, inverse, nl.float8_e5m2)[0],
        static_quantization_reference(x, scale, inverse, nl.float8_e5m2)[0],
    )
    found, scales = nki.simulate(row_quantization)[cores](x, nl.float8_e4m3, output_dtype=nl.float8_e4m3)
    wanted, exact = row_quantization_reference(x, nl.float8_e4m3, output_dtype=nl.float8_e4m3)
    near(found, wanted)
    assert scales.shape == exact.shape and np.allclose(scales, exact, rtol=1e-6)


def test_results_go_to_tensors_that_were_given() -> None:
    x, out, scales = normal(3, 4), np.zeros((3, 4), nl.float8_e4m3.numpy), np.zeros((3, 1), np.float32)
    given: dict[str, Any] = {"output_dtype": nl.float8_e4m3, "quantized": out, "dequant_scale": scales}
    found, scale = row_quantization(x, nl.float8_e4m3, **given)
    assert np.array_equal(found, out) and np.array_equal(scale, scales) and scales.all()


def test_torch_and_jax() -> None:
    x, scale = normal(5, 60), np.full((128, 1), 0.02, np.float32)
    wanted = static_quantization_reference(x, scale, dtype=nl.float8_e5m2)[0].astype(np.float32)
    exact, scales = row_quantization_reference(x, nl.float8_e5m2)
    for turn, back in (
        (torch.from_numpy, lambda y: y.float().numpy()),
        (jnp.asarray, lambda y: np.asarray(y, np.float32)),
    ):
        made = static_quantization(turn(x), turn(scale), dtype=nl.float8_e5m2)[0]
        assert np.array_equal(back(made), wanted)
        found, each = row_quantization(turn(x), nl.float8_e5m2)
        assert np.allclose(back(found), exact, rtol=1e-5) and np.allclose(back(each), scales)
        both = pre_combine_dequant_scales(turn(scale), turn(np.full((128, 3), 0.5, np.float32)))
        assert np.allclose(back(both), pre_combine_dequant_scales_reference(scale, np.full((128, 3), 0.5)))


@pytest.mark.parametrize(
    ("code", "words", "call"),
    [
        ("nkilib.dtype", "hidden_state is int32", lambda: rows(np.ones((3, 4), np.int32))),
        ("nkilib.option", "dtype is", lambda: rows(normal(3, 4), dtype=nl.bfloat16)),
        ("nkilib.shape", "tokens is 129", lambda: rows(normal(3, 129, 2))),
        ("nkilib.argument", "hidden_state is [1, 2, 3, 4]", lambda: rows(normal(1, 2, 3, 4))),
        ("nkilib.shape", "the partitions of the scale is 2", lambda: static(normal(3, 4), np.ones((2, 1), np.float32))),
        ("nkilib.dtype", "hidden_state is int32", lambda: row_quantization(np.ones((3, 4), np.int32))),
        ("nkilib.shape", "F is 16385", lambda: row_quantization(normal(1, 16385))),
        (
            "nkilib.shape",
            "dimension 1 of quantized is 5",
            lambda: row_quantization(normal(3, 4), quantized=normal(3, 5)),
        ),
        ("nkilib.argument", "sbm is given", lambda: row_quantization(normal(3, 4), sbm=object())),
        ("nkilib.shape", "dimension 0 of input_dequant", lambda: static_quantization(normal(3, 4), normal(3, 1))),
        ("nkilib.shape", "P is 129", lambda: pre_combine_dequant_scales(normal(129, 1), normal(129, 4))),
        ("nkilib.shape", "input_dequant_scale is [3, 2]", lambda: combined(normal(3, 2), normal(3, 4))),
    ],
)
def test_what_is_refused(code: str, words: str, call: Any) -> None:
    with pytest.raises(KernelLimit) as caught:
        call()
    assert caught.value.code == code and words in caught.value.message
