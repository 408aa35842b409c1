"""Device loops, registers and dynamic addresses as records: bits, warnings and errors are NumPy's, with any threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.isa.register import register_alu, register_op
from nki.native.run.core import NativeCore
from tests.native.kernel_support import Arrays, by_numpy, natively, one_after_the_other
from tests.support import environment

ROWS, COLUMNS = 6, 40


def arrays() -> Arrays:
    """Rows of numbers, and some integers."""
    random = np.random.default_rng(5)
    return (
        random.standard_normal((ROWS, COLUMNS)).astype(np.float32),
        np.array([3, 1, 4, 1, 5, 0], np.int32),
    )


def doubled_rows(a: Any, n: Any) -> Any:
    """Device memory at the index of a loop, with a bound from memory."""
    out = nl.zeros(a.shape, a.dtype, buffer=nl.shared_hbm)
    upper = nisa.register_alloc()
    nisa.register_load(upper, n[4:5])

    def body(i: Any) -> None:
        row = nl.ndarray((1, a.shape[1]), a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=row, src=a.select(0, i))
        nisa.tensor_scalar(row, row, nl.multiply, 2.0)
        nisa.dma_copy(dst=out.select(0, i), src=row)

    nl.fori_loop(1, upper, body, 2)
    return out


def nested(a: Any, n: Any) -> Any:
    """A loop in a loop whose bound is the index of the outer one, and sums in one tile."""
    total = nl.zeros((1, a.shape[1]), a.dtype, buffer=nl.sbuf)
    out = nl.ndarray((ROWS, a.shape[1]), a.dtype, buffer=nl.shared_hbm)

    def outer(i: Any) -> None:
        def inner(j: Any) -> None:
            row = nl.ndarray((1, a.shape[1]), a.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=row, src=a.select(0, j))
            nisa.tensor_tensor(total, total, row, nl.add)

        nl.fori_loop(0, i, inner)
        nisa.dma_copy(dst=out.select(0, i), src=total)

    nl.fori_loop(0, ROWS, outer)
    return out


def within_a_tile(a: Any, n: Any) -> Any:
    """On-chip addresses: a free offset from a register, a partition from a tensor."""
    tile = nl.load(a)
    numbers = nl.load(n.reshape((1, ROWS)))
    turned = nl.ndarray((ROWS, COLUMNS), a.dtype, buffer=nl.sbuf)
    out = nl.ndarray((ROWS, COLUMNS), a.dtype, buffer=nl.shared_hbm)
    nisa.memset(turned, 0.0)

    def body(i: Any) -> None:
        nisa.tensor_copy(turned.select(1, i).expand_dim(1), tile.select(1, i).expand_dim(1))

    nl.fori_loop(1, COLUMNS, body, 3)
    nisa.dma_copy(out, turned)
    for k in range(2):
        nisa.dma_copy(out[k : k + 1], a.select(0, numbers[0:1, k + 1 : k + 2]))
    return out


def counted_down(a: Any, n: Any) -> Any:
    """A while loop whose condition comes from memory that the body writes."""
    left, total = nl.load(n.reshape((1, ROWS))[:, 2:3]), nl.load(a)
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    start = nisa.register_alloc()
    nisa.register_load(start, left)

    def body(register: Any) -> Any:
        nisa.tensor_scalar(total, total, nl.multiply, 1.5)
        nisa.tensor_scalar(left, left, nl.subtract, 1.0)
        nisa.register_load(register, left)
        return register

    nl.while_loop(start, body)
    nisa.dma_copy(out, total)
    return out


def outside_domain(a: Any, n: Any) -> Any:
    """What native code leaves to NumPy in the middle of a loop, because a warning is due."""
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)

    def body(i: Any) -> None:
        row = nl.ndarray((1, a.shape[1]), a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=row, src=a.select(0, i))
        nisa.activation(row, nl.sqrt, row)
        nisa.tensor_scalar(row, row, nl.add, 1.0)
        nisa.dma_copy(dst=out.select(0, i), src=row)

    nl.fori_loop(0, ROWS, body)
    return out


def behind_the_end(a: Any, n: Any) -> Any:
    """An address that leaves the tensor in the fourth trip."""
    out = nl.zeros(a.shape, a.dtype, buffer=nl.shared_hbm)

    def body(i: Any) -> None:
        row = nl.ndarray((3, a.shape[1]), a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=row, src=a.ap([[COLUMNS, 3], [1, COLUMNS]], scalar_offset=i * COLUMNS))
        nisa.dma_copy(dst=out[0:3], src=row)

    nl.fori_loop(0, ROWS, body)
    return out


def divided_by_nothing(a: Any, n: Any) -> Any:
    """A division by 0 in the last trip."""
    out = nl.zeros((ROWS, 1), nl.int32, buffer=nl.shared_hbm)
    numbers = n.reshape((ROWS, 1))

    def body(i: Any) -> None:
        register, one = nisa.register_alloc(), nl.ndarray((1, 1), nl.int32, buffer=nl.sbuf)
        nisa.dma_copy(one, numbers.select(0, i).expand_dim(0))
        nisa.register_load(register, one)
        register_alu(register, 100, register, register_op.floor_divide)
        nisa.register_store(one, register)
        nisa.dma_copy(out.select(0, i).expand_dim(0), one)

    nl.fori_loop(0, ROWS, body)
    return out


KERNELS = [doubled_rows, nested, within_a_tile, counted_down, outside_domain, behind_the_end, divided_by_nothing]
ERRORS = {behind_the_end: "access.dynamic-out-of-bounds", divided_by_nothing: "register.arithmetic"}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("function", KERNELS, ids=lambda f: f.__name__)
def test_loops_are_numpys(function: Callable[..., Any], threads: int) -> None:
    wanted = by_numpy(function, arrays)
    if function in ERRORS:
        assert wanted[0][0] == ERRORS[function]
    elif function is outside_domain:
        assert wanted[0][1] == ["activation.domain"]
    assert natively(function, arrays, threads=threads, calls=2) == wanted


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("function", KERNELS, ids=lambda f: f.__name__)
def test_threads_in_any_order(
    function: Callable[..., Any], order: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = by_numpy(function, arrays)
    with one_after_the_other(order, monkeypatch):
        assert natively(function, arrays, threads=2) == wanted


@pytest.mark.parametrize("function", [nested, counted_down], ids=lambda f: f.__name__)
def test_python_is_asked_between_trips(function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a program can be interrupted; the loop goes on where it was."""
    wanted = by_numpy(function, arrays)
    asked: list[str] = []
    plain = NativeCore._refuel

    def refuel(core: NativeCore) -> None:
        asked.append("again")
        plain(core)

    monkeypatch.setattr("nki.native.run.core.FUEL", 2)
    monkeypatch.setattr(NativeCore, "_refuel", refuel)
    assert natively(function, arrays) == wanted
    assert len(asked) > 2


