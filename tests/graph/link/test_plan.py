"""Device memory of models: never two values that are needed at once in the same bytes, and no more than needed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import count

import pytest

import nki.isa as nisa
import nki.language as nl
from nki.core.dtypes import bfloat16, float32
from nki.graph.ir import Function, TensorType, Value
from nki.graph.kernels import compile_function
from nki.graph.link.bind import bind
from nki.graph.link.plan import MemoryPlan, plan
from nki.graph.link.steps import KernelRun, ModelLoop, ModelSteps, Step, ValueCopy
from nki.graph.sharing import may_share
from nki.options import from_environment
from nki.spec.program import Program
from nki.target.load import load_target
from tests.graph.hand_made import line, value
from tests.together import together

_NUMBERS = count()


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


def _drawn(draw: random.Random, alive: list[Value], number: int) -> list[KernelRun]:
    """Runs on values that are there, which `alive` gets; any result may take the memory of any operand."""
    runs = []
    for _ in range(number):
        reads = draw.sample(alive, min(len(alive), draw.randint(1, 3)))
        made = [value(f"v{next(_NUMBERS)}", draw.choice([16, 32, 400])) for _ in range(draw.randint(1, 2))]
        pairs = [(n, k) for n, new in enumerate(made) for k, old in enumerate(reads) if new.type == old.type]
        runs.append(_run(reads, made, tuple(pairs)))
        alive[:] = [*alive, *made][-8:]
    return runs


def _looped(draw: random.Random, alive: list[Value]) -> ModelLoop:
    """A loop that carries one value, and reads others from outside."""
    initial, carried, test = alive[-1], value("carried", *alive[-1].type.shape), value("test", 16)
    inner = [*alive, carried]
    body = _drawn(draw, inner, 6)
    following = next((v for v in reversed(inner) if v.type == carried.type), carried)
    alive.append(carried)
    return ModelLoop((initial,), (carried,), [_run([carried], [test])], test, body, (following,), line(1))


def _execute(block: Sequence[Step], held: dict[int, Value], found: MemoryPlan, steps: ModelSteps) -> None:
    """Read and write the slots; each must hold the value that is read."""

    def check(read: Value) -> None:
        root = steps.root(read)
        assert held[found.of[root]] is root, f"{held[found.of[root]].name} is where {root.name} is read"

    for step in block:
        if isinstance(step, ModelLoop):
            for _ in range(2):
                _execute([*step.condition, *step.body], held, found, steps)
            continue
        reads, writes = (step.reads, step.writes) if isinstance(step, KernelRun) else ((step.source,), (step.target,))
        for read in reads:
            check(read)
        for written in map(steps.root, writes):
            held[found.of[written]] = written
            assert found.slots[found.of[written]].nbytes >= written.type.size * 4
        assert len({found.of[steps.root(each)] for each in writes}) == len(writes), "two results in one slot"


@pytest.mark.parametrize("donated", [{}, {0: 0, 1: 1}, {0: 1}])
@together("seed", range(24))
def test_every_value_is_there_when_it_is_read(seed, donated):
    """Random programs with loops, work in place and donated arguments, executed on slots that hold names."""
    draw = random.Random(seed)
    arguments = [value("a", 32), value("b", 32)]
    alive = list(arguments)
    runs: list[Step] = [*_drawn(draw, alive, 12)]
    runs.append(_looped(draw, alive))
    runs += _drawn(draw, alive, 12)
    made = [v for run in runs if isinstance(run, KernelRun) for v in run.writes if v.type == arguments[0].type]
    results = [made[-1], made[-2], arguments[0]]
    function = Function("main", tuple(arguments), [], tuple(results))
    steps = ModelSteps(list(runs))
    outputs = bind(function, steps)
    found = plan(function, steps, outputs, ["a", "b"], donated)
    held = {found.of[each]: each for each in arguments}
    _execute(steps.steps, held, found, steps)
    for each in outputs:
        assert held[found.of[each]] is each, "a result is still there at the end"
    given = [number for number in found.outputs if number in found.arguments]
    assert len(set(found.outputs)) == 3 and (donated or not given)
    assert found.nbytes("temporary") < found.bytes_without


def test_one_argument_gives_its_memory_to_one_result():
    a, result, more = (value(name, 64) for name in ("a", "result", "more"))
    out = value("out", 64)
    runs = [_run([a], [more, result], ((0, 0), (1, 0))), _run([more], [out])]
    found = _planned([a], runs, [result, out], donated={0: 0})
    assert found.of[result] == found.of[a] and found.of[more] != found.of[a]


def test_a_loop_keeps_the_argument_that_it_reads_in_every_trip():
    a, carried, first, test, made, following = (value(n, 64) for n in ("a", "carried", "first", "test", "made", "next"))
    body = [_run([a], [made], ((0, 0),)), _run([made, carried], [following])]
    loop = ModelLoop((first,), (carried,), [_run([carried], [test])], test, list(body), (following,), line(1))
    function = Function("main", (a, first), [], (carried,))
    steps = ModelSteps([loop])
    found = plan(function, steps, bind(function, steps), ["a", "first"], {0: 0})
    assert found.of[made] != found.of[a]


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
