"""``nki.profile``, ``nki.benchmark`` and ``kernel.profile``."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import nki
import nki.driver.execute
import nki.isa as nisa
import nki.language as nl
from nki.core.errors import LaunchError
from nki.target.load import load_target
from tests.profiling.support import PIPELINE, array, hbm, loaded, pipeline, sbuf, stored

TRN2 = load_target("trn2")


@nki.jit
def double(a: Any) -> Any:
    tile = loaded(a)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    return stored(tile)


def test_a_kernel_has_the_profile_of_its_last_call() -> None:
    kernel = nki.jit(double.func)
    assert kernel.profile is None
    kernel(array(128, 512))
    first = kernel.profile
    assert first is kernel.profile, "it is computed once"
    assert first.about.kernel == "double"
    kernel(array(128, 2048))
    assert kernel.profile.makespan_ns > first.makespan_ns


def test_a_kernel_that_runs_eagerly_has_the_same_profile() -> None:
    eager, compiled = nki.simulate(double), nki.jit(double.func)
    for kernel in (eager, compiled):
        kernel(array(128, 512))
    assert eager.report.mode == "eager"
    assert eager.profile.to_json() == compiled.profile.to_json()


def test_profiling_runs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("it runs")

    monkeypatch.setattr("nki.driver.call.run_compiled", refuse)
    a = array(128, 512)
    profile = nki.profile(double)(a)
    assert profile.makespan_ns > 0.0
    assert nki.benchmark(double)(a).mean_ms > 0.0
    with pytest.raises(AssertionError, match="it runs"):
        double(a)


def test_a_profile_does_not_depend_on_values() -> None:
    zeros, ones = np.zeros((128, 512), np.float32), np.ones((128, 512), np.float32)
    assert nki.profile(double)(zeros).to_json() == nki.profile(double)(ones).to_json()


def test_two_cores() -> None:
    def kernel(a: Any) -> Any:
        core, out, tile = nl.program_id(0), hbm(a.shape), sbuf((128, 512))
        nisa.dma_copy(dst=tile, src=a[core])
        nisa.dma_copy(dst=out[core], src=tile)
        return out

    a = array(2, 128, 512)
    for profile in (nki.profile(kernel)[2](a), nki.profile(nki.jit(kernel)[2])(a)):
        assert profile.about.cores == 2
        assert set(profile["instructions"]["core"].tolist()) == {0, 1}
    assert nki.benchmark(kernel)[2](a).profile.about.cores == 2


def test_the_shape_of_a_benchmark_is_the_official_one() -> None:
    result = nki.benchmark(pipeline, warmup_iter=2, benchmark_iter=3)(*PIPELINE)
    assert (result.iterations, result.warmup_iterations, len(result.durations_ms)) == (3, 2, 3)
    device = (result.profile.makespan_ns + TRN2.timing["launch_ns"]) / 1e6
    assert result.mean_ms == result.min_ms == result.max_ms == pytest.approx(device)
    assert result.std_dev_ms == 0.0
    assert result.is_simulation
    assert result.validated == TRN2.validated
    assert result.kernel_ms + result.launch_ms == pytest.approx(device)
    assert result.roofline_ms <= result.lower_bound_ms <= result.kernel_ms
    assert result.bound_by == result.profile.about.totals[0]["bound_by"]
    assert f"(simulated: {result.profile.about.accuracy['text']})" in str(result)


def test_the_wall_time_of_this_machine_is_another_mode() -> None:
    runs = []

    @nki.jit
    def kernel(a: Any) -> Any:
        runs.append(1)
        return double.func(a)

    result = nki.benchmark(nki.simulate(kernel), warmup_iter=1, benchmark_iter=2, mode="host")(array(128, 8))
    assert (result.mode, result.iterations) == ("host", 2)
    assert len(runs) == 1 + 3, "traced once for the profile, and run for the warm-up and the iterations"
    assert result.min_ms <= result.mean_ms <= result.max_ms
    assert result.kernel_ms < result.mean_ms


@pytest.mark.parametrize("wrong", [{"benchmark_iter": 0}, {"warmup_iter": -1}, {"mode": "wall"}])
def test_arguments_that_cannot_be(wrong: dict[str, Any]) -> None:
    with pytest.raises(LaunchError) as caught:
        nki.benchmark(double, **wrong)
    assert caught.value.code == "benchmark.argument"


def test_the_summary_names_the_target_and_says_that_nothing_was_measured() -> None:
    text = nki.profile(double)(array(128, 512)).summary()
    assert text.startswith("double on trn2: ")
    assert "simulated: within " in text and " measured kernels on trn2 " in text
    assert "bound by" in text
    assert "critical path:" in text


def test_a_target_whose_model_was_not_compared_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
    monkeypatch.setattr(sys.modules["nki.profiling.evidence"], "_TOLD", set())
    profile = nki.profile(double)(array(128, 512))
    assert not profile.about.validated
    result = nki.benchmark(double)(array(128, 512))
    for text in (profile.summary(), str(result), profile._repr_html_(), result._repr_html_()):
        assert "NOT compared" in text
        assert "NEURON_PLATFORM_TARGET_OVERRIDE=trn2" in text
    (told,) = caplog.records
    assert "[timing.unmeasured] times of trn3" in told.message
    assert "NEURON_PLATFORM_TARGET_OVERRIDE=trn2" in told.message


@pytest.mark.parametrize("ask", ["profile", "benchmark", "property"])
def test_the_first_time_of_such_a_target_says_so(
    ask: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever asks; and nothing is said of a target whose model was compared."""
    monkeypatch.setattr(sys.modules["nki.profiling.evidence"], "_TOLD", set())
    kernel = nki.jit(double.func)

    def times() -> None:
        if ask == "property":
            kernel(array(128, 512))
            assert kernel.profile is not None
        else:
            getattr(nki, ask)(kernel)(array(128, 512))

    times()
    assert not caplog.records
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
    times()
    times()
    assert len(caplog.records) == 1


def test_importing_the_package_loads_no_profiler() -> None:
    heavy = ("rich", "pyarrow", "perfetto", "nki.timing", "nki.passes")
    code = f"import nki, sys; print([name for name in {heavy!r} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_a_benchmark_is_a_decorator_too() -> None:
    made = nki.benchmark(benchmark_iter=2)(pipeline)
    assert made(*PIPELINE).iterations == 2


def test_keywords_of_older_versions_are_told_what_to_write() -> None:
    with pytest.raises(LaunchError, match="warmup_iter, benchmark_iter and mode") as caught:
        nki.benchmark(warmup=5, iters=10)
    assert caught.value.code == "benchmark.argument"
