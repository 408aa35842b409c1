"""Loops over numbers of run time, compiled and instruction by instruction, against NumPy."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np
import pytest

import nki.beta1 as nki
import nki.beta1.isa as nisa
import nki.beta1.language as nl
import nki.beta1.typing as nt
from nki.beta1.private_api import do_while
from nki.beta1.typing import scalar
from nki.core.errors import NkiError

X = np.random.default_rng(0).standard_normal((4, 3, 8, 16)).astype(np.float32)
FIRST = X[:, 0]


def count(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int32).reshape(-1, 1)


def agree(kernel: Any, wanted: Any, *args: Any) -> None:
    """Both modes give the same bits, which are those of NumPy up to the rounding of sums."""
    compiled, simulated = kernel(*args), nki.simulate_kernel(kernel, *args)
    np.testing.assert_allclose(compiled, wanted, rtol=1e-5, atol=1e-5)
    assert compiled.tobytes() == simulated.tobytes()


@nki.jit
def counted(a):
    """The loop of the published list of errors."""
    out = nl.ndarray((1, 1), dtype=a.dtype, buffer=nl.shared_hbm)
    a_tile = nl.load(a[0, 0])
    a_scalar = scalar(a_tile)
    cond = scalar(True)
    while cond:
        a_tile = a_tile + 1
        a_scalar = scalar(a_tile)
        cond = a_scalar < 10
    nl.store(out, a_tile)
    return out


@pytest.mark.parametrize("start", [3, 20])
def test_a_loop_runs_once_and_then_while_its_condition_holds(start: int) -> None:
    agree(counted, [[max(start + 1, 10)]], count(start))


@nki.jit
def summed(x, n, m):
    """Nested loops, and indices of both."""
    out = nl.ndarray((4, 8, 16), dtype=x.dtype, buffer=nl.shared_hbm)
    for b in range(4):
        nl.store(out[b], nl.zeros((8, 16), x.dtype))
    rows, columns = nl.mgrid[0:8, 0:16]
    flat = x.reshape((4 * 3 * 8, 16))
    for i in nl.affine_range(nt.scalar(nl.load(n))):
        total = nl.zeros((8, 16), x.dtype)
        for j in nl.sequential_range(1, scalar(m), 2):
            k = nl.minimum(i * 2 + j, 3)
            total += nl.load(x[k, (i + j) % 3])
            total = nl.add(total, nl.load(flat[i * 24 + j * 8 + rows, columns]))
            total += nl.load(flat[nl.ds(j * 8, 8)]) - nl.load(flat[j * 8 : (j + 1) * 8])
        nl.store(out[i], total)
    return out


@pytest.mark.parametrize(("n", "m"), [(4, 3)])
def test_loops_are_nested_and_their_numbers_are_indices(n: int, m: int) -> None:
    wanted = np.zeros((4, 8, 16), np.float32)
    for i in range(n):
        for j in range(1, m, 2):
            wanted[i] += X[min(i * 2 + j, 3), (i + j) % 3] + X[i, j]
    agree(summed, wanted, X, count(n), count(m))


@nki.jit
def exchanged(a, b, n):
    """Names hand on tiles and numbers; what another name holds stays."""
    out = nl.ndarray((2, 8, 16), dtype=a.dtype, buffer=nl.shared_hbm)
    x, y = nl.load(a), nl.load(b)
    kept, k, last = x, scalar(0), scalar(7)
    for _ in range(scalar(nl.load(n))):
        x, y = y, x * 2.0
        k, last = last, k + 1
    nl.store(out[0], x + k)
    nl.store(out[1], nl.subtract(y, kept) * last)
    return out


@pytest.mark.parametrize("n", [0, 3])
def test_names_hand_on_what_they_hold(n: int) -> None:
    x, y, k, last = FIRST[0], FIRST[1], 0, 7
    for _ in range(n):
        x, y, k, last = y, x * 2, last, k + 1
    agree(exchanged, np.stack([x + k, (y - FIRST[0]) * last]), FIRST[0], FIRST[1], count(n))


def test_a_benchmark_counts_the_trips() -> None:
    found = []
    for n in (1, 3):
        timed = nki.benchmark(exchanged)
        timed(FIRST[0], FIRST[1], count(n))
        found.append(timed.benchmark_result.nc_latency.get_latency_percentile(50))
    assert found[1] > found[0]


@nki.jit
def halved(a):
    """Until a number that is not whole is small; the count is stored."""
    steps, value, cond = scalar(0), nl.load(a), scalar(True)
    out = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.shared_hbm)
    while cond:
        value[...] = value * 0.5
        steps = steps + 1
        cond = scalar(nl.max(value, axis=1)) * 2.0 > 0.25
    nl.store(out, steps)
    return out


def test_a_loop_ends_where_a_float_is_small() -> None:
    agree(halved, [[4]], np.full((1, 16), 2.0, np.float32))


@nki.jit
def products(a, b, n):
    """A sum in PSUM of all trips, and one of each trip; tiles on chip at an index of the loop."""
    out = nl.ndarray((3, 16, 8), dtype=nl.float32, buffer=nl.shared_hbm)
    total = nl.zeros((16, 8), nl.float32, buffer=nl.psum)
    own = nl.zeros((16, 3, 8), nl.float32)
    blocks = nl.ndarray((3, nl.par_dim(8), 16), nl.float32)
    for k in nl.sequential_range(scalar(nl.load(n))):
        blocks[0] = nl.load(a[k])
        total += nl.matmul(blocks[0], nl.load(b[k]), transpose_x=True)
        part = nl.zeros((16, 8), nl.float32, buffer=nl.psum)
        for _ in nl.affine_range(2):
            part += nisa.nc_matmul(blocks[0], nl.load(b[k]))
        own[:, k] = part
    nl.store(out[0], total)
    nl.store(out[1], own[:, 0])
    nl.store(out[2], own[:, 1])
    return out


@pytest.mark.parametrize("n", [0, 2])
def test_products_are_added_up_across_trips_and_within_them(n: int) -> None:
    a, b = FIRST, X[:, 1, :, :8].copy()
    each = [(a[k].T @ b[k]) if k < n else np.zeros((16, 8), np.float32) for k in range(2)]
    agree(products, np.stack([each[0] + each[1], 2 * each[0], 2 * each[1]]), a, b, count(n))


@nki.jit
def of_programs(x, n):
    out = nl.ndarray((2, 8, 16), dtype=x.dtype, buffer=nl.shared_hbm)
    p = nl.program_id(0)
    total = nl.zeros((8, 16), x.dtype)
    for j in nl.affine_range(scalar(n[p])):
        total += nl.load(x[p, j])
    nl.store(out[p], total)
    return out


@pytest.mark.parametrize("grid", [2, nl.nc(2)])
def test_programs_of_a_grid_have_loops_of_their_own(grid: Any) -> None:
    agree(of_programs[grid], np.stack([X[0, :1].sum(0), X[1].sum(0)]), X, count(1, 3))


@nki.jit
def conditions_in_hbm(conditions, x):
    out = nl.ndarray((16, 8), dtype=x.dtype, buffer=nl.shared_hbm)
    condition = nl.ndarray((1, 1), buffer=nl.hbm, dtype=nl.uint8)
    index = nl.ndarray((1, 1), buffer=nl.hbm, dtype=nl.int32)
    nl.store(condition[0], nl.load(conditions[0], dtype=nl.uint8))
    nl.store(index[0, 0], value=0)
    total = nl.zeros((16, 8), x.dtype)
    with do_while(condition):
        at = nl.load(index[0])
        total[...] += nl.load_transpose2d(x[at, 0])
        following = nl.add(at, 1)
        nl.store(index[0], following[0, 0])
        nl.store(condition[0], nl.load(conditions[following])[0, 0])
        nl.store(out, total)
        return out


@pytest.mark.parametrize("n", [3])
def test_the_body_of_do_while_writes_its_condition(n: int) -> None:
    conditions = np.array([1] * n + [0] * (4 - n), np.int32).reshape(4, 1)
    agree(conditions_in_hbm, FIRST[:n].sum(0).T, conditions, FIRST.reshape(4, 1, 8, 16))


def test_the_range_of_a_module_with_numbers_of_run_time_is_that_of_python_elsewhere() -> None:
    assert range is not builtins.range
    assert range(1, 6, 2) == builtins.range(1, 6, 2)
    assert isinstance(builtins.range(3), range)


def test_trips_of_an_affine_range_of_the_device_write_no_place_twice() -> None:
    @nki.jit
    def overwritten(x, n):
        out = nl.ndarray((8, 16), dtype=x.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(scalar(n)):
            nl.store(out, nl.load(x[i]))
        return out

    with pytest.raises(NkiError, match="wrote in trip 0") as caught:
        overwritten(FIRST, count(2))
    assert caught.value.code == "beta1.unexpected_output_dependencies"
