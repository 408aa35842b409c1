"""Regions: a loop is recorded once whatever its data, trips repeat the first one, and its tensors are new each time."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.core.errors import FrontendError
from nki.driver.launch import Launch, trace_only
from nki.options import Options
from nki.report import NkiWarning
from nki.spec.program import ForLoop, WhileLoop
from nki.target.load import load_target
from nki.testing.equality import differences
from tests.frontend.kernels.accepted import conditions, ranges, scalars
from tests.frontend.kernels.accepted.case import Case, X, number
from tests.support import both

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

CASES: list[Case] = [*ranges.CASES, *conditions.CASES, *scalars.CASES]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.kernel.__name__)
def test_eager_mode_records_what_tracing_records(case: Case) -> None:
    """With every trip count, zero included: the recorded program depends on shapes alone."""
    compiled = nki.jit(case.kernel)[case.lnc] if case.lnc else nki.jit(case.kernel)
    target = load_target("trn3")
    traced = [t.program for t in trace_only(Launch(case.kernel, case.lnc), case.arguments[0], {}, target, Options())]
    for arguments in case.arguments:
        eager = nki.simulate(compiled)
        eager(*arguments)
        for one, other in zip(eager.report.programs, traced, strict=True):
            assert differences(one, other) == []


@pytest.mark.parametrize("count", [0, 1, 5])
def test_the_body_is_in_the_program_once(count: int) -> None:
    def kernel(a: Any, n: Any) -> Any:
        left = nisa.scalar_load(n)
        for i in nl.dynamic_range(nisa.scalar_load(n)):
            nl.load(a.select(0, i))
        while left > 0:
            nisa.register_move(left, left - 1)
        return a

    for run in (nki.simulate(kernel), nki.jit(kernel)):
        run(X, number(count))
        loop, conditional = (i for i in run.report.programs[0].body.items if isinstance(i, ForLoop | WhileLoop))
        assert [i.instruction.name for i in loop.body.walk()] == ["dma_copy"]
        names = [i.instruction.name for i in conditional.body.walk()]
        assert names == ["register_alu", "register_move", "register_alu", "register_move"]
        assert len(loop.body.buffers) == 1


def varying(change: Callable[[int], Any]) -> Callable[[Any], Any]:
    """A body that counts its own passes, which no check of names can see, and does something else the second time."""

    def kernel(a: Any) -> Any:
        passes: list[int] = []
        tile = nl.load(a)

        def body(i: Any) -> None:
            passes.append(1)
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
            change(len(passes))

        nl.fori_loop(0, 3, body)
        return a

    return kernel


CHANGES: dict[str, Callable[[int], Any]] = {
    "more": lambda n: nl.load(nl.zeros((2, 2), nl.float32, buffer=nl.shared_hbm)) if n > 1 else None,
    "less": lambda n: nisa.register_alloc(3) if n == 1 else None,
    "argument": lambda n: nisa.register_alloc(10 * n),
    "float": lambda n: nisa.memset(nl.ndarray((1, 1), nl.float32), value=0.0 if n == 1 else -0.0),
    "shape": lambda n: nl.zeros((1, n), nl.float32),
    "bound": lambda n: nl.fori_loop(0, n, lambda i: None),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_trip_that_differs_from_the_first_is_an_error(name: str) -> None:
    with pytest.raises(FrontendError) as caught:
        nki.simulate(varying(CHANGES[name]))(X)
    assert caught.value.code == "loop.varies" and caught.value.fix and caught.value.location.frames


def test_nan_and_signed_zero_constants_do_not_count_as_changes() -> None:
    def kernel(a: Any) -> Any:
        out = nl.ndarray((1, 2), nl.float32, buffer=nl.shared_hbm)
        for _ in nl.dynamic_range(3):
            tile = nl.ndarray((1, 2), nl.float32)
            nisa.memset(tile[:, 0:1], value=float("nan"))
            nisa.memset(tile[:, 1:2], value=-0.0)
            nisa.dma_copy(dst=out, src=tile)
        return out

    got = both(kernel, X)
    assert np.isnan(got[0, 0]) and np.signbit(got[0, 1])


@pytest.mark.parametrize("where", ["sbuf", "psum", "private_hbm", "shared_hbm"])
def test_a_tensor_of_the_body_is_poisoned_in_every_trip(where: str) -> None:
    """Each trip writes one column and stores the whole row: what an earlier trip wrote must not show."""

    def kernel(a: Any) -> Any:
        out = nl.ndarray((1, 12), nl.float32, buffer=nl.shared_hbm)
        one = nl.load(a[0:1, 0:1])
        for i in nl.dynamic_range(3):
            tile = nl.ndarray((1, 4), nl.float32, buffer=getattr(nl, where))
            copy = nisa.dma_copy if "hbm" in where else nisa.tensor_copy
            copy(dst=tile.ap([[4, 1], [1, 1]], scalar_offset=i, indirect_dim=1), src=one)
            row = nl.ndarray((1, 4), nl.float32)
            copy(dst=row, src=tile)
            nisa.dma_copy(dst=out.ap([[4, 1], [1, 4]], scalar_offset=i * 4, indirect_dim=1), src=row)
        return out

    wanted = np.full((3, 4), np.nan, np.float32)
    np.fill_diagonal(wanted, 5.0)
    for run in (nki.simulate(kernel), nki.jit(kernel)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", NkiWarning)
            np.testing.assert_array_equal(run(np.full((1, 1), 5, np.float32)), wanted.reshape(1, 12))
        assert {w.message.finding.code for w in caught if isinstance(w.message, NkiWarning)} == {"memory.uninitialized"}
        (loop,) = (item for item in run.report.programs[0].body.items if isinstance(item, ForLoop))
        assert len(loop.body.buffers) == 2


def test_a_register_of_the_body_keeps_its_value() -> None:
    """Registers have no poison: one that is not set again holds what it held, in both modes."""

    def kernel(a: Any, n: Any) -> Any:
        out = nl.ndarray((1, 1), nl.int32, buffer=nl.shared_hbm)
        nisa.scalar_store(out, 0)
        count = nisa.scalar_load(n)
        for i in nl.dynamic_range(count):
            kept = nisa.register_alloc()
            for _ in nl.dynamic_range((i == 0) * 1):
                nisa.register_move(kept, 40)
            nisa.register_move(kept, nisa.NkiScalar(kept) + 1)
            nisa.register_store(out, kept)
        return out

    for n in (0, 1, 4):
        assert both(kernel, X, number(n))[0, 0] == (40 + n if n else 0)


def test_a_loop_without_trips_executes_nothing() -> None:
    """Its body may divide by zero, read out of bounds and wait for ever."""

    def kernel(a: Any, n: Any) -> Any:
        out = nl.zeros(a.shape, a.dtype, buffer=nl.shared_hbm)
        for i in nl.dynamic_range(nisa.scalar_load(n)):
            nisa.scalar_store(nl.ndarray((1, 1), nl.int32), 1 // (i * 0))
            nisa.dma_copy(dst=out.select(0, i + 1000), src=a.select(0, i))
            for _ in nl.dynamic_range(5):
                nisa.dma_copy(dst=out, src=a)
            forever = nisa.register_alloc(1)
            while forever:
                nisa.dma_copy(dst=out, src=a)
        return out

    np.testing.assert_array_equal(both(kernel, X, number(0)), np.zeros_like(X))


def test_constants_of_a_body_are_built_in_it() -> None:
    """Only what is built before any loop may be shared by what follows a loop."""

    def kernel(a: Any, n: Any) -> Any:
        out = nl.zeros((4, 4), nl.float32, buffer=nl.shared_hbm)
        for _ in nl.dynamic_range(nisa.scalar_load(n)):
            nl.shared_identity_matrix(4)
        nisa.dma_copy(dst=out, src=nl.shared_identity_matrix(4)[0:4, 0:4])
        return out

    for n in (0, 2):
        np.testing.assert_array_equal(np.asarray(both(kernel, X, number(n))), np.eye(4))
