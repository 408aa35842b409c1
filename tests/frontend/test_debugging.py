"""Eager mode is for people: values are there, a debugger stops in the kernel, and locations are the user's."""

from __future__ import annotations

import pdb
import warnings
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.core.errors import FrontendError, NkiError, UsageError
from nki.report import NkiWarning
from tests.support import environment, rejection

X = np.arange(32, dtype=np.float32).reshape(4, 8)


def double(a: Any) -> Any:
    tile = nl.ndarray(a.shape, a.dtype)
    nisa.dma_copy(dst=tile, src=a)
    nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.add)
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


def test_values_are_visible_while_the_body_runs(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[np.ndarray] = []

    def kernel(a: Any) -> Any:
        tile = nl.ndarray(a.shape, a.dtype)
        nisa.dma_copy(dst=tile, src=a)
        seen.append(tile[1:3, ::2].peek())
        print(tile[0:1])
        return double(a)

    nki.simulate(kernel)(X)
    assert (seen[0] == X[1:3, ::2]).all()
    assert "[[0. 1. 2." in capsys.readouterr().out
    with pytest.raises(FrontendError, match=r"tensor\.peek"):
        nki.jit(kernel)(X)


def test_a_debugger_stops_in_the_kernel_and_sees_the_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, Any] = {}

    class Probe(pdb.Pdb):
        def interaction(self, frame: Any, *rest: Any) -> None:
            found["line"] = frame.f_code.co_name
            found["tile"] = frame.f_locals["tile"].peek()
            self.set_continue()

    def kernel(a: Any) -> Any:
        tile = nl.ndarray(a.shape, a.dtype)
        nisa.dma_copy(dst=tile, src=a)
        breakpoint()
        return double(a)

    monkeypatch.setattr("sys.breakpointhook", lambda: Probe().set_trace(__import__("sys")._getframe(1)))
    result = nki.simulate(kernel)(X)
    assert (result == X * 2).all()
    assert found["line"] == "kernel"
    assert (found["tile"] == X).all()


def helper(tile: Any) -> None:
    nisa.tensor_copy(dst=tile[0:2], src=tile[0:3])


def nested(a: Any) -> Any:
    tile = nl.ndarray(a.shape, a.dtype)
    nisa.dma_copy(dst=tile, src=a)
    helper(tile)
    return double(a)


def test_an_error_points_at_the_line_with_a_caret_and_tells_the_call_chain() -> None:
    text = str(rejection(nested, X))
    lines = text.splitlines()
    assert lines[0].startswith("error[tensor_copy.shapes]: nisa.tensor_copy: dst has 2 x 8, src has 3 x 8")
    source = next(i for i, line in enumerate(lines) if "nisa.tensor_copy(dst=tile[0:2], src=tile[0:3])" in line)
    caret = lines[source + 1]
    assert caret.index("^") == lines[source].index("nisa.tensor_copy")
    assert caret.count("^") == len("nisa.tensor_copy(dst=tile[0:2], src=tile[0:3])")
    assert any("called from" in line and line.endswith("in nested") for line in lines)
    assert any("helper(tile)" in line for line in lines)
    assert any(line.startswith("  rule: ") for line in lines)
    assert any(line.startswith("  fix: ") for line in lines)
    assert "nki explain tensor_copy.shapes" in lines[-1]


def test_errors_as_json_hold_the_same_facts() -> None:
    data = rejection(nested, X).to_json()
    assert data["code"] == "tensor_copy.shapes"
    assert data["location"][0]["function"] == "helper"
    assert data["location"][1]["function"] == "nested"
    assert data["fix"]
    assert data["version"]


def test_reading_what_was_never_written_is_told_once_per_line() -> None:
    def kernel(a: Any) -> Any:
        tile = nl.ndarray((4, 8), nl.float32, name="forgotten")
        out = nl.ndarray((4, 8), nl.float32, buffer=nl.shared_hbm)
        for _ in range(3):
            nisa.dma_copy(dst=out, src=tile)
        return out

    for run in (nki.simulate(kernel), nki.jit(kernel)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = run(X)
        assert np.isnan(result).all()
        assert len(caught) == 1
        assert isinstance(caught[0].message, NkiWarning)
        assert "forgotten" in str(caught[0].message)
        assert run.report.findings[0].code == "memory.uninitialized"


def test_a_disabled_rule_is_not_checked() -> None:
    def kernel(a: Any) -> Any:
        tile = nl.ndarray((4, 8), nl.float32)
        nisa.dma_copy(dst=tile, src=a, priority=1)
        return double(a)

    assert rejection(kernel, X).code == "dma_copy.priority"
    with environment(NKI_DISABLE_RULES="dma_copy.priority", NEURON_PLATFORM_TARGET_OVERRIDE="trn2"):
        assert (nki.jit(kernel)(X) == X * 2).all()


def test_imprecise_floats_keep_float32_values_until_they_leave() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")

    def kernel(a: Any) -> Any:
        tile = nl.ndarray(a.shape, nl.bfloat16)
        nisa.dma_copy(dst=tile, src=a)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=0.001)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=-1.0)
        out = nl.ndarray(a.shape, nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile)
        return out

    a = np.ones((4, 8), ml_dtypes.bfloat16)
    compiled = nki.jit(kernel)
    for run in (nki.simulate(kernel), compiled):
        with environment(NKI_PRECISE_FP="0"):
            loose = run(a)
            assert run.report.precise_fp is False
        assert (run(a) == 0).all()
        np.testing.assert_allclose(loose, 0.001, rtol=1e-4)
    with (
        environment(NKI_PRECISE_FP="0", NKI_REQUIRE_NATIVE="1"),
        pytest.raises(UsageError, match="NKI_PRECISE_FP=0 is"),
    ):
        compiled(a)


def test_the_simulator_variable_makes_calls_eager() -> None:
    kernel = nki.jit(double)
    with environment(NKI_SIMULATOR="1"):
        kernel(X)
    assert kernel.report is not None
    assert kernel.report.mode == "eager"
    kernel(X)
    assert kernel.report.mode == "compiled"
    with environment(NKI_SIMULATOR="yes"), pytest.raises(NkiError, match=r"option\.value"):
        kernel(X)