def test_a_loop_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def kernel(a: Any, n: Any) -> Any:
        one = nisa.register_alloc(1)
        tile = nl.load(a)
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)

        def body(register: Any) -> Any:
            nisa.tensor_scalar(tile, tile, nl.add, 1.0)
            return register

        nl.while_loop(one, body)
        nisa.dma_copy(out, tile)
        return out

    for module in ("nki.native.plan.control", "nki.sim.walk", "nki.native.run.core"):
        monkeypatch.setattr(f"{module}.TRIP_LIMIT", 50)
    wanted = by_numpy(kernel, arrays)
    assert wanted[0][0] == "loop.endless"
    assert natively(kernel, arrays) == wanted


@pytest.mark.parametrize("op", list(register_op), ids=lambda op: op.name)
def test_arithmetic_of_registers(op: register_op) -> None:
    """Every operation on numbers of both signs, and at the ends of the range; with a constant, too."""
    ends = [0, 1, -1, 2, -7, 31, 32, 40, 12345, -(2**31), 2**31 - 1]
    pairs = [(x, y) for x in ends for y in ends]
    if op in (register_op.floor_divide, register_op.remainder):
        pairs = [(x, y) for x, y in pairs if y != 0]
    if op in (register_op.left_shift, register_op.right_shift):
        pairs = [(x, y) for x, y in pairs if y >= 0]
    table = np.array(pairs, np.int32)

    def kernel(a: Any) -> Any:
        out = nl.ndarray((len(pairs), 2), nl.int32, buffer=nl.shared_hbm)

        def body(i: Any) -> None:
            x, y = nisa.register_alloc(), nisa.register_alloc()
            both = nl.ndarray((1, 2), nl.int32, buffer=nl.sbuf)
            nisa.dma_copy(both, a.select(0, i).expand_dim(0))
            nisa.register_load(x, both[:, 0:1])
            nisa.register_load(y, both[:, 1:2])
            result = nisa.register_alloc()
            register_alu(result, x, y, op)
            nisa.register_store(both[:, 0:1], result)
            register_alu(result, 2**32 - 9, 3, op)
            nisa.register_store(both[:, 1:2], result)
            nisa.dma_copy(out.select(0, i).expand_dim(0), both)

        nl.fori_loop(0, len(pairs), body)
        return out

    wanted = by_numpy(kernel, lambda: (table,))
    assert not isinstance(wanted[0][0], str)
    assert natively(kernel, lambda: (table,)) == wanted


def test_such_loops_are_records() -> None:
    """Nothing of them is left to Python."""
    with environment(NKI_NATIVE="always"):
        for function in (doubled_rows, nested, within_a_tile, counted_down):
            kernel = nki.jit(function)
            kernel(*arrays())
            assert not kernel.report.executed.interpreted, kernel.report.provenance()
