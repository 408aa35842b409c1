"""One program from many kernels: right numbers, places and lines kept, and queues that need not wait go on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.core.dtypes import bool_, int32
from nki.graph import emit
from nki.graph.compile import Setting, compile_module
from nki.graph.errors import GraphError
from nki.graph.executable import Executable
from nki.graph.ir import Group, Module, Op, Region
from nki.passes.proof.happens_before import check
from nki.spec.program import WhileLoop
from nki.target.load import load_target
from nki.timing.timeline import spent_by
from tests.graph import stages
from tests.graph.hand_made import EMITTERS, constant, group, line, module, value, whole
from tests.graph.references_made import called

_SETTING = Setting(name="model", target="trn2", emitters=EMITTERS)


def _compiled(made: Module) -> Executable:
    return stages.compiled(made, _SETTING)


def _random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).random(shape, np.float32)


@nki.jit
def doubled(a):
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=out, src=tile)
    return out


@nki.jit
def added_in_place(a, b):
    tile = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
    other = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a)
    nisa.dma_copy(dst=other, src=b)
    nisa.tensor_tensor(dst=tile, data1=tile, data2=other, op=nl.add)
    nisa.dma_copy(dst=a, src=tile)
    return a


@nki.jit
def two_sums(a):
    """Halves of one tensor: results that are parts of their buffer."""
    out = nl.ndarray((a.shape[0], 2, a.shape[1]), a.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a)
    for part in range(2):
        made = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=made, data=tile, op0=nl.add, operand0=float(part + 1))
        nisa.dma_copy(dst=out[:, part, :], src=made)
    return out[:, 0, :], out[:, 1, :]


def test_a_chain_of_kernels_gives_what_numpy_gives():
    a, b = value("a", 128, 64), value("b", 128, 64)
    values = [value(f"v{number}", 128, 64) for number in range(6)]
    body = [group("add" if n % 2 else "multiply", ((a, *values)[n], b), values[n], n + 1) for n in range(6)]
    found = _compiled(module((a, b), body, values[-1]))
    x, y = _random(128, 64), _random(128, 64) + 1
    expected = x
    for number in range(6):
        expected = expected + y if number % 2 else expected * y
    for _ in range(3):  # NumPy, then compiled functions
        assert np.array_equal(found.run([x, y])[0], expected)
    assert found.report.distinct == 2, "equal groups share a kernel"
    assert found.report.kernels == {"pointwise": 6}
    assert not check(found.programs, load_target("trn2"))


def test_kernels_that_do_not_depend_on_each_other_overlap():
    pairs = [(value(f"a{n}", 128, 512), value(f"b{n}", 128, 512), value(f"r{n}", 128, 512)) for n in range(4)]
    body = [group("add", (a, b), r) for a, b, r in pairs]
    found = _compiled(module([v for a, b, _ in pairs for v in (a, b)], body, *[r for *_, r in pairs]))
    a, b, r = (value(name, 128, 512) for name in "abr")
    alone = _compiled(module((a, b), [group("add", (a, b), r)], r))
    target = load_target("trn2")
    one, four = (spent_by(each.programs[0], target).ns for each in (alone, found))
    assert four < 3 * one, "the kernels start before the one before has ended"


def test_instructions_know_the_models_line():
    a, b, c, d = (value(name, 128, 8) for name in "abcd")
    found = _compiled(module((a, b), [group("add", (a, b), c, 11), group("add", (c, b), d, 22)], d))
    lines = {frame.line for issued in found.programs[0].body.walk() for frame in issued.location.frames[-1:]}
    assert lines == {11, 22}


def test_results_that_are_arguments_or_equal_have_memory_of_their_own():
    a, b, c = (value(name, 128, 8) for name in "abc")
    found = _compiled(module((a, b), [group("add", (a, b), c)], a, c, c))
    x, y = _random(128, 8), _random(128, 8)
    first, second, third = found.run([x, y])
    assert np.array_equal(first, x) and np.array_equal(second, x + y) and np.array_equal(third, x + y)
    assert not any(np.shares_memory(p, q) for p, q in ((first, x), (second, third)))


def test_a_reshape_needs_no_kernel():
    a, b = value("a", 128, 8), value("b", 8, 128)
    flat, made = value("flat", 8, 128), value("made", 8, 128)
    body = [whole(Op("reshape", (a,), (flat,))), group("add", (flat, b), made)]
    found = _compiled(module((a, b), body, made, flat))
    x, y = _random(128, 8), _random(8, 128)
    assert np.array_equal(found.run([x, y])[0], x.reshape(8, 128) + y)
    assert np.array_equal(found.run([x, y])[1], x.reshape(8, 128))
    assert found.report.kernels == {"pointwise": 1, "copy": 1}


def test_constants_scalars_and_truth_values():
    a, p, q, r = value("a"), value("p", 4), value("q", 4), value("r", dtype=bool_)
    weight = constant(np.arange(4, dtype=np.float32))
    body = [weight, group("add", (p, weight.results[0]), q), group("compare", (a, a), r, comparison_direction="LT")]
    found = _compiled(module((a, p), body, q, r))
    first, second = found.run([np.float32(3).reshape(()), np.ones(4, np.float32)])
    assert np.array_equal(first, [1, 2, 3, 4])
    assert second.shape == () and second.dtype == np.bool_ and not second


def test_a_kernel_of_the_user_keeps_instructions_and_distances():
    a, b, c, d = (value(name, 128, 16) for name in "abcd")
    x, y = _random(128, 16), _random(128, 16)
    call, kept = called(doubled, (x,), (c,), d, at=5)
    found = _compiled(module((a, b), [group("add", (a, b), c, 4), call], d))
    assert np.array_equal(found.run([x, y])[0], (x + y) * 2)
    own = [issued for issued in kept.programs[0].body.walk()]
    linked = [i for i in found.programs[0].body.walk() if i.location.frames[-1].line == 5]
    assert [i.instruction for i in linked] == [i.instruction for i in own]
    assert "doubled" in linked[0].location.frames[0].function, "the kernel's line comes before the model's"
    syncs = found.programs[0].body.sync[-len(own) :]
    queues = {(sync.queue, old.queue) for sync, old in zip(syncs, kept.programs[0].body.sync, strict=True)}
    assert len(queues) == len({now for now, _ in queues}) == len({old for _, old in queues}), "queues are other ones"
    places = {b.name: kept.programs[0].placement[b.id] for b in kept.programs[0].body.all_buffers() if b.on_chip}
    now = {b.name: found.programs[0].placement.get(b.id) for b in found.programs[0].body.all_buffers()}
    moved = {now[name][1] - byte for name, (_, byte) in places.items()}
    assert len(moved) == 1 and moved.pop() > 0, "it works beside the kernel before it"


def test_a_kernel_that_writes_its_operand_leaves_the_argument_alone():
    a, b, c, d, e = (value(name, 128, 16) for name in "abcde")
    x, y = _random(128, 16), _random(128, 16)
    before = x.copy()
    first, kept = called(added_in_place, (x, y), (a, b), c)
    second, _ = called(added_in_place, (x, y), (c, a), d)
    found = _compiled(module((a, b), [first, second], d))
    assert np.array_equal(found.run([x, y])[0], (x + y) + x)
    assert np.array_equal(x, before)
    assert found.report.kernels == {"call": 2, "copy": 2}, "one for the argument, one for the result"
    del kept, e


def test_results_of_a_kernel_that_are_parts_of_a_tensor():
    a, b, c, d = (value(name, 128, 16) for name in "abcd")
    x = _random(128, 16)
    call, kept = called(two_sums, (x,), (a,), b, c)
    found = _compiled(module((a,), [call, group("multiply", (b, c), d)], d, b))
    first, second = found.run([x])
    assert np.array_equal(first, (x + 1) * (x + 2)) and np.array_equal(second, x + 1)
    del kept


@nki.jit
def halves(a):
    """Each core doubles half of the rows."""
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    rows, core = a.shape[0] // 2, nl.program_id(0)
    tile = nl.ndarray((rows, a.shape[1]), a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a[core * rows : (core + 1) * rows])
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=out[core * rows : (core + 1) * rows], src=tile)
    return out


def test_a_kernel_on_two_cores_makes_a_model_on_two_cores(tmp_path):
    a, b, c, d, e, f = (value(name, 128, 16) for name in "abcdef")
    x, y = _random(128, 16), _random(128, 16) + 1
    first, kept = called(halves[2], (x,), (c,), d)
    second, _ = called(halves[2], (x,), (e,), f)
    body = [group("add", (a, b), c), first, group("multiply", (d, b), e), second]
    found = _compiled(module((a, b), body, f, d))
    assert len(found.programs) == 2 and len(kept.programs) == 2
    for _ in range(3):
        one, two = found.run([x, y])
        assert np.array_equal(one, (x + y) * 2 * y * 2) and np.array_equal(two, (x + y) * 2)
    assert not check(found.programs, load_target("trn2"))
    found.save(tmp_path / "two.neff")
    assert np.array_equal(Executable.load(tmp_path / "two.neff").run([x, y])[0], one)


def test_a_kernel_on_two_cores_in_a_branch_runs_on_both():
    flag, a, b, out, c = value("flag", dtype=bool_), *(value(name, 128, 16) for name in ("a", "b", "out", "c"))
    call, kept = called(halves[2], (_random(128, 16),), (a,), b, at=6)
    regions = (Region((), [call], (b,)), Region((), [group("add", (a, a), d := value("d", 128, 16))], (d,)))
    body = [whole(Op("if", (flag,), (out,), {}, regions)), group("add", (out, a), c)]
    found = _compiled(module((flag, a), body, c))
    x = _random(128, 16)
    for chosen, expected in ((True, x * 2 + x), (False, x + x + x), (True, x * 2 + x)):
        assert np.array_equal(found.run([np.bool_(chosen), x])[0], expected)
    assert len(kept.programs) == len(found.programs) == 2
    assert not check(found.programs, load_target("trn2"))


def test_a_kernel_on_two_cores_in_a_loop_runs_on_both():
    """Doubled until the number in the first element is large enough."""
    a, top, out, b = value("a", 128, 16), value("top", 128, 16), value("out", 128, 16), value("b", 128, 16)
    inside, test = value("inside", 128, 16), value("test", 128, 16, dtype=bool_)
    call, kept = called(halves[2], (_random(128, 16),), (inside,), b, at=6)
    seen, one = value("seen", 128, 16), value("one", 1, 1, dtype=bool_)
    flat = value("flat", dtype=bool_)
    condition = [
        group("compare", (seen, top), test, comparison_direction="LT"),
        whole(Op("slice", (test,), (one,), {"start_indices": (0, 0), "limit_indices": (1, 1), "strides": (1, 1)})),
        whole(Op("reshape", (one,), (flat,))),
    ]
    condition[1] = Group("move", condition[1].ops, (test,), (one,))
    regions = (Region((seen,), condition, (flat,)), Region((inside,), [call], (b,)))
    setting = replace(_SETTING, emitters={**emit.EMITTERS, **EMITTERS})
    found = stages.compiled(module((a, top), [whole(Op("while", (a,), (out,), {}, regions))], out), setting)
    x = np.full((128, 16), 3, np.float32)
    for limit, expected in ((20, 24), (3, 3), (100, 192)):
        assert np.array_equal(found.run([x, np.full_like(x, limit)])[0], np.full_like(x, expected))
    assert len(kept.programs) == len(found.programs) == 2
    assert not check(found.programs, load_target("trn2"))


def test_a_kernel_that_is_not_known_any_more_is_an_error_at_the_models_line():
    a, b = value("a", 128, 16), value("b", 128, 16)
    call, kept = called(doubled, (_random(128, 16),), (a,), b, at=9)
    del kept
    with pytest.raises(GraphError) as caught:
        _compiled(module((a,), [call], b))
    assert caught.value.code == "graph.reference" and caught.value.location.frame.line == 9


def test_a_kernel_that_is_called_for_other_shapes_is_an_error():
    a, b = value("a", 64, 16), value("b", 64, 16)
    call, kept = called(doubled, (_random(128, 16),), (a,), b)
    with pytest.raises(GraphError) as caught:
        _compiled(module((a,), [call], b))
    assert caught.value.code == "graph.reference" and "128" in caught.value.message
    del kept


def _counting(carry_back: bool = False) -> Module:
    """``while i < 5: x, y, i = f(x, y), i + 1`` with an addition, or an exchange of two values."""
    i, x, b, limit = value("i", dtype=int32), value("x", 128, 8), value("b", 128, 8), constant(np.int32(5), int32)
    one = constant(np.array(1, np.int32), int32)
    ci, cx, cb = value("ci", dtype=int32), value("cx", 128, 8), value("cb", 128, 8)
    test = value("test", dtype=bool_)
    compare = group("compare", (ci, limit.results[0]), test, comparison_direction="LT")
    bi, bx, bb = value("bi", dtype=int32), value("bx", 128, 8), value("bb", 128, 8)
    ni, nx = value("ni", dtype=int32), value("nx", 128, 8)
    body = [group("add", (bi, one.results[0]), ni), group("add", (bx, bb), nx)]
    following = (ni, bb, nx) if carry_back else (ni, nx, bb)
    results = value("ri", dtype=int32), value("rx", 128, 8), value("rb", 128, 8)
    regions = (Region((ci, cx, cb), [compare], (test,)), Region((bi, bx, bb), body, following))
    loop = whole(Op("while", (i, x, b), results, {}, regions, line(3)))
    return module((i, x, b), [limit, one, loop], *results)


@pytest.mark.parametrize("start", [0, 3, 7])
@pytest.mark.parametrize("carry_back", [False, True])
def test_a_loop_runs_until_its_condition_is_false(start, carry_back):
    found = _compiled(_counting(carry_back))
    x, y = _random(128, 8), _random(128, 8) + 1
    count, left, right = start, x, y
    while count < 5:
        count, left, right = count + 1, *((right, left + right) if carry_back else (left + right, right))
    for _ in range(2):
        results = found.run([np.array(start, np.int32), x, y])
        assert results[0] == count
        assert np.array_equal(results[1], left) and np.array_equal(results[2], right)
    assert sum(isinstance(item, WhileLoop) for item in found.programs[0].body.items) == 1


@pytest.mark.parametrize("index", [-1, 0, 1, 2, 5])
def test_a_choice_runs_one_branch(index):
    number, a, b, out = value("index", dtype=int32), value("a", 128, 8), value("b", 128, 8), value("out", 128, 8)
    regions = []
    for name in ("add", "multiply", "subtract"):
        made = value(name, 128, 8)
        regions.append(Region((), [group(name, (a, b), made)], (made,)))
    found = _compiled(module((number, a, b), [whole(Op("case", (number,), (out,), {}, tuple(regions)))], out))
    x, y = _random(128, 8), _random(128, 8)
    expected = {0: x + y, 1: x * y}.get(index, x - y)
    assert np.array_equal(found.run([np.array(index, np.int32), x, y])[0], expected)


def test_branches_that_give_values_from_outside():
    flag, a, b, c, out = value("flag", dtype=bool_), *(value(name, 128, 8) for name in ("a", "b", "c", "out"))
    regions = (Region((), [], (a,)), Region((), [], (c,)))
    body = [group("add", (a, b), c), whole(Op("if", (flag,), (out,), {}, regions))]
    found = _compiled(module((flag, a, b), body, out))
    x, y = _random(128, 8), _random(128, 8)
    assert np.array_equal(found.run([np.array(True), x, y])[0], x)
    assert np.array_equal(found.run([np.array(False), x, y])[0], x + y)


def test_an_operation_in_no_group_is_an_error():
    a, b = value("a", 4), value("b", 4)
    with pytest.raises(GraphError) as caught:
        _compiled(module((a,), [Op("tanh", (a,), (b,), location=line(13))], b))
    assert caught.value.code == "graph.unsupported" and caught.value.location.frame.line == 13


def test_errors_in_a_kernel_of_a_group_are_at_the_models_line():
    a, b = value("a", 129, 4), value("b", 129, 4)
    with pytest.raises(nki.core.errors.NkiError) as caught:
        _compiled(module((a,), [group("add", (a, a), b, 31)], b))
    assert 31 in [frame.line for frame in caught.value.location.frames]


def test_the_models_line_comes_before_the_emitters():
    a, b, c = (value(name, 96, 40) for name in "abc")
    found = compile_module(module((a, b), [Op("add", (a, b), (c,), {}, (), line(7))], c), target="trn2")
    frames = [issued.location.frames for issued in found.programs[0].body.walk()]
    assert frames and all(each[0].line == 7 for each in frames)
    assert all(Path(emit.__file__).parent in Path(each[-1].file).parents for each in frames)
    text = found.programs[0].body.items[0].location.chain()
    assert "made by" in text and "called from" not in text
    assert {row["line"] for row in found.profile()["sources"].rows()} == {7}
