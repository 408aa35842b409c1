"""Compiled models: files, stages that are taken up again, threads, reports and what they refuse."""

from __future__ import annotations

import re
import threading
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import nki
from nki.core.errors import ArgumentError, ArtifactError, ExecutionError, UsageError
from nki.graph import kernels
from nki.graph.compile import compile_module
from nki.graph.executable import Executable
from nki.graph.resume import resume
from nki.options import from_environment
from nki.runtime.spans import recording
from nki.spec.program import Program
from nki.store.artifact.container import load, pack
from tests.support import environment

MODEL = """
module @affine {
  func.func public @main(%x: tensor<200x32xf32> loc("x"), %w: tensor<32xf32> loc("w"))
      -> (tensor<200x32xf32>, tensor<200x32xi1>) {
    %c = stablehlo.constant dense<[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0,
      16.0, 17.0, 18.0, 19.0, 20.0, 21.0, 22.0, 23.0, 24.0, 25.0, 26.0, 27.0, 28.0, 29.0, 30.0, 31.0]> : tensor<32xf32>
    %0 = stablehlo.broadcast_in_dim %w, dims = [1] : (tensor<32xf32>) -> tensor<200x32xf32>
    %1 = stablehlo.broadcast_in_dim %c, dims = [1] : (tensor<32xf32>) -> tensor<200x32xf32>
    %2 = stablehlo.multiply %x, %0 : tensor<200x32xf32>
    %3 = stablehlo.add %2, %1 : tensor<200x32xf32>
    %4 = stablehlo.compare GT, %3, %x : (tensor<200x32xf32>, tensor<200x32xf32>) -> tensor<200x32xi1>
    return %3, %4 : tensor<200x32xf32>, tensor<200x32xi1>
  }
}
"""


@pytest.fixture(scope="module")
def affine() -> Executable:
    return compile_module(MODEL, target="trn2", name="affine")


@pytest.fixture(scope="module")
def arrays() -> list[np.ndarray]:
    draw = np.random.default_rng(3)
    return [draw.random((200, 32), np.float32), draw.random(32, np.float32)]


def _expected(x: np.ndarray, w: np.ndarray) -> list[np.ndarray]:
    made = x * w + np.arange(32, dtype=np.float32)
    return [made, made > x]


def _same(found: list[np.ndarray], expected: list[np.ndarray]) -> bool:
    return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in zip(found, expected, strict=True))


def test_text_to_results(affine, arrays):
    assert _same(affine.run(arrays), _expected(*arrays))
    assert [port.name for port in affine.arguments] == ["x", "w"]
    assert [(port.shape, port.dtype.name) for port in affine.outputs] == [((200, 32), "float32"), ((200, 32), "bool")]


def test_the_report_counts(affine):
    report = affine.report
    assert report.constant_bytes == 32 * 4 and report.argument_bytes == 200 * 32 * 4 + 32 * 4
    assert report.kernels_after < report.kernels_before and report.bytes_after < report.bytes_before
    assert report.instructions == sum(1 for _ in affine.programs[0].body.walk())
    assert "affine for trn2" in str(report)


def test_a_saved_model_is_the_same_model(affine, arrays, tmp_path):
    file = tmp_path / "affine.neff"
    affine.save(file)
    found = Executable.load(file)
    assert _same(found.run(arrays), _expected(*arrays))
    assert found.report == replace(affine.report, seconds={}, origins={}) and found.arguments == affine.arguments
    found.save(tmp_path / "again.neff")
    assert (tmp_path / "again.neff").read_bytes() == file.read_bytes()


def test_a_saved_model_runs_as_it_was_compiled(tmp_path):
    file, options = tmp_path / "affine.neff", replace(from_environment(), matmul="blas", api="0.5")
    compile_module(MODEL, target="trn2", options=options).save(file)
    assert (found := Executable.load(file).model.options) and (found.matmul, found.api) == ("blas", "0.5")
    with environment(NKI_MATMUL="fast"):
        assert (found := Executable.load(file).model.options) and (found.matmul, found.api) == ("fast", "0.5")
    assert Executable.load(file, from_environment()).model.options.matmul == "ordered"
    whole = load(file)
    file.write_bytes(pack(whole.programs, options={"matmul": "slow"}, model=whole.model))
    with pytest.raises(ArtifactError, match=r"artifact\.meta.*\n?.*matmul is 'slow'"):
        Executable.load(file)


