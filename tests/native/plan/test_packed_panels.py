"""Moving operands that are packed once for several products: the bits are those of packing them for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import nki.isa as nisa
import nki.language as nl
from nki.native.plan.packed_panels import Panels
from nki.native.plan.steps import ExecutionPlan
from nki.native.primitives.matmul import FINDS, KEEPS
from nki.native.records import move_records
from nki.native.run import kernel as native_kernel
from tests.native.kernel_support import Arrays, by_numpy, natively, one_after_the_other
from tests.support import environment

K, WIDTH = 100, 200


def tile(*shape: int, buffer: Any = nl.sbuf) -> Any:
    """A tensor on chip."""
    return nl.ndarray(shape, dtype=nl.float32, buffer=buffer)


def arrays() -> Arrays:
    """Stationary columns, and two moving operands; the last number is a bound."""
    random = np.random.default_rng(3)
    a, b, c = (random.standard_normal((K, width)).astype(np.float32) for width in (256, WIDTH, WIDTH))
    return a, b, c, np.array([0], np.int32)


def results(count: int) -> Any:
    """For the products."""
    return nl.ndarray((count, 128, WIDTH), dtype=nl.float32, buffer=nl.shared_hbm)


def loaded(source: Any) -> Any:
    """A copy on chip that stays one, because something is done with it."""
    found = tile(*source.shape)
    nisa.dma_copy(found, source)
    nisa.tensor_scalar(found, found, nl.multiply, 0.5)
    return found


def product(out: Any, stationary: Any, moving: Any) -> None:
    """One product for the caller."""
    rows, columns = stationary.shape[1], moving.shape[1]
    sums, kept = tile(rows, columns, buffer=nl.psum), tile(rows, columns)
    nisa.nc_matmul(sums, stationary, moving)
    nisa.tensor_copy(kept, sums)
    nisa.dma_copy(out[0:rows, 0:columns], kept)


def shared(a: Any, b: Any, c: Any, n: Any) -> Any:
    """Products of the same columns, and of others that begin elsewhere or are fewer; first one of few rows."""
    out = results(6)
    x, y = loaded(a), loaded(b)
    product(out[0], x[:, 0:40], y)
    product(out[1], x[:, 0:128], y)
    product(out[2], x[:, 0:128], y[:, 0:90])
    product(out[3], x[:, 128:256], y)
    product(out[4], x[:, 100:228], y[:, 10:100])
    product(out[5], x[0:50, 0:128], y[0:50])
    return out


def changed(a: Any, b: Any, c: Any, n: Any) -> Any:
    """The operand is something else the next time, in the same bytes."""
    out = results(4)
    x, y = loaded(a), loaded(b)
    for number in range(2):
        product(out[2 * number], x[:, 0:128], y)
        product(out[2 * number + 1], x[:, 128:256], y)
        nisa.tensor_scalar(y[:, 3:7], y[:, 3:7], nl.add, 1.0)
    return out


def one_after_another(a: Any, b: Any, c: Any, n: Any) -> Any:
    """Operands that live one after the other, so that they may have the same bytes."""
    out = results(4)
    x = loaded(a)
    for number in range(4):
        product(out[number], x[:, 0:128], loaded((b, c)[number % 2]))
    return out


def arguments(a: Any, b: Any, c: Any, n: Any) -> Any:
    """Tiles that are memory of the caller, and one of them twice."""
    out = results(4)
    for number in range(4):
        x, y = tile(K, 128), tile(K, WIDTH)
        nisa.dma_copy(x, a[:, 128 * (number % 2) : 128 * (number % 2) + 128])
        nisa.dma_copy(y, (b, c)[number // 2])
        product(out[number], x, y)
    return out


def strided(a: Any, b: Any, c: Any, n: Any) -> Any:
    """Every second column, which are gathered first."""
    out = results(2)
    x, y = loaded(a), loaded(b)
    for number in range(2):
        product(out[number], x[:, 0:128], y[:, 0:WIDTH:2])
    return out


def in_a_loop(a: Any, b: Any, c: Any, n: Any) -> Any:
    """A loop that is never entered has packed nothing; what is before it does not count inside."""
    out = nl.zeros((4, 128, WIDTH), nl.float32, buffer=nl.shared_hbm)
    x, y = loaded(a), loaded(b)
    upper = nisa.register_alloc()
    nisa.register_load(upper, n)

    def never(_: Any) -> None:
        product(out[3], x[:, 0:128], y)

    def thrice(_: Any) -> None:
        product(out[0], x[:, 0:128], y)
        product(out[1], x[:, 128:256], y)
        nisa.tensor_scalar(y, y, nl.multiply, 0.5)

    nl.fori_loop(0, upper, never)
    product(out[2], x[:, 0:128], y)
    nl.fori_loop(0, 3, thrice)
    product(out[3], x[:, 0:128], y)
    return out


def beside_numpy(a: Any, b: Any, c: Any, n: Any) -> Any:
    """What NumPy executes, which writes the operand between products."""
    out = results(4)
    x, y, top = loaded(a), loaded(b), tile(K, 8)
    for number in range(2):
        product(out[2 * number], x[:, 0:128], y)
        product(out[2 * number + 1], x[:, 128:256], y)
        nisa.max8(top, y)
        nisa.nc_match_replace8(dst=y, data=y, vals=top, imm=-1.0)
    return out


KERNELS: list[Callable[..., Any]] = [
    shared, changed, one_after_another, arguments, strided, in_a_loop, beside_numpy
]  # fmt: skip


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[ExecutionPlan]:
    """Those that were made."""
    found: list[ExecutionPlan] = []
    plan = native_kernel.ExecutionPlanner.plan

    def planned(planner: Any) -> ExecutionPlan:
        found.append(plan(planner))
        return found[-1]

    monkeypatch.setattr(native_kernel.ExecutionPlanner, "plan", planned)
    return found


@pytest.mark.parametrize("function", KERNELS)
def test_products(function: Any) -> None:
    """In two calls, of which the second one finds the panels of the first."""
    assert natively(function, arrays) == by_numpy(function, arrays)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("function", KERNELS)
def test_threads(function: Any, order: Sequence[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread finds what it packed itself, also where it has no rows of the product that packs."""
    expected = by_numpy(function, arrays)
    with one_after_the_other(order, monkeypatch):
        assert natively(function, arrays, threads=2) == expected


