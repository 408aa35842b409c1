"""Recurrences against the same steps in float64."""

import jax
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ml_dtypes import bfloat16

import nki
from nkilib.errors import KernelLimit
from nkilib.experimental.scan import linear_scan, selective_scan, ssd
from nkilib.experimental.scan.linear_scan_reference import linear_scan_reference
from nkilib.experimental.scan.selective_scan_reference import selective_scan_reference
from nkilib.experimental.scan.ssd_reference import ssd_reference

RNG = np.random.default_rng(3)


def normal(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def uniform(low: float, high: float, *shape: int, dtype: type = np.float32) -> np.ndarray:
    return RNG.uniform(low, high, shape).astype(dtype)


@settings(max_examples=5, deadline=None)
@given(
    lead=st.sampled_from([(), (2,), (3, 1)]),
    rows=st.sampled_from([1, 127, 129]),
    steps=st.sampled_from([1, 513, 4097]),
    started=st.booleans(),
    cores=st.sampled_from([1, 2]),
)
def test_linear_recurrences(lead: tuple[int, ...], rows: int, steps: int, started: bool, cores: int) -> None:
    decay, data = uniform(-1, 1, *lead, rows, steps), normal(*lead, rows, steps)
    initial = normal(*lead, rows, 1) if started else None
    made, wanted = linear_scan[cores](decay, data, initial), linear_scan_reference(decay, data, initial)
    for a, b in zip(made, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_the_state_is_not_rounded_to_the_dtype_of_the_results() -> None:
    decay, data = np.ones((1, 4100), bfloat16), np.full((1, 4100), 2.0**-8, bfloat16)
    result, last = linear_scan(decay, data)
    assert result.dtype == bfloat16 and last.dtype == np.float32
    assert float(last[0, 0]) == 4100 / 256  # a bfloat16 state would stop at 2


def mamba(batch: int, channels: int, states: int, steps: int, dtype: type = np.float32) -> dict[str, np.ndarray]:
    return {
        "x": normal(batch, channels, steps, dtype=dtype),
        "dt": uniform(0.01, 0.2, batch, channels, steps, dtype=dtype),
        "A": -np.exp(normal(channels, states)),
        "B": normal(batch, states, steps, dtype=dtype),
        "C": normal(batch, states, steps, dtype=dtype),
    }


@settings(max_examples=4, deadline=None)
@given(
    channels=st.sampled_from([1, 127, 129]),
    states=st.sampled_from([1, 3]),
    steps=st.sampled_from([1, 513, 1025]),
    options=st.sampled_from([(), ("D",), ("D", "initial_state")]),
    cores=st.sampled_from([1, 2]),
)
def test_selective_scans(channels: int, states: int, steps: int, options: tuple[str, ...], cores: int) -> None:
    arguments = mamba(2, channels, states, steps)
    further = {"D": normal(channels), "initial_state": normal(2, channels, states)}
    arguments |= {name: further[name] for name in options}
    made, wanted = selective_scan[cores](**arguments), selective_scan_reference(**arguments)
    for a, b in zip(made, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4)


def test_selective_scans_in_bfloat16() -> None:
    arguments = mamba(1, 8, 4, 40, dtype=bfloat16)
    (y, last), (wanted, state) = selective_scan(**arguments), selective_scan_reference(**arguments)
    assert y.dtype == bfloat16
    np.testing.assert_allclose(y.astype(float), wanted, atol=2**-8 * 4 * np.abs(wanted).max())
    np.testing.assert_allclose(last, state, rtol=1e-4, atol=1e-4)


def mamba2(heads: int, steps: int, width: int, states: int, dtype: type = np.float32) -> dict[str, np.ndarray]:
    return {
        "x": normal(2, heads, steps, width, dtype=dtype),
        "dt": uniform(0.01, 0.2, 2, heads, steps),
        "A": -np.exp(normal(heads)),
        "B": normal(2, steps, states, dtype=dtype),
        "C": normal(2, steps, states, dtype=dtype),
    }


@settings(max_examples=4, deadline=None)
@given(
    sizes=st.sampled_from([(1, 1, 1, 1, 1), (129, 2, 1, 3, 1), (2, 127, 64, 5, 128), (9, 129, 3, 128, 64)]),
    options=st.sampled_from([(), ("D",), ("D", "initial_state"), ("causal_mask",)]),
    cores=st.sampled_from([1, 2]),
)
def test_scans_by_chunks(sizes: tuple[int, ...], options: tuple[str, ...], cores: int) -> None:
    heads, steps, width, states, chunk = sizes
    arguments = mamba2(heads, steps, width, states)
    further = {
        "D": normal(heads),
        "initial_state": normal(2, heads, states, width),
        "causal_mask": np.tri(chunk, dtype=np.float32),
    }
    arguments |= {name: further[name] for name in options}
    made, wanted = ssd[cores](**arguments, chunk_size=chunk), ssd_reference(**arguments)
    for a, b in zip(made, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5 * max(1.0, np.abs(b).max()))


def test_growing_states_do_not_overflow() -> None:
    """Where A is positive, what is above the diagonal would be infinite, and infinity times 0 no number."""
    arguments = mamba2(1, 128, 2, 2) | {"A": np.full(1, 2.0, np.float32), "dt": np.full((2, 1, 128), 0.5, np.float32)}
    (y, _), (wanted, _) = ssd(**arguments), ssd_reference(**arguments)
    finite = np.abs(wanted) < 1e30
    assert finite.sum() > 100
    np.testing.assert_allclose(y[finite], wanted[finite], rtol=1e-3, atol=1e-3)


def test_frameworks_call_them() -> None:
    decay, data = uniform(0, 1, 3, 5), normal(3, 5)
    wanted, _ = linear_scan_reference(decay, data)
    made, _ = linear_scan(torch.from_numpy(decay), torch.from_numpy(data))
    np.testing.assert_allclose(made.numpy(), wanted, rtol=1e-5, atol=1e-6)
    made, _ = jax.jit(linear_scan)(decay, data)
    np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-6)
    arguments = mamba(1, 2, 2, 3)
    wanted, _ = selective_scan_reference(**arguments)
    made, _ = selective_scan(**{name: torch.from_numpy(each) for name, each in arguments.items()})
    np.testing.assert_allclose(made.numpy(), wanted, rtol=1e-4, atol=1e-4)
    made, _ = jax.jit(lambda each: selective_scan(**each))(arguments)
    np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-4)
    arguments = mamba2(1, 3, 2, 2)
    wanted, _ = ssd_reference(**arguments)
    made, _ = ssd(**{name: torch.from_numpy(each) for name, each in arguments.items()})
    np.testing.assert_allclose(made.numpy(), wanted, rtol=1e-4, atol=1e-4)
    made, _ = jax.jit(lambda each: ssd(**each))(arguments)
    np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-4)


