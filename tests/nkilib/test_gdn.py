"""The gated delta rule against its tokens one by one, and the inversion that it rests on."""

import jax
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ml_dtypes import bfloat16

import nki
from nkilib import streaming
from nkilib.errors import KernelLimit
from nkilib.experimental.gdn import gdn_cte, triangular
from nkilib.experimental.gdn.gdn_cte_reference import gdn_cte_reference

RNG = np.random.default_rng(5)


def call(batch: int, steps: int, width: int, dtype: type = np.float32, gated: bool = True) -> dict:
    def normal(*shape: int) -> np.ndarray:
        return RNG.standard_normal(shape)

    keys = normal(batch, steps, width)
    keys /= np.linalg.norm(keys, axis=-1, keepdims=True)
    return {
        "q": normal(batch, steps, width).astype(dtype),
        "k": keys.astype(dtype),
        "v": normal(batch, steps, width).astype(dtype),
        "beta": RNG.uniform(0.1, 1.0, (batch, steps)).astype(np.float32),
        "gate": -RNG.uniform(0.0, 0.3, (batch, steps)).astype(np.float32) if gated else None,
        "scale": width**-0.5,
    }


def close(made, wanted, tolerance: float) -> None:
    for a, b in zip(made, wanted, strict=True):
        np.testing.assert_allclose(a.astype(float), b, atol=tolerance * np.abs(b).max(), rtol=tolerance)


@settings(max_examples=4, deadline=None)
@given(
    batch=st.sampled_from([1, 2, 9]),
    sizes=st.sampled_from([(1, 1), (127, 5), (129, 128), (17, 64)]),
    gated=st.booleans(),
    cores=st.sampled_from([1, 2]),
)
def test_any_size(batch: int, sizes: tuple[int, int], gated: bool, cores: int) -> None:
    arguments = call(batch, *sizes, gated=gated)
    close(gdn_cte[cores](**arguments), gdn_cte_reference(**arguments), 2e-5)


def test_equal_keys_do_not_cancel() -> None:
    """A is then -1 everywhere below the diagonal, whose powers grow like binomials."""
    arguments = call(1, 128, 8, gated=False)
    arguments |= {"k": np.repeat(arguments["k"][:, :1], 128, axis=1), "beta": np.ones((1, 128), np.float32)}
    close(gdn_cte(**arguments), gdn_cte_reference(**arguments), 2e-5)


def test_bfloat16() -> None:
    arguments = call(1, 40, 16, bfloat16)
    out, state = gdn_cte(**arguments)
    assert out.dtype == bfloat16 and state.dtype == np.float32
    close((out, state), gdn_cte_reference(**arguments), 2e-2)


@pytest.mark.parametrize("rows", [1, 2, 16, 17, 33, 128])
def test_inverses(rows: int) -> None:
    @nki.jit
    def inverse(lower):
        tile = streaming.load(lower)
        upper = streaming.transpose(tile)
        (made,) = streaming.interleaved([triangular.inverse_transposed(tile, upper, triangular.masks(rows))])
        out = streaming.result((rows, rows), lower.dtype)
        streaming.store(out, made)
        return out

    lower = np.tril(RNG.uniform(-1, 1, (rows, rows)), -1).astype(np.float32)
    wanted = np.linalg.inv(np.eye(rows) - lower.astype(float))
    made = nki.simulate(inverse)(lower)
    np.testing.assert_allclose(made.T, wanted, atol=1e-5 * np.abs(wanted).max())


def test_works_take_turns() -> None:
    order = []

    def work(name: str, steps: int):
        for step in range(steps):
            order.append(f"{name}{step}")
            yield
        return name

    assert streaming.interleaved([work("a", 1), work("b", 3), work("c", 0)]) == ["a", "b", "c"]
    assert order == ["a0", "b0", "b1", "b2"]


def test_frameworks_call_it() -> None:
    arguments = call(1, 5, 4)
    wanted = gdn_cte_reference(**arguments)
    scale = arguments.pop("scale")
    made = gdn_cte(**{name: torch.from_numpy(each) for name, each in arguments.items()}, scale=scale)
    close([each.numpy() for each in made], wanted, 1e-5)
    made = jax.jit(lambda each: gdn_cte(**each, scale=scale))(arguments)
    close([np.asarray(each) for each in made], wanted, 1e-5)


REFUSED = [
    ("nkilib.shape", "D is 129", call(1, 2, 129)),
    ("nkilib.shape", "dimension 1 of beta is 3", call(1, 2, 4) | {"beta": np.ones((1, 3), np.float32)}),
    ("nkilib.shape", "k has 2 dimensions", call(1, 2, 4) | {"k": np.ones((2, 4), np.float32)}),
    ("nkilib.dtype", "q is int32", call(1, 2, 4, np.int32)),
    ("nkilib.dtype", "dtypes differ", call(1, 2, 4) | {"v": np.ones((1, 2, 4), bfloat16)}),
]


@pytest.mark.parametrize(("code", "words", "arguments"), REFUSED, ids=[words for _, words, _ in REFUSED])
def test_what_is_refused(code: str, words: str, arguments: dict) -> None:
    with pytest.raises(KernelLimit, match=words) as caught:
        nki.simulate(gdn_cte)(**arguments)
    assert caught.value.code == code