def test_low_precision_may_keep_float32_values():
    """As in calls of kernels; the machine that can is NumPy's."""
    text = """
    func.func @main(%x: tensor<4x8xbf16>) -> tensor<4x4xf32> {
      %0 = stablehlo.dot_general %x, %x, contracting_dims = [1] x [1]
        : (tensor<4x8xbf16>, tensor<4x8xbf16>) -> tensor<4x4xbf16>
      %1 = stablehlo.reverse %0, dims = [1] : tensor<4x4xbf16>
      %2 = stablehlo.convert %1 : (tensor<4x4xbf16>) -> tensor<4x4xf32>
      return %2 : tensor<4x4xf32>
    }
    """
    x = np.full((4, 8), 1.0078125, ml_dtypes.bfloat16)
    exact = np.full((4, 4), 8 * 1.0078125**2)
    precise, loose = (
        compile_module(text, target="trn2", options=replace(from_environment(), precise_fp=keep))
        for keep in (True, False)
    )
    assert np.array_equal(loose.run([x])[0], exact)
    assert np.array_equal(precise.run([x])[0], exact.astype(ml_dtypes.bfloat16))


def test_damaged_weights_are_refused(affine, tmp_path):
    file = tmp_path / "affine.neff"
    affine.save(file)
    data = bytearray(file.read_bytes())
    at = bytes(data).index(np.arange(32, dtype=np.float32).tobytes())
    data[at + 5] ^= 1
    file.write_bytes(data)
    with pytest.raises(ArtifactError, match="hash"):
        load(file)


def test_a_compiled_kernel_is_no_model(tmp_path):
    file = tmp_path / "kernel.neff"
    file.write_bytes(pack([Program("nothing", "trn2", 0, 1, placement={})]))
    with pytest.raises(ArtifactError) as caught:
        Executable.load(file)
    assert caught.value.code == "artifact.model"


@pytest.mark.parametrize("stage", ["00-imported.mlir", "01-legalized.mlir", "linked.mlir", "model.neff"])
def test_every_stage_can_be_taken_up_again(stage, arrays, tmp_path):
    whole = compile_module(MODEL, target="trn2", name="affine", dump_dir=tmp_path)
    assert (tmp_path / "plan.json").stat().st_size and (tmp_path / "linked.mlir").stat().st_size
    found = resume(tmp_path / stage, target="trn2", name="affine")
    assert _same(found.run(arrays), _expected(*arrays))
    assert len(found.programs[0].body.items) == len(whole.programs[0].body.items)


def test_the_last_stage_in_stablehlo_keeps_its_groups(arrays, tmp_path):
    whole = compile_module(MODEL, target="trn2", dump_dir=tmp_path)
    (file,) = tmp_path.glob("*-fused.mlir")
    found = resume(file, target="trn2")
    assert _same(found.run(arrays), _expected(*arrays))
    assert found.report.kernels == whole.report.kernels
    assert "fusion" in str(whole.report) and "fusion" not in str(found.report)


def test_a_stage_is_taken_up_as_its_model_was_compiled(tmp_path):
    compile_module(MODEL, target="trn2", name="affine", dump_dir=tmp_path, lnc=2)
    found = resume(tmp_path / "02-simplified.mlir")
    assert (found.name, found.report.target, found.report.cores) == ("affine", "trn2", 2)
    other = resume(tmp_path / "02-simplified.mlir", target="trn3", lnc=1, name="other")
    assert (other.name, other.report.target, other.report.cores) == ("other", "trn3", 1)


