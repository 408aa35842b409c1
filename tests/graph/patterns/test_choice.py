"""Kernels of patterns are used where the timing model says that they are faster, and reports say why they are not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import nki
import nki.language as nl
from nki.core.errors import NkiError
from nki.graph.compile import GraphCompilation, compile_module
from nki.graph.executable import Executable
from nki.graph.ir import Module
from nki.graph.patterns import Match, NearMiss, Op, Pattern, Rewriter, register, unregister
from nki.graph.report import GraphReport
from tests.graph import xla

ROWS, LENGTH = 64, 32


@nki.jit
def scaled(x: Any, again: int) -> Any:
    """``tanh(x) * 2``, which is made as often as `again` says."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for _ in range(again):
        nl.store(out, nl.multiply(nl.tanh(nl.load(x)), 2.0))
    return out


def _matcher(again: int, turned: bool = False) -> Any:
    def match(r: Rewriter, op: Op) -> Match | None:
        inner = r.maker(op.operands[0], "tanh") if op.name == "multiply" else None
        if inner is None or r.scalar_of(op.operands[1]) is None:
            return None
        (x,) = inner.operands
        if x.type.shape[-1] != LENGTH:
            raise NearMiss(f"rows of {x.type.shape[-1]}, the kernel takes {LENGTH}")
        x = r.transpose(r.transpose(r.same("negate", x), (1, 0)), (1, 0)) if turned else x
        finish = (lambda r, values: [r.same("negate", values[0])]) if turned else None
        return Match((x,), op.results, {"again": again}, finish)

    return match


@pytest.fixture(autouse=True)
def _nothing_registered() -> Iterator[None]:
    yield
    unregister("scaled")


def _model(x: Any, w: Any) -> Any:
    for _ in range(3):
        x = jax.numpy.sin(jax.numpy.tanh(x @ (w / 8)) * 2)
    return x


def _compiled(length: int = LENGTH, function: Any = _model, **settings: Any) -> tuple[Executable, list[Any], str]:
    random = np.random.default_rng(5)
    inputs = [random.standard_normal(shape).astype(np.float32) for shape in ((ROWS, length), (length, length))]
    text = xla.lowered(function, *inputs)
    return compile_module(text, target="trn2", **settings), inputs, text


def test_a_kernel_that_is_slower_stays_out_and_the_report_says_both_times() -> None:
    register(Pattern("scaled", _matcher(30), scaled, choose="faster"))
    made, inputs, text = _compiled()
    assert made.report.replaced == () and len(made.report.near) == 3
    near = made.report.near[0]
    assert near.ns is not None and near.own_ns is not None and near.ns > near.own_ns > 0
    assert near.reason == f"slower: {near.ns / 1000:.2f} µs with the kernel, {near.own_ns / 1000:.2f} µs without"
    xla.assert_same(made.run(inputs), xla.run(text, inputs))


def test_a_pattern_may_say_that_its_kernel_is_always_used() -> None:
    register(Pattern("scaled", _matcher(30), scaled))
    made, inputs, text = _compiled()
    assert [(each.pattern, each.ns) for each in made.report.replaced] == [("scaled", None)] * 3
    xla.assert_same(made.run(inputs), xla.run(text, inputs))


def test_the_times_are_those_of_the_whole_with_the_kernel_and_without() -> None:
    def function(x: Any, w: Any) -> Any:
        del w
        return jax.numpy.tanh(x).reshape(-1, 2, LENGTH // 2).reshape(x.shape) * 2 + x

    register(Pattern("scaled", _matcher(30), scaled, choose="faster"))
    slow, *_ = _compiled(function=function)
    register(Pattern("scaled", _matcher(30), scaled))
    with_kernel, *_ = _compiled(function=function)
    without, *_ = _compiled(function=function, patterns=[])
    (near,) = slow.report.near
    assert near.own_ns == pytest.approx(without.profile().makespan_ns)
    assert near.ns is not None and near.ns <= with_kernel.profile().makespan_ns


def test_equal_layers_ask_once_and_other_processes_not_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NKI_CACHE", "1")
    monkeypatch.setenv("NKI_CACHE_DIR", str(tmp_path))
    asked: list[Module] = []
    time_of = GraphCompilation.time_of
    monkeypatch.setattr(
        GraphCompilation, "time_of", lambda self, m, patterns: asked.append(m) or time_of(self, m, patterns)
    )
    register(Pattern("scaled", _matcher(31), scaled, choose="faster"))
    first, *_ = _compiled()
    assert len(asked) == 1 and len(first.report.near) == 3
    monkeypatch.setattr("nki.graph.patterns.choice._KNOWN", {})
    again, *_ = _compiled()
    assert len(asked) == 1 and again.report.near == first.report.near
    _compiled(lnc=2)
    assert len(asked) > 1


def test_a_kernel_is_compared_with_those_of_later_patterns() -> None:
    register(Pattern("scaled", _matcher(30), scaled, choose="faster"))
    without, *_ = _compiled()
    register(Pattern("later", _matcher(40), scaled))
    try:
        made, inputs, text = _compiled()
    finally:
        unregister("later")
    assert [(each.pattern, each.own_ns) for each in without.report.near] != []
    (found, *others), own = made.report.replaced, without.report.near[0].own_ns
    assert found.pattern == "scaled" and found.ns is not None and found.own_ns is not None
    assert len(others) == 2 and found.ns < found.own_ns and own is not None and own < found.own_ns
    xla.assert_same(made.run(inputs), xla.run(text, inputs))


def test_layers_with_other_weights_are_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Module] = []
    time_of = GraphCompilation.time_of

    def counted(self: GraphCompilation, module: Module, patterns: Any) -> float:
        asked.append(module)
        return time_of(self, module, patterns)

    def match(r: Rewriter, op: Op) -> Match | None:
        inner = r.maker(op.operands[0], "multiply") if op.name == "tanh" else None
        return None if inner is None else Match((op.operands[0],), op.results, {"again": 30})

    def function(x: Any) -> Any:
        random = np.random.default_rng(7)
        for _ in range(3):
            x = jax.numpy.tanh(x * random.standard_normal((ROWS, LENGTH)).astype(np.float32))
            x = x @ random.standard_normal((LENGTH, LENGTH)).astype(np.float32)
        return x

    monkeypatch.setattr(GraphCompilation, "time_of", counted)
    register(Pattern("scaled", match, scaled, choose="faster"))
    made = compile_module(xla.lowered(function, np.ones((ROWS, LENGTH), np.float32)), target="trn2")
    assert len(made.report.near) == 3 and len(asked) == 1


