"""A model never gets slower by kernels of patterns, whatever they take by themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np
import pytest

from nki.graph.compile import compile_module
from nki.graph.executable import Executable
from nki.graph.patterns import Match, Op, Pattern, Rewriter, register, unregister
from nki.graph.patterns.choice import Times
from nki.graph.patterns.whole import Everything, left_out
from tests.graph import xla
from tests.graph.patterns.test_choice import scaled


@pytest.fixture(autouse=True)
def _nothing_registered() -> Iterator[None]:
    yield
    unregister("scaled")


def _times(costs: dict[str, float], together: float = 0.0) -> Any:
    """What a whole takes: 100, less what kernels save; `together` more if several are used."""

    def time_without(keys: Mapping[str, Times]) -> float:
        kept = [key for key in costs if key not in keys]
        return 100.0 - sum(costs[key] for key in kept) + together * (len(kept) > 1)

    return time_without


def _left_out(costs: dict[str, float], together: float = 0.0, ns: float = 9.0, operations: int = 9) -> dict[str, Times]:
    used = dict.fromkeys(costs, Times(ns, 10.0))
    time_without = _times(costs, together)
    return left_out(used, time_without({}), operations, time_without)


def test_what_helps_stays() -> None:
    assert _left_out({"a": 5.0, "b": 1.0}) == {}


def test_one_that_costs_the_whole_time_is_left_out() -> None:
    assert _left_out({"a": 5.0, "b": -1.0, "c": 3.0}) == {"b": Times(93.0, 92.0)}


def test_all_are_left_out_where_the_model_is_faster_without_any() -> None:
    one = _left_out({"a": -5.0})
    assert isinstance(one, Everything) and one["a"] == Times(105.0, 100.0) and "another" in one
    assert isinstance(_left_out({"a": -1.0, "b": -2.0, "c": -3.0}, ns=1.0), Everything)


def test_two_that_are_in_each_other_s_way_are_not_both_used() -> None:
    assert len(_left_out({"a": 5.0, "b": 5.0}, together=7.0)) == 1


def test_what_was_left_out_first_comes_back_if_it_helps_without_others() -> None:
    def time_without(keys: Mapping[str, Times]) -> float:
        if isinstance(keys, Everything):
            return 200.0
        return {"": 100.0, "a": 99.0, "b": 90.0, "ab": 95.0}["".join(sorted(keys))]

    used = {"a": Times(9.9, 10.0), "b": Times(9.0, 10.0)}
    assert left_out(used, 100.0, 9, time_without) == {"b": Times(99.0, 95.0)}


def test_a_large_model_is_compared_once() -> None:
    costs = {"a": 5.0, "b": -1.0}
    assert _left_out(costs, operations=10**6) == {} and _left_out(costs).keys() == {"b"}
    assert isinstance(_left_out({"a": 1.0, "b": -2.0}, operations=10**6), Everything)


def test_what_nobody_else_computes_stays() -> None:
    asked: list[Mapping[str, Times]] = []
    assert left_out({"a": Times(9.0, None)}, 50.0, 9, lambda keys: asked.append(keys) or 1.0) == {}
    assert asked == []


def _match(r: Rewriter, op: Op) -> Match | None:
    inner = r.maker(op.operands[0], "tanh") if op.name == "multiply" else None
    return None if inner is None else Match(inner.operands, op.results, {"again": 40})


def _compiled(**settings: Any) -> tuple[Executable, list[Any], str]:
    inputs = [np.random.default_rng(3).standard_normal((64, 32)).astype(np.float32)]
    text = xla.lowered(lambda x: jax.numpy.sin(jax.numpy.tanh(x) * 2), *inputs)
    return compile_module(text, target="trn2", **settings), inputs, text


@pytest.mark.parametrize("lnc", [1, 2])
def test_a_kernel_that_only_seemed_faster_is_taken_out_again(monkeypatch: pytest.MonkeyPatch, lnc: int) -> None:
    monkeypatch.setattr("nki.graph.patterns.replacement.remembered", lambda key: Times(1000.0, 2000.0))
    register(Pattern("scaled", _match, scaled, choose="faster"))
    made, inputs, text = _compiled(lnc=lnc)
    plain, *_ = _compiled(patterns=[], lnc=lnc)
    (near,) = made.report.near
    assert made.report.replaced == () and near.ns is not None and near.own_ns is not None and near.ns > near.own_ns
    assert near.reason.startswith("slower as a whole, if not by itself: ")
    assert made.profile().makespan_ns == plain.profile().makespan_ns
    xla.assert_same(made.run(inputs), xla.run(text, inputs))


def test_what_is_made_for_the_part_alone_counts() -> None:
    """Without the kernel it would stay on chip with the rest."""

    def function(x: Any) -> Any:
        return jax.numpy.sin(jax.numpy.tanh(jax.numpy.exp(x) + x) * 2)

    inputs = [np.ones((128, 512), np.float32)]
    register(Pattern("scaled", _match, scaled, choose="faster"))
    made = compile_module(xla.lowered(function, *inputs), target="trn2")
    without = compile_module(xla.lowered(function, *inputs), target="trn2", patterns=[])
    (near,) = made.report.near
    assert near.own_ns == pytest.approx(without.profile().makespan_ns)
