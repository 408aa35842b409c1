"""The winner is the fastest candidate that is right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
import nki.tune.search
from nki.compiler import CompileConfig
from nki.core.errors import NkiError
from nki.driver.launch import Launch
from nki.driver.measure import Question, question
from nki.driver.prepare import prepare
from nki.tune.config import Config
from nki.tune.model import least_ns, time_ns
from nki.tune.same import allowed, difference
from nki.tune.tuned import STATES, Tuned
from tests.profiling.support import LOOPING, PIPELINE, looping, pipeline
from tests.tune.kernels import TILES, in_place, scale

A = np.random.default_rng(1).standard_normal((128, 2048), np.float32)


def tuner(kernel: Any, configs: list[Any], **more: Any) -> Any:
    return nki.autotune(configs=configs, **{"processes": 1, **more})(nki.jit(kernel))


def states(tuned: Tuned) -> dict[str, str]:
    return {each.label: each.state for each in tuned.candidates}


def makespan(tile: int) -> float:
    """From the profile, which this package computes on another way."""

    def kernel(a: Any) -> Any:
        return scale(a, tile)

    return nki.profile(kernel)(A).makespan_ns


def test_the_fastest_is_chosen() -> None:
    times = {tile: makespan(tile) for tile in TILES}
    kernel = tuner(scale, [{"tile": tile} for tile in TILES])
    assert np.array_equal(kernel(A), 2 * A)
    best = min(times, key=lambda tile: times[tile])
    assert kernel.tuned.chosen.label == f"tile={best}"
    assert kernel.tuned.chosen.checked
    assert kernel.tuned.speedup == pytest.approx(times[256] / times[best])
    for each in kernel.tuned.candidates:
        if each.ns is not None and each.label != "default":
            assert each.ns == pytest.approx(times[int(each.label.removeprefix("tile="))])
    assert kernel.profile.makespan_ns == pytest.approx(times[best])
    assert kernel.report.kernel == "scale"


def test_the_default_is_a_candidate_of_its_own() -> None:
    kernel = tuner(scale, [{"tile": 128}])
    kernel(A)
    assert states(kernel.tuned) == {"default": "chosen", "tile=128": "pruned"} or states(kernel.tuned) == {
        "default": "chosen",
        "tile=128": "timed",
    }


@pytest.mark.parametrize("fault", ["value", "tree", "writes"])
def test_what_computes_something_else_is_never_chosen(fault: str) -> None:
    kernel = tuner(scale, [{"tile": 512, "fault": fault}, {"tile": 1024}])
    before = A.copy()
    assert np.array_equal(kernel(before), 2 * A)
    assert np.array_equal(before, A), "candidates run on copies"
    assert kernel.tuned.chosen.label == "tile=1024"
    wrong = [each for each in kernel.tuned.candidates if each.state == "wrong"]
    assert wrong and all(each.reason and not each.checked for each in wrong)


def test_what_is_refused_is_listed_with_its_reason() -> None:
    refused = [{"tile": 3000}, {"tile": 512, "fault": "raises"}, {"tile": 512, "lnc": 5}]
    kernel = tuner(scale, [*refused, {"tile": 1024}])
    kernel(A)
    found = {each.label: each for each in kernel.tuned.candidates}
    assert kernel.tuned.chosen.label == "tile=1024"
    assert found["fault='raises', tile=512"].reason == "ZeroDivisionError: no such tile"
    assert found["tile=3000"].reason.startswith("access.out-of-bounds: ")
    assert found["tile=512, lnc=5"].reason.startswith("launch.lnc: ")
    assert [each.state for each in kernel.tuned.candidates].count("failed") == 3


def test_an_error_of_the_default_is_raised_as_a_call_raises_it() -> None:
    kernel = tuner(scale, [{"tile": 128}])
    with pytest.raises(NkiError) as caught:
        kernel(np.zeros((128, 300), np.float32))
    with pytest.raises(NkiError) as plain:
        nki.jit(scale)(np.zeros((128, 300), np.float32))
    assert caught.value.code == plain.value.code


def test_without_defaults_the_first_configuration_is_the_one_to_compare_with() -> None:
    def kernel(a: Any, tile: int) -> Any:
        return scale(a, tile)

    made = tuner(kernel, [{"tile": 256}, {"tile": 1024}])
    assert np.array_equal(made(A), 2 * A)
    assert [each.default for each in made.tuned.candidates] == [True, False]


def test_arguments_that_the_kernel_writes_to_count() -> None:
    kernel = tuner(in_place, [{"tile": 512}])
    changed = A.copy()
    assert kernel(changed) is None
    assert np.array_equal(changed, 2 * A), "once, and not once for each candidate"
    assert kernel.tuned.chosen.label == "tile=512"


def test_of_equal_times_the_first_wins() -> None:
    def kernel(a: Any, tile: int = 256, unused: int = 0) -> Any:
        return scale(a, tile)

    for order in ([1, 2, 3], [3, 1, 2]):
        made = tuner(kernel, [{"tile": 1024, "unused": n} for n in order])
        made(A)
        assert made.tuned.chosen.label == f"tile=1024, unused={order[0]}"


def test_the_bound_leaves_slow_candidates_out() -> None:
    kernel = tuner(scale, [{"tile": 16}, {"tile": 1024}])
    kernel(A)
    assert states(kernel.tuned)["tile=16"] == "pruned"
    (pruned,) = [each for each in kernel.tuned.candidates if each.state == "pruned"]
    assert pruned.ns is None and pruned.bound_ns > kernel.tuned.chosen.ns


def test_a_wrong_candidate_prunes_nothing_for_good() -> None:
    """The bound of the right one lies above the time of the wrong one."""

    def kernel(a: Any, tile: int = 128, fault: bool = False) -> Any:
        return scale(a[:, 0:128] if fault else a, 128 if fault else tile)

    made = tuner(kernel, [{"fault": True}, {"tile": 256}])
    assert np.array_equal(made(A), 2 * A)
    assert states(made.tuned) == {"default": "timed", "fault=True": "wrong", "tile=256": "chosen"}


def test_the_budget_counts_compiled_candidates() -> None:
    configs = [{"tile": tile} for tile in (1024, 512, 2048)]
    kernel = tuner(scale, configs, budget=1)
    kernel(A)
    assert sum(each.ns is not None for each in kernel.tuned.candidates) == 2, "the default and one more"
    assert set(states(kernel.tuned).values()) <= STATES.keys()
    assert "over budget" in states(kernel.tuned).values()


def asked(launch: Launch, arguments: dict[str, Any], target: str) -> Question:
    return question(prepare(launch, (), arguments, mode="compiled", target=target))


@pytest.mark.parametrize("kernel,arguments", [(pipeline, PIPELINE), (looping, LOOPING), (scale, (A,))])
def test_no_candidate_beats_its_bound(kernel: Any, arguments: tuple[Any, ...]) -> None:
    launch = nki.jit(kernel).launch()
    named = dict(zip(kernel.__code__.co_varnames, arguments, strict=False))
    for name in ("trn1", "trn2", "trn3"):
        traced = asked(launch, named, name)
        bound = least_ns(traced)
        found, _ = time_ns(traced)
        assert 0.1 * found < bound <= found


@pytest.mark.parametrize("used", [False, True])
def test_the_bound_does_not_count_what_the_compiler_drops(used: bool) -> None:
    """Loads that nobody uses, and a load that is there twenty times."""

    def kernel(a: Any) -> Any:
        total = nl.ndarray((128, 2048), dtype=a.dtype, buffer=nl.sbuf)
        nisa.memset(dst=total, value=0.0)
        for _ in range(20):
            part = nl.ndarray((128, 2048), dtype=a.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=part, src=a)
            if used:
                nisa.tensor_tensor(dst=total, data1=total, data2=part, op=nl.add)
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=total)
        return out

    config = CompileConfig(dead_code_elim=True)
    traced = asked(Config({}, compile_config=config).launch(nki.jit(kernel).launch()), {"a": A}, "trn2")
    assert 0.0 < least_ns(traced) <= time_ns(traced)[0]


def test_settings_of_the_compiler_are_candidates() -> None:
    def kernel(a: Any) -> Any:
        for _ in range(20):
            unused = nl.ndarray((128, 2048), dtype=a.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=unused, src=a)
        return scale(a, 2048)

    made = tuner(kernel, [nki.Config(compile_config=CompileConfig(dead_code_elim=True))])
    assert np.array_equal(made(A), 2 * A)
    assert made.tuned.chosen.label == "compile_config=CompileConfig(dead_code_elim=True)"
    assert made.tuned.speedup > 2


def test_the_number_of_cores_is_a_candidate() -> None:
    def kernel(a: Any) -> Any:
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        half = a.shape[1] // nl.num_programs(0)
        start = nl.program_id(0) * half
        for at in range(start, start + half, 128):
            part = nl.ndarray((128, 128), dtype=a.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=part, src=a[:, at : at + 128])
            nisa.dma_copy(dst=out[:, at : at + 128], src=part)
        return out

    made = tuner(kernel, [{"lnc": 1}, {"lnc": 2}])
    assert np.array_equal(made(A), A)
    assert made.tuned.chosen.label == "lnc=2"


def test_tune_alone_changes_nothing() -> None:
    kernel, changed = tuner(in_place, [{"tile": 1024}]), A.copy()
    found = kernel.tune(changed)
    assert found.chosen.label == "tile=1024"
    assert np.array_equal(changed, A)


def test_torch_tensors_come_back_as_such() -> None:
    torch = pytest.importorskip("torch")
    given = torch.from_numpy(A[:, :512].copy()).to(torch.bfloat16)
    kernel = tuner(scale, [{"tile": 512}])
    found = kernel(given)
    assert found.dtype == torch.bfloat16 and bool((found == 2 * given).all())
    assert kernel.tuned.key == "a=bfloat16[128, 512], fault=''"


@pytest.mark.parametrize(
    "mine,theirs,tolerance,same",
    [
        (1.0, 1.0 + 5e-5, None, True),
        (1.0, 1.0 + 5e-4, None, False),
        (1.0, 1.01, 0.02, True),
        (np.nan, np.nan, None, True),
        (np.nan, 1.0, None, False),
        (np.inf, np.inf, None, True),
        (np.inf, 1.0, None, False),
        (1.0, np.inf, None, False),
        (-np.inf, np.inf, None, False),
    ],
)
def test_the_comparison(mine: float, theirs: float, tolerance: float | None, same: bool) -> None:
    a, b = np.ones(4, np.float32), np.ones(4, np.float32)
    a[2], b[2] = mine, theirs
    told = difference([("result", a)], [("result", b)], tolerance)
    assert (told == "") is same
    assert same or told.startswith("result[2] is ")


def test_integers_are_compared_exactly() -> None:
    assert allowed(nl.int32) == 0.0
    assert allowed(nl.bfloat16) == 4 * 2.0**-7
    a = np.array([1 << 24], np.int32)
    assert difference([("result", a)], [("result", a + 1)], None)
    assert difference([("result", a)], [("result", a.astype(np.float32))], None)