def test_what_a_matcher_made_for_nothing_is_taken_out_again() -> None:
    register(Pattern("scaled", _matcher(30, turned=True), scaled, choose="faster"))
    left, inputs, text = _compiled()
    unregister("scaled")
    plain, *_ = _compiled()
    assert left.report.near and left.report.kernels == plain.report.kernels
    assert left.report.operations == plain.report.operations
    xla.assert_same(left.run(inputs), xla.run(text, inputs))


def test_moves_that_a_kernel_needs_count() -> None:
    def function(x: Any, w: Any) -> Any:
        return jax.numpy.tanh(x @ w) * 2

    found = []
    for turned in (False, True):
        register(Pattern("scaled", _matcher(30, turned=turned), scaled, choose="faster"))
        made, *_ = _compiled(function=function, lnc=2)
        found.append(made.report.near[0].ns)
    assert found[0] < found[1]


def test_a_matcher_says_what_it_nearly_found() -> None:
    register(Pattern("scaled", _matcher(1), scaled))
    made, inputs, text = _compiled(LENGTH + 1)
    assert made.report.replaced == ()
    assert [each.reason for each in made.report.near] == [f"rows of {LENGTH + 1}, the kernel takes {LENGTH}"] * 3
    assert {"test_choice.py" in each.where for each in made.report.near} == {True}
    assert f"3 times: nearly, but rows of {LENGTH + 1}, the kernel takes {LENGTH}" in str(made.report)
    xla.assert_same(made.run(inputs), xla.run(text, inputs))


def test_reports_are_kept_in_files() -> None:
    register(Pattern("scaled", _matcher(30), scaled, choose="faster"))
    near, *_ = _compiled()
    register(Pattern("scaled", _matcher(30), scaled))
    replaced, *_ = _compiled()
    for report in (near.report, replaced.report):
        read = GraphReport.of_json(json.loads(json.dumps(report.to_json())))
        assert (read.replaced, read.near) == (report.replaced, report.near) and str(read) == str(report)
    old = {"model": "m", "target": "trn2", "replaced": [["scaled", "m.py:3:1"]], "fallbacks": [], "unsplit": []}
    assert GraphReport.of_json(old).replaced[0].where == "m.py:3:1"


class _TooLong(NkiError, ValueError):
    pass


@nki.jit
def refusing(x: Any, again: int) -> Any:
    """Refuses all arguments."""
    raise _TooLong("test.rows", f"{again} times is too often", rule="it is made once", fix="make it once")


@nki.jit
def large(x: Any, again: int) -> Any:
    """Has no room on chip."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    wide = nl.ndarray((128, 1 << 17), dtype=nl.float32, buffer=nl.sbuf)
    nl.store(out, nl.add(nl.load(x), wide[0:ROWS, 0:LENGTH]))
    return out


def test_what_a_kernel_refuses_is_a_near_miss_if_the_pattern_says_so() -> None:
    register(Pattern("scaled", _matcher(2), refusing, choose="faster", refuses=(_TooLong,)))
    made, *_ = _compiled()
    assert {each.reason for each in made.report.near} == {"the kernel refuses it: 2 times is too often"}
    register(Pattern("scaled", _matcher(2), refusing, choose="faster"))
    with pytest.raises(_TooLong, match="too often"):
        _compiled()


def test_a_kernel_without_room_is_a_near_miss_unless_it_is_wanted() -> None:
    register(Pattern("scaled", _matcher(2), large, choose="faster"))
    made, *_ = _compiled()
    assert all("the kernel refuses it" in each.reason for each in made.report.near) and len(made.report.near) == 3
    register(Pattern("scaled", _matcher(2), large))
    with pytest.raises(NkiError, match="capacity"):
        _compiled()