def test_a_linked_program_that_was_edited_is_run_and_proven(arrays, tmp_path):
    compile_module(MODEL, target="trn2", dump_dir=tmp_path)
    file = tmp_path / "linked.mlir"
    text = file.read_text()
    added = re.findall(r'"nisa.tensor_tensor".*op = "add"', text)
    assert added and _same(resume(file).run(arrays), _expected(*arrays))
    file.write_text(text.replace('op = "add"', 'op = "subtract"'))
    x, w = arrays
    wanted = x * w - np.arange(32, dtype=np.float32)
    assert _same(resume(file).run(arrays), [wanted, wanted > x])
    file.write_text(re.sub(r', nki.waits = "[^"]*"', "", text))
    with pytest.raises(ExecutionError):
        resume(file)


def test_a_file_that_is_no_stage_is_refused(tmp_path):
    for name in ("linked.mlir", "plan.json"):
        with pytest.raises(UsageError) as caught:
            resume(tmp_path / name)
        assert caught.value.code == "graph.stage"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"name": "x", "target": "trn2", "lnc": "two"}'])
def test_a_damaged_record_of_how_a_model_was_compiled(text, tmp_path):
    compile_module(MODEL, target="trn2", dump_dir=tmp_path)
    (tmp_path / "setting.json").write_text(text)
    with pytest.raises(UsageError, match="does not say how a model was compiled") as caught:
        resume(tmp_path / "02-simplified.mlir")
    assert caught.value.code == "graph.stage"


@pytest.mark.parametrize(
    "bad",
    [
        [np.zeros((200, 32), np.float32)],
        [np.zeros((200, 31), np.float32), np.zeros(32, np.float32)],
        [np.zeros((200, 32), np.float64), np.zeros(32, np.float32)],
    ],
)
def test_other_arrays_are_refused(affine, bad):
    with pytest.raises(ArgumentError) as caught:
        affine.run(bad)
    assert caught.value.code == "model.arguments"


def test_arrays_in_another_order_of_memory(affine, arrays):
    x = np.asfortranarray(arrays[0])
    assert _same(affine.run([x, np.repeat(arrays[1], 2)[::2]]), _expected(*arrays))


def test_results_do_not_change_when_the_model_runs_again(affine, arrays):
    first = affine.run(arrays)
    kept = [array.copy() for array in first]
    affine.run([-arrays[0], arrays[1]])
    assert _same(first, kept)


def test_threads_may_run_one_model_at_once(affine):
    draw = np.random.default_rng(1)
    inputs = [[draw.random((200, 32), np.float32), draw.random(32, np.float32)] for _ in range(4)]
    wrong: list[int] = []

    def work(number: int) -> None:
        wrong.extend(number for _ in range(10) if not _same(affine.run(inputs[number]), _expected(*inputs[number])))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_profile_has_the_models_lines(affine):
    profile = affine.profile()
    assert profile.makespan_ns > 0 and profile.about.kernel == "affine"


def test_spans_say_what_the_host_did(arrays):
    with recording() as found:
        compile_module(MODEL, target="trn2", name="small").run(arrays)
    assert [each.name for each in found.spans] == ["compile small", "execute", "call small"]
    inner, outer = found.spans[1], found.spans[2]
    assert outer.start <= inner.start <= inner.end <= outer.end


def test_a_model_for_another_target_is_another_program(arrays):
    found = compile_module(MODEL, target="trn1")
    assert found.programs[0].target == "trn1" and _same(found.run(arrays), _expected(*arrays))


def test_an_error_in_the_text_is_an_error():
    with pytest.raises(nki.core.errors.NkiError) as caught:
        compile_module("module { func.func @main() { nonsense } }")
    assert caught.value.code == "graph.parse"


CACHE = """
func.func @main(%cache: tensor<256x64xf32> {tf.aliasing_output = 0 : i32} loc("cache"),
    %row: tensor<1x64xf32> loc("row"), %at: tensor<i32> loc("at")) -> (tensor<256x64xf32>, tensor<256x64xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %0 = stablehlo.dynamic_update_slice %cache, %row, %at, %zero
      : (tensor<256x64xf32>, tensor<1x64xf32>, tensor<i32>, tensor<i32>) -> tensor<256x64xf32>
  %1 = stablehlo.add %0, %0 : tensor<256x64xf32>
  return %0, %1 : tensor<256x64xf32>, tensor<256x64xf32>
}
"""


