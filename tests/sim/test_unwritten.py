"""What unwritten storage shows, in every mode and memory."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.core.errors import NkiError
from nki.report import NkiWarning

X = np.arange(4 * 8, dtype=np.float32).reshape(4, 8) + 1


def own_bytes(a: Any) -> Any:
    return _half_written(a, nl.float32, None)


def explicit_address(a: Any) -> Any:
    return _half_written(a, nl.float32, (0, 0))


def low_precision(a: Any) -> Any:
    return _half_written(a, nl.bfloat16, None)


def integers(a: Any) -> Any:
    return _half_written(a, nl.int32, None)


def reused_bytes(a: Any) -> Any:
    """The compiler puts the tile where an earlier one was."""
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    earlier = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
    nisa.memset(dst=earlier, value=7.0)
    nisa.dma_copy(dst=out, src=earlier)
    nisa.dma_copy(dst=out, src=_half_written_tile(a, nl.float32, None))
    return out


def _half_written(a: Any, dtype: Any, address: tuple[int, int] | None) -> Any:
    tile = _half_written_tile(a, dtype, address)
    out = nl.ndarray(a.shape, nl.float32, buffer=nl.shared_hbm)
    wide = nl.ndarray(a.shape, nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=wide, src=tile)
    nisa.dma_copy(dst=out, src=wide)
    return out


def _half_written_tile(a: Any, dtype: Any, address: tuple[int, int] | None) -> Any:
    tile = nl.ndarray(a.shape, dtype, buffer=nl.sbuf, address=address)
    loaded = nl.ndarray((4, 4), a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=loaded, src=a[:, 0:4])
    nisa.tensor_copy(dst=tile[:, 0:4], src=loaded)
    return tile


def never_written(a: Any) -> Any:
    return nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)


@pytest.mark.parametrize("wrap", [nki.simulate, nki.jit])
@pytest.mark.parametrize("kernel", [own_bytes, explicit_address, low_precision, integers, reused_bytes])
@pytest.mark.parametrize("asked", ["sentinel", "zero"])
def test_unwritten_elements_show_the_sentinel_or_zero_and_are_reported(
    kernel: Callable[..., Any], wrap: Callable[..., Any], asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NKI_UNINITIALIZED", asked)
    expected = X.copy()
    expected[:, 4:] = 0 if asked == "zero" else 4 if kernel is integers else np.nan
    run = wrap(kernel)
    with pytest.warns(NkiWarning, match="memory.uninitialized"):
        result = run(X)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("asked", ["sentinel", "zero"])
def test_values_beyond_the_dtype_follow_it(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NKI_UNINITIALIZED", asked)
    monkeypatch.setenv("NKI_PRECISE_FP", "0")
    with pytest.warns(NkiWarning, match="memory.uninitialized"):
        result = nki.simulate(low_precision)(X)
    assert np.isnan(result[:, 4:]).all() == (asked == "sentinel")
    assert (result[:, 4:] == 0).all() == (asked == "zero")


@pytest.mark.parametrize("kernel", [never_written, own_bytes, explicit_address, reused_bytes])
def test_every_call_follows_the_switch_of_its_time(kernel: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    run = nki.jit(kernel)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for asked in ("sentinel", "zero", "sentinel"):
            monkeypatch.setenv("NKI_UNINITIALIZED", asked)
            assert np.isnan(run(X)[:, 4:]).all() == (asked == "sentinel")


def test_another_word_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NKI_UNINITIALIZED", "ones")
    with pytest.raises(NkiError, match="NKI_UNINITIALIZED is one of sentinel, zero"):
        nki.simulate(own_bytes)(X)


def returns_nothing_written(a: Any) -> Any:
    tile = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a)
    return nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)


@pytest.mark.parametrize("simulate", [False, True], ids=["compiled", "eager"])
def test_a_returned_tensor_that_nothing_writes_is_warned_of_in_every_call(simulate: bool) -> None:
    kernel = nki.jit(returns_nothing_written)
    for _ in range(2):
        with pytest.warns(NkiWarning, match=r"no instruction writes to it") as found:
            result = (nki.simulate(kernel) if simulate else kernel)(X)
        assert [warning.message.finding.code for warning in found] == ["return.unwritten"]
        assert np.isnan(result).all()


@pytest.mark.parametrize("simulate", [False, True], ids=["compiled", "eager"])
def test_the_warning_can_be_switched_off(simulate: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NKI_DISABLE_RULES", "return.unwritten")
    kernel = nki.jit(returns_nothing_written)
    assert np.isnan((nki.simulate(kernel) if simulate else kernel)(X)).all()


@pytest.mark.parametrize("simulate", [False, True], ids=["compiled", "eager"])
def test_a_result_that_one_core_writes_is_written(simulate: bool) -> None:
    @nki.jit
    def kernel(a: Any) -> Any:
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        if nl.program_id(0) == 1:
            nisa.dma_copy(dst=out, src=a)
        return out

    assert np.array_equal((nki.simulate(kernel[2]) if simulate else kernel[2])(X), X)


@pytest.mark.parametrize("simulate", [False, True], ids=["compiled", "eager"])
def test_there_is_nothing_to_write_in_an_empty_result(simulate: bool) -> None:
    @nki.jit
    def kernel(a: Any) -> Any:
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        return out[0:0]

    assert (nki.simulate(kernel) if simulate else kernel)(X).size == 0
