"""Collectives run beside what does not need them: the order of steps, predicted times, and who waits for whom."""

from __future__ import annotations

import pytest

from nki.graph.compile import compile_module
from nki.graph.executable import Executable
from nki.graph.link.order import _order
from nki.spec.program import Issued

WHOLE = "tensor<512x512xbf16>"
PRODUCT = f"contracting_dims = [1] x [0] : ({WHOLE}, {WHOLE}) -> {WHOLE}"
MODEL = f"""
func.func public @main(%x: {WHOLE}, %w: {WHOLE}, %y: {WHOLE}) -> ({WHOLE}, {WHOLE}) {{
  %0 = stablehlo.dot_general %x, %w, {PRODUCT}
  %1 = "stablehlo.all_reduce"(%0) <{{replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>}}> ({{
  ^bb0(%a: tensor<bf16>, %b: tensor<bf16>):
    %c = stablehlo.add %a, %b : tensor<bf16>
    stablehlo.return %c : tensor<bf16>
  }}) : ({WHOLE}) -> {WHOLE}
  %2 = stablehlo.dot_general %1, %w, {PRODUCT}
  %3 = stablehlo.dot_general %y, %w, {PRODUCT}
  return %2, %3 : {WHOLE}, {WHOLE}
}}
"""


def compiled() -> Executable:
    return compile_module(MODEL, target="trn2", patterns=[])


def test_what_waits_for_a_collective_comes_after_what_does_not() -> None:
    needs = [set(), {0}, {1}, set(), {2}, {3}]
    collective = [False, True, False, False, False, False]
    assert _order(needs, [1, 5, 1, 1, 1, 1], collective) == [0, 1, 3, 5, 2, 4]
    assert _order(needs, [1, 1, 1, 1, 1, 1], collective) == [0, 1, 3, 2, 4, 5]
    assert _order(needs, [1, 5, 1, 1, 1, 1], [False] * 6) == list(range(6))
    # One collective goes after another one, which begins as soon as its operands are there.
    assert _order([set(), {0}, {1}, set(), {1, 3}], [1, 9, 1, 1, 9], [False, True, False, False, True]) == [
        0,
        1,
        3,
        4,
        2,
    ]


def test_no_more_than_two_collectives_are_ahead() -> None:
    """Weights that are gathered layer by layer: the next ones come while a layer computes, and not all at first."""
    needs, collective = [], []
    for layer in range(4):
        needs += [{2 * layer - 2} if layer else set(), {2 * layer, 2 * layer - 1} if layer else {0}]
        collective += [True, False]
    assert _order(needs, [3, 5] * 4, collective) == [0, 2, 1, 4, 3, 6, 5, 7]


def test_a_product_runs_beside_an_all_reduce(monkeypatch: pytest.MonkeyPatch) -> None:
    made = compiled()
    monkeypatch.setattr("nki.graph.compile.beside_collectives", lambda steps, target: None)
    ordered, written = (each.profile().makespan_ns for each in (made, compiled()))
    assert ordered < 0.95 * written
    rows = list(made.profile().tables["instructions"].rows())
    (reduce,) = (row for row in rows if row["opcode"] == "nki.collectives.all_reduce")
    beside = [row["end_ns"] for row in rows if row["kernel"] == reduce["kernel"] + 1]
    assert max(beside) < reduce["end_ns"] < max(row["end_ns"] for row in rows)


def test_nobody_waits_for_a_collective_but_who_reads_it() -> None:
    made = compiled()
    (program,), (calls,) = made.programs, made.model.part.kernels
    syncs = [sync for sync in program.body.sync or () if sync is not None]
    items = [item.instruction.name for item in program.body.items if isinstance(item, Issued)]
    (place,) = (number for number, name in enumerate(items) if name == "all_reduce")
    queue = syncs[place].queue
    assert [number for number, sync in enumerate(syncs) if sync.queue == queue] == [place]
    waiting = {number for number, sync in enumerate(syncs) if any(wait.queue == queue for wait in sync.waits)}
    assert waiting and all(calls[-1].first <= number < calls[-1].after for number in waiting)
