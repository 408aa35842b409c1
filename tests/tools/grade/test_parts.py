"""Parts of a verdict by themselves: kinds of inputs, tolerances, rooflines, scores, limits of time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from nki.compiler import CompileConfig
from nki.core.source import Frame, Location
from nki.options import Options
from nki.spec.rule import Finding
from nki.store.traced import pack_traced
from nki.target.load import load_target
from nki.tools.grade.answers import Traced
from nki.tools.grade.inputs import KINDS, make_inputs
from nki.tools.grade.matmuls import Counter, counted
from nki.tools.grade.places import placed
from nki.tools.grade.process.files import read_files
from nki.tools.grade.programs import JudgedProgram, execute, judge_program, profiled
from nki.tools.grade.score import Times, roofline, score_of, times_of
from nki.tools.grade.sets import Span, derived_sets, read_ranges, read_sets
from nki.tools.grade.trials import in_time
from nki.tools.grade.values import compare, perturbed
from nki.tools.grade.verdicts import fault
from tests.store.test_traced import OPTIONS, TRN2, traced

SETS = read_sets(["x=64x32:float32", "h=64x32:float16", "n=8x1:int32", "fixed=4x4:float32:ones", "scale=0.5"], [])


@pytest.mark.parametrize(
    ("kind", "x", "h", "n"),
    [("normal", 0, 0, 99), ("large", 10, 4, 4095), ("tiny", -20, -6, 99), ("zeros", None, None, 0)],
)
def test_kinds_of_inputs(kind: str, x: int | None, h: int | None, n: int) -> None:
    made = make_inputs(SETS[0], KINDS[kind], 3, {})
    for name, power in (("x", x), ("h", h)):
        size = float(np.sqrt(np.mean(np.square(made[name].astype(np.float64)))))
        assert size == 0.0 if power is None else 0.8 < size / 2.0**power < 1.2
    assert n / 2 <= made["n"].max() <= n
    assert (made["fixed"] == 1.0).all()


def test_inputs_are_others_for_each_seed_and_argument() -> None:
    one, two = (make_inputs(SETS[0], KINDS["normal"], seed, {}) for seed in (1, 2))
    assert not np.array_equal(one["x"], two["x"])
    assert not np.array_equal(one["x"], one["h"].astype(np.float32))


def test_ranges() -> None:
    ranges = read_ranges(["n=2..5", "x=0.5..1"], SETS)
    assert ranges == {"n": Span(2.0, 5.0), "x": Span(0.5, 1.0)}
    made = make_inputs(SETS[0], KINDS["large"], 3, ranges)
    assert set(made["n"].ravel()) == {2, 5}
    assert set(make_inputs(SETS[0], KINDS["zeros"], 3, ranges)["x"].ravel()) == {0.5}


def test_derived_sets_double_each_size() -> None:
    sizes = [
        [spec.shape for spec in chosen.arrays.values()]
        for chosen in derived_sets(read_sets(["a=64x32:float32"], [])[0])
    ]
    assert sizes == [[(128, 32)], [(64, 64)]]


# --- tolerances


def judged(
    found: object, expected: object, dtype: object = np.float32, nan_given: bool = False, **others: object
) -> bool:
    other = [np.array(each, np.float64) for each in others.values()]
    array, numbers = np.array(found).astype(dtype), np.array(expected, np.float64)  # type: ignore[call-overload]
    return compare("r", array, numbers, other, nan_given, None, None).passed


def test_what_is_right() -> None:
    assert judged([1.0, 2.0], [1.0, 2.00001])
    assert not judged([1.0, 2.0], [1.0, 2.0001])
    assert judged([1.0, 2.0], [1.0, 2.0001], moved=[1.0, 2.00008])
    assert judged([np.inf], [1e60])
    assert judged([np.finfo(np.float32).max], [1e60])
    assert not judged([-np.inf], [1e60])
    assert not judged([np.nan], [1.0])
    assert judged([7.0], [np.nan])
    assert not judged([7.0], [np.nan], nan_given=True)
    assert judged([np.nan], [np.nan], nan_given=True)
    assert judged([0.0], [1e-39])
    assert not judged([3], [3.5], np.int32)
    assert judged([1.0078125], [1.005], ml_dtypes.bfloat16)


def test_roundings_are_those_of_the_dtype() -> None:
    for dtype, size in ((np.float32, 2.0**-24), (ml_dtypes.bfloat16, 2.0**-8), (ml_dtypes.float8_e4m3fn, 2.0**-8)):
        moved = perturbed({"x": np.ones(50, dtype)}, 1)["x"]
        assert set(np.abs(moved - 1.0)) == {size}
    assert perturbed({"n": np.ones(3, np.int32)}, 1)["n"].dtype == np.int32


# --- time


def test_products_are_counted() -> None:
    counter = Counter()
    a, b = (counted(np.ones(shape), counter) for shape in ((4, 5), (5, 6)))
    assert float((a @ b).sum()) == 120.0
    assert np.einsum("ij,jk->ik", a, b).shape == (4, 6)
    a.dot(b)
    np.matmul(np.stack([a, a]), b)
    np.tensordot(a, b, axes=1)
    assert counter.flops == 6 * 2 * 4 * 5 * 6


TIMES = Times(100.0, 0.0, "dma", 90.0, 20.0, None)


@pytest.mark.parametrize(
    ("times", "score"),
    [
        (TIMES, 20.0),
        (replace(TIMES, baseline_ns=100.0), 50.0),
        (replace(TIMES, baseline_ns=50.0), 25.0),
        (replace(TIMES, baseline_ns=200.0), 50.0 + 50.0 * (0.2 - 0.1) / (1.0 - 0.1)),
        (replace(TIMES, baseline_ns=200.0, predicted_ns=20.0), 100.0),
        (replace(TIMES, predicted_ns=10.0), 100.0),
    ],
)
def test_scores(times: Times, score: float) -> None:
    assert score_of(times) == pytest.approx(score)


def test_the_roofline_follows_from_the_task() -> None:
    wide = read_sets(["a=1024x1024:float32", "b=1024x1024:float32"], [])[0]
    moved = roofline(list(wide.arrays.values()), 4 << 20, 0.0, 1, TRN2)
    assert moved == pytest.approx((12 << 20) / TRN2.dma.aggregate_gbps)
    made = roofline(list(wide.arrays.values()), 4 << 20, 2.0**40, 2, TRN2)
    assert made == pytest.approx(2.0**40 / (TRN2.peak.tensor_fp32_tflops * 1000.0) / 2)


def test_a_program_without_end_is_ended() -> None:
    """Also where native code runs it."""
    chosen = read_sets(["x=64x32:float32"], [])[0]
    data = pack_traced(traced(turns=1 << 40))
    found = judge_program(Traced(data, {"view": 0}, CompileConfig()), chosen, TRN2, OPTIONS, 1, 1 << 30)
    assert isinstance(found, JudgedProgram)
    inputs = {"x": np.zeros((64, 32), np.float32)}
    ended = in_time(0.2, "running", lambda: execute(found, inputs, TRN2, OPTIONS))
    assert isinstance(ended, Finding)
    assert ended.code == "grade.time"


@pytest.mark.parametrize("result", [{"view": 7}, {"view": "x"}, "text", [3], {"dict": [[[], 1]]}])
def test_results_that_are_no_tensors(result: object) -> None:
    chosen = read_sets(["x=64x32:float32"], [])[0]
    found = judge_program(Traced(pack_traced(traced()), result, CompileConfig()), chosen, TRN2, OPTIONS, 1, 1 << 30)
    assert isinstance(found, list)
    assert [each.code for each in found if each.severity == "error"] == ["grade.answer"]


def test_a_program_for_other_arguments_or_with_too_much_memory() -> None:
    made, chosen = Traced(pack_traced(traced()), {"view": 0}, CompileConfig()), read_sets(["x=64x16:float32"], [])[0]
    other = judge_program(made, chosen, TRN2, OPTIONS, 1, 1 << 30)
    large = judge_program(made, read_sets(["x=64x32:float32"], [])[0], TRN2, OPTIONS, 1, 1 << 10)
    assert [each[0].code for each in (other, large) if isinstance(each, list)] == ["grade.arguments", "grade.size"]


def test_a_candidate_does_not_choose_which_lines_are_shown(tmp_path: Path) -> None:
    """A location in its answer may name any file, and an excerpt would print a line of it."""
    candidate, reference = tmp_path / "candidate.py", tmp_path / "references.py"
    for file in (candidate, reference):
        file.write_text("secret = 1\n")
    files = read_files(str(candidate), (), [reference])
    inside = Frame("/tmp/nki-grade-x/candidate/candidate.py", "add", 1)
    outside = [Frame(str(reference), "add", 1), Frame(f"{inside.file}/../../../{reference}", "add", 1)]
    found = placed(fault("grade.values", "", "", "", location=Location((inside, *outside))), files)
    assert [frame.file for frame in found.location.frames] == [str(candidate)]


def test_a_target_of_somebodys_own_stays_with_the_judge(tmp_path: Path) -> None:
    """The program comes from the generation, and is compiled and timed for the file."""
    file = tmp_path / "mine.toml"
    file.write_text(
        'base = "trn2"\n[launch_ns]\nvalue = 5000.0\nestimate = "mine"\nmeaning = "a launch"\nunit = "ns"\n'
    )
    mine = load_target(str(file))
    chosen = read_sets(["x=64x32:float32"], [])[0]
    made = Traced(pack_traced(traced()), {"view": 0}, CompileConfig())
    found = judge_program(made, chosen, mine, Options(target=mine.name), 1, 1 << 30)
    assert isinstance(found, JudgedProgram)
    assert found.programs[0].target == mine.name
    assert times_of(profiled(found, None, mine), 1.0, None).launch_ns == 5000.0
