"""A kernel makes several values of a model, also some that are written before the operation that a pattern finds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nki
import nki.language as nl
from nki.graph.compile import compile_module
from nki.graph.executable import Executable
from nki.graph.patterns import Choose, Match, Op, Pattern, Rewriter, register, unregister
from tests.graph import xla

ROWS, LENGTH = 64, 32


@nki.jit
def pair(x: Any, again: Any) -> Any:
    """``tanh(again)`` and ``exp(x)``."""
    outs = [nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm) for _ in range(2)]
    nl.store(outs[0], nl.tanh(nl.load(again)))
    nl.store(outs[1], nl.exp(nl.load(x)))
    return outs


def _match(r: Rewriter, op: Op) -> Match | None:
    """The hyperbolic tangent of anything, and the exponential that was written last."""
    found = [each for each in r.written if each.name == "exponential"]
    if op.name != "tanh" or not found:
        return None
    return Match((*found[-1].operands, *op.operands), (*op.results, *found[-1].results))


@pytest.fixture(params=["always", "faster"])
def choose(request: pytest.FixtureRequest) -> Iterator[Choose]:
    yield request.param
    unregister("pair")


def _compiled(function: Any, choose: Choose) -> tuple[Executable, list[Any], list[Any]]:
    register(Pattern("pair", _match, pair, choose=choose))
    inputs = [np.random.default_rng(5).standard_normal((ROWS, LENGTH)).astype(np.float32)]
    text = xla.lowered(function, *inputs)
    made = compile_module(text, target="trn2")
    return made, made.run(inputs), xla.run(text, inputs)


def test_what_uses_an_earlier_output_comes_after_the_kernel(choose: Choose) -> None:
    def function(x: Any) -> Any:
        before = jnp.exp(x)
        used = jnp.sin(before) + 1
        return jnp.tanh(x + 1) * used, before, x

    made, results, wanted = _compiled(function, choose)
    assert [each.pattern for each in made.report.replaced] == ["pair"] * (choose == "always")
    xla.assert_same(results, wanted)


def test_a_branch_that_uses_an_earlier_output_is_not_moved(choose: Choose) -> None:
    def function(x: Any) -> Any:
        before = jnp.exp(x)
        branch = jax.lax.cond(x[0, 0] > 0, lambda: before * 2, lambda: before - 1)
        return jnp.tanh(x + 1), branch

    made, results, wanted = _compiled(function, choose)
    (near,) = made.report.near
    assert near.reason == "some of its results are used in a loop or a branch before others are made"
    xla.assert_same(results, wanted)


def test_a_kernel_does_not_read_what_it_makes(choose: Choose) -> None:
    made, results, wanted = _compiled(lambda x: jnp.tanh(jnp.sin(jnp.exp(x))), choose)
    (near,) = made.report.near
    assert made.report.replaced == () and near.reason == "some of its results are needed for others of them"
    xla.assert_same(results, wanted)
