"""Small programs whose timelines are computed by hand from the numbers of the target."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import nki.isa as nisa
import nki.language as nl
from nki.core.errors import VerificationError
from nki.spec.program import Block, Sync, Wait
from nki.spec.step import Step
from nki.target.load import load_target
from nki.target.model import Target
from nki.timing.cost import cost_of
from nki.timing.timeline import timeline
from tests.timing.support import Sketch, program, tensor, traced, trivially

TRN1, TRN2 = load_target("trn1"), load_target("trn2")
SEMAPHORE = TRN2.timing["semaphore_ns"]


def busy(unit: str, ns: float, latency: float = 0.0) -> Step:
    return Step("Toy", unit, ns, latency)


def without(target: Target, feature: str) -> Target:
    return replace(target, features=target.features - {feature})


# --- engines and waits


def test_engines_run_side_by_side() -> None:
    sketch = Sketch()
    sketch.add("vector", busy("vector", 100, 10))
    sketch.add("scalar", busy("scalar", 70, 50))
    found = timeline(sketch.program(), TRN2)
    assert found.makespan == 120
    assert list(found.start) == [0, 0]


def test_a_wait_ends_when_the_result_is_visible_and_signalled() -> None:
    sketch = Sketch()
    first = sketch.add("vector", busy("vector", 100, 10))
    second = sketch.add("scalar", busy("scalar", 50, 20), after=[first])
    found = timeline(sketch.program(), TRN2)
    assert found.makespan == 110 + SEMAPHORE + 70
    moment = found.instruction(second)
    assert (moment.start, moment.wait_ns, moment.waited_for, moment.blocker) == (
        110 + SEMAPHORE,
        110 + SEMAPHORE,
        "wait",
        first,
    )


def test_a_queue_goes_on_before_a_result_is_visible() -> None:
    sketch = Sketch()
    for _ in range(3):
        sketch.add("vector", busy("vector", 100, 40))
    found = timeline(sketch.program(), TRN2)
    assert list(found.start) == [0, 100, 200]
    assert found.makespan == 340


@pytest.mark.parametrize(("engine", "signal"), [("vector", SEMAPHORE), ("scalar", SEMAPHORE), ("gpsimd", 0.0)])
def test_a_result_for_the_same_queue_is_read_when_it_is_in_memory(engine: str, signal: float) -> None:
    shared = tensor(50)
    sketch = Sketch()
    sketch.add(engine, busy(engine, 100, 60), dst=shared)
    sketch.add(engine, busy(engine, 100, 60), src=shared)
    found = timeline(sketch.program(), TRN2)
    assert list(found.start) == [0, 100 + 60 + signal]
    assert found.instruction(1).waited_for == "operand"


def test_other_parts_of_a_tensor_are_no_result() -> None:
    shared = tensor(50, columns=16)
    left, right = shared._replace(shape=(128, 8)), shared._replace(shape=(128, 8), offset=8)
    sketch = Sketch()
    sketch.add("vector", busy("vector", 100, 160), dst=left)
    sketch.add("vector", busy("vector", 100, 160), src=right)
    assert list(timeline(sketch.program(), TRN2).start) == [0, 100]


def test_signals_are_counted() -> None:
    """The wait is for the second signal; the instruction between the two gives none."""
    sketch = Sketch()
    for ns in (10, 20, 30, 40):
        sketch.add("vector", busy("vector", ns))
    sketch.add("scalar", busy("scalar", 5))
    block = sketch.block()
    block.sync = [
        Sync("vector", (), True),
        Sync("vector"),
        Sync("vector", (), True),
        Sync("vector"),
        Sync("scalar", (Wait("vector", 2),)),
    ]
    assert timeline(program(block), TRN2).start[4] == 10 + 20 + 30 + SEMAPHORE


def test_queues_complete_in_order() -> None:
    """The second instruction is short and without latency; its signal still comes after the first one's."""
    sketch = Sketch()
    sketch.add("vector", busy("vector", 100, 500))
    second = sketch.add("vector", busy("vector", 10))
    last = sketch.add("scalar", busy("scalar", 1), after=[second])
    assert timeline(sketch.program(), TRN2).start[last] == 600 + SEMAPHORE


# --- Tensor engine (trn1 has no limit on its clock)

LOAD, DEPTH, LATENCY = 20.0, 100.0, 7.0


def matmuls(count: int, work: float) -> Sketch:
    sketch = Sketch()
    for _ in range(count):
        sketch.add("tensor", Step("L", "tensor.load", LOAD, DEPTH), Step("M", "tensor", work, LATENCY))
    return sketch


def test_weights_load_behind_the_multiplication() -> None:
    assert timeline(matmuls(10, 90.0).program(), TRN1).makespan == LOAD + DEPTH + 10 * 90 + LATENCY


def test_loading_bounds_short_multiplications() -> None:
    assert timeline(matmuls(10, 5.0).program(), TRN1).makespan == 10 * LOAD + DEPTH + 5 + LATENCY


def test_only_the_next_weights_are_loaded_ahead() -> None:
    """Weights reach the array when the multiplication before has begun, not earlier."""
    found = timeline(matmuls(4, 90.0).program(), TRN1)
    begins = [LOAD + DEPTH + 90 * k for k in range(4)]
    assert list(found.start[1:] + DEPTH) == begins[:-1]
    assert list(found.end) == [b + 90 for b in begins]


def test_without_background_loading_each_matmul_is_on_its_own() -> None:
    target = without(TRN1, "background_load")
    assert timeline(matmuls(10, 90.0).program(), target).makespan == 10 * (LOAD + DEPTH + 90) + LATENCY