SMALL = mamba(1, 2, 2, 3)
REFUSED = [
    ("nkilib.argument", r"data is \[3\]", linear_scan, {"decay": normal(3), "data": normal(3)}),
    ("nkilib.shape", "dimension 1 of decay is 4", linear_scan, {"decay": normal(2, 4), "data": normal(2, 3)}),
    ("nkilib.dtype", "data is int32", linear_scan, {"decay": normal(2, 3), "data": np.ones((2, 3), np.int32)}),
    ("nkilib.shape", "initial is", linear_scan, dict.fromkeys(("decay", "data", "initial"), normal(2, 3))),
    ("nkilib.shape", "states is 129", selective_scan, mamba(1, 2, 129, 3)),
    ("nkilib.dtype", "dtypes differ", selective_scan, SMALL | {"B": SMALL["B"].astype(bfloat16)}),
    ("nkilib.dtype", "A is bfloat16", selective_scan, SMALL | {"A": SMALL["A"].astype(bfloat16)}),
    ("nkilib.shape", "dimension 0 of D is 3", selective_scan, SMALL | {"D": normal(3)}),
    ("nkilib.shape", "dimension 2 of C is 4", selective_scan, SMALL | {"C": normal(1, 2, 4)}),
    ("nkilib.shape", "chunk_size is 129", ssd, mamba2(1, 3, 2, 2) | {"chunk_size": 129}),
    ("nkilib.shape", "dstate is 129", ssd, mamba2(1, 3, 2, 129)),
    ("nkilib.shape", "headdim is 513", ssd, mamba2(1, 3, 513, 2)),
    ("nkilib.dtype", "x is int32", ssd, mamba2(1, 3, 2, 2, dtype=np.int32)),
    ("nkilib.shape", "dimension 1 of causal_mask is 3", ssd, mamba2(1, 3, 2, 2) | {"causal_mask": normal(128, 3)}),
]


@pytest.mark.parametrize(("code", "words", "called", "arguments"), REFUSED, ids=[words for _, words, _, _ in REFUSED])
def test_what_is_refused(code: str, words: str, called, arguments) -> None:
    with pytest.raises(KernelLimit, match=words) as caught:
        nki.simulate(called)(**arguments)
    assert caught.value.code == code
