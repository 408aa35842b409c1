"""Gradients of attention: any sizes and options against NumPy, derivatives against PyTorch, and what is refused."""

import re
from typing import Any

import jax
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ml_dtypes import bfloat16

import nki
from nkilib.core.attention.attention_bwd import attention_bwd
from nkilib.core.attention.attention_bwd_reference import attention_bwd_reference
from nkilib.core.attention.attention_cte import attention_cte
from nkilib.core.attention.backward import order
from nkilib.errors import KernelLimit, WithoutEffect

EAGER = attention_bwd.simulated()
ERROR = 0.02
"""Weights, changes of scores and results round to bfloat16, whose step is 2**-8."""


def call(queries: int, keys: int, d: int = 16, heads: int = 1, heads_kv: int = 1, **options: Any) -> dict[str, Any]:
    """Arguments, with a result and sums that belong to them."""
    rng = np.random.default_rng(3)
    normal = lambda *shape: rng.standard_normal(shape).astype(bfloat16)  # noqa: E731
    q, dy, k, v = (
        normal(1, heads, d, queries),
        normal(1, heads, d, queries),
        *(normal(1, heads_kv, d, keys) for _ in "kv"),
    )
    wide = [np.repeat(x.astype(np.float64), heads // heads_kv, axis=1) for x in (k, v)]
    seen = sight(queries, keys, options)
    scores = np.where(seen, q.astype(np.float64).swapaxes(2, 3) @ wide[0] * d**-0.5, -1e30)
    sinks = options.get("sinks_ref", np.full((1, heads), -np.inf)).astype(np.float64).reshape(1, heads, 1, -1)
    every = np.concatenate([scores, np.broadcast_to(sinks, (1, heads, queries, sinks.shape[3]))], axis=3)
    lse = np.log(np.exp(every).sum(axis=3) + 1e-30)
    out = (np.exp(scores - lse[..., None]) @ wide[1].swapaxes(2, 3)).swapaxes(2, 3)
    tiles = -(-queries // 128)
    sums = np.zeros((1, heads, tiles * 128), np.float32)
    sums[:, :, :queries] = lse
    sums = sums.reshape(1, heads, tiles, 128).swapaxes(2, 3)
    return {"q_ref": q, "k_ref": k, "v_ref": v, "o_ref": out.astype(bfloat16), "dy_ref": dy, "lse_ref": sums, **options}


def sight(queries: int, keys: int, options: dict[str, Any]) -> Any:
    query, key = np.arange(queries)[:, None], np.arange(keys)
    seen = np.ones((queries, keys), bool)
    if options.get("use_causal_mask"):
        seen &= key <= query
    if options.get("sliding_window"):
        seen &= key > query - options["sliding_window"]
    if "bound_min" in options:
        seen &= (key >= options["bound_min"][:, None]) & (key < options["bound_max"][:, None])
    return seen


def compare(arguments: dict[str, Any], kernel: Any = EAGER) -> None:
    made, wanted = kernel(**arguments), attention_bwd_reference(**arguments)
    assert len(made) == len(wanted)
    for some, exact in zip(made, wanted, strict=True):
        assert some.dtype == exact.dtype
        assert some.shape == exact.shape
        a, b = np.asarray(some).astype(np.float64), exact.astype(np.float64)
        assert np.abs(a - b).max() <= ERROR * max(1.0, np.abs(b).max())


BOUNDS = {"bound_min": np.repeat([0.0, 7, 90], [7, 83, 60]), "bound_max": np.repeat([7.0, 90, 140], [7, 83, 60])}
CALLS = {
    "causal, a group of heads": call(150, 150, 64, heads=4, heads_kv=2, use_causal_mask=True),
    "all keys": call(130, 300),
    "more queries than keys": call(600, 130, use_causal_mask=True),
    "more keys than queries": call(130, 600, use_causal_mask=True),
    "a window": call(700, 700, use_causal_mask=True, sliding_window=200),
    "sinks": call(130, 130, heads=2, use_causal_mask=True, sinks_ref=np.array([[1.5, -2.0]], np.float32)),
    "several sinks": call(130, 130, softmax_scale=0.25, sinks_ref=np.ones((1, 1, 3), np.float32)),
    "packed": call(150, 150, use_causal_mask=True, **{n: b.astype(np.float32) for n, b in BOUNDS.items()}),
}


@pytest.mark.parametrize("name", CALLS)
def test_every_option(name: str) -> None:
    compare(CALLS[name])


def test_both_sides_in_sections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients of queries are summed in device memory, and those of sinks over all queries."""
    monkeypatch.setattr(order, "SECTION", 512)
    sink = np.ones((1, 1), np.float32)
    compare(call(600, 1100, use_causal_mask=True, sinks_ref=sink))


def test_compiled_for_two_cores() -> None:
    compare(call(150, 150, heads=3, heads_kv=3, use_causal_mask=True), attention_bwd[2])


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_other_dtypes(dtype: type) -> None:
    arguments = call(130, 130, use_causal_mask=True)
    tensors = ("q_ref", "k_ref", "v_ref", "o_ref", "dy_ref")
    compare(arguments | {name: arguments[name].astype(dtype) for name in tensors})


SIZES = st.sampled_from([1, 127, 128, 129, 257, 513])


@settings(max_examples=6, deadline=None, derandomize=True)
@given(SIZES, SIZES, st.sampled_from([1, 5, 128]), st.booleans(), st.sampled_from([0, 1, 129]))
def test_any_sizes(queries: int, keys: int, d: int, causal: bool, window: int) -> None:
    compare(call(queries, keys, d, use_causal_mask=causal, sliding_window=window))


# ------------------------------------------------------------------------------------- derivatives of the forward pass


def leaf(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).bfloat16().requires_grad_()


def expected(q: Any, k: Any, v: Any, sink: Any, seen: Any) -> tuple[Any, Any]:
    """Attention in float32, q (heads, queries, d), k (heads, d, keys), and the weights of the sinks."""
    group = q.shape[0] // k.shape[0]
    scores = (q.float() @ k.float().repeat_interleave(group, 0)) * 0.25
    scores = scores.masked_fill(~torch.from_numpy(seen), -torch.inf)
    scores = torch.cat([scores, sink[:, :, None].expand(*scores.shape[:2], 1)], dim=2)
    weights = scores.softmax(dim=2)
    return weights[:, :, :-1] @ v.float().repeat_interleave(group, 0), weights[:, :, -1]


@pytest.mark.parametrize("turned", [False, True])
def test_autograd_goes_through_both_kernels(turned: bool) -> None:
    q, k, v = leaf(2, 140, 16), leaf(1, 16, 140), leaf(1, 140, 16)
    sink = torch.tensor([[0.5], [1.0]], requires_grad=True)
    slopes = torch.linspace(-1, 1, 2 * 140 * 16).reshape(2, 140, 16)
    inputs = (q.transpose(1, 2), k.transpose(1, 2)) if turned else (q, k)
    layouts = {"tp_q": not turned, "tp_k": turned, "tp_out": turned}
    made = attention_cte(*(x.contiguous() for x in inputs), v, 0.25, sink=sink, sliding_window=70, **layouts)
    made = made.transpose(1, 2) if turned else made
    found = torch.autograd.grad((made.float() * slopes).sum(), [q, k, v, sink])
    out, share = expected(q, k, v, sink, sight(140, 140, {"use_causal_mask": True, "sliding_window": 70}))
    wanted = torch.autograd.grad((out * slopes).sum(), [q, k, v, sink], retain_graph=True)
    terms = share * (slopes * out).abs().sum(dim=2)  # that a sink's gradient is the sum of, with signs
    sizes = [*(exact.abs().max() for exact in wanted[:3]), terms.sum(dim=1, keepdim=True)]
    for some, exact, size in zip(found, wanted, sizes, strict=True):
        assert ((some - exact).abs() <= ERROR * size).all()


@pytest.mark.parametrize("sharp", [0.25, 25.0])
def test_autograd_without_maxima(sharp: float) -> None:
    """The sums of the fast way serve the gradient, and those of the loop that computes everything again."""
    q, k, v = leaf(1, 256, 16), leaf(1, 16, 256), leaf(1, 256, 16)
    made = attention_cte(q, k, v, sharp, tiles={"exact": 0})
    found = torch.autograd.grad(made.float().square().sum(), [q, k, v])
    scores = (q.float() @ k.float() * sharp).masked_fill(~torch.ones(256, 256, dtype=torch.bool).tril(), -torch.inf)
    wanted = torch.autograd.grad((scores.softmax(dim=2) @ v.float()).square().sum(), [q, k, v])
    for some, exact in zip(found, wanted, strict=True):
        assert (some - exact).abs().max() <= ERROR * exact.abs().max()


def test_jax_differentiates_it() -> None:
    arrays = [
        jax.numpy.asarray(leaf(*shape).detach().float().numpy()) for shape in ((2, 130, 8), (2, 8, 130), (2, 130, 8))
    ]
    causal = np.tril(np.ones((130, 130), bool))

    def plain(q: Any, k: Any, v: Any) -> Any:
        weights = jax.nn.softmax(jax.numpy.where(causal, (q @ k) * 0.3, -jax.numpy.inf), axis=2)
        return ((weights @ v) ** 2).sum()

    def ours(q: Any, k: Any, v: Any) -> Any:
        return (attention_cte(q, k, v, 0.3) ** 2).sum()

    found, wanted = (jax.grad(function, argnums=(0, 1, 2))(*arrays) for function in (ours, plain))
    for some, exact in zip(found, wanted, strict=True):
        assert np.abs(some - exact).max() <= ERROR * np.abs(exact).max()


def test_what_has_no_derivative_says_so() -> None:
    q, k, v = leaf(1, 4, 4), leaf(1, 4, 4), leaf(1, 4, 4)
    prior = {"k_prior": k.detach(), "v_prior": v.detach(), "prior_used_len": torch.ones(1, dtype=torch.int32)}
    for options, name in ((prior, "k_prior"), ({"cache_softmax": True}, "cache_softmax")):
        with pytest.raises(KernelLimit, match=name) as refused:
            attention_cte(q, k, v, **options)
        assert refused.value.code == "nkilib.not-built"


REFUSED = {
    "d": ("nkilib.shape", "d is 129", call(4, 4, 129)),
    "heads": ("nkilib.shape", "heads is 3, 1 more than a multiple of 2", call(4, 4, heads=3)
              | {name: np.ones((1, 2, 16, 4), bfloat16) for name in ("k_ref", "v_ref")}),
    "keys": ("nkilib.shape", "dimension 3 of v_ref is 5, not keys=4", call(4, 4) | {"v_ref": call(4, 5)["v_ref"]}),
    "sums": ("nkilib.shape", "dimension 3 of lse_ref is 1, not 2", call(130, 4) | {"lse_ref": call(4, 4)["lse_ref"]}),
    "sinks": ("nkilib.shape", "dimension 1 of sinks_ref is 2, not heads=1", call(4, 4)
              | {"sinks_ref": np.ones((1, 2), np.float32)}),
    "dtypes": ("nkilib.dtype", "o_ref is float32", call(4, 4) | {"o_ref": call(4, 4)["o_ref"].astype(np.float32)}),
    "dtype": ("nkilib.dtype", "q_ref is int32", {n: x.astype(np.int32) for n, x in call(4, 4).items()}),
    "scale": ("nkilib.argument", "softmax_scale is -1.0", call(4, 4) | {"softmax_scale": -1.0}),
    "window": ("nkilib.argument", "sliding_window is -1", call(4, 4) | {"sliding_window": -1}),
    "bound": ("nkilib.argument", "bound_max alone", call(4, 4) | {"bound_max": np.ones(4, np.float32)}),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_limits_are_named(name: str) -> None:
    code, words, arguments = REFUSED[name]
    with pytest.raises(KernelLimit, match=re.escape(words)) as refused:
        nki.predict(attention_bwd, target="trn2")(**arguments)
    assert refused.value.code == code


def test_mixed_precision_is_told_to_have_no_effect() -> None:
    given = call(5, 4)
    with pytest.warns(WithoutEffect, match="mixed_precision has no effect as sums are float32 either way"):
        compare({**given, "mixed_precision": True})