@pytest.mark.parametrize(("function", "kept", "found"), [
    (shared, 1, 2), (changed, 2, 2), (one_after_another, 0, 0), (arguments, 2, 2), (strided, 1, 1), (in_a_loop, 1, 1)
])  # fmt: skip
def test_what_is_shared(
    function: Any, kept: int, found: int, plans: list[ExecutionPlan], monkeypatch: pytest.MonkeyPatch
) -> None:
    """How many operands are packed for several products, and how many products need not pack."""
    flags: dict[int, int] = {}
    at_panels = move_records.at_panels

    def noting(words: Any, offset: int, there: bool) -> Any:
        words = at_panels(words, offset, there)
        flags[len(flags)] = words[-2] & (KEEPS | FINDS)
        return words

    monkeypatch.setattr("nki.native.plan.packed_panels.at_panels", noting)
    natively(function, arrays, calls=1)
    assert sorted(flags.values()) == [KEEPS] * kept + [KEEPS | FINDS] * found
    assert (plans[-1].panels > 0) == (kept > 0)


def test_room(plans: list[ExecutionPlan], monkeypatch: pytest.MonkeyPatch) -> None:
    """What has no room is packed each time."""
    one = 4 * (K + 1) * 224
    monkeypatch.setattr("nki.native.plan.packed_panels._MOST_BYTES", one)
    assert natively(changed, arrays) == by_numpy(changed, arrays)
    assert plans[-1].panels == one


def test_dot_products() -> None:
    """Pairs of bfloat16, of an odd number: as if each product packed its own."""

    def halves(a: Any, b: Any, c: Any, n: Any) -> Any:
        out = results(2)
        x = nl.ndarray((K - 1, 256), nl.bfloat16, buffer=nl.sbuf)
        y = nl.ndarray((K - 1, WIDTH), nl.bfloat16, buffer=nl.sbuf)
        nisa.tensor_copy(x, loaded(a[0 : K - 1]))
        nisa.tensor_copy(y, loaded(b[0 : K - 1]))
        for number in range(2):
            product(out[number], x[:, 128 * number : 128 * number + 128], y)
        return out

    def found() -> list[Any]:
        with environment(NKI_MATMUL="fast"):
            return natively(halves, arrays)

    shared_panels = found()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Panels, "_product", lambda *_: None)
        assert found() == shared_panels