@pytest.mark.parametrize("at", [0, 7, 255])
def test_a_donated_cache_is_updated_where_it_is(at):
    model = compile_module(CACHE, target="trn2", name="cache")
    assert model.aliases == {0: 0}
    cache, row = np.random.default_rng(at).random((256, 64), np.float32), np.full((1, 64), -1, np.float32)
    expected = cache.copy()
    expected[at] = -1
    before = cache.copy()
    first, second = model.run([cache, row, np.array(at, np.int32)])
    assert np.array_equal(first, expected) and np.array_equal(second, expected * 2)
    assert np.array_equal(cache, before), "a copy was updated"
    first, second = model.run([cache, row, np.array(at, np.int32)], donate=True)
    assert first is cache and np.array_equal(cache, expected) and np.array_equal(second, expected * 2)


def test_an_update_in_place_moves_only_what_is_new():
    given = compile_module(CACHE, target="trn2")
    copied = compile_module(CACHE.replace("{tf.aliasing_output = 0 : i32}", ""), target="trn2")
    assert given.report.instructions < copied.report.instructions
    assert copied.aliases == {}


def test_kernels_are_remembered_in_memory_and_on_disk(arrays, monkeypatch, tmp_path):
    monkeypatch.setenv("NKI_CACHE", "1")
    monkeypatch.setenv("NKI_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(kernels, "_KNOWN", {})
    origins = [compile_module(MODEL, target="trn2").report.origins for _ in range(2)]
    monkeypatch.setattr(kernels, "_KNOWN", {})
    found = compile_module(MODEL, target="trn2")
    assert [*origins, found.report.origins] == [{"compiled": 1}, {"memory": 1}, {"disk": 1}]
    assert _same(found.run(arrays), _expected(*arrays))


def test_other_options_are_other_kernels(monkeypatch):
    monkeypatch.setattr(kernels, "_KNOWN", {})
    compile_module(MODEL, target="trn2")
    other = compile_module(MODEL, target="trn2", options=replace(from_environment(), api="0.5"))
    assert other.report.origins == {"compiled": 1}


ROTATED = """
func.func @main(%p: tensor<40x30xf32>, %q: tensor<40x30xf32>, %r: tensor<40x30xf32>, %n: tensor<i32>)
    -> (tensor<40x30xf32>, tensor<40x30xf32>, tensor<40x30xf32>) {
  %one = stablehlo.constant dense<1> : tensor<i32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %i, %x, %y, %z = stablehlo.while(%k = %zero, %a = %p, %b = %q, %c = %r)
      : tensor<i32>, tensor<40x30xf32>, tensor<40x30xf32>, tensor<40x30xf32>
    cond {
      %more = stablehlo.compare LT, %k, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    } do {
      %next = stablehlo.add %k, %one : tensor<i32>
      %sum = stablehlo.add %a, %b : tensor<40x30xf32>
      stablehlo.return %next, NEW : tensor<i32>, tensor<40x30xf32>, tensor<40x30xf32>, tensor<40x30xf32>
    }
  return %x, %y, %z : tensor<40x30xf32>, tensor<40x30xf32>, tensor<40x30xf32>
}
"""


@pytest.mark.parametrize("native", ["0", "always"])
@pytest.mark.parametrize("new", ["bca", "cab", "bas", "bsa", "ccb", "sab"])
def test_carried_values_change_places(new: str, native: str) -> None:
    names = {"a": "%a", "b": "%b", "c": "%c", "s": "%sum"}
    text = ROTATED.replace("NEW", ", ".join(names[letter] for letter in new))
    start = np.random.default_rng(3).random((3, 40, 30), np.float32)
    with environment(NKI_NATIVE=native):
        model = compile_module(text, target="trn2", name=f"rotated_{new}")
        for trips in (0, 1, 5):
            expected = list(start)
            for _ in range(trips):
                a, b, c = expected
                known = {"a": a, "b": b, "c": c, "s": a + b}
                expected = [known[letter] for letter in new]
            found = model.run([*start, np.array(trips, np.int32)])
            assert all(np.array_equal(one, other) for one, other in zip(found, expected, strict=True))
