"""What fails inside of the graph compiler is an error with a code and the model's line, and the host may take it."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import nki.language as nl
from nki.core.errors import NkiError, TensorError
from nki.graph import emit
from nki.graph.compile import compile_module
from nki.graph.errors import GraphError
from nki.graph.passes import pipeline
from nki.graph.passes.simplify import RULES
from nki.interop.jax import compile as compile_jax
from tests.graph import xla

_TEXT = """
func.func @main(%x: tensor<7x13xf32>) -> tensor<7x13xf32> {
  %0 = stablehlo.negate %x : tensor<7x13xf32> loc("model.py":3:5)
  %1 = "stablehlo.sort"(%0) <{dimension = 1 : i64}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %2 = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %2 : tensor<i1>
  }) : (tensor<7x13xf32>) -> tensor<7x13xf32> loc("model.py":4:9)
  return %1 : tensor<7x13xf32>
}
"""


def _at_once(group: object, target: object) -> Callable[..., None]:
    raise KeyError("lost")


def _when_traced(group: object, target: object) -> Callable[..., None]:
    def kernel(*tensors: object) -> None:
        assert not tensors, "a kernel's own assertion"

    return kernel


def _with_a_broken_rule(group: object, target: object) -> Callable[..., None]:
    return lambda *tensors: nl.ndarray((200, 2), dtype=nl.float32, buffer=nl.sbuf)


@pytest.mark.parametrize(
    ("emitter", "cause"),
    [(_at_once, KeyError), (_when_traced, AssertionError), (_with_a_broken_rule, TensorError)],
)
def test_an_emitter_that_fails(emitter: object, cause: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(emit.EMITTERS, "sort", emitter)
    with pytest.raises(GraphError) as caught:
        compile_module(_TEXT, target="trn2")
    error = caught.value
    assert (error.code, type(error.__cause__)) == ("graph.internal", cause)
    named = error.__cause__.code if isinstance(error.__cause__, NkiError) else cause.__name__
    assert "the kernel for sort" in error.message and named in error.message and "report" in error.fix
    assert ("model.py", 4) in [(frame.file, frame.line) for frame in error.location.frames]


def test_a_pass_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(module: object, context: object) -> object:
        raise IndexError

    monkeypatch.setitem(pipeline.STAGES, "simplified", (broken,))
    with pytest.raises(GraphError, match="the pass broken failed with IndexError") as caught:
        compile_module(_TEXT, target="trn2")
    assert caught.value.code == "graph.internal"


def test_a_rule_that_fails_names_the_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, "negate", (lambda r, op: op.operands[7],))
    with pytest.raises(GraphError, match="rewriting negate failed with IndexError") as caught:
        compile_module(_TEXT, target="trn2")
    assert "model.py:3" in str(caught.value.location)


def test_what_comes_after_the_kernels_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> object:
        raise ZeroDivisionError

    monkeypatch.setattr("nki.graph.compile.plan", broken)
    with pytest.raises(GraphError, match="making one program of model failed with ZeroDivisionError"):
        compile_module(_TEXT, target="trn2")


@pytest.mark.parametrize("emitter", [_at_once, _when_traced])
def test_the_host_takes_what_fails(emitter: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(emit.EMITTERS, "sort", emitter)
    x = np.random.default_rng(0).standard_normal((5, 11), np.float32)
    with pytest.raises(NkiError, match=r"graph\.internal"):
        compile_jax(lambda x: jnp.sort(x * 2))(x)
    with pytest.warns(match="sort"):
        found = compile_jax(lambda x: jnp.sort(x * 2) + 1, fallback="host")(x)
    np.testing.assert_allclose(found, np.sort(x * 2) + 1)
    torch.compiler.reset()
    model = torch.compile(lambda x: torch.sort(x * 2)[0] + 1, backend="neuron", options={"fallback": "host"})
    with pytest.warns(match="sort"):
        kept = model(torch.from_numpy(x))
    np.testing.assert_allclose(kept.numpy(), np.sort(x * 2) + 1)


def _residual(a, w):
    h = jnp.swapaxes(a, 1, 2)
    return h @ w + h


def _shown(a, w):
    h = jnp.swapaxes(a, 0, 1)[2:]
    return h, jnp.tanh(h @ w)


@pytest.mark.parametrize(("function", "shape"), [(_residual, (1, 64, 4)), (_residual, (3, 64, 5)), (_shown, (64, 7))])
def test_a_view_that_is_operand_and_more(function: Callable[..., object], shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(1)
    inputs = [random.standard_normal(each, np.float32) for each in (shape, (64, 64))]
    text = xla.lowered(function, *inputs)
    xla.assert_same(compile_module(text, target="trn2").run(inputs), xla.run(text, inputs))
