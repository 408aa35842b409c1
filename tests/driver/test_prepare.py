"""What a call decides before anything is traced, and what it keeps for the next one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.core.errors import FrontendError, LaunchError, TargetError
from nki.driver.compile import compiled
from nki.driver.launch import Launch
from nki.driver.prepare import prepare
from nki.options import Options
from tests.driver.test_frameworks import doubled

A = np.ones((128, 4), np.float32)


@nki.jit
def quadrupled(a: Any) -> Any:
    out, tile = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm), nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=doubled(a))
    nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.add)
    nisa.dma_copy(dst=out, src=tile)
    return out


def generator(a: Any) -> Any:
    yield a


def test_the_target_is_the_first_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    launch = Launch(doubled.func, target="trn1")
    assert prepare(Launch(doubled.func), (A,), {}).target.name == "trn3"
    assert prepare(launch, (A,), {}).target.name == "trn1"
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    assert prepare(launch, (A,), {}).target.name == "trn2"
    assert prepare(launch, (A,), {}, Options()).target.name == "trn1"
    assert prepare(launch, (A,), {}, target="trn3").target.name == "trn3"


def test_the_mode_is_what_the_launch_and_the_options_say() -> None:
    assert prepare(doubled, (A,), {}, Options()).mode == "compiled"
    assert prepare(doubled, (A,), {}, Options(simulator=True)).mode == "eager"
    assert prepare(nki.simulate(doubled), (A,), {}, Options()).mode == "eager"
    assert prepare(nki.simulate(doubled), (A,), {}, Options(), "compiled").mode == "compiled"


def test_every_call_is_refused_alike() -> None:
    for _ in range(2):
        with pytest.raises(LaunchError, match=r"launch\.lnc"):
            prepare(doubled[3], (A,), {})
        with pytest.raises(TargetError, match="trn9"):
            prepare(doubled, (A,), {}, target="trn9")
        with pytest.raises(FrontendError):
            prepare(Launch(generator), (A,), {})


def test_changed_options_are_settled_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    first = prepare(doubled, (A,), {})
    assert prepare(doubled, (A,), {}).setting is first.setting
    monkeypatch.setenv("NKI_MATMUL", "fast")
    assert prepare(doubled, (A,), {}).options.matmul == "fast"
    monkeypatch.delenv("NKI_MATMUL")
    assert prepare(doubled, (A,), {}).setting is first.setting


def test_kernels_of_equal_settings_share_programs() -> None:
    kernel = nki.jit(doubled.func)
    first = compiled(prepare(kernel, (A,), {}, Options()))
    assert first.origin != "memory"
    again = compiled(prepare(Launch(kernel.func), (A,), {}, Options(), cache=kernel.cache))
    assert again.origin == "memory" and again.programs is first.programs


def test_calls_of_an_inner_kernel_change_nothing_in_the_outer_one() -> None:
    assert np.array_equal(quadrupled(A), 4 * A)
    doubled(A)
    nki.profile(doubled)(A)
    assert np.array_equal(quadrupled(A), 4 * A)
    assert quadrupled.report.compiled == "memory"


def test_the_report_of_equal_calls_is_the_same() -> None:
    kernel = nki.jit(doubled.func)
    kernel(A)
    reports = []
    for _ in range(3):
        kernel(A)
        reports.append(kernel.report)
    assert {report.compiled for report in reports} == {"memory"}
    assert [(r.target, r.mode, r.executed, r.kernel_hash) for r in reports] == [
        (reports[0].target, "compiled", reports[0].executed, reports[0].kernel_hash)
    ] * 3
