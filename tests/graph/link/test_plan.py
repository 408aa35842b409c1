"""Device memory of models: never two values that are needed at once in the same bytes, and no more than needed."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

import nki.isa as nisa
import nki.language as nl
from nki.core.dtypes import bfloat16, float32
from nki.graph.ir import Function, TensorType, Value
from nki.graph.kernels import compile_function
from nki.graph.link.bind import bind
from nki.graph.link.plan import MemoryPlan, plan
from nki.graph.link.steps import KernelRun, ModelSteps, ValueCopy
from nki.graph.sharing import may_share
from nki.options import from_environment
from nki.spec.program import Program
from nki.target.load import load_target
from tests.graph.hand_made import line, value


def _run(reads: Sequence[Value], writes: Sequence[Value], within: tuple[tuple[int, int], ...] = ()) -> KernelRun:
    return KernelRun((), tuple(reads), tuple(writes), line(1), "pointwise", None, within)


def _planned(
    arguments: Sequence[Value], runs: Sequence[KernelRun], results: Sequence[Value], **more: object
) -> MemoryPlan:
    function = Function("main", tuple(arguments), [], tuple(results))
    steps = ModelSteps(list(runs))
    outputs = bind(function, steps)
    return plan(function, steps, outputs, [v.name for v in arguments], **more)


def test_a_chain_needs_two_slots():
    a = value("a", 128, 64)
    values = [value(f"v{n}", 128, 64) for n in range(10)]
    found = _planned([a], [_run([x], [y]) for x, y in zip([a, *values], values, strict=False)], [values[-1]])
    assert found.nbytes("temporary") == 2 * 128 * 64 * 4
    assert found.bytes_without == 9 * 128 * 64 * 4
    assert found.nbytes("output") == 128 * 64 * 4


def test_types_share_memory_and_small_values_take_small_slots():
    a = value("a", 16)
    big, small = value("big", 64, 64), value("small", 4, 4)
    other, tiny = value("other", 64, 128, dtype=bfloat16), value("tiny", 2, 2)
    last = value("last", 16)
    runs = [_run([a], [big, small]), _run([big, small], [last]), _run([last], [other, tiny]), _run([other, tiny], [a2])]
    found = _planned([a], runs, [a2])
    assert found.of[big] == found.of[other] and found.of[small] == found.of[tiny]


a2 = value("a2", 16)


@pytest.mark.parametrize("seed", range(20))
def test_values_that_are_needed_at_once_never_share_a_slot(seed):
    """Random programs, with lifetimes counted anew from the steps."""
    draw = random.Random(seed)
    arguments = [value("a", 32), value("b", 32)]
    alive, runs = list(arguments), []
    for number in range(40):
        reads = draw.sample(alive, min(len(alive), draw.randint(1, 3)))
        made = [value(f"v{number}_{k}", draw.choice([16, 32, 400])) for k in range(draw.randint(1, 2))]
        runs.append(_run(reads, made))
        alive = [*alive, *made][-8:]
    results = [alive[-1], alive[-2], arguments[0]]
    found = _planned(arguments, runs, results)
    first = {v: n for n, run in enumerate(runs) for v in run.writes}
    last = {v: first[v] for v in first}
    for number, run in enumerate(runs):
        last |= {v: number for v in run.reads if v in first}
    last |= {v: len(runs) for v in results if v in first}
    for one in first:
        assert found.slots[found.of[one]].nbytes >= one.type.size * 4
        for other in first:
            if one is not other and found.of[one] == found.of[other]:
                assert last[one] < first[other] or last[other] < first[one]
    assert len(set(found.outputs) | set(found.arguments)) == 5
    assert found.nbytes("temporary") < found.bytes_without


def test_an_operand_that_is_not_needed_later_gives_its_memory():
    a, b, c, d = (value(name, 64) for name in "abcd")
    out = value("out", 64)
    found = _planned(
        [a], [_run([a], [b]), _run([b, a], [c], ((0, 0),)), _run([c, a], [d], ((0, 0),)), _run([d], [out])], [out]
    )
    assert found.of[b] == found.of[c] == found.of[d]
    later = _planned([a], [_run([a], [b]), _run([b, a], [c], ((0, 0),)), _run([b, c], [out])], [out])
    assert later.of[b] != later.of[c], "b is read once more"


def test_an_argument_gives_its_memory_only_if_it_is_donated():
    a, b, c = (value(name, 64) for name in "abc")
    kept = _planned([a, b], [_run([a, b], [c], ((0, 0),))], [c])
    assert kept.of[c] != kept.of[a]
    given = _planned([a, b], [_run([a, b], [c], ((0, 0),))], [c], donated={0: 0})
    assert given.of[c] == given.of[a]


def test_a_result_keeps_its_memory_although_it_was_read_for_the_last_time():
    a, b, c = (value(name, 64) for name in "abc")
    runs = [_run([a], [b], ((0, 0),)), _run([b], [c], ((0, 0),))]
    found = _planned([a], runs, [b, c], donated={0: 0})
    assert found.of[b] == found.of[a] and found.of[c] not in (found.of[a], found.of[b])


def test_results_that_are_the_same_value_are_copied():
    a, b = value("a", 8), value("b", 8)
    function = Function("main", (a,), [], (b, b, a))
    steps = ModelSteps([_run([a], [b])])
    outputs = bind(function, steps)
    assert len(set(outputs)) == 3 and outputs[0] is b
    assert sum(isinstance(step, ValueCopy) for step in steps.steps) == 2
    assert TensorType((8,), a.type.dtype) == outputs[1].type


def _kernel(function: object, *shapes: tuple[int, ...]) -> Program:
    target = load_target("trn2")
    kinds = [TensorType(shape, float32) for shape in shapes]
    return compile_function("kernel", function, kinds, line(1), target, from_environment())[0]


def test_a_kernel_that_reads_before_it_writes_may_work_in_place():
    def scaled(a, out):
        for start in range(0, 256, 128):
            tile = nl.ndarray((128, 8), a.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=a[start : start + 128])
            nisa.dma_copy(dst=out[start : start + 128], src=tile)

    assert may_share(_kernel(scaled, (256, 8), (256, 8)), 1, load_target("trn2")) == ((0, 0),)


def test_a_kernel_that_reads_what_it_overwrote_may_not():
    def turned(a, out):
        for start in range(0, 256, 128):
            tile = nl.ndarray((128, 8), a.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=a[start : start + 128])
            nisa.dma_copy(dst=out[128 - start : 256 - start], src=tile)

    def moved(a, out):
        nisa.dma_copy(dst=out[0:255], src=a[1:256])
        nisa.dma_copy(dst=out[255:256], src=a[0:1])

    target = load_target("trn2")
    program = _kernel(turned, (256, 8), (256, 8))
    loads, stores = _positions(program)
    assert bool(may_share(program, 1, target)) == (max(loads) < min(stores)), "as the scheduler left it"
    assert may_share(_kernel(moved, (256, 8), (256, 8)), 1, target) == ()
    assert may_share(_kernel(moved, (256, 8), (256, 8)), 0, target) == ()


def _positions(program: Program) -> tuple[list[int], list[int]]:
    """Where the arguments are read and written, in the order of the program."""
    found: dict[str, list[int]] = {"src": [], "dst": []}
    for position, issued in enumerate(program.body.walk()):
        for name, view in issued.views():
            if view.buffer in program.inputs:
                found[name].append(position)
    return found["src"], found["dst"]
