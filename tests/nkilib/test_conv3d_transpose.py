"""Transposed convolutions against PyTorch's."""

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
from nkilib.errors import KernelLimit, WithoutEffect
from nkilib.experimental.conv import conv3d_transpose
from nkilib.experimental.conv.conv3d_transpose_reference import conv3d_transpose_reference
from nkilib.experimental.conv.phases import TransposedAxis

RNG = np.random.default_rng(7)
Three = tuple[int, int, int]


def integers(*shape: int) -> Any:
    """Small integers, whose sums of products are exact."""
    return RNG.integers(-3, 4, shape).astype(np.float32)


def torchs(x: Any, weights: Any, bias: Any, stride: Three, padding: Three, dilation: Three) -> Any:
    turned = torch.from_numpy(weights).flip(0, 1, 2).permute(3, 4, 0, 1, 2).contiguous()
    shift = None if bias is None else torch.from_numpy(bias)
    given = torch.from_numpy(x)
    return functional.conv_transpose3d(given, turned, shift, stride, padding, dilation=dilation).numpy()


@settings(max_examples=5, deadline=None)
@given(
    some.sampled_from([(1, 2), (5, 130), (129, 3)]),
    some.sampled_from([(1, 1, 5), (2, 6, 17), (1, 9, 7)]),
    some.sampled_from([(3, 2, 2), (1, 4, 4), (2, 3, 5)]),
    some.sampled_from([(1, 1, 1), (2, 2, 2), (1, 3, 2), (4, 1, 5)]),
    some.sampled_from([(1, 1, 1), (2, 1, 2), (1, 3, 1)]),
    some.booleans(),
    some.sampled_from([(1, False), (2, False), (2, True)]),
    some.booleans(),
)
def test_volumes(
    channels: tuple[int, int],
    size: Three,
    taps: Three,
    stride: Three,
    dilation: Three,
    padded: bool,
    cores: tuple[int, bool],
    swapped: bool,
) -> None:
    x, weights, bias = integers(1, channels[0], *size), integers(*taps, *channels), integers(channels[1])
    padding: Any = (0, 1, 1) if padded and min(taps[1:]) > 2 else (0, 0, 0)
    kind = "KDHW_CO_CI" if swapped else "KDHW_CI_CO"
    given = np.ascontiguousarray(weights.swapaxes(3, 4)) if swapped else weights
    wanted = torchs(x, weights, bias, stride, padding, dilation)
    options: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation, "filter_shape": kind}
    made = nki.simulate(conv3d_transpose)[cores[0]](x, given, bias, lnc_shard=cores[1], **options)
    assert np.array_equal(made, wanted)
    assert np.array_equal(conv3d_transpose_reference(x, given, bias, **options), wanted)


def test_wide_rows_and_activations() -> None:
    x, weights, bias = integers(1, 3, 1, 2, 600), integers(1, 2, 3, 3, 4) / 8, integers(4)
    for function in (ActFnType.SiLU, ActFnType.SquaredReLU):
        made = nki.simulate(conv3d_transpose)(x, weights, bias, (1, 2, 2), activation_fn=function)
        wanted = conv3d_transpose_reference(x, weights, bias, (1, 2, 2), activation_fn=function)
        np.testing.assert_allclose(made, wanted, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(
    "axis", [TransposedAxis(9, 3, 2, 1, 2), TransposedAxis(5, 1, 3, 0, 1), TransposedAxis(4, 4, 2, 1, 1)]
)
def test_phases(axis: TransposedAxis) -> None:
    reads: dict[int, set[tuple[int, int]]] = {output: set() for output in range(axis.outputs)}
    for place in range(axis.size):
        for tap in range(axis.taps):
            output = place * axis.stride + (axis.taps - 1 - tap) * axis.dilation - axis.padding
            if output in reads:
                reads[output].add((tap, place))
    found: dict[int, set[tuple[int, int]]] = {}
    for phase in axis.phases:
        for j in range(phase.count):
            inside = {(tap, j + shift) for tap, shift in phase.taps if 0 <= j + shift < axis.size}
            found[phase.first + j * axis.stride] = inside
    assert found == reads


def test_frameworks_call_it() -> None:
    x, weights = integers(1, 2, 1, 3, 4), integers(1, 2, 2, 2, 3)
    wanted = torchs(x, weights, None, (1, 2, 2), (0, 0, 0), (1, 1, 1))
    made = conv3d_transpose(torch.from_numpy(x), torch.from_numpy(weights), stride=(1, 2, 2))
    assert np.array_equal(made.numpy(), wanted)
    assert np.array_equal(jax.jit(lambda a: conv3d_transpose(a, weights, stride=(1, 2, 2)))(x), wanted)
    short = conv3d_transpose(x.astype(bfloat16), weights.astype(bfloat16), stride=(1, 2, 2))
    assert short.dtype == bfloat16 and np.array_equal(short, wanted.astype(bfloat16))


X, W = integers(1, 2, 2, 3, 4), integers(1, 2, 2, 2, 3)
REFUSED: list[tuple[str, str, dict[str, Any]]] = [
    ("nkilib.shape", "x_in has 3 dimensions", {"x_in": X[0, 0]}),
    ("nkilib.shape", "dimension 3 of filters is 3, not C_in=2", {"filters": integers(1, 2, 2, 3, 3)}),
    ("nkilib.shape", "dimension 4 of filters is 3, not C_in=2", {"filter_shape": "KDHW_CO_CI"}),
    ("nkilib.shape", "dimension 0 of bias is 2", {"bias": integers(2)}),
    ("nkilib.shape", "outputs of D is 0", {"padding": (1, 0, 0)}),
    ("nkilib.argument", "stride of W is 0", {"stride": (1, 1, 0)}),
    ("nkilib.argument", "dilation of H is 0", {"dilation": (1, 0, 1)}),
    ("nkilib.argument", "padding of D is -1", {"padding": (-1, 0, 0)}),
    ("nkilib.dtype", "x_in is int32", {"x_in": X.astype(np.int32)}),
    ("nkilib.dtype", "dtypes differ", {"filters": W.astype(bfloat16)}),
    ("nkilib.option", "activation_fn is 'relu'", {"activation_fn": "relu"}),
    ("nkilib.option", "filter_shape is 'CI_CO'", {"filter_shape": "CI_CO"}),
]


@pytest.mark.parametrize(("code", "words", "change"), REFUSED, ids=[words for _, words, _ in REFUSED])
def test_what_is_refused(code: str, words: str, change: dict[str, Any]) -> None:
    with pytest.raises(KernelLimit, match=words) as caught:
        nki.simulate(conv3d_transpose)(**{"x_in": X, "filters": W} | change)
    assert caught.value.code == code


@pytest.mark.parametrize("name", ["sbm", "use_auto_allocation"])
def test_allocation_is_the_compilers_matter(name: str) -> None:
    with pytest.warns(WithoutEffect, match=name):
        nki.simulate(conv3d_transpose)(X, W, **{name: True})
