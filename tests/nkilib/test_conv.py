"""Convolutions against PyTorch's."""

import jax
import numpy as np
import pytest
import torch
import torch.nn.functional as functional
from hypothesis import given, settings
from hypothesis import strategies as st
from ml_dtypes import bfloat16

import nki
from nkilib.core.utils.common_types import ActFnType
from nkilib.errors import KernelLimit
from nkilib.experimental.conv import conv1d, conv3d
from nkilib.experimental.conv.conv1d_reference import conv1d_reference
from nkilib.experimental.conv.conv3d_reference import conv3d_reference
from nkilib.experimental.conv.geometry import Axis

RNG = np.random.default_rng(7)


def integers(*shape: int) -> np.ndarray:
    """Small integers, whose sums of products are exact."""
    return RNG.integers(-3, 4, shape).astype(np.float32)


def padded(x: np.ndarray, padding: tuple[int, ...]) -> torch.Tensor:
    pairs = [*zip(padding[0::2], padding[1::2], strict=True)][::-1]
    return functional.pad(torch.from_numpy(x), [number for pair in pairs for number in pair])


@settings(max_examples=8, deadline=None)
@given(
    channels=st.sampled_from([(1, 1), (3, 129), (65, 2), (129, 127)]),
    length=st.sampled_from([9, 127, 513]),
    filters=st.sampled_from([(1, 1, 1), (3, 2, 1), (7, 1, 1), (3, 1, 4), (5, 3, 2)]),
    padding=st.sampled_from([(0, 0), (1, 0), (2, 5)]),
    biased=st.booleans(),
    cores=st.sampled_from([(1, False), (2, False), (2, True)]),
)
def test_sequences(channels, length, filters, padding, biased, cores) -> None:
    taps, stride, dilation = filters
    x, weights = integers(2, channels[0], length), integers(taps, *channels)
    bias = integers(channels[1]) if biased else None
    made = conv1d[cores[0]](x, weights, bias, stride, padding, dilation, lnc_shard=cores[1])
    turned = torch.from_numpy(weights).permute(2, 1, 0).contiguous()
    shift = None if bias is None else torch.from_numpy(bias)
    wanted = functional.conv1d(padded(x, padding), turned, shift, stride=stride, dilation=dilation)
    assert np.array_equal(made, wanted.numpy())
    assert np.array_equal(conv1d_reference(x, weights, bias, stride, padding, dilation), wanted.numpy())


@settings(max_examples=5, deadline=None)
@given(
    channels=st.sampled_from([(1, 2), (5, 130), (66, 3)]),
    size=st.sampled_from([(1, 5, 5), (3, 6, 33), (4, 9, 7)]),
    stride=st.sampled_from([(1, 1, 1), (2, 2, 1), (1, 2, 2)]),
    dilation=st.sampled_from([(1, 1, 1), (1, 2, 2)]),
    padding=st.sampled_from([(1, 1, 1, 1, 1, 1), (2, 0, 1, 2, 0, 3)]),
    cores=st.sampled_from([(1, False), (2, False), (2, True)]),
)
def test_volumes(channels, size, stride, dilation, padding, cores) -> None:
    x, weights = integers(1, channels[0], *size), integers(3, 3, 2, *channels)
    made = conv3d[cores[0]](x, weights, None, stride, padding, dilation, lnc_shard=cores[1])
    turned = torch.from_numpy(weights).permute(4, 3, 0, 1, 2).contiguous()
    wanted = functional.conv3d(padded(x, padding), turned, stride=stride, dilation=dilation)
    assert np.array_equal(made, wanted.numpy())
    assert np.array_equal(conv3d_reference(x, weights, None, stride, padding, dilation), wanted.numpy())


@pytest.mark.parametrize("function", list(ActFnType))
def test_activations_come_last(function: ActFnType) -> None:
    x, weights, bias = integers(1, 4, 9), integers(3, 4, 5) / 8, integers(5)
    made = conv1d(x, weights, bias, activation_fn=function)
    wanted = conv1d_reference(x, weights, bias, activation_fn=function)
    np.testing.assert_allclose(made, wanted, rtol=2e-3, atol=2e-3)
    assert not np.allclose(made, conv1d(x, weights, bias), atol=0.1)


