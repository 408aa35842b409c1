"""Kernels in place of parts of a model: attention, RMS norm, and how they are listed and switched off."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.graph import patterns
from nki.graph.compile import compile_module
from nki.graph.errors import GraphError
from nki.graph.passes.context import GraphContext
from nki.graph.passes.pipeline import run_passes
from nki.graph.patterns.attention.match import match as match_attention
from nki.graph.patterns.selection import replacements
from nki.graph.stablehlo.read import read
from nki.options import from_environment
from nki.target.load import load_target
from tests.graph import xla

_GENERATOR = np.random.default_rng(11)


@nki.jit
def rms_norm(x, weight, epsilon):
    rows, length = x.shape
    out = nl.ndarray((rows, length), dtype=x.dtype, buffer=nl.shared_hbm)
    data = nl.load(x)
    gain = nl.broadcast_to(nl.load(weight.reshape((1, length))), (rows, length))
    mean = nl.mean(nl.multiply(data, data), axis=1, keepdims=True)
    nl.store(out, nl.multiply(nl.multiply(data, nl.rsqrt(nl.add(mean, epsilon))), gain))
    return out


@nki.jit
def copied(x, weight, epsilon):
    out = nl.ndarray((1, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((1, 1), dtype=x.dtype, buffer=nl.sbuf)
    nisa.memset(dst=tile, value=0.0)
    nisa.dma_copy(dst=out, src=tile)
    return out


@pytest.fixture(autouse=True)
def _nothing_registered() -> Iterator[None]:
    yield
    for name in ("rms", "attention"):
        patterns.unregister(name)


def _normed(x, w, g):
    h = x @ w
    return h * jax.lax.rsqrt((h * h).mean(-1, keepdims=True) + 1e-5) * g


def _inputs() -> list[np.ndarray]:
    return [_GENERATOR.standard_normal(s).astype(np.float32) for s in ((64, 32), (32, 48), (48,))]


def test_rms_norm_is_replaced_and_listed() -> None:
    patterns.register_pattern("rms", patterns.match_rms_norm, rms_norm)
    inputs = _inputs()
    text = xla.lowered(_normed, *inputs)
    made = compile_module(text)
    xla.assert_same(made.run(inputs), xla.run(text, inputs))
    assert [each.pattern for each in made.report.replaced] == ["rms"]
    assert "test_patterns.py" in made.report.replaced[0].where


def test_patterns_can_be_switched_off() -> None:
    patterns.register_pattern("rms", patterns.match_rms_norm, rms_norm)
    inputs = _inputs()
    made = compile_module(xla.lowered(_normed, *inputs), patterns=frozenset())
    assert made.report.replaced == ()


def test_what_only_looks_like_it_stays() -> None:
    patterns.register_pattern("rms", patterns.match_rms_norm, rms_norm)

    def other(x, w, g):
        h = x @ w
        return h * jax.lax.rsqrt((h * x @ w).mean(-1, keepdims=True) + 1e-5) * g

    def half(x, w, g):
        h = x @ w
        return h * jax.lax.rsqrt((h * h).sum(-1, keepdims=True) / 24 + 1e-5) * g

    for function in (other, half):
        inputs = [np.ones(s, np.float32) for s in ((48, 32), (32, 48), (48,))]
        if function is other:
            inputs = [np.ones(s, np.float32) for s in ((48, 48), (48, 48), (48,))]
        context = GraphContext(load_target("trn2"), patterns=replacements(None))
        run_passes(read(xla.lowered(function, *inputs)), context)
        assert context.replaced == []


def test_kernels_of_patterns_are_compiled_with_the_options_that_were_given(tmp_path: Path) -> None:
    patterns.register_pattern("rms", patterns.match_rms_norm, rms_norm)
    options = replace(from_environment(), dump_ir=str(tmp_path))
    compile_module(xla.lowered(_normed, *_inputs()), target="trn2", options=options)
    assert list(tmp_path.glob("rms_norm/*.mlir"))


def test_a_kernel_that_returns_something_else_is_refused() -> None:
    patterns.register_pattern("rms", patterns.match_rms_norm, copied)
    with pytest.raises(GraphError) as caught:
        compile_module(xla.lowered(_normed, *_inputs()))
    assert caught.value.code == "graph.pattern"
    assert "test_patterns.py" in str(caught.value.location)


def _example() -> ModuleType:
    path = Path(__file__).parents[3] / "examples" / "flash_attention.py"
    spec = importlib.util.spec_from_file_location("flash_example", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _flash(r, op):
    """The example wants one head of 128, its scale, and the head dimension of q and k first."""
    found = match_attention(r, op)
    if found is None or len(found.inputs) != 3 or found.inputs[0].type.shape[1:] != (128,):
        return None
    dims = [found.facts[f"{name}_dims"] for name in "qkv"]
    q, k, v = (
        r.transpose(value, [given.index(letter) for letter in wanted])
        for value, given, wanted in zip(found.inputs, dims, ("dq", "dk", "kf"), strict=True)
    )
    return patterns.Match((q, k, v), found.outputs, {"causal": False}, found.finish)


def test_attention_is_replaced_by_flash_attention() -> None:
    patterns.register_pattern("attention", _flash, _example().flash_attention)

    def attention(q, k, v):
        scores = (q @ k.T).astype(jnp.bfloat16) * jnp.bfloat16(128**-0.5)
        return jax.nn.softmax(scores) @ v

    inputs = [_GENERATOR.standard_normal((512, 128)).astype(ml_dtypes.bfloat16) for _ in range(3)]
    made = compile_module(xla.lowered(attention, *inputs))
    assert [each.pattern for each in made.report.replaced] == ["attention"]
    (found,) = made.run(inputs)
    q, k, v = (array.astype(np.float32) for array in inputs)
    scores = q @ k.T / np.sqrt(128)
    soft = np.exp(scores - scores.max(-1, keepdims=True))
    wanted = soft / soft.sum(-1, keepdims=True) @ v
    assert np.abs(found.astype(np.float32) - wanted).max() < 2e-2


@nki.jit
def sum_and_difference(x, y):
    results = [nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm) for _ in range(2)]
    nl.store(results[0], nl.subtract(nl.load(x), nl.load(y)))
    nl.store(results[1], nl.add(nl.load(x), nl.load(y)))
    return tuple(results)


def _difference_after_sum(r, op):
    """A difference, with the sum of the same operands before it."""
    sums = [each for each in r.written if each.name == "add" and each.operands == op.operands]
    if op.name != "subtract" or not sums:
        return None
    return patterns.Match(op.operands, (*op.results, *sums[0].results))


@pytest.fixture
def _both() -> Iterator[None]:
    patterns.register(patterns.Pattern("both", _difference_after_sum, sum_and_difference))
    yield
    patterns.unregister("both")


@pytest.mark.usefixtures("_both")
def test_a_kernel_makes_results_of_several_operations() -> None:
    x, y = (_GENERATOR.standard_normal((4, 8)).astype(np.float32) for _ in range(2))

    def function(x, y):
        total = x + y
        return jnp.sin(total), (x - y) * 2, total

    made = compile_module(xla.lowered(function, x, y), target="trn2", patterns=["both"])
    found = made.run([x, y])
    assert [each.pattern for each in made.report.replaced] == ["both"]
    for one, other in zip(found, (np.sin(x + y), (x - y) * 2, x + y), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("_both")
def test_results_that_others_of_them_need_stay() -> None:
    x = _GENERATOR.standard_normal((4, 8)).astype(np.float32)

    def needs(r, op):
        sums = [each for each in r.written if each.name == "add"]
        return patterns.Match(op.operands, (*op.results, *sums[0].results)) if op.name == "subtract" else None

    patterns.register(patterns.Pattern("both", needs, sum_and_difference))
    made = compile_module(xla.lowered(lambda x: (x + x) - x, x), target="trn2", patterns=["both"])
    assert not made.report.replaced
    assert [each.reason for each in made.report.near] == ["some of its results are needed for others of them"]
