"""Models on two cores: the bits of one core, meetings where they are needed and nowhere else, and saved time."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import nki.graph.compile as compiler
import nki.graph.partition.choose as best
import nki.isa as nisa
import nki.language as nl
from nki.core.errors import ExecutionError, LaunchError
from nki.core.tensor import View
from nki.graph.compile import Setting, compile_module
from nki.graph.executable import Executable
from nki.graph.ir import Group
from nki.graph.link.shares import StepShare
from nki.graph.partition.device_bytes import marks
from nki.graph.partition.halves import Divisible, halves
from nki.options import from_environment
from nki.passes.check_races import program_races
from nki.passes.proof.happens_before import check
from nki.runtime.model import Model
from nki.target.load import load_target
from nki.testing.adversary import Policy, run_adversely
from tests.graph import stages, xla
from tests.graph.hand_made import group, module, value

_TARGET = load_target("trn2")
_RANDOM = np.random.default_rng(11)
_BLOCK = 64
_ROWS = 4 * _BLOCK


# -------------------------------------------------------------------------------------- kernels of blocks, made by hand


def _in_blocks(item: Group, target):
    """Blocks of rows. "maximum" and "subtract" take those of the second operand in the opposite order; "subtract" loads
    that operand before it stores anything, so that on one core its result could be there.
    """
    name = item.ops[0].name
    operator = {"add": nl.add, "multiply": nl.multiply, "subtract": nl.subtract, "maximum": nl.maximum}[name]
    same = len(item.inputs) == 1

    def kernel(*tensors):
        a, b, out = tensors[0], tensors[0 if same else 1], tensors[-1]
        starts = list(range(0, a.shape[0], _BLOCK))
        others = starts[::-1] if name in ("maximum", "subtract") else starts
        early = [_loaded(b, other) for other in others] if name == "subtract" else []
        for number, (start, other) in enumerate(zip(starts, others, strict=True)):
            tiles = _loaded(a, start), early[number] if early else _loaded(b, other)
            made = nl.ndarray((_BLOCK, a.shape[1]), a.dtype, buffer=nl.sbuf)
            nisa.tensor_tensor(dst=made, data1=tiles[0], data2=tiles[1], op=operator)
            nisa.dma_copy(dst=out[start : start + _BLOCK], src=made)

    return kernel


def _loaded(source, start: int):
    tile = nl.ndarray((_BLOCK, source.shape[1]), source.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=source[start : start + _BLOCK])
    return tile


def _computed(name: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if name in ("maximum", "subtract"):
        b = b.reshape(-1, _BLOCK, b.shape[1])[::-1].reshape(b.shape)
    return {"add": np.add, "multiply": np.multiply, "subtract": np.subtract, "maximum": np.maximum}[name](a, b)


_SETTING = Setting(name="model", target="trn2", emitters={"pointwise": _in_blocks}, lnc=2)


def _chain(*names: str) -> Executable:
    """Each operation of the argument and of the result of the one before."""
    a, results = value("a", _ROWS, 512), [value(f"r{n}", _ROWS, 512) for n in range(len(names))]
    body = [group(name, (a, (a, *results)[n]), results[n], n + 1) for n, name in enumerate(names)]
    return stages.compiled(module((a,), body, results[-1]), _SETTING)


def test_cores_that_need_nothing_of_each_other_never_meet():
    found = _chain("add", "multiply", "add")
    assert (found.report.cores, found.report.split, found.report.meetings) == (2, 3, 0)
    assert found.model.part.name == "model" and "3 kernels are cut in two, 0 meetings" in str(found.report)
    counts = [sum(1 for _ in program.body.walk()) for program in found.programs]
    assert counts[0] == counts[1] == found.report.instructions // 2, "each core runs its half and nothing else"


def test_cores_meet_once_before_one_needs_what_the_other_wrote():
    found = _chain("add", "maximum", "add")
    assert (found.report.split, found.report.meetings) == (3, 1)
    x = _RANDOM.standard_normal((_ROWS, 512), np.float32)
    expected = _computed("maximum", x, x + x) + x
    for _ in range(2):
        assert np.array_equal(found.run([x])[0], expected)


def test_without_its_meeting_a_model_is_refused(monkeypatch):
    divide = best.divide

    def left_out(*arguments):
        found = divide(*arguments)
        return replace(found, shares=tuple(StepShare(False, share.programs) for share in found.shares))

    monkeypatch.setattr(best, "divide", left_out)
    _chain("add", "multiply")  # needs none
    a, b, c = (value(name, _ROWS, 512) for name in "abc")
    body = [group("add", (a, a), b), group("maximum", (a, b), c)]
    with pytest.raises(ExecutionError) as error:
        stages.compiled(module((a,), body, c), _SETTING)
    assert error.value.code == "cores.race"


def _drawn(seed: int):
    draw = random.Random(seed)
    arguments = [value(name, _ROWS, 16) for name in "abc"]
    alive, body = list(arguments), []
    for number in range(12):
        made = value(f"v{number}", _ROWS, 16)
        name = draw.choice(("add", "multiply", "maximum", "subtract"))
        body.append(group(name, [draw.choice(alive), draw.choice(alive)], made))
        alive = [*alive[-3:], made]
    return arguments, body, [alive[-1], alive[-2]]


@pytest.mark.parametrize("seed", range(4))
def test_any_division_gives_the_right_bits_in_any_legal_order(seed, monkeypatch):
    """Kernels are given times at random, so that steps are divided as no real model would be."""
    draw, cut = random.Random(seed), compiler.cut_kernels

    def drawn(divisible: Divisible) -> Divisible:
        cuts = tuple(replace(each, ns=(draw.uniform(1, 9), draw.uniform(1, 9))) for each in divisible.cuts)
        return replace(divisible, ns=draw.uniform(1, 9), cuts=cuts)

    monkeypatch.setattr(compiler, "cut_kernels", lambda *a: {key: drawn(found) for key, found in cut(*a).items()})
    monkeypatch.setattr(best, "meeting_ns", lambda *_: 0.5)
    monkeypatch.setattr(best, "_DOUBTFUL", 9.0)  # times are made up, and the division is to be run all the same
    arguments, body, results = _drawn(seed)
    found = stages.compiled(module(arguments, body, *results), _SETTING)
    assert found.report.temporary_bytes < found.report.temporary_bytes_before, "memory is used again"
    arrays = [np.random.default_rng(seed + n).uniform(-1, 1, (_ROWS, 16)).astype(np.float32) for n in range(3)]
    known = dict(zip(arguments, arrays, strict=True))
    for item in body:
        known[item.outputs[0]] = _computed(item.ops[0].name, *(known[each] for each in item.ops[0].operands))
    for policy in [Policy("random", seed=number, in_flight=True) for number in range(3)]:
        made = run_adversely(found.programs, [array.copy() for array in arrays], _TARGET, policy, from_environment())
        for one, each in zip(made, results, strict=True):
            assert np.array_equal(one, known[each]), policy


def test_a_result_is_not_in_the_memory_of_an_operand_that_the_other_core_reads():
    a, b, c, d = (value(name, _ROWS, 512) for name in "abcd")
    body = [group("add", (a, a), b), group("subtract", (a, b), c), group("add", (c, a), d)]
    one, two = (stages.compiled(module((a,), body, d), replace(_SETTING, lnc=lnc)) for lnc in (1, 2))
    assert one.report.temporary_bytes == _ROWS * 512 * 4 < two.report.temporary_bytes
    x = _RANDOM.standard_normal((_ROWS, 512), np.float32)
    assert two.report.split == 3
    assert np.array_equal(two.run([x])[0], _computed("subtract", x, x + x) + x)


# ------------------------------------------------------------------------------------------------------- whole models


def _array(*shape: int, dtype=np.float32):
    made = _RANDOM.standard_normal(shape).astype(np.float32) / (np.sqrt(shape[-2]) if len(shape) > 1 else 1)
    return jnp.asarray(made, dtype)


def _mlp(x, w, b, v):
    return jax.nn.gelu(x @ w + b) @ v


def _block(x, w, o, heads=4):
    h = x * lax.rsqrt((x * x).mean(-1, keepdims=True) + jnp.asarray(1e-5, x.dtype))
    q, k, v = ((h @ w[n]).reshape(1, 256, heads, 64) for n in range(3))
    return x + jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(x.shape) @ o


def _cnn(x, w, v):
    y = jax.nn.relu(lax.conv_general_dilated(x, w, (1, 1), "SAME"))
    y = lax.reduce_window(y, jnp.asarray(-jnp.inf, x.dtype), lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    return jax.nn.softmax(y.reshape(y.shape[0], -1) @ v)


_MODELS = {
    "mlp": (_mlp, ((256, 256), (256, 1024), (1024,), (1024, 256))),
    "block": (_block, ((1, 256, 256), (3, 256, 256), (256, 256))),
    "cnn": (_cnn, ((2, 16, 32, 32), (32, 16, 3, 3), (32 * 16 * 16, 64))),
}


@pytest.mark.parametrize(("name", "dtype"), [("mlp", jnp.bfloat16), ("block", np.float32), ("cnn", np.float32)])
def test_two_cores_give_the_bits_of_one_and_are_not_slower(name, dtype):
    function, shapes = _MODELS[name]
    inputs = [_array(*shape, dtype=dtype) for shape in shapes]
    text = xla.lowered(function, *inputs)
    one, two = (compile_module(text, target="trn2", name=name, lnc=lnc) for lnc in (1, 2))
    arrays = [np.asarray(array) for array in inputs]
    for _ in range(2):  # NumPy, then compiled functions
        for first, second in zip(one.run(arrays), two.run(arrays), strict=True):
            assert first.tobytes() == second.tobytes()
    near = 2e-5 if dtype is np.float32 else 0.05
    for made, wanted in zip(two.run(arrays), xla.run(text, inputs), strict=True):
        assert np.allclose(np.asarray(made, np.float32), np.asarray(wanted, np.float32), rtol=near, atol=near)
    assert not check(two.programs, _TARGET) and not program_races(two.programs, _TARGET)
    assert two.profile().makespan_ns < one.profile().makespan_ns
    assert two.report.split > 0


def test_halves_store_everything_once():
    program = _chain("add").programs[0]
    alone = stages.compiled(_one_add(), replace(_SETTING, lnc=1)).programs[0]
    (cut, *_) = halves(alone, [view.buffer for view in alone.outputs], _TARGET).cuts
    written = [marks(half, [alone.outputs[0].buffer], _TARGET)[alone.outputs[0].buffer.id][1] for half in cut.programs]
    assert [(each.low, each.high) for each in written] == [(0, _ROWS * 1024), (_ROWS * 1024, _ROWS * 2048)]
    assert not written[0].meets(written[1])
    assert sum(1 for half in cut.programs for _ in half.body.walk()) == sum(1 for _ in alone.body.walk())
    assert len(list(program.body.walk())) == len(list(cut.programs[0].body.walk()))


def _one_add():
    a, b = value("a", _ROWS, 512), value("b", _ROWS, 512)
    return module((a,), [group("add", (a, a), b)], b)


def test_what_cannot_be_cut_says_why():
    def counted(x, n):
        return lax.fori_loop(0, 3, lambda i, c: c * 0.5 + n, x), jnp.sort(x, axis=-1)

    inputs = (_array(8, 16), np.float32(2))
    one, two = (compile_module(xla.lowered(counted, *inputs), target="trn2", lnc=lnc) for lnc in (1, 2))
    kinds = {kind: why for kind, why, _ in two.report.unsplit}
    assert "for longer than it saves" in kinds["loop"] and kinds["sort"].startswith("half of it takes")
    arrays = [np.asarray(each) for each in inputs]
    assert [a.tobytes() for a in one.run(arrays)] == [a.tobytes() for a in two.run(arrays)]


def test_both_cores_run_a_loop_over_layers():
    def layers(x, weights):
        return lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, weights)[0]

    inputs = (_array(512, 1024), _array(2, 1024, 1024))
    one, two = (compile_module(xla.lowered(layers, *inputs), target="trn2", lnc=lnc) for lnc in (1, 2))
    assert "loop" not in [kind for kind, _, _ in two.report.unsplit] and two.report.split > 0
    arrays = [np.asarray(each) for each in inputs]
    for _ in range(2):
        assert one.run(arrays)[0].tobytes() == two.run(arrays)[0].tobytes()
    assert two.profile().makespan_ns < one.profile().makespan_ns
    assert not check(two.programs, _TARGET) and not program_races(two.programs, _TARGET)


def test_a_target_without_two_cores_is_named():
    with pytest.raises(LaunchError, match="logical core of trn1 has 1 core") as error:
        compile_module(xla.lowered(_mlp, *(_array(*shape) for shape in _MODELS["mlp"][1])), target="trn1", lnc=2)
    assert error.value.code == "launch.lnc"


def test_a_file_has_both_programs(tmp_path):
    found = _chain("add", "maximum")
    found.save(tmp_path / "two.neff")
    again = Executable.load(tmp_path / "two.neff")
    x = _RANDOM.standard_normal((_ROWS, 512), np.float32)
    assert np.array_equal(again.run([x])[0], found.run([x])[0])
    assert (again.report.split, again.report.meetings, len(again.programs)) == (2, 1, 2)
    assert isinstance(again.model, Model) and again.profile().makespan_ns == found.profile().makespan_ns
    assert {buffer.role for buffer in again.programs[1].inputs} == {"fixed"}


def test_an_input_that_nobody_writes_is_not_written():
    found = _chain("add", "maximum")
    (first, second), fixed = found.programs, found.programs[0].inputs[0]
    store = next(
        issued for issued in second.body.walk() if issued.instruction.name == "dma_copy" and _to_memory(issued)
    )
    view = store.arguments.dst._replace(buffer=second.inputs[0])
    items = [i._replace(arguments=i.arguments._replace(dst=view)) if i is store else i for i in second.body.items]
    broken = replace(second, body=replace(second.body, items=items))
    races = check([first, broken], _TARGET)
    assert any(race.kind == "fixed" and fixed.name in race.message for race in races)


def _to_memory(issued) -> bool:
    dst = dict(issued.views()).get("dst")
    return isinstance(dst, View) and not dst.on_chip


def test_weights_are_loaded_before_the_cores_meet():
    a, w, b, c = (value(name, _ROWS, 512) for name in "awbc")
    body = [group("maximum", (a, a), b), group("maximum", (w, b), c)]
    found = stages.compiled(module((a, w), body, c), _SETTING)
    assert found.report.meetings == 1
    program = found.programs[0]
    items, sync = program.body.items, program.body.sync
    meeting = next(n for n, issued in enumerate(items) if "rendezvous" in issued.instruction.effects(issued.arguments))
    waits = [sync[n].waits for n, i in enumerate(items) if n > meeting and _reads(i, program.inputs[1])]
    assert waits and not any(wait.queue == sync[meeting].queue for each in waits for wait in each)


def _reads(issued, buffer) -> bool:
    src = dict(issued.views()).get("src")
    return src is not None and src.buffer is buffer


def test_what_has_random_state_runs_on_the_first_core():
    def drawing(item: Group, target):
        def kernel(a, out):
            for start in range(0, _ROWS, _BLOCK):
                tile = nl.ndarray((_BLOCK, 512), a.dtype, buffer=nl.sbuf)
                nisa.rng(dst=tile.view(nl.uint32), engine=nisa.engine.vector)
                nisa.dma_copy(dst=out[start : start + _BLOCK], src=tile)

        return kernel if item.ops[0].name == "subtract" else _in_blocks(item, target)

    a, b, c, d = (value(name, _ROWS, 512) for name in "abcd")
    body = [group("add", (a, a), b), group("subtract", (b, b), c), group("subtract", (a, a), d)]
    setting = replace(_SETTING, emitters={"pointwise": drawing})
    found = stages.compiled(module((a,), body, c, d), setting)
    assert ("pointwise", "it uses random", 2) in found.report.unsplit
    assert not any(issued.instruction.name == "rng" for issued in found.programs[1].body.walk())


def test_a_division_that_is_longer_as_a_whole_is_dropped(monkeypatch):
    """An estimate by which meetings take no time divides what is longer then; the whole model is looked at as well."""
    inputs = [_array(*shape) for shape in ((1, 256, 64), (3, 64, 64), (64, 64))]
    text = xla.lowered(partial(_block, heads=1), *inputs)
    monkeypatch.setattr(best, "meeting_ns", lambda *_: 0.0)
    monkeypatch.setattr(best, "_DOUBTFUL", 0.0)
    one, two = (compile_module(text, target="trn2", lnc=lnc) for lnc in (1, 2))
    assert two.profile().makespan_ns == one.profile().makespan_ns
    assert {why for _, why, _ in two.report.unsplit} == {"the whole model would take longer on two cores"}
    assert two.report.meetings == 0 and not list(two.programs[1].body.walk())
    monkeypatch.setattr(best, "_DOUBTFUL", 9.0)
    divided = compile_module(text, target="trn2", lnc=2)
    assert divided.report.split > 0 and divided.profile().makespan_ns > one.profile().makespan_ns
