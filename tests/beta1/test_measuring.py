"""`nki.baremetal`, `benchmark`, `profile` and the modes of `nki.jit`, as the published documents call them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import nki.beta1 as nki
import nki.beta1.language as nl
from nki.beta1.measuring import PERCENTILES
from nki.profiling.record import Profile
from tests.tools.running import nki_json

A = np.random.default_rng(1).standard_normal((128, 512)).astype(np.float32)


def added(a, b):
    c = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(c, nl.load(a) + nl.load(b))
    return c


def added_in_place(a, b, c):
    nl.store(c, nl.load(a) + nl.load(b))


@pytest.mark.parametrize("mode", ["auto", "jax", "torchxla", "baremetal", "benchmark", "simulation"])
def test_every_mode_computes(mode: str) -> None:
    np.testing.assert_array_equal(nki.jit(added, mode=mode)(A, A), A + A)
    np.testing.assert_array_equal(nki.jit(mode=mode)(added)(A, A), A + A)


def test_a_mode_or_a_keyword_that_there_is_not() -> None:
    for call in (lambda: nki.jit(added, mode="fast"), lambda: nki.jit(added, fast=True)):
        with pytest.raises(Exception, match=r"nki\.jit got"):
            call()


def test_baremetal_in_every_form_and_with_an_output_parameter() -> None:
    for made in (nki.baremetal(added), nki.baremetal()(added), nki.baremetal(nki.jit(added))):
        np.testing.assert_array_equal(made(A, A), A + A)
    out = np.zeros_like(A)
    assert nki.baremetal(added_in_place)(A, A, out) is None
    np.testing.assert_array_equal(out, A + A)


def test_baremetal_writes_a_file_that_runs(tmp_path: Path) -> None:
    neff, trace = tmp_path / "file.neff", tmp_path / "profile.ntff"
    np.testing.assert_array_equal(
        nki.baremetal(save_neff_name=str(neff), save_trace_name=str(trace))(added)(A, 2 * A), A + 2 * A
    )
    np.save(tmp_path / "a.npy", A)
    np.save(tmp_path / "b.npy", 2 * A)
    done = nki_json("run", str(neff), "--inputs", f"{tmp_path}/a.npy,{tmp_path}/b.npy", "-o", str(tmp_path / "c.npy"))
    np.testing.assert_array_equal(np.load(tmp_path / "c.npy"), A + 2 * A)
    assert done["kernel"] == "added" and Profile.load(trace).about.kernel == "added"


def test_benchmark_has_latencies_in_microseconds(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    neff = tmp_path / "file.neff"
    made = nki.benchmark(warmup=10, iters=100, save_neff_name=str(neff))(added)
    assert made.benchmark_result is None
    np.testing.assert_array_equal(made(A, A), A + A)
    latency = made.benchmark_result.nc_latency
    about = made.benchmark_result.profile.about
    found = {latency.get_latency_percentile(each) for each in PERCENTILES}
    assert found == {(about.makespan_ns + about.launch_ns) / 1e3}
    assert "in each of 100 iterations" in capsys.readouterr().err and neff.is_file()
    with pytest.raises(Exception, match="percentile 51"):
        latency.get_latency_percentile(51)


@pytest.mark.parametrize(("count", "nth", "wanted"), [(20, 10, [10, 20]), (1, 1, [1]), (3, 5, [5])])
def test_profile_writes_what_the_documents_list(tmp_path: Path, count: int, nth: int, wanted: list[int]) -> None:
    folder = tmp_path / "work"
    made = nki.profile(
        working_directory=str(folder),
        save_neff_name="cus.neff",
        save_trace_name="own.ntff",
        num_execs=count,
        profile_nth=nth,
    )(added)
    np.testing.assert_array_equal(made(A, A), A + A)
    names = {"own.ntff" if n == 1 else f"own_exec_{n}.ntff" for n in wanted}
    assert {each.name for each in folder.iterdir()} == {*names, "cus.neff", "json_reports"}
    reports = sorted((folder / "json_reports").iterdir())
    assert len(reports) == len(wanted) and json.loads(reports[0].read_text())
    with pytest.raises(Exception, match="exists"):
        made(A, A)
    nki.profile(working_directory=str(folder), save_trace_name="own.ntff", overwrite=True)(added)(A, A)
    with pytest.raises(Exception, match="absolute path"):
        nki.profile(working_directory="work")


def test_a_kernel_that_is_simulated_has_a_file_too(tmp_path: Path) -> None:
    made = nki.benchmark(save_neff_name=str(tmp_path / "file.neff"))(nki.jit(added, mode="simulation"))
    np.testing.assert_array_equal(made(A, A), A + A)
    assert (tmp_path / "file.neff").is_file()


def test_options_of_benchmark_and_target_reach_a_kernel_that_is_decorated_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = nki.jit(nki.jit(added), mode="benchmark", iters=7, platform_target="trn1")
    np.testing.assert_array_equal(made(A, A), A + A)
    assert "on trn1" in (told := capsys.readouterr().err) and "in each of 7 iterations" in told