def test_bfloat16() -> None:
    x, weights = integers(1, 70, 40).astype(bfloat16), integers(3, 70, 8).astype(bfloat16)
    made = conv1d(x, weights)
    assert made.dtype == bfloat16 and np.array_equal(made, conv1d_reference(x, weights).astype(bfloat16))


def test_few_channels_fill_the_rows_of_the_tensor_engine() -> None:
    x, weights = (
        nki.ShapeDtype((1, 32, 2048), nki.language.bfloat16),
        nki.ShapeDtype((4, 32, 128), nki.language.bfloat16),
    )
    stacked = nki.predict(conv1d)(x, weights)
    strided = nki.predict(conv1d)(nki.ShapeDtype((1, 32, 4096), nki.language.bfloat16), weights, stride=2)
    assert stacked.busy_ns["tensor"] < 0.5 * strided.busy_ns["tensor"]


@pytest.mark.parametrize("axis", [Axis(9, 3, 2, 1, 0, 2), Axis(5, 1), Axis(4, 4, 1, 3, 3, 1)])
def test_positions(axis: Axis) -> None:
    outputs = slice(0, axis.outputs)
    for tap in range(axis.taps):
        inside = [o for o in range(axis.outputs) if 0 <= axis.position(o, tap) < axis.size]
        found = axis.inside(outputs, tap)
        assert list(range(found.start, found.stop)) == inside
    reach = axis.reach(outputs)
    assert reach.stop - reach.start == axis.reached(axis.outputs)


def test_frameworks_call_them() -> None:
    x, weights = integers(1, 2, 6), integers(3, 2, 4)
    wanted = conv1d_reference(x, weights)
    assert np.array_equal(conv1d(torch.from_numpy(x), torch.from_numpy(weights)).numpy(), wanted)
    assert np.array_equal(jax.jit(conv1d)(x, weights), wanted)
    x, weights = integers(1, 2, 1, 3, 4), integers(1, 2, 2, 2, 3)
    wanted = conv3d_reference(x, weights)
    assert np.array_equal(conv3d(torch.from_numpy(x), torch.from_numpy(weights)).numpy(), wanted)
    assert np.array_equal(jax.jit(conv3d)(x, weights), wanted)


X, W = integers(1, 2, 6), integers(3, 2, 4)
REFUSED = [
    ("nkilib.shape", "x_in has 2 dimensions", conv1d, {"x_in": X[0], "filters": W}),
    ("nkilib.shape", "dimension 1 of filters is 3", conv1d, {"x_in": X, "filters": integers(3, 3, 4)}),
    ("nkilib.shape", "outputs of L is 0", conv1d, {"x_in": X, "filters": integers(7, 2, 4)}),
    ("nkilib.argument", "stride of L is 0", conv1d, {"x_in": X, "filters": W, "stride": 0}),
    ("nkilib.argument", "dilation of L is 0", conv1d, {"x_in": X, "filters": W, "dilation": 0}),
    ("nkilib.argument", "padding of L is", conv1d, {"x_in": X, "filters": W, "padding": (-1, 0)}),
    ("nkilib.shape", "dimension 0 of bias is 3", conv1d, {"x_in": X, "filters": W, "bias": integers(3)}),
    ("nkilib.dtype", "dtypes differ", conv1d, {"x_in": X, "filters": W.astype(bfloat16)}),
    ("nkilib.dtype", "x_in is int32", conv1d, {"x_in": X.astype(np.int32), "filters": W}),
    ("nkilib.option", "activation_fn is 'relu'", conv1d, {"x_in": X, "filters": W, "activation_fn": "relu"}),
    ("nkilib.shape", "x_in has 3 dimensions", conv3d, {"x_in": X, "filters": W}),
]


@pytest.mark.parametrize(("code", "words", "called", "arguments"), REFUSED, ids=[words for _, words, _, _ in REFUSED])
def test_what_is_refused(code: str, words: str, called, arguments) -> None:
    with pytest.raises(KernelLimit, match=words) as caught:
        nki.simulate(called)(**arguments)
    assert caught.value.code == code
