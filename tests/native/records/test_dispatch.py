"""Instructions that are executed by a plan of an earlier one: as NumPy executes them, whatever is different now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.native.run.machine import NativeMachine
from tests.native.test_kernels import told
from tests.support import environment, same_bits

WIDTH = 48


def sbuf(*shape: int) -> Any:
    """A tile."""
    return nl.ndarray(shape, nl.float32, buffer=nl.sbuf)


def result(tile: Any) -> Any:
    """The tile in HBM."""
    out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(out, tile)
    return out


def from_array_to_array(a: Any, b: Any) -> Any:
    """One instruction reads one array and writes the other one, some rows further down."""
    for rows in (0, 32, 64):
        nisa.dma_copy(a[rows + 1 : rows + 65, 0:40], b[rows : rows + 64, 0:40])
    tile = sbuf(128, WIDTH)
    nisa.dma_copy(tile, a[0:128])
    return result(tile)


def within_one_buffer(a: Any, b: Any) -> Any:
    """The same distance between what is read and what is written, at several places."""
    for rows in (0, 40, 100):
        nisa.dma_copy(a[rows + 8 : rows + 40], a[rows : rows + 32])
    tile = sbuf(128, WIDTH)
    nisa.dma_copy(tile, a[0:128])
    for _ in range(3):
        nisa.tensor_tensor(tile[:, 1:WIDTH], tile[:, 0 : WIDTH - 1], tile[:, 1:WIDTH], nl.add)
    return result(tile)


def not_always_written(a: Any, b: Any) -> Any:
    """What two tiles have, a third one of the same shape has not; of a fourth one only a part."""
    total = sbuf(128, WIDTH)
    nisa.memset(total, 0.0)
    for i in range(4):
        tile = sbuf(128, WIDTH)
        if i < 2:
            nisa.dma_copy(tile, a[0:128])
        if i == 3:
            nisa.dma_copy(tile[:, 0:7], a[0:128, 0:7])
            nisa.dma_copy(tile[0:64, 7:WIDTH], a[0:64, 7:WIDTH])
        nisa.tensor_scalar(total, tile, nl.multiply, 0.5)
    return result(total)


def written_in_parts(a: Any, b: Any) -> Any:
    """Parts in an order that leaves gaps for a while, and one written twice."""
    tile = sbuf(128, WIDTH)
    for first in (0, 32, 16, 32):
        nisa.dma_copy(tile[:, first : first + 16], a[0:128, first : first + 16])
    nisa.tensor_scalar(tile, tile, nl.add, 1.0)
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    for rows in (0, 96):
        nisa.dma_copy(out[rows : rows + 64], tile[0:64])
    return out


def products(a: Any, b: Any) -> Any:
    """Sums in PSUM that begin, go on, and are overwritten by another engine, by parts and as a whole."""
    x, y = sbuf(128, WIDTH), sbuf(128, WIDTH)
    nisa.dma_copy(x, a[0:128])
    nisa.dma_copy(y, b[0:128])
    results = sbuf(WIDTH, 4 * WIDTH)
    for i in range(4):
        total = nl.ndarray((WIDTH, WIDTH), nl.float32, buffer=nl.psum)
        if i == 1:
            nisa.memset(total[:, 0:16], 3.0)
        if i == 3:
            nisa.tensor_copy(total, x[0:WIDTH])
        for part in (slice(0, 16), slice(32, 48), slice(16, 32), slice(0, 16)):
            nisa.nc_matmul(total[:, part], x, y[:, part])
        nisa.nc_matmul(total, x, y, accumulate=i > 1)
        nisa.tensor_copy(results[:, i * WIDTH : (i + 1) * WIDTH], total)
    return result(results)


def over_another_engine(a: Any, b: Any) -> Any:
    """A product is added to what another engine wrote, after one beside it."""
    x = sbuf(128, WIDTH)
    nisa.dma_copy(x, a[0:128])
    for _ in range(2):
        total = nl.ndarray((WIDTH, WIDTH), nl.float32, buffer=nl.psum)
        nisa.memset(total[:, 16:WIDTH], 3.0)
        for part in (slice(0, 16), slice(16, 32), slice(32, WIDTH)):
            nisa.nc_matmul(total[:, part], x, x[:, part])
        y = sbuf(WIDTH, WIDTH)
        nisa.tensor_copy(y, total)
    return result(y)


def with_addresses(a: Any, b: Any) -> Any:
    """Tensors with explicit addresses that share bytes."""
    x = nl.ndarray((128, WIDTH), nl.float32, buffer=nl.sbuf, address=(0, 0))
    y = nl.ndarray((128, WIDTH), nl.float32, buffer=nl.sbuf, address=(0, 64))
    nisa.dma_copy(x, a[0:128])
    for _ in range(3):
        nisa.tensor_scalar(y, x, nl.add, 1.0)
    nisa.tensor_tensor(x, x, y, nl.add)
    return result(x)


KERNELS = (
    from_array_to_array,
    within_one_buffer,
    not_always_written,
    written_in_parts,
    products,
    over_another_engine,
    with_addresses,
)


def outcome(function: Callable[..., Any], native: str) -> list[Any]:
    """Results, arguments and warnings of calls with two arrays, one array twice, and overlapping parts of one."""
    found: list[Any] = []
    with environment(NKI_NATIVE=native, NEURON_PLATFORM_TARGET_OVERRIDE="trn2"):
        kernel = nki.simulate(nki.jit(function))
        for how in ("two", "one", "two", "one", "view of the same", "views"):
            values = np.random.default_rng(5).standard_normal((320, WIDTH)).astype(np.float32)
            a, b = values[:160], values[160:]
            if how == "one":
                b = a
            elif how == "view of the same":
                b = a[:]
            elif how == "views":
                a, b = values[16:176], values[:160]
            got, codes = told(kernel, a, b)
            found.append((got, values, codes))
    return found


@pytest.mark.parametrize("function", KERNELS, ids=lambda f: f.__name__)
def test_plans_are_numpy(function: Any) -> None:
    wanted, got = outcome(function, "0"), outcome(function, "always")
    for (values, memory, codes), (other, other_memory, other_codes) in zip(wanted, got, strict=True):
        assert other_codes == codes
        same_bits(other, values)
        same_bits(other_memory, memory)


def test_plans_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """All instructions of a kernel but those that are the first of their kind."""
    executed: list[bool] = []
    execute = NativeMachine._execute

    def counted(machine: NativeMachine, plan: Any, issued: Any) -> bool:
        executed.append(execute(machine, plan, issued))
        return executed[-1]

    monkeypatch.setattr(NativeMachine, "_execute", counted)
    with environment(NKI_NATIVE="always"):
        kernel = nki.simulate(nki.jit(written_in_parts))
        for _ in range(3):
            told(kernel, *(np.ones((160, WIDTH), np.float32) for _ in range(2)))
    assert len(executed) >= 2 * 8 and all(executed)
