"""Costs: every declaration states one, they are finite on every target, and they grow with sizes."""

from __future__ import annotations

from math import isfinite
from typing import Any

import pytest

from nki.language import add, copy, exp, log, maximum, multiply, rsqrt, square, tanh
from nki.spec.cost import activation_table
from nki.spec.engine import engine as Engine
from nki.spec.instruction import REGISTRY
from nki.spec.operator import operator_of
from nki.spec.step import UNITS
from nki.target import load_target
from tests.isa.executed import executed
from tests.spec.pieces import alone, busy, hbm, psum, sbuf, steps
from tests.together import together


@together("name", REGISTRY)
def test_every_declaration_says_what_it_costs_and_why(name: str) -> None:
    cost = REGISTRY[name].steps
    assert cost is not None
    assert cost.source or cost.estimate


@pytest.mark.parametrize("name", REGISTRY)
def test_every_legal_example_costs_something_on_every_target(name: str) -> None:
    cost, toy = REGISTRY[name].steps, load_target("unit")
    mine = [done for done in executed() if done.issued.instruction.name == name]
    assert mine and cost is not None
    for done in mine:
        for target in (load_target(done.target), *((toy,) if REGISTRY[name].exists_on(toy) else ())):
            result = cost.formula(done.issued.arguments, target, done.issued.engine)
            assert result
            for step in result:
                assert step.unit in UNITS and step.name
                assert isfinite(step.ns) and step.ns > 0 and isfinite(step.latency) and step.latency >= 0
                assert (step.nbytes > 0) == (step.descriptors > 0) == (step.unit == "dma")


def test_the_engine_that_runs_an_instruction_is_the_one_that_is_busy() -> None:
    for done in executed():
        engine, cost = done.issued.engine, done.issued.instruction.steps
        assert cost is not None
        result = cost.formula(done.issued.arguments, load_target(done.target), engine)
        units = {step.unit.partition(".")[0] for step in result}
        if engine is Engine.dma or done.issued.instruction.name in ("dma_copy", "device_print"):
            assert units <= {"dma", "sync", "gpsimd", "scalar"}
        else:
            assert units == {engine.name}


ADD, MULTIPLY, MAXIMUM, EXP = (operator_of(f, "op") for f in (add, multiply, maximum, exp))


def _tile(count: int) -> Any:
    return sbuf(128, count)


GROWING = {
    "activation": lambda n: {"dst": _tile(n), "data": _tile(n), "op": EXP},
    "tensor_copy": lambda n: {"dst": _tile(n), "src": psum(128, n)},
    "tensor_tensor": lambda n: {"dst": _tile(n), "data1": _tile(n), "data2": _tile(n), "op": ADD},
    "tensor_reduce": lambda n: {"dst": _tile(1), "data": _tile(n), "op": ADD, "axis": (1,)},
    "nc_matmul": lambda n: {"dst": psum(128, n), "stationary": _tile(128), "moving": _tile(n)},
    "iota": lambda n: {"dst": _tile(n), "pattern": ((1, n),)},
    "dma_copy": lambda n: {"dst": _tile(n), "src": hbm(128, n)},
    "dma_transpose": lambda n: {"dst": _tile(n), "src": hbm(n, 128)},
    "dma_compute": lambda n: {"dst": _tile(n), "srcs": (hbm(128, n), _tile(n)), "reduce_op": ADD},
}


@together("target", ["trn2", "trn3"])
@together("name", GROWING)
def test_more_elements_take_no_less_and_in_the_end_longer(name: str, target: str) -> None:
    times = [busy(name, target, **GROWING[name](n)) for n in (1, 2, 16, 128, 512, 2048, 8192)]
    assert times == sorted(times)
    assert times[-1] > times[0]
    assert times[-1] / times[-2] == pytest.approx(4.0, rel=0.1)


def test_a_newer_generation_is_not_slower_at_large_tiles() -> None:
    for name, arguments in GROWING.items():
        if REGISTRY[name].exists_on(load_target("trn1")):
            old, new = (busy(name, target, **arguments(8192)) for target in ("trn2", "trn3"))
            assert new <= old, name


def test_tables_of_the_activation_unit() -> None:
    """Profiles of a normalization and of an optimizer step square and take roots without loading between them; the
    sets that work-with-neff-files.rst names tell of exponentials and logarithms."""
    target = load_target("trn2")
    table = {f: activation_table(_activation(f), target) for f in (exp, log, square, rsqrt, tanh, copy)}
    assert table[square] == table[rsqrt] == "rsqrt and square"
    assert table[exp] == table[log] == "exp and log"
    assert table[tanh] == "tanh" and table[copy] is None
    other = REGISTRY["tensor_reduce"]
    assert activation_table(other.arguments(**(dict.fromkeys(other.operands) | {"op": ADD})), target) is None


def _activation(function: Any) -> Any:
    instruction = REGISTRY["activation"]
    return instruction.arguments(**(dict.fromkeys(instruction.operands) | {"op": operator_of(function, "op")}))


def test_registers_cost_their_sequencer_and_device_memory_is_far() -> None:
    assert steps("register_move", engine=Engine.vector)[0].unit == "vector"
    near, far = (alone("register_load", src=place) for place in (sbuf(1, 1, dtype="int32"), hbm(1, 1, dtype="int32")))
    assert near < 200 < 1300 < far


def test_collectives_take_longer_among_more_ranks() -> None:
    def of(name: str, ranks: int) -> float:
        group = (tuple(range(ranks)),)
        return busy(name, srcs=(hbm(1024, 1024),), dsts=(hbm(1024, 1024),), replica_group=group)

    for name in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
        times = [of(name, ranks) for ranks in (1, 2, 4, 32)]
        assert times[1] < times[2] < times[3], name
    assert of("all_reduce", 8) > of("reduce_scatter", 8)
