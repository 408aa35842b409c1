"""What is known before a kernel runs decides who executes an instruction, and never what it computes or warns of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.native.tiering.compilation_policy import Functions
from tests.native.kernel_support import by_numpy, natively, seen
from tests.support import environment


def tile(*shape: int, buffer: Any = nl.sbuf) -> Any:
    """A tensor on chip."""
    return nl.ndarray(shape, dtype=nl.float32, buffer=buffer)


def result(*shape: int) -> Any:
    """A tensor for the caller."""
    return nl.ndarray(shape, dtype=nl.float32, buffer=nl.shared_hbm)


def arrays() -> tuple[np.ndarray, ...]:
    """Two arrays of small integers, so that a sum of products is exact in any order."""
    a, b = np.random.default_rng(5).integers(-4, 5, (2, 128, 64)).astype(np.float32)
    return a, b


def test_sum_that_two_executors_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """The function for the second product is not there yet: it adds to what the compiled one wrote."""

    def sums(a: Any, b: Any) -> Any:
        x, y, total, shown, out = (
            tile(128, 64),
            tile(128, 64),
            tile(64, 64, buffer=nl.psum),
            tile(64, 64),
            result(64, 64),
        )
        nisa.dma_copy(x, a)
        nisa.dma_copy(y, b)
        nisa.nc_matmul(total, x, y)
        nisa.nc_matmul(total[0:32, 0:16], x[:, 0:32], y[:, 0:16])
        nisa.tensor_copy(shown, total)
        nisa.dma_copy(out, shown)
        return out

    ready = Functions.ready

    def late(functions: Functions, form: Any, *rest: Any, **named: Any) -> bool:
        small = form.native is not None and form.native.template.words[2:4] == (32, 16)
        return bool(form.function) if small and waiting else ready(functions, form, *rest, **named)

    a, b = arrays()
    wanted = a.T @ b
    wanted[0:32, 0:16] *= 2
    monkeypatch.setattr(Functions, "ready", late)
    with environment(NKI_NATIVE="always"):
        kernel = nki.jit(sums)
        for waiting in (True, True, False, False):
            assert kernel(a, b).tobytes() == wanted.tobytes()
            assert kernel.report.executed.interpreted == (3 if waiting else 0)


def test_sum_with_an_operand_in_doubt() -> None:
    """NumPy executes the second product, because half of its operand was never written; the first one still counts."""

    def sums(a: Any, b: Any) -> Any:
        x, y, half = tile(128, 64), tile(128, 64), tile(128, 64)
        total, shown, out = tile(64, 64, buffer=nl.psum), tile(64, 64), result(64, 64)
        nisa.dma_copy(x, a)
        nisa.dma_copy(y, b)
        nisa.dma_copy(half[:, 0:32], b[:, 0:32])
        nisa.nc_matmul(total, x, y)
        nisa.nc_matmul(total, x, half)
        nisa.tensor_copy(shown, total)
        nisa.dma_copy(out, shown)
        return out

    found = natively(sums, arrays)
    assert found == by_numpy(sums, arrays)
    a, b = arrays()
    total = np.frombuffer(found[0][0][0], np.float32).reshape(64, 64)
    assert found[0][1] == ["memory.uninitialized"]
    assert total[:, 0:32].tobytes() == (2 * a.T @ b[:, 0:32]).tobytes()


def test_memory_of_each_trip() -> None:
    """A tensor that a loop allocates is new in each trip, wherever it is: what the trip before wrote is not there."""

    def trips(a: Any, region: Any) -> Any:
        out = result(128, 64)

        def body(_: Any) -> None:
            kept = nl.ndarray((128, 64), dtype=nl.float32, buffer=region)
            nisa.dma_copy(out, kept)
            nisa.dma_copy(kept, a)

        nl.fori_loop(0, 3, body)
        return out

    for region in (nl.shared_hbm, nl.private_hbm, nl.sbuf):

        def kernel(a: Any, region: Any = region) -> Any:
            return trips(a, region)

        found = natively(kernel, lambda: arrays()[:1])
        assert found == by_numpy(kernel, lambda: arrays()[:1])
        assert np.isnan(np.frombuffer(found[0][0][0], np.float32)).all()


def test_tensor_that_does_not_fit() -> None:
    """The error of a tensor that this machine has no memory for shows where it is allocated."""

    def huge(a: Any) -> Any:
        kept, x, out = (
            nl.ndarray((1 << 20, 1 << 22), dtype=nl.float32, buffer=nl.private_hbm),
            tile(128, 64),
            result(128, 64),
        )
        nisa.dma_copy(x, a)
        nisa.dma_copy(kept[0:128, 0:64], x)
        nisa.dma_copy(out, x)
        return out

    found = natively(huge, lambda: arrays()[:1])
    assert found[0][0] == "tensor.huge"
    assert found == by_numpy(huge, lambda: arrays()[:1])


def test_after_an_error() -> None:
    """A call that ends in the middle leaves nothing behind: the next one is as the first."""

    def row(a: Any, number: Any) -> Any:
        x, at, picked, out = tile(128, 64), nl.ndarray((1, 1), dtype=nl.int32), tile(1, 64), result(129, 64)
        nisa.dma_copy(x, a)
        nisa.tensor_scalar(x, x, nl.add, 1.0)
        nisa.dma_copy(out[0:128], x)
        nisa.dma_copy(at, number)
        nisa.dma_copy(picked, a.select(0, at).expand_dim(0))
        nisa.tensor_scalar(picked, picked, nl.multiply, 2.0)
        nisa.dma_copy(out[128:129], picked)
        return out

    a = arrays()[0]
    outcomes = []
    for setting in ("0", "always"):
        with environment(NKI_NATIVE=setting):
            kernel = nki.jit(row)
            outcomes.append([seen(kernel, (a, np.array([[n]], np.int32)), 1) for n in (3, 128, 4, -1, 5)])
    assert outcomes[0] == outcomes[1]
    assert [calls[0][0] == "access.dynamic-out-of-bounds" for calls in outcomes[1]] == [False, True, False, True, False]
    last = np.frombuffer(outcomes[1][4][0][0][0], np.float32).reshape(129, 64)
    assert last.tobytes() == np.concatenate([a + 1, 2 * a[5:6]]).tobytes()
