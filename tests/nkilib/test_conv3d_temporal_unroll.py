"""Convolutions of volumes with all depths at once, against PyTorch's."""

from typing import Any

import jax
import numpy as np
import pytest
import torch
import torch.nn.functional as functional
from hypothesis import given, settings
from hypothesis import strategies as some
from ml_dtypes import bfloat16

import nki
from nkilib.core.utils.common_types import ActFnType
from nkilib.errors import KernelLimit
from nkilib.experimental.conv import conv3d, conv3d_temporal_unroll, should_use_temporal_unroll
from nkilib.experimental.conv.conv3d_temporal_unroll_reference import conv3d_temporal_unroll_reference

RNG = np.random.default_rng(7)


def integers(*shape: int) -> Any:
    """Small integers, whose sums of products are exact."""
    return RNG.integers(-3, 4, shape).astype(np.float32)


def torchs(x: Any, weights: Any, bias: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    pairs = [*zip(padding[0::2], padding[1::2], strict=True)][::-1]
    around = functional.pad(torch.from_numpy(x), [number for pair in pairs for number in pair])
    turned = torch.from_numpy(weights).permute(4, 3, 0, 1, 2).contiguous()
    shift = None if bias is None else torch.from_numpy(bias)
    return functional.conv3d(around, turned, shift, stride=stride, dilation=dilation).numpy()


@settings(max_examples=5, deadline=None)
@given(
    some.sampled_from([(1, 1), (5, 3), (129, 2), (3, 130)]),
    some.sampled_from([(4, 5, 5), (6, 3, 17), (5, 9, 7)]),
    some.sampled_from([(1, 1, 1), (2, 2, 1), (1, 2, 2)]),
    some.sampled_from([(1, 1, 1), (2, 2, 2)]),
    some.sampled_from([(1, 1, 1, 1, 1, 1), (2, 0, 1, 2, 0, 3)]),
    some.booleans(),
    some.sampled_from([(1, True), (2, False), (2, True)]),
)
def test_volumes(
    channels: Any, size: Any, stride: Any, dilation: Any, padding: Any, biased: bool, cores: tuple[int, bool]
) -> None:
    x, weights = integers(2, channels[0], *size), integers(2, 2, 2, *channels)
    bias = integers(channels[1]) if biased else None
    wanted = torchs(x, weights, bias, stride, padding, dilation)
    made = nki.simulate(conv3d_temporal_unroll)[cores[0]](
        x, weights, bias, stride, padding, dilation, lnc_shard=cores[1]
    )
    assert np.array_equal(made, wanted)
    assert np.array_equal(conv3d_temporal_unroll_reference(x, weights, bias, stride, padding, dilation), wanted)


def test_many_depths_wide_rows_and_activations() -> None:
    x, weights, bias = integers(1, 2, 9, 2, 600), integers(3, 1, 2, 2, 30) / 8, integers(30)
    for function in (ActFnType.SiLU, ActFnType.SquaredReLU):
        made = nki.simulate(conv3d_temporal_unroll)(x, weights, bias, activation_fn=function)
        wanted = conv3d_temporal_unroll_reference(x, weights, bias, activation_fn=function)
        np.testing.assert_allclose(made, wanted, rtol=2e-3, atol=2e-3)


def test_few_output_channels_are_faster_than_with_conv3d() -> None:
    shapes = [nki.ShapeDtype(shape, "bfloat16") for shape in ((1, 96, 6, 16, 600), (3, 3, 3, 96, 3))]
    assert should_use_temporal_unroll(3, 4, 96, 3, 598)
    unrolled, plain = (nki.predict(kernel)(*shapes) for kernel in (conv3d_temporal_unroll, conv3d))
    assert unrolled.busy_ns["tensor"] < 0.6 * plain.busy_ns["tensor"] and unrolled.ns < plain.ns


def test_what_is_advised() -> None:
    assert should_use_temporal_unroll(32, 4, 65, 3, 513)
    for shape in (
        (33, 4, 65, 3, 513),
        (32, 5, 65, 3, 513),
        (32, 1, 65, 3, 513),
        (32, 4, 64, 3, 513),
        (32, 4, 65, 3, 512),
    ):
        assert not should_use_temporal_unroll(*shape)


def test_frameworks_call_it() -> None:
    x, weights = integers(1, 2, 3, 3, 4), integers(2, 2, 2, 2, 3)
    wanted = torchs(x, weights, None, 1, (0,) * 6, 1)
    assert np.array_equal(conv3d_temporal_unroll(torch.from_numpy(x), torch.from_numpy(weights)).numpy(), wanted)
    assert np.array_equal(jax.jit(conv3d_temporal_unroll)(x, weights), wanted)
    short = conv3d_temporal_unroll(x.astype(bfloat16), weights.astype(bfloat16))
    assert short.dtype == bfloat16 and np.array_equal(short, wanted.astype(bfloat16))


X, W = integers(1, 2, 3, 3, 4), integers(2, 2, 2, 2, 3)
REFUSED: list[tuple[str, str, dict[str, Any]]] = [
    ("nkilib.shape", "x_in has 3 dimensions", {"x_in": X[0, 0]}),
    ("nkilib.shape", "dimension 3 of filters is 3", {"filters": integers(2, 2, 2, 3, 3)}),
    ("nkilib.shape", "outputs of D is 0", {"filters": integers(4, 2, 2, 2, 3)}),
    ("nkilib.shape", "dimension 0 of bias is 2", {"bias": integers(2)}),
    ("nkilib.argument", "stride of W is 0", {"stride": (1, 1, 0)}),
    ("nkilib.argument", "dilation of H is 0", {"dilation": (1, 0, 1)}),
    ("nkilib.argument", "padding of D is", {"padding": (-1, 0, 0, 0, 0, 0)}),
    ("nkilib.dtype", "x_in is int32", {"x_in": X.astype(np.int32)}),
    ("nkilib.dtype", "dtypes differ", {"filters": W.astype(bfloat16)}),
    ("nkilib.option", "activation_fn is 'relu'", {"activation_fn": "relu"}),
]


@pytest.mark.parametrize(("code", "words", "change"), REFUSED, ids=[words for _, words, _ in REFUSED])
def test_what_is_refused(code: str, words: str, change: dict[str, Any]) -> None:
    with pytest.raises(KernelLimit, match=words) as caught:
        nki.simulate(conv3d_temporal_unroll)(**{"x_in": X, "filters": W} | change)
    assert caught.value.code == code
