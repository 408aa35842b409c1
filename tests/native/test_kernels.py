"""Whole kernels, executed natively and by NumPy: the same bits, the same warnings, and memory that is really reused."""

from __future__ import annotations

import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.native.records import forms
from nki.native.run import kernel as native_kernel
from tests.support import environment, same_bits

ROWS, COLUMNS = 256, 96


def scaled_sum(a: Any, b: Any) -> Any:
    """Loads, two instructions, a store: transfers that can be left out."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for i in range(a.shape[0] // 128):
        rows = slice(i * 128, (i + 1) * 128)
        x, y, z = (nl.ndarray((128, a.shape[1]), dtype=a.dtype, buffer=nl.sbuf) for _ in range(3))
        nisa.dma_copy(x, a[rows])
        nisa.dma_copy(y, b[rows])
        nisa.tensor_tensor(z, x, y, nl.add)
        nisa.tensor_scalar(z, z, nl.multiply, 0.5)
        nisa.dma_copy(out[rows], z)
    return out


def in_place(a: Any, b: Any) -> Any:
    """Writes to its first argument, which may be the array that its second one is."""
    x, y = (nl.ndarray((128, a.shape[1]), dtype=a.dtype, buffer=nl.sbuf) for _ in range(2))
    nisa.dma_copy(y, b[0:128])
    nisa.memset(x, 7.0)
    nisa.dma_copy(a[0:128], x)
    nisa.tensor_scalar(y, y, nl.add, 1.0)
    out = nl.ndarray((128, a.shape[1]), dtype=a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(out, y)
    return out


def reused_tile(a: Any, b: Any) -> Any:
    """One tile for all rows, stored twice to overlapping places."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, a.shape[1]), dtype=a.dtype, buffer=nl.sbuf)
    for i in range(a.shape[0] // 128):
        nisa.dma_copy(tile, a[i * 128 : (i + 1) * 128])
        nisa.tensor_scalar(tile, tile, nl.add, float(i))
        nisa.dma_copy(out[i * 128 : (i + 1) * 128], tile)
    nisa.dma_copy(out[64:192], tile)
    return out


def overlapping_stores(a: Any, b: Any) -> Any:
    """Two tiles that are stored once each, the second one partly over the first."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for i, (source, start) in enumerate(((a, 0), (b, 64), (a, 128))):
        tile = nl.ndarray((128, a.shape[1]), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(tile, source[0:128])
        nisa.tensor_scalar(tile, tile, nl.add, float(i))
        nisa.dma_copy(out[start : start + 128], tile)
    return out


def partly_written(a: Any, b: Any) -> Any:
    """Most of the result is never written."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, a.shape[1]), dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(tile, a[0:128])
    nisa.activation(tile, nl.exp, tile)
    nisa.dma_copy(out[0:128], tile)
    return out


def read_before_written(a: Any, b: Any) -> Any:
    """Half of a tile is read that nobody wrote."""
    out = nl.ndarray((128, a.shape[1]), dtype=a.dtype, buffer=nl.shared_hbm)
    tile, sums = (nl.ndarray((128, a.shape[1]), dtype=a.dtype, buffer=nl.sbuf) for _ in range(2))
    nisa.dma_copy(tile[:, 0 : a.shape[1] // 2], a[0:128, 0 : a.shape[1] // 2])
    nisa.tensor_scalar(sums, tile, nl.add, 1.0)
    nisa.dma_copy(out, sums)
    return out


def outside_domain(a: Any, b: Any) -> Any:
    """A square root of negative numbers, after and before instructions that are fine."""
    out = nl.ndarray((128, a.shape[1]), dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, a.shape[1]), dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(tile, a[0:128])
    nisa.tensor_scalar(tile, tile, nl.multiply, 2.0)
    nisa.activation(tile, nl.sqrt, tile)
    nisa.tensor_scalar(tile, tile, nl.add, 1.0)
    nisa.dma_copy(out, tile)
    return out


def device_loop(a: Any, b: Any) -> Any:
    """Addresses that depend on a register."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)

    def body(i: Any) -> None:
        tile = nl.ndarray((1, a.shape[1]), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(tile, a.select(0, i).expand_dim(0))
        nisa.tensor_scalar(tile, tile, nl.multiply, 3.0)
        nisa.dma_copy(out.select(0, i).expand_dim(0), tile)

    nl.fori_loop(0, a.shape[0], body)
    return out


def products(a: Any, b: Any) -> Any:
    """Matmuls that begin and continue a sum, with a maximum of what is in PSUM."""
    n = a.shape[1]
    total = nl.ndarray((n, n), dtype=nl.float32, buffer=nl.psum)
    for i in range(a.shape[0] // 128):
        x, y = (nl.ndarray((128, n), dtype=a.dtype, buffer=nl.sbuf) for _ in range(2))
        nisa.dma_copy(x, a[i * 128 : (i + 1) * 128])
        nisa.dma_copy(y, b[i * 128 : (i + 1) * 128])
        nisa.nc_matmul(total, x, y)
    best = nl.ndarray((n, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(best, nl.maximum, total, axis=(1,))
    out = nl.ndarray((n, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(out, best)
    return out


def sums_onto_nothing(a: Any, b: Any) -> Any:
    """A matmul adds to what nobody wrote, in eager mode next to one that may add."""
    n = a.shape[1]
    total = nl.ndarray((n, n), dtype=nl.float32, buffer=nl.psum)
    x = nl.ndarray((128, n), dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(x, a[0:128])
    nisa.nc_matmul(total[0:32], x[:, 0:32], x)
    nisa.nc_matmul(total, x, x, accumulate=True)
    return stored(total)


def sums_onto_fresh_tiles(a: Any, b: Any) -> Any:
    """A matmul adds to a tile that nobody touched; the second one has what was prepared for the first."""
    n = a.shape[1]
    x = nl.ndarray((128, n), dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(x, a[0:128])
    for _ in range(2):
        total = nl.ndarray((n, n), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(total, x, x, accumulate=True)
    return stored(total)


def sums_onto_others(a: Any, b: Any) -> Any:
    """A matmul adds to what a matmul wrote in one half, and another engine in the other half."""
    n = a.shape[1]
    total = nl.ndarray((n, n), dtype=nl.float32, buffer=nl.psum)
    x = nl.ndarray((128, n), dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(x, a[0:128])
    nisa.nc_matmul(total[:, 0:48], x, x[:, 0:48], accumulate=False)
    nisa.memset(total[:, 48:n], 1.0)
    nisa.nc_matmul(total, x, x, accumulate=True)
    return stored(total)


def sums_onto_a_fill(a: Any, b: Any) -> Any:
    """A matmul adds to what another engine wrote everywhere."""
    n = a.shape[1]
    total = nl.ndarray((n, n), dtype=nl.float32, buffer=nl.psum)
    x = nl.ndarray((128, n), dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(x, a[0:128])
    nisa.memset(total, 1.0)
    nisa.nc_matmul(total, x, x, accumulate=True)
    return stored(total)


def stored(total: Any) -> Any:
    """PSUM as a result."""
    tile = nl.ndarray(total.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(tile, total)
    out = nl.ndarray(total.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(out, tile)
    return out


KERNELS = [
    scaled_sum,
    in_place,
    reused_tile,
    overlapping_stores,
    partly_written,
    read_before_written,
    outside_domain,
    device_loop,
    products,
    sums_onto_nothing,
    sums_onto_fresh_tiles,
    sums_onto_others,
    sums_onto_a_fill,
]
WARNED = {
    read_before_written: "memory.uninitialized",
    outside_domain: "activation.domain",
    sums_onto_nothing: "psum.accumulate-unwritten",
    sums_onto_fresh_tiles: "psum.accumulate-unwritten",
    sums_onto_others: "psum.accumulate-foreign",
    sums_onto_a_fill: "psum.accumulate-foreign",
    partly_written: "return.partly-written",
}
"""What is said of these kernels on the target of the tests."""
WATCHED = (read_before_written, sums_onto_nothing, sums_onto_fresh_tiles, sums_onto_others, sums_onto_a_fill)
"""Kernels that the NumPy machine executes, because something of them is in doubt before they run."""


def arrays(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two float32 arrays."""
    random = np.random.default_rng(seed)
    a, b = random.standard_normal((2, ROWS, COLUMNS)).astype(np.float32)
    return a, b


def told(kernel: Any, *args: Any) -> tuple[Any, list[str]]:
    """The result and the codes of the warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = kernel(*args)
    return result, sorted(finding.code for finding in kernel.report.findings)


@pytest.mark.parametrize("function", KERNELS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("same", [False, True], ids=["two arrays", "one array"])
def test_native_is_numpy(function: Any, same: bool) -> None:
    """Results, changed arguments and warnings are the same in both modes and both executors, call after call."""
    outcomes = []
    for setting in ("0", "always"):
        with environment(NKI_NATIVE=setting, NEURON_PLATFORM_TARGET_OVERRIDE="trn2"):
            for kernel in (nki.jit(function), nki.simulate(nki.jit(function))):
                a, b = arrays()
                second = a if same else b
                outcomes.append(([told(kernel, a, second) for _ in range(3)], a, b))
                if setting == "always" and function not in WATCHED:
                    assert kernel.report.executed.native > 0
    codes = outcomes[0][0][0][1]
    assert (WARNED[function] in codes) if function in WARNED else not codes
    for other in outcomes[1:]:
        for wanted, got in zip(outcomes[0][0], other[0], strict=True):
            assert got[1] == wanted[1]
            same_bits(got[0], wanted[0])
        same_bits(other[1:], outcomes[0][1:])


def test_results_keep_their_values() -> None:
    """What a call returned is not touched by the next one, whose memory is the same."""
    with environment(NKI_NATIVE="always"):
        kernel = nki.jit(scaled_sum)
        first = kernel(*arrays(1))
        copy = first.copy()
        second = kernel(*arrays(2))
    assert not np.shares_memory(first, second)
    assert first.tobytes() == copy.tobytes() != second.tobytes()


def test_arguments_are_not_kept() -> None:
    """After a call the kernel holds no reference to the caller's arrays: they can be resized."""
    with environment(NKI_NATIVE="always"):
        kernel = nki.jit(scaled_sum)
        a, b = (array.copy() for array in arrays())
        kernel(a, b)
        kernel(a, b)
        a.resize((ROWS * COLUMNS,))


def test_threads_share_a_kernel() -> None:
    """Calls from several threads at once, each with its own arrays."""
    with environment(NKI_NATIVE="always"):
        kernel = nki.jit(scaled_sum)
        kernel(*arrays())
        wrong: list[int] = []

        def work(seed: int) -> None:
            a, b = arrays(seed)
            for _ in range(20):
                if kernel(a, b).tobytes() != ((a + b) * np.float32(0.5)).tobytes():
                    wrong.append(seed)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_two_cores() -> None:
    """Each core executes its half natively."""

    def halves(a: Any) -> Any:
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        rows = nl.ds(nl.program_id(0) * 128, 128)
        tile = nl.ndarray((128, a.shape[1]), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(tile, a[rows])
        nisa.tensor_scalar(tile, tile, nl.add, 1.0)
        nisa.dma_copy(out[rows], tile)
        return out

    a, _ = arrays()
    with environment(NKI_NATIVE="always"):
        kernel = nki.jit(halves)[2]
        for _ in range(2):
            assert kernel(a).tobytes() == (a + np.float32(1)).tobytes()
        assert kernel.report.executed.interpreted == 0


def test_an_interrupt_while_plans_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next call finds no half of them."""

    def halves(a: Any) -> Any:
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        rows = slice(128 * nl.program_id(0), 128 * nl.program_id(0) + 128)
        tile = nl.ndarray((128, a.shape[1]), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(tile, a[rows])
        nisa.tensor_scalar(tile, tile, nl.add, 1.0)
        nisa.dma_copy(out[rows], tile)
        return out

    made: list[int] = []
    arrange = native_kernel.arrange

    def interrupted(*arguments: Any) -> Any:
        made.append(1)
        if len(made) == 2:
            raise KeyboardInterrupt
        return arrange(*arguments)

    monkeypatch.setattr(native_kernel, "arrange", interrupted)
    a = np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS)
    with environment(NKI_NATIVE="always"):
        kernel = nki.jit(halves)[2]
        with pytest.raises(KeyboardInterrupt):
            kernel(a)
        assert np.array_equal(kernel(a), a + 1)
    assert len(made) == 4


def test_a_small_kernel_that_is_called_often_is_compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(forms, "_FORMS", {})
    monkeypatch.setenv("NKI_CACHE_DIR", str(tmp_path))  # other tests have compiled functions elsewhere
    monkeypatch.delenv("NKI_CACHE", raising=False)
    a = np.ones((128, 1), np.float32)
    with environment(NKI_NATIVE="auto", NKI_THREADS="1"):
        kernel = nki.jit(in_place)
        kernel(a, a.copy())
        assert kernel.report.executed.native == 0
        for _ in range(1_000):
            kernel(a, a.copy())
            if kernel.report.executed.interpreted == 0:
                break
        assert kernel.report.executed.native > 0
        assert kernel.report.executed.interpreted == 0
