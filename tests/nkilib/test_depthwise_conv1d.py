"""Depthwise convolution along one dimension, against PyTorch, at any size."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some
from ml_dtypes import bfloat16

import nki
from nkilib.errors import KernelLimit
from nkilib.experimental.conv import depthwise_conv1d_implicit_gemm as convolve
from nkilib.experimental.conv.depthwise_conv1d_reference import depthwise_conv1d_implicit_gemm_reference


def call(channels: int = 3, width: int = 20, taps: int = 4, batch: int = 2, dtype: Any = np.float32) -> dict[str, Any]:
    rng = np.random.default_rng(channels + width)
    return {
        "img_ref": rng.standard_normal((batch, channels, 1, width)).astype(dtype),
        "filter_ref": (rng.standard_normal((channels, 1, 1, taps)) * taps**-0.5).astype(dtype),
        "feature_group_count": channels,
    }


def close(made: Any, wanted: Any) -> None:
    """Within the rounding of float32 sums, or of a bfloat16 result."""
    unit = 2.0**-9 if made.dtype == bfloat16 else 2.0**-22
    assert np.abs(made.astype(np.float64) - wanted).max() <= 2 * unit * max(1.0, np.abs(wanted).max())


@settings(max_examples=6, deadline=None)
@given(
    some.sampled_from([1, 127, 129, 260]),
    some.sampled_from([1, 40, 513, 1030]),
    some.integers(1, 9),
    some.integers(1, 3),
    some.integers(1, 3),
    some.tuples(some.integers(0, 4), some.integers(0, 4)),
    some.booleans(),
    some.sampled_from([1, 2]),
)
def test_any_size(
    channels: int, width: int, taps: int, step: int, apart: int, sides: tuple[int, int], short: bool, cores: int
) -> None:
    given = call(channels, max(width, apart * (taps - 1) + 1), taps, dtype=bfloat16 if short else np.float32)
    given |= {"padding": ((0, 0), sides), "stride": (1, step), "rhs_dilation": (1, apart)}
    close(nki.simulate(convolve)[cores](**given), depthwise_conv1d_implicit_gemm_reference(**given))


def test_it_is_the_convolution_of_torch_and_takes_its_tensors() -> None:
    given = call(taps=70, width=200, channels=130, batch=1)
    x, filters = (torch.from_numpy(given[name]) for name in ("img_ref", "filter_ref"))
    wanted = torch.nn.functional.conv2d(x, filters, groups=130, padding=(0, 3)).double().numpy()
    options = {"feature_group_count": 130, "padding": ((0, 0), (3, 3))}
    close(convolve(x, filters, **options).numpy(), wanted)
    close(np.asarray(convolve(*map(jnp.asarray, (given["img_ref"], given["filter_ref"])), **options)), wanted)
    close(depthwise_conv1d_implicit_gemm_reference(x.numpy(), filters.numpy(), **options), wanted)


@pytest.mark.parametrize(
    ("code", "words", "change"),
    [
        ("nkilib.shape", "img_ref is [2, 3, 2, 20]", {"img_ref": np.ones((2, 3, 2, 20), np.float32)}),
        ("nkilib.shape", "dimension 0 of filter_ref is 4, not C=3", {"filter_ref": np.ones((4, 1, 1, 4), np.float32)}),
        ("nkilib.shape", "outputs of W is 0", {"filter_ref": np.ones((3, 1, 1, 21), np.float32)}),
        ("nkilib.dtype", "filter_ref is bfloat16", {"filter_ref": np.ones((3, 1, 1, 4), bfloat16)}),
        ("nkilib.dtype", "img_ref is int32", {"img_ref": np.ones((2, 3, 1, 20), np.int32)}),
        ("nkilib.argument", "feature_group_count is 1", {"feature_group_count": 1}),
        ("nkilib.argument", "padding is (1, 1)", {"padding": ((1, 1), (0, 0))}),
        ("nkilib.argument", "stride is 2", {"stride": (2, 1)}),
        ("nkilib.argument", "stride of W is 0", {"stride": (1, 0)}),
        ("nkilib.not-built", "lhs_dilation", {"lhs_dilation": (1, 2)}),
        ("nkilib.not-built", "batch_group_count", {"batch_group_count": 2}),
        ("nkilib.not-built", "in_perm", {"in_perm": (0, 1, 2, 3)}),
    ],
)
def test_what_is_refused(code: str, words: str, change: dict[str, Any]) -> None:
    with pytest.raises(KernelLimit) as caught:
        convolve(**call() | change)
    assert caught.value.code == code and words in caught.value.message
