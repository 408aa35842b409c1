"""Trips that were executed, transposes as work of Tensor, and which engine spreads rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from tests.profiling.support import array, by, hbm, loaded, profiled, psum, sbuf, stored
from tests.support import environment


def doubled_often(a: Any, times: Any) -> Any:
    """Twice `a`, as often as the number says, and three additions each time."""
    tile, count = loaded(a), loaded(times)
    trips = nisa.register_alloc()
    nisa.register_load(trips, count)
    for _ in nl.dynamic_range(trips):
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
        for _ in nl.dynamic_range(3):
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
    return stored(tile)


def often(count: int) -> np.ndarray:
    return np.array([[count]], np.int32)


def test_trips_that_depend_on_data_are_those_of_a_run() -> None:
    a = array(128, 64)
    assumed = nki.profile(doubled_often)(a, often(7))
    found = nki.profile(doubled_often, run=True)(a, often(7))
    assert assumed.about.totals[0]["assumed_loops"] == [0]
    assert found.about.totals[0]["assumed_loops"] == []
    assert [(row["trips"], row["assumed"]) for row in found["loops"].rows()] == [(7.0, False), (3.0, False)]
    assert not a.any(), "it runs on copies"
    seven, one = (nki.profile(doubled_often, run=True)(a, often(n)).makespan_ns for n in (7, 1))
    assert one == pytest.approx(assumed.makespan_ns)
    assert found.makespan_ns == seven > 2 * one
    for opcode, runs in (("multiply", 7.0), ("add", 21.0)):
        (row,) = [row for row in found["instructions"].rows() if opcode in row["operands"]]
        assert row["runs"] == runs


def nested(a: Any, times: Any) -> Any:
    """As often as the number says: a loop of one trip more than the time before, from 0, and a `while` of one trip."""
    tile, count, stop = loaded(a), loaded(times), sbuf((1, 1), nl.int32)
    nisa.memset(dst=stop, value=0)
    outer, more = nisa.register_alloc(), nisa.register_alloc()
    nisa.register_load(outer, count)

    def added(_: Any) -> None:
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)

    def doubled(_: Any) -> Any:
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
        nisa.register_load(more, stop)
        return more

    def body(i: Any) -> None:
        nl.fori_loop(0, i, added)
        nisa.register_move(more, 1)
        nl.while_loop(more, doubled)

    nl.fori_loop(0, outer, body)
    return stored(tile)


@pytest.mark.parametrize("settings", [("0", "1"), ("always", "1"), ("always", "2"), ("auto", "1")], ids=" ".join)
def test_the_profile_of_a_call_has_the_trips_of_that_call(settings: tuple[str, str]) -> None:
    made, a = nki.jit(nested), array(128, 64)
    with environment(NKI_NATIVE=settings[0], NKI_THREADS=settings[1]):
        for count in (3, 0, 5, 5):
            made(a.copy(), often(count))
            assert made.profile is not None
            loops = made.profile["loops"].rows()
            expected = [count, (count - 1) / 2, 1] if count else [0]
            assert [row["trips"] for row in loops] == expected
            assert not any(row["assumed"] for row in loops)


def test_trips_of_a_loop_of_which_numpy_executes_something_count_too() -> None:
    def kernel(a: Any, times: Any) -> Any:
        tile, count = loaded(a), loaded(times)
        trips = nisa.register_alloc()
        nisa.register_load(trips, count)
        for _ in nl.dynamic_range(trips):
            nl.device_print("row", tile[0:1, 0:1])
            for _ in nl.dynamic_range(trips):
                nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
        return stored(tile)

    made = nki.jit(kernel)
    with environment(NKI_NATIVE="always", NKI_THREADS="1"):
        made(array(128, 64), often(3))
    assert made.report.executed.native and made.report.executed.interpreted
    assert made.report.executed.trips == ({0: 3.0, 1: 9.0},)


def test_without_such_loops_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def kernel(a: Any) -> Any:
        return stored(loaded(a))

    def refuse(*_: Any) -> None:
        raise AssertionError("it runs")

    monkeypatch.setattr("nki.driver.measure.run_compiled", refuse)
    assert nki.profile(kernel, run=True)(array(128, 64)).makespan_ns > 0


def test_two_cores_have_their_own_trips() -> None:
    def kernel(a: Any, times: Any) -> Any:
        core, out, tile, count = nl.program_id(0), hbm(a.shape), sbuf((128, 64)), sbuf((1, 1), nl.int32)
        nisa.dma_copy(dst=tile, src=a[core])
        nisa.dma_copy(dst=count, src=times[core])
        trips = nisa.register_alloc()
        nisa.register_load(trips, count)
        for _ in nl.dynamic_range(trips):
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=out[core], src=tile)
        return out

    times = np.array([[[3]], [[5]]], np.int32)
    found = nki.profile(kernel, run=True)[2](array(2, 128, 64), times)
    assert {core: rows[0]["trips"] for core, rows in by(found["loops"], "core").items()} == {0: 3.0, 1: 5.0}


def test_a_transpose_on_tensor_is_counted_as_one() -> None:
    def kernel(a: Any, b: Any) -> Any:
        x, y = psum((64, 128)), sbuf((32, 32))
        nisa.nc_transpose(dst=x, data=loaded(a))
        nisa.nc_transpose(dst=y, data=loaded(b), engine=nisa.engine.vector)
        z = sbuf((64, 128))
        nisa.tensor_copy(dst=z, src=x)
        return stored(z), stored(y)

    found = profiled(kernel, array(128, 64), array(32, 32))
    (totals,) = found.about.totals
    # [128, 64] transposed is a product with an identity matrix [128, 128]
    assert (totals["transpose_flops"], totals["matmul_flops"]) == (2.0 * 128 * 64 * 128, 0.0)
    rows = [row for row in found["instructions"].rows() if row["opcode"] == "nisa.nc_transpose"]
    assert {row["engine"]: row["transpose_flops"] > 0 for row in rows} == {"tensor": True, "vector": False}


@pytest.mark.parametrize("dtype,engine", [(np.float32, "tensor"), (nl.bfloat16, "tensor"), (np.int32, "vector")])
def test_rows_are_spread_where_the_architecture_guide_says(dtype: Any, engine: str) -> None:
    def kernel(a: Any) -> Any:
        return stored(nl.broadcast_to(loaded(a), (128, 700)))

    opcodes = by(profiled(kernel, array(1, 700, dtype=dtype))["instructions"], "opcode")
    assert ("nisa.nc_matmul" in opcodes) == (engine == "tensor")
    assert ("nisa.nc_stream_shuffle" in opcodes) == (engine == "vector")


def test_rows_with_gaps_are_spread() -> None:
    def kernel(a: Any) -> Any:
        return stored(nl.broadcast_to(loaded(a)[:, :, 0:200], (64, 6, 200)))

    a = np.random.default_rng(4).standard_normal((1, 6, 300), np.float32)
    assert np.array_equal(nki.jit(kernel)(a), np.broadcast_to(a[..., :200], (64, 6, 200)))
