"""Dependencies by handle and by name: recorded, kept by IR, and checked against the order of the program."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.core.errors import ArgumentError, ExecutionError, FrontendError, IRError, LaunchError
from nki.ir.build import build
from nki.ir.read import read
from nki.spec.sink import current_sink
from nki.testing.equality import differences
from tests.support import both, rejection

X = np.arange(6, dtype=np.float32).reshape(2, 3)


@nki.jit
def steps(a: Any) -> Any:
    """load, twice, plus, store: positions 0 to 3."""
    x, b, c = (nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf) for _ in range(3))
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=x, src=a, name="load")
    nisa.tensor_scalar(dst=b, data=x, op0=nl.multiply, operand0=2.0, name="twice")
    nisa.tensor_scalar(dst=c, data=x, op0=nl.add, operand0=1.0, name="plus")
    nisa.dma_copy(dst=out, src=c)
    return out


def edges_of(kernel: Any, *arrays: Any) -> list[list[tuple[int, int]]]:
    """Edges of every program as it was issued; the compiled one, in another order, has the same by what they join."""
    found, joined = [], []
    for made in (nki.simulate(kernel), kernel):
        made(*arrays)
        found.append([list(program.edges) for program in made.report.programs])
        joined.append([{(names[p], names[c]) for p, c in program.edges} for program, names in _named(made.report)])
    assert joined[0] == joined[1]
    return found[0]


def _named(report: Any) -> list[tuple[Any, list[str]]]:
    return [(p, [f"{i.instruction.name} {i.location}" for i in p.body.walk()]) for p in report.programs]


def test_named_edges_are_positions_of_instructions() -> None:
    made = steps.with_schedule([("plus", "twice"), ("plus", ["load", "twice"])])
    assert edges_of(made, X) == [[(0, 2), (1, 2)]]
    np.testing.assert_array_equal(both(made, X), X + 1)


def test_a_schedule_makes_another_kernel() -> None:
    made = steps.with_schedule([("plus", "twice")])
    assert edges_of(made.with_schedule([("twice", "load")]), X) == [[(0, 1)]]
    assert edges_of(made[1], X) == [[(1, 2)]]
    assert edges_of(steps, X) == [[]]


def test_a_schedule_changes_the_hash_of_the_ir() -> None:
    made = steps.with_schedule([("plus", "twice")])
    made(X), steps(X)
    assert made.report.kernel_hash != steps.report.kernel_hash


@pytest.mark.parametrize("edges", [None, "plus", [("plus",)], [("plus", [])], [("plus", 1)], [(1, "plus")], ["ab"]])
def test_other_forms_are_refused(edges: Any) -> None:
    with pytest.raises(LaunchError, match=r"schedule\.form"):
        steps.with_schedule(edges)


def test_unknown_name() -> None:
    error = rejection(steps.with_schedule([("plus", "lod")]), X)
    assert error.code == "schedule.unknown-name" and "load" in error.fix


def test_the_order_of_the_program_must_satisfy_the_edges() -> None:
    error = rejection(steps.with_schedule([("twice", "plus")]), X)
    assert isinstance(error, ExecutionError) and error.code == "schedule.order"
    assert rejection(steps.with_schedule([("plus", "plus")]), X).code == "schedule.order"


def test_ambiguous_name() -> None:
    def kernel(a: Any) -> Any:
        tile = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
        for _ in range(2):
            nisa.memset(dst=tile, value=0.0, name="fill")
        return a

    assert rejection(nki.jit(kernel).with_schedule([("fill", "fill")]), X).code == "schedule.ambiguous-name"


def test_an_edge_counts_on_the_cores_that_have_both_ends() -> None:
    @nki.jit
    def kernel(a: Any) -> Any:
        tile = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=a, name="load")
        if nl.program_id(0) == 1:
            nisa.memset(dst=tile, value=0.0, name="fill")
        return a

    assert edges_of(kernel[2].with_schedule([("fill", "load")]), X) == [[], [(0, 1)]]


def filled(times: int = 3) -> list[Any]:
    tile = nl.ndarray((1, 4), nl.float32, buffer=nl.sbuf)
    return [nisa.memset(dst=tile, value=float(i)) for i in range(times)]


def test_depends_on_returns_itself_and_adds_edges() -> None:
    @nki.jit
    def kernel(a: Any) -> Any:
        first, second, third = filled()
        assert third.depends_on(first, second) is third
        second.depends_on(first).depends_on(first)
        assert first.depends_on() is first
        return a

    assert edges_of(kernel, X) == [[(0, 1), (0, 2), (1, 2)]]


def test_depends_on_inside_a_device_loop() -> None:
    @nki.jit
    def kernel(a: Any) -> Any:
        def body(index: Any) -> None:
            first, second = filled(2)
            second.depends_on(first)

        filled(1)
        nl.fori_loop(0, 3, body)
        return a

    assert edges_of(kernel, X) == [[(1, 2)]]


def crossing(kind: str) -> Any:
    def kernel(a: Any) -> Any:
        (outside,) = filled(1)
        inside: list[Any] = []

        def body(index: Any) -> None:
            inside[:] = filled(1)
            if kind == "into":
                inside[0].depends_on(outside)

        nl.fori_loop(0, 2, body)
        if kind == "out of":
            filled(1)[0].depends_on(inside[0])
        if kind == "backwards":
            outside.depends_on(inside[0])
        return a

    return kernel


@pytest.mark.parametrize("kind", ["into", "out of", "backwards"])
def test_an_edge_does_not_cross_a_device_loop(kind: str) -> None:
    error = rejection(crossing(kind), X)
    assert isinstance(error, FrontendError) and error.code == "schedule.loop"


def test_a_named_edge_does_not_cross_a_device_loop() -> None:
    def kernel(a: Any) -> Any:
        tile = nl.ndarray((1, 4), nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=tile, value=0.0, name="before")
        nl.fori_loop(0, 2, lambda index: nisa.memset(dst=tile, value=1.0, name="inside"))
        return a

    assert rejection(nki.jit(kernel).with_schedule([("inside", "before")]), X).code == "schedule.loop"


def test_wrong_producers() -> None:
    def other(a: Any) -> Any:
        filled(1)[0].depends_on("load")
        return a

    def self_edge(a: Any) -> Any:
        (handle,) = filled(1)
        handle.depends_on(handle)
        return a

    error = rejection(other, X)
    assert isinstance(error, ArgumentError) and error.code == "schedule.producer"
    assert rejection(self_edge, X).code == "schedule.self"


def test_an_edge_against_the_order_is_refused() -> None:
    def kernel(a: Any) -> Any:
        first, second = filled(2)
        first.depends_on(second)
        return a

    assert rejection(kernel, X).code == "schedule.order"


def test_the_schedule_of_a_called_kernel_does_not_count_and_says_so() -> None:
    inner = steps.with_schedule([("plus", "twice")])
    outer = nki.jit(lambda a: (inner(a),))
    with pytest.warns(UserWarning, match=r"schedule\.nested"):
        np.testing.assert_array_equal(outer(X)[0], X + 1)
    assert outer.report.programs[0].edges == []


def test_ir_keeps_the_edges_and_refuses_wrong_ones() -> None:
    made = steps.with_schedule([("plus", "twice")])
    nki_program = nki.simulate(made)
    nki_program(X)
    (program,) = nki_program.report.programs
    (again,) = read(build([program]))
    assert again.edges == [(1, 2)] and differences(program, again) == []
    assert differences(program, dataclasses.replace(again, edges=[])) != []
    for edges in ([(0, 9)], [(-1, 2)]):
        with pytest.raises(IRError, match=r"ir\.value"):
            read(build([dataclasses.replace(program, edges=edges)]))
    with pytest.raises(ExecutionError, match=r"schedule\.order"):
        read(build([dataclasses.replace(program, edges=[(2, 1)])]))


def test_handles_of_another_kernel_are_refused() -> None:
    kept: list[Any] = []

    def first(a: Any) -> Any:
        kept[:] = filled(1)
        return a

    def second(a: Any) -> Any:
        assert current_sink("test") is not None
        filled(1)[0].depends_on(kept[0])
        return a

    nki.simulate(first)(X)
    with pytest.raises(FrontendError, match=r"schedule\.loop"):
        nki.simulate(second)(X)