def test_a_cold_tensor_engine_runs_at_the_limit_first() -> None:
    throttle = TRN2.throttle
    rate, ramp = throttle.start_utilization, throttle.ramp_ns
    work = 50 * 90.0
    assert work * (1 / rate) > ramp
    found = timeline(matmuls(50, 90.0).program(), TRN2)
    expected = LOAD + DEPTH + ramp + (work - ramp * rate) + LATENCY
    assert found.makespan == pytest.approx(expected)
    assert found.busy["tensor"] == pytest.approx(ramp + work - ramp * rate)


# --- activation tables


def functions(target: Target, *operators: Any) -> Any:
    def kernel(a: Any) -> Any:
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        for op in operators:
            x = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
            y = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
            nisa.activation(dst=x, op=op, data=y)
        return out

    return trivially(traced(kernel, np.zeros((128, 600), np.float32), target=target)[0], target)


def test_another_function_loads_its_table() -> None:
    table = TRN2.timing["activation_table_load_ns"]
    occupied = (600 + TRN2.timing["issue_cycles"]) / TRN2.engines.scalar.ghz
    fixed = (TRN2.timing["scalar_fixed_cycles"] - TRN2.timing["issue_cycles"]) / TRN2.engines.scalar.ghz

    def length(*operators: Any) -> float:
        return timeline(functions(TRN2, *operators), TRN2).makespan

    assert length(nl.exp) == pytest.approx(table + occupied + fixed)
    assert length(nl.exp, nl.exp) == pytest.approx(table + 2 * occupied + fixed)
    assert length(nl.exp, nl.tanh) == pytest.approx(2 * table + 2 * occupied + fixed)
    assert length(nl.copy, nl.copy) == pytest.approx(2 * occupied + fixed)
    assert length(nl.square, nl.rsqrt, nl.square) == pytest.approx(table + 3 * occupied + fixed)


def test_a_table_loads_when_the_operands_are_there() -> None:
    table = TRN2.timing["activation_table_load_ns"]
    source = functions(TRN2, nl.exp)
    sketch = Sketch()
    slow = sketch.add("vector", busy("vector", table + 500))
    last = sketch.issue("scalar", next(source.body.walk()), after=[slow])
    found = timeline(sketch.program(), TRN2)
    assert found.start[last] == table + 500 + SEMAPHORE + table
    assert found.instruction(last).waited_for == "table"
    assert found.busy["scalar"] == table + cost_of(next(source.body.walk()), TRN2)[0].ns


# --- shared memory ports


@pytest.mark.parametrize(
    ("target", "engines", "region", "together"),
    [
        (TRN1, ("vector", "gpsimd"), "sbuf", False),
        (TRN2, ("vector", "gpsimd"), "sbuf", True),
        (TRN1, ("vector", "scalar"), "sbuf", True),
        (TRN1, ("vector", "scalar"), "psum", False),
        (TRN2, ("vector", "scalar"), "psum", True),
        (TRN1, ("vector", "gpsimd"), "psum", True),
    ],
)
def test_engines_take_turns_on_ports(target: Target, engines: tuple[str, str], region: str, together: bool) -> None:
    sketch = Sketch()
    for number, engine in enumerate(engines):
        operands = [tensor(2 * number + k, region, (0, 2048 * (2 * number + k))) for k in (0, 1)]
        sketch.add(engine, busy(engine, 100), dst=operands[0], src=operands[1])
    found = timeline(sketch.program(), target)
    assert found.makespan == (100 if together else 200)
    assert found.instruction(1).waited_for == ("" if together else "port")


@pytest.mark.parametrize(("bank", "together"), [(0, False), (1, True)])
def test_vector_and_scalar_take_turns_on_one_psum_bank(bank: int, together: bool) -> None:
    assert TRN2.access.parallel_psum_vector_scalar
    sketch = Sketch()
    for engine, address in (("vector", 64), ("scalar", bank * TRN2.psum.bank_bytes + 512)):
        sketch.add(engine, busy(engine, 100), src=tensor(len(engine), "psum", (0, address)))
    assert timeline(sketch.program(), TRN2).makespan == (100 if together else 200)


def test_the_allocator_says_which_bank_it_is() -> None:
    sketch = Sketch()
    for number, engine in enumerate(("vector", "scalar")):
        sketch.add(engine, busy(engine, 100), src=tensor(100 + number, "psum"))
    source = sketch.program()
    bank = TRN2.psum.bank_bytes
    assert timeline(replace(source, placement={100: (0, 0), 101: (0, 32)}), TRN2).makespan == 200
    assert timeline(replace(source, placement={100: (0, 0), 101: (0, bank)}), TRN2).makespan == 100


# --- what is refused


def test_a_program_without_queues_is_refused() -> None:
    sketch = Sketch()
    sketch.add("vector", busy("vector", 1))
    block = Block([], sketch.items)
    with pytest.raises(VerificationError) as error:
        timeline(program(replace(block, sync=[None])), TRN2)
    assert error.value.code == "timeline.unsynchronized"


@pytest.mark.parametrize(
    ("syncs", "code"),
    [
        ([Sync("vector", (), True), Sync("scalar", (Wait("vector", 2),))], "timeline.wait"),
        ([Sync("vector", (), True), Sync("engine", ())], "timeline.queue"),
        ([Sync("vector", (Wait("scalar", 1),), True), Sync("scalar", (Wait("vector", 1),), True)], "timeline.deadlock"),
    ],
)
def test_impossible_waits_are_refused(syncs: list[Sync | None], code: str) -> None:
    sketch = Sketch()
    sketch.add("vector", busy("vector", 1))
    sketch.add("scalar", busy("scalar", 1))
    with pytest.raises(VerificationError) as error:
        timeline(program(Block([], sketch.items, syncs)), TRN2)
    assert error.value.code == code
