"""Attention of a sequence that ranks share: every option on several ranks against NumPy, and what is refused."""

from typing import Any

import jax
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ml_dtypes import bfloat16

import nki
import nki.language as nl
from nki.runtime import run_ranks
from nkilib.catalogue import reference
from nkilib.errors import KernelLimit
from nkilib.experimental.attention import (
    ring_attention_spmd_bwd,
    ring_attention_spmd_fwd,
    ring_attention_unpermute,
)

ERROR = 0.02
"""Weights and results round to bfloat16, whose step is 2**-8; values are normal, of variance 1."""


def normal(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(bfloat16)


def arguments(
    count: int, ranks: int, heads: tuple[int, int, int] = (1, 1, 1), d: int = 16, sharp: float = 1.0, **options: Any
) -> list[dict[str, Any]]:
    """Of each rank; heads are the batch, heads of queries and of keys; scores have a standard deviation of `sharp`."""
    batch, h, h_kv = heads
    each = []
    for rank in range(ranks):
        tp_q, tp_k = options.get("tp_q", False), options.get("tp_k", False)
        each.append(
            {
                "q": normal(3 * rank, batch, h, *((count, d) if tp_q else (d, count))),
                "k": normal(3 * rank + 1, batch, h_kv, *((count, d) if tp_k else (d, count))),
                "v": normal(3 * rank + 2, batch, h_kv, count, d),
                "replica_groups": (tuple(range(ranks)),),
                "num_workers": ranks,
                "softmax_scale": sharp * d**-0.5,
                **options,
            }
        )
    return each


def leaves(value: Any) -> list[Any]:
    return [np.asarray(each) for each in (value if isinstance(value, tuple | list) else (value,))]


def launched(kernel: Any, each: list[dict[str, Any]], cores: int = 1) -> list[Any]:
    """Results of all ranks."""

    @nki.jit
    def called(arrays: dict[str, Any]) -> Any:
        return kernel(**arrays)

    return run_ranks(nki.simulate(called)[cores], [(one,) for one in each])


def wanted(name: str, each: list[dict[str, Any]]) -> list[Any]:
    """What NumPy says."""
    together = {
        key: [one[key] for one in each] if isinstance(value, np.ndarray) else value for key, value in each[0].items()
    }
    return reference(name)(**together)


def compare(name: str, kernel: Any, each: list[dict[str, Any]], cores: int = 1, whole: bool = False) -> None:
    for made, exact in zip(launched(kernel, each, cores), wanted(name, each), strict=True):
        for some, right in zip(leaves(made), leaves(exact), strict=True):
            assert some.shape == right.shape
            assert some.dtype == right.dtype
            size = np.abs(right.astype(np.float64))
            bound = ERROR * np.maximum(1.0, size.max() if whole else size)
            assert (np.abs(some.astype(np.float64) - right.astype(np.float64)) <= bound).all()


BOUNDS = {
    "bound_min": np.repeat([0, 40, 130], [40, 90, 20]).reshape(1, 150, 1).astype(np.float32),
    "bound_max": np.repeat([40, 130, 140], [40, 90, 20]).reshape(1, 150, 1).astype(np.float32),
}
CALLS = {
    "all keys, groups of heads": arguments(256, 2, (1, 2, 1), 64, training=True),
    "causal": arguments(256, 3, d=128, use_causal_mask=True, training=True),
    "striped": arguments(256, 3, use_causal_mask=True, striped_input=True, training=True),
    "striped, few queries": arguments(150, 2, use_causal_mask=True, striped_input=True, training=True, tp_q=True),
    "packed": arguments(150, 2, use_causal_mask=True, striped_input=True, training=True, tp_k=True, **BOUNDS),
    "large scores": arguments(256, 2, use_causal_mask=True, sharp=60.0),
    "large scores, striped": arguments(256, 2, use_causal_mask=True, striped_input=True, sharp=60.0, training=True),
    "one rank": arguments(130, 1, training=True, lse_dtype=nl.bfloat16, use_causal_mask=True),
}


@pytest.mark.parametrize("name", CALLS)
def test_forward(name: str) -> None:
    compare("ring_attention_spmd_fwd", ring_attention_spmd_fwd, CALLS[name])


def test_two_cores() -> None:
    compare("ring_attention_spmd_fwd", ring_attention_spmd_fwd, arguments(256, 2, (1, 3, 3), training=True), cores=2)


def test_rings_of_their_own_order() -> None:
    each = arguments(128, 2, use_causal_mask=True) + arguments(128, 2, use_causal_mask=True)
    for number, one in enumerate(each):
        one |= {"replica_groups": ((2, 0), (1, 3)), "q": one["q"] + bfloat16(number)}
    compare("ring_attention_spmd_fwd", ring_attention_spmd_fwd, each)


@settings(max_examples=3, deadline=None)
@given(
    count=st.sampled_from([1, 127, 129, 200]),
    heads=st.sampled_from([(1, 1, 1), (2, 2, 1)]),
    d=st.sampled_from([1, 65, 128]),
    causal=st.sampled_from([(False, False), (True, False), (True, True)]),
)
def test_any_sizes(count: int, heads: tuple[int, int, int], d: int, causal: tuple[bool, bool]) -> None:
    options = {"use_causal_mask": causal[0], "striped_input": causal[1], "training": True}
    compare("ring_attention_spmd_fwd", ring_attention_spmd_fwd, arguments(count, 2, heads, d, **options))


def test_keys_are_not_as_many_as_queries() -> None:
    each = arguments(130, 2, training=True)
    for one, other in zip(each, arguments(70, 2), strict=True):
        one |= {"k": other["k"], "v": other["v"]}
    compare("ring_attention_spmd_fwd", ring_attention_spmd_fwd, each)


def test_torch_and_jax() -> None:
    one = arguments(130, 1, (1, 2, 1), use_causal_mask=True)[0]
    made = ring_attention_spmd_fwd(**one)
    arrays = {name: each for name, each in one.items() if isinstance(each, np.ndarray)}
    tensors = {name: torch.tensor(each.astype(np.float32)).bfloat16() for name, each in arrays.items()}
    assert (ring_attention_spmd_fwd(**one | tensors).float().numpy() == made.astype(np.float32)).all()
    values = {name: jax.numpy.asarray(each) for name, each in arrays.items()}
    assert (np.asarray(ring_attention_spmd_fwd(**one | values)) == made).all()


def changed(count: int = 8, ranks: int = 1, without: tuple[str, ...] = (), **others: Any) -> dict[str, Any]:
    one = arguments(count, ranks)[0] | others
    return {name: value for name, value in one.items() if name not in without}


ROW = np.zeros((1, 8, 1), np.float32)
REFUSED = [
    ("nkilib.shape", "d is 130", changed(**{name: normal(0, 1, 1, 130, 130) for name in "qkv"})),
    ("nkilib.shape", "dimension 1 of v is 2", changed(v=normal(0, 1, 2, 8, 16))),
    ("nkilib.shape", "heads is 1", changed(k=normal(0, 1, 3, 16, 8), v=normal(0, 1, 3, 8, 16))),
    (
        "nkilib.shape",
        "dimension 2 of v is 9",
        changed(use_causal_mask=True, k=normal(0, 1, 1, 16, 9), v=normal(0, 1, 1, 9, 16)),
    ),
    ("nkilib.shape", "num_workers is 0", changed(num_workers=0)),
    ("nkilib.dtype", "v is float32", changed(v=np.zeros((1, 1, 8, 16), np.float32))),
    ("nkilib.argument", "num_workers is 3", changed(num_workers=3)),
    ("nkilib.argument", "softmax_scale is -1", changed(softmax_scale=-1.0)),
    ("nkilib.argument", "striped_input is True", changed(striped_input=True)),
    ("nkilib.argument", "bound_min alone", changed(bound_min=ROW)),
    ("nkilib.argument", "striped_input is False", changed(use_causal_mask=True, bound_min=ROW, bound_max=ROW)),
    (
        "nkilib.argument",
        r"bound_max is \[3\]",
        changed(use_causal_mask=True, striped_input=True, bound_min=ROW, bound_max=np.zeros(3, np.float32)),
    ),
    ("nkilib.option", "lse_dtype is", changed(lse_dtype=nl.int32)),
]


@pytest.mark.parametrize(("code", "words", "given"), REFUSED, ids=[words for _, words, _ in REFUSED])
def test_forward_refuses(code: str, words: str, given: dict[str, Any]) -> None:
    with pytest.raises(KernelLimit, match=words) as caught:
        nki.simulate(ring_attention_spmd_fwd)(**given)
    assert caught.value.code == code


def test_forward_refuses_an_old_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn1")
    with pytest.raises(KernelLimit, match="NeuronCore-v2"):
        nki.simulate(ring_attention_spmd_fwd)(**changed())


@settings(max_examples=6, deadline=None)
@given(
    batch=st.sampled_from([1, 3]),
    each=st.sampled_from([1, 127, 129, 513]),
    d=st.sampled_from([1, 7, 128]),
    cores=st.sampled_from([1, 2]),
)
def test_parts_follow_each_other(batch: int, each: int, d: int, cores: int) -> None:
    inputs = [{"x": normal(rank, batch, 2 * each, d), "num_workers": 2} for rank in range(2)]
    made = launched(ring_attention_unpermute, inputs, cores)
    assert all(np.array_equal(*pair) for pair in zip(made, wanted("ring_attention_unpermute", inputs), strict=True))


def test_two_rings_are_unpermuted() -> None:
    groups = ((1, 2, 0), (3, 5, 4))
    inputs: list[dict[str, Any]] = [{"replica_groups": groups, "num_workers": 3} for _ in range(6)]
    long = np.arange(27, dtype=np.float32).reshape(1, 27, 1)
    for ring in groups:
        for place, rank in enumerate(ring):
            inputs[rank]["x"] = long[:, place::3]
    for rank, made in enumerate(launched(ring_attention_unpermute, inputs)):
        place = next(ring.index(rank) for ring in groups if rank in ring)
        assert np.array_equal(made, long[:, 9 * place : 9 * place + 9])


def test_unpermuted_by_torch_and_jax() -> None:
    x = normal(0, 1, 5, 3)
    made = ring_attention_unpermute(torch.tensor(x.astype(np.float32)).bfloat16())
    assert (made.float().numpy() == x.astype(np.float32)).all()
    assert (np.asarray(ring_attention_unpermute(jax.numpy.asarray(x))) == x).all()


@pytest.mark.parametrize(
    ("code", "words", "given"),
    [
        ("nkilib.shape", "x has 2 dimensions", {"x": normal(0, 4, 4)}),
        ("nkilib.shape", "places is 5", {"x": normal(0, 1, 5, 4), "num_workers": 2}),
        ("nkilib.shape", "d is 9000", {"x": normal(0, 1, 2, 9000)}),
        ("nkilib.shape", "num_workers is 0", {"x": normal(0, 1, 2, 2), "num_workers": 0}),
        ("nkilib.argument", "num_workers is 1", {"x": normal(0, 1, 2, 2), "replica_groups": ((0, 1),)}),
    ],
)
def test_unpermute_refuses(code: str, words: str, given: dict[str, Any]) -> None:
    with pytest.raises(KernelLimit, match=words) as caught:
        nki.simulate(ring_attention_unpermute)(**given)
    assert caught.value.code == code


def backward(
    count: int, ranks: int, heads: tuple[int, int, int] = (1, 1, 1), d: int = 16, cores: int = 1, **options: Any
) -> list[dict[str, Any]]:
    """Arguments of each rank; results and sums are those of the forward pass."""
    names = {"use_causal_mask", "bound_min", "bound_max"}
    before = {name: each for name, each in options.items() if name in names}
    before["striped_input"] = options.get("striped_attention", False)
    forward = arguments(count, ranks, heads, d, training=True, **before)
    made = wanted("ring_attention_spmd_fwd", forward)
    each = []
    for rank, (one, (out, lse)) in enumerate(zip(forward, made, strict=True)):
        tensors = {
            "q_ref": one["q"],
            "k_ref": one["k"],
            "v_ref": one["v"].swapaxes(2, 3).copy(),
            "o_ref": out.swapaxes(2, 3).copy(),
            "dy_ref": normal(50 + rank, *one["q"].shape),
            "lse_ref": lse,
        }
        shared = {"num_workers": ranks, "softmax_scale": one["softmax_scale"], "lnc_size": cores}
        each.append({**tensors, **shared, **options})
    return each


BACKWARD = {
    "all keys, groups of heads": backward(140, 2, (1, 2, 1)),
    "causal": backward(128, 3, use_causal_mask=True),
    "striped": backward(256, 2, use_causal_mask=True, striped_attention=True),
    "packed": backward(150, 2, use_causal_mask=True, striped_attention=True, **BOUNDS),
    "one rank": backward(130, 1, use_causal_mask=True),
}


@pytest.mark.parametrize("name", BACKWARD)
def test_backward(name: str) -> None:
    compare("ring_attention_spmd_bwd", ring_attention_spmd_bwd, BACKWARD[name], whole=True)


def test_backward_on_two_cores() -> None:
    each = backward(128, 2, (1, 3, 3), cores=2, use_causal_mask=True)
    compare("ring_attention_spmd_bwd", ring_attention_spmd_bwd, each, cores=2, whole=True)


def test_both_ways_are_what_torch_computes() -> None:
    ranks, count, d = 2, 130, 16
    whole = [
        torch.tensor(normal(seed, 1, 1, ranks * count, d).astype(np.float32)).requires_grad_() for seed in range(3)
    ]
    out = torch.nn.functional.scaled_dot_product_attention(*whole, is_causal=True)
    above = torch.tensor(normal(9, 1, 1, ranks * count, d).astype(np.float32))
    out.backward(above)

    def columns(tensor: torch.Tensor, rank: int) -> Any:
        return tensor.detach().numpy()[:, :, rank::ranks].swapaxes(2, 3).astype(bfloat16)

    options = {"num_workers": ranks, "use_causal_mask": True}
    each = [dict(zip("qkv", (columns(one, rank) for one in whole), strict=True)) for rank in range(ranks)]
    forward = [one | options | {"v": one["v"].swapaxes(2, 3), "striped_input": True, "training": True} for one in each]
    made = launched(ring_attention_spmd_fwd, forward)
    back = [
        {f"{name}_ref": one[name] for name in "qkv"}
        | {"o_ref": result.swapaxes(2, 3), "dy_ref": columns(above, rank), "lse_ref": lse, "striped_attention": True}
        | options
        for rank, (one, (result, lse)) in enumerate(zip(each, made, strict=True))
    ]
    for rank, gradients in enumerate(launched(ring_attention_spmd_bwd, back)):
        for some, one in zip(gradients, whole, strict=True):
            exact = one.grad.numpy()[:, :, rank::ranks].swapaxes(2, 3)
            assert np.abs(np.asarray(some) - exact).max() <= ERROR * max(1.0, np.abs(exact).max())


@settings(max_examples=3, deadline=None)
@given(
    count=st.sampled_from([1, 127, 129]),
    heads=st.sampled_from([(1, 1, 1), (2, 2, 1)]),
    d=st.sampled_from([1, 65, 128]),
    causal=st.sampled_from([(False, False), (True, False), (True, True)]),
)
def test_any_sizes_backward(count: int, heads: tuple[int, int, int], d: int, causal: tuple[bool, bool]) -> None:
    each = backward(count, 2, heads, d, use_causal_mask=causal[0], striped_attention=causal[1])
    compare("ring_attention_spmd_bwd", ring_attention_spmd_bwd, each, whole=True)


def test_backward_by_torch_and_jax() -> None:
    one = backward(64, 1, use_causal_mask=True)[0]
    made = [np.asarray(each) for each in ring_attention_spmd_bwd(**one)]
    arrays = {name: each for name, each in one.items() if isinstance(each, np.ndarray)}
    tensors = {
        name: torch.tensor(each.astype(np.float32)).to(torch.float32 if name == "lse_ref" else torch.bfloat16)
        for name, each in arrays.items()
    }
    values = {name: jax.numpy.asarray(each) for name, each in arrays.items()}
    for given_arrays in (tensors, values):
        found = ring_attention_spmd_bwd(**one | given_arrays)
        assert all((np.asarray(a) == b).all() for a, b in zip(found, made, strict=True))


ONE = backward(8, 1)[0]
REFUSED_BACKWARD = [
    ("nkilib.shape", "d is 130", backward(8, 1, d=130)[0]),
    ("nkilib.shape", "dimension 3 of lse_ref is 2", ONE | {"lse_ref": np.zeros((1, 1, 128, 2), np.float32)}),
    ("nkilib.shape", "dimension 3 of dy_ref is 9", ONE | {"dy_ref": normal(0, 1, 1, 16, 9)}),
    (
        "nkilib.shape",
        "dimension 3 of k_ref is 9",
        ONE | {"use_causal_mask": True, "k_ref": normal(0, 1, 1, 16, 9), "v_ref": normal(0, 1, 1, 16, 9)},
    ),
    ("nkilib.shape", "num_workers is 0", ONE | {"num_workers": 0}),
    ("nkilib.dtype", "v_ref is float32", ONE | {"v_ref": np.zeros((1, 1, 16, 8), np.float32)}),
    ("nkilib.argument", "num_workers is 2", ONE | {"num_workers": 2, "replica_groups": ((0,),)}),
    ("nkilib.argument", "lnc_size is 2", ONE | {"lnc_size": 2}),
    ("nkilib.argument", "softmax_scale is -1", ONE | {"softmax_scale": -1.0}),
    ("nkilib.argument", "striped_attention is True", ONE | {"striped_attention": True}),
    ("nkilib.argument", "bound_max alone", ONE | {"bound_max": ROW}),
]


@pytest.mark.parametrize(("code", "words", "given"), REFUSED_BACKWARD, ids=[words for _, words, _ in REFUSED_BACKWARD])
def test_backward_refuses(code: str, words: str, given: dict[str, Any]) -> None:
    with pytest.raises(KernelLimit, match=words) as caught:
        nki.simulate(ring_attention_spmd_bwd)(**given)
    assert caught.value.code == code
