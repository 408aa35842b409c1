"""Small kernels of the first NKI, compiled and instruction by instruction, against NumPy."""

from __future__ import annotations

import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki.beta1.language as nl
from nki.beta1.decorators import jit
from nki.beta1.errors import Beta1Error
from nki.beta1.kernel import Beta1Kernel
from nki.compiler import CompileConfig
from nki.core.errors import NkiError
from nki.driver.launch import trace_only
from nki.options import from_environment
from nki.passes.context import Context
from nki.passes.pipeline import compile_programs
from nki.report import NkiWarning
from nki.target.load import load_target

RANDOM = np.random.default_rng(0)


def _array(*shape: int) -> np.ndarray:
    return RANDOM.uniform(0.1, 1, shape).astype(np.float32)


def both(kernel: Beta1Kernel, *args: Any) -> np.ndarray:
    """The result, which is the same to the bit in both modes."""
    one, two = kernel(*args), kernel.simulated()(*args)
    assert np.array_equal(one, two)
    return one


@jit
def added(a, b):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.arange(128)[:, None], nl.arange(96)[None, :]
    for i in nl.affine_range(a.shape[0] // 128):
        nl.store(out[i * 128 + i_p, i_f], value=nl.load(a[i * 128 + i_p, i_f]) + nl.load(b[i * 128 + i_p, i_f]))
    return out


def test_values_are_tiles():
    a, b = _array(256, 96), _array(256, 96)
    assert np.array_equal(both(added, a, b), a + b)


@jit
def product(lhs_t, rhs):
    (k, m), n = lhs_t.shape, rhs.shape[1]
    out = nl.ndarray((m, n), dtype=lhs_t.dtype, buffer=nl.shared_hbm)
    sums = nl.zeros((m, n), nl.float32, buffer=nl.psum)
    for i in nl.affine_range(k // 128):
        left = nl.ndarray((128, m), dtype=lhs_t.dtype, buffer=nl.sbuf)
        left[...] = nl.load(lhs_t[i * 128 : (i + 1) * 128, :])
        sums += nl.matmul(left[...], nl.load(rhs[i * 128 : (i + 1) * 128, :]), transpose_x=True)
    nl.store(out[...], value=nl.copy(sums, dtype=out.dtype))
    return out


def test_products_accumulate_in_psum():
    left, right = _array(256, 64), _array(256, 200)
    assert np.allclose(both(product, left, right), left.T @ right, rtol=1e-5)


def test_an_assigned_value_is_computed_where_it_is_assigned():
    target, options = load_target("trn2"), from_environment()
    (tracer,) = trace_only(product.launch(), (_array(256, 64), _array(256, 200)), {}, target, options)
    (program,) = compile_programs([tracer.program], Context(target, options, CompileConfig())).programs
    names = [each.instruction.name for each in program.body.walk()]
    assert sorted(names) == ["dma_copy"] * 5 + ["nc_matmul"] * 2 + ["tensor_copy"], "no copy of a load, no memset"


@jit
def normal(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.arange(128)[:, None], nl.arange(512)[None, :]
    for i in nl.affine_range((a.shape[0] + 127) // 128):
        inside = (i * 128 + i_p < a.shape[0]) & (i_f < a.shape[1])
        powers = nl.exp(nl.load(a[i * 128 + i_p, i_f], mask=inside))
        total = nl.sum(powers, axis=1, mask=i_f < a.shape[1])
        nl.store(out[i * 128 + i_p, i_f], powers / total, mask=inside)
    return out


def test_masks_leave_out_what_is_outside():
    a = _array(200, 300)
    assert np.allclose(both(normal, a), np.exp(a) / np.exp(a).sum(1, keepdims=True), rtol=1e-5)


@jit
def lower(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:64, 0:64]
    tile = nl.full((64, 64), -1.0, a.dtype)
    tile[i_p, i_f] = nl.multiply(nl.load(a), 2.0, mask=i_p >= i_f)
    nl.store(out, tile)
    return out


def test_a_condition_of_two_axes_keeps_the_rest():
    a = _array(64, 64)
    assert np.array_equal(both(lower, a), np.where(np.tri(64, dtype=bool), 2 * a, -1))


@jit
def blocks(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    tiles = nl.ndarray((a.shape[0] // 32, nl.par_dim(32), a.shape[1]), dtype=a.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(a.shape[0] // 32):
        tiles[i] = nl.load(a[i * 32 : (i + 1) * 32])
    for i in nl.affine_range(a.shape[0] // 32):
        tiles[i, 0:16, :] += 1.0
        nl.store(out[i * 32 : (i + 1) * 32], tiles[i])
    return out


def test_block_dimensions():
    a = _array(96, 40)
    wanted = a.copy().reshape(3, 32, 40)
    wanted[:, :16] += 1
    assert np.array_equal(both(blocks, a), wanted.reshape(96, 40))


@jit
def parts(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    i, j = nl.program_id(0), nl.program_id(1)
    tile = nl.load(a[i * 64 : (i + 1) * 64, j * 100 : (j + 1) * 100])
    nl.store(out[i * 64 : (i + 1) * 64, j * 100 : (j + 1) * 100], tile * (i + 1.0))
    return out


@pytest.mark.parametrize("grid", [(2, 3), (nl.nc(2), 3), (nl.spmd_dim(nl.nc(2), 1), 3)])
def test_programs_of_a_grid_share_the_result(grid):
    a = _array(128, 300)
    assert np.array_equal(both(parts[grid], a), a * np.repeat([1, 2], 64)[:, None].astype(np.float32))


@jit
def summed(a):
    out = nl.ndarray((a.shape[0], a.shape[1]), dtype=a.dtype, buffer=nl.shared_hbm)
    i, j = nl.program_id(0), nl.program_id(1)
    tile = nl.load(a[i * 32 : (i + 1) * 32, j * 10 : (j + 1) * 10])
    total = nl.all_reduce(tile * 2.0, op=np.add, program_axes=[i])
    total = nl.all_reduce(total, op=np.maximum, program_axes=(1,))
    nl.store(out[i * 32 : (i + 1) * 32, j * 10 : (j + 1) * 10], total)
    return out


@pytest.mark.parametrize("grid", [(2, 3), (nl.nc(2), 3), (nl.spmd_dim(2, nl.nc(1)), 3)])
def test_programs_meet_to_reduce(grid):
    a = _array(64, 30)
    wanted = (a[:32] * 2 + a[32:] * 2).reshape(32, 3, 10).max(1)
    assert np.array_equal(both(summed[grid], a), np.tile(wanted, (2, 3)))


@jit
def uneven(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.load(a)
    if nl.program_id(0) == 0:
        tile = nl.all_reduce(tile, op=np.add, program_axes=[0])
    nl.store(out, tile)
    return out


def test_a_program_that_does_not_come_is_named():
    with pytest.raises(Beta1Error) as caught:
        uneven[3](_array(8, 8))
    assert caught.value.code == "beta1.all_reduce_uneven" and "(1,)" in str(caught.value)


@jit
def looped(a, start, op):
    out = nl.ndarray((4, 32, a.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:32, 0 : a.shape[1]]
    if start is None:
        tiles = nl.ndarray((2, nl.par_dim(32), a.shape[1]), nl.float32)
    else:
        tiles = nl.full((2, nl.par_dim(32), a.shape[1]), start, nl.float32)
        named = nl.full((32, a.shape[1]), start, nl.float32)
    for k in nl.affine_range(a.shape[0] // 32):
        part = nl.load(a[k * 32 : (k + 1) * 32])
        tiles[0] = nl.loop_reduce(part, op=op, loop_indices=[k])
        tiles[1, i_p, i_f] = nl.loop_reduce(part, op=op, loop_indices=[k], mask=i_f < 40 - 10 * k)
        named = nl.loop_reduce(part, op=op, loop_indices=k, dtype=nl.float32)
        rounded = nl.loop_reduce(part, op, k, dtype=nl.bfloat16)
    for n, each in enumerate((tiles[0], tiles[1], named, rounded)):
        nl.store(out[n], each)
    return out


@pytest.mark.parametrize(("start", "op"), [(None, np.add), (None, np.max), (1.0, np.add)])
def test_a_reduction_over_a_loop_takes_along_what_the_destination_holds(start, op):
    """A tile that nothing was written to begins with the value of the first trip."""
    a = _array(96, 40)
    first, *others = a.reshape(3, 32, 40)
    function = np.maximum if op is np.max else op
    total = first if start is None else function(np.float32(start), first)
    partly, rounded = total.copy(), first.astype(ml_dtypes.bfloat16)
    for k, part in enumerate(others, 1):
        total, columns = function(total, part), slice(0, 40 - 10 * k)
        partly[:, columns] = function(partly, part)[:, columns]
        rounded = function(rounded.astype(np.float32), part).astype(ml_dtypes.bfloat16)
    assert np.array_equal(both(looped, a, start, op), np.stack([total, partly, total, rounded.astype(np.float32)]))


@jit
def chained(a, steps, how):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.load(a)
    total = nl.zeros(a.shape, a.dtype)
    for _ in nl.affine_range(steps) if how != "sequential" else nl.sequential_range(steps):
        if how == "sum":
            total += tile
        else:
            tile[...] = nl.exp(tile) if how != "written" else nl.exp(total)
    nl.store(out, total if how == "sum" else tile)
    return out


def test_a_trip_that_reads_what_another_one_wrote_breaks_the_promise():
    a = _array(8, 8)
    for kernel in (chained, chained.simulated()):
        with pytest.raises(NkiError) as caught:
            kernel(a, 3, "affine")
        assert caught.value.code == "beta1.unexpected_output_dependencies"
        assert "tile[...] = nl.exp(tile)" in str(caught.value) and "sequential_range" in caught.value.fix
    assert np.allclose(both(chained, a, 3, "sequential"), np.exp(np.exp(np.exp(a))), rtol=1e-5)
    assert np.allclose(both(chained, a, 3, "sum"), 3 * a, rtol=1e-6)
    assert np.array_equal(both(chained, a, 3, "written"), np.ones_like(a)), "a scratch tile is no dependence"


@jit
def returning(a, loop):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.zeros(a.shape, a.dtype))
    for i in nl.affine_range(4) if loop == "affine" else nl.static_range(4):
        nl.store(out[i : i + 1], nl.load(a[i : i + 1]))
        if i == 1:
            return out


def test_trips_that_do_not_run_are_told():
    a = _array(4, 8)
    for kernel in (returning, returning.simulated()):
        with pytest.warns(NkiWarning, match="2 of 4 trips of nl.affine_range do not run, because trip 1 returns"):
            kernel(a, "affine")
    assert np.array_equal(both(returning, a, "static"), np.where(np.arange(4)[:, None] < 2, a, 0))


@jit
def twice(a, count):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(count):
        nl.store(out, nl.load(a) * float(i))
    return out


def test_two_trips_that_write_one_place_of_a_result():
    with pytest.raises(NkiError) as caught:
        twice(_array(4, 8), 2)
    assert caught.value.code == "beta1.unexpected_output_dependencies"


@jit
def sums(a, b, start):
    out = nl.ndarray((a.shape[1], b.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
    total = nl.ndarray((a.shape[1], b.shape[1]), dtype=nl.float32, buffer=nl.psum)
    if start:
        total[...] = nl.full(out.shape, 2.0, nl.float32)
    for i in nl.affine_range(a.shape[0] // 32):
        total += nl.matmul(nl.load(a[i * 32 : i * 32 + 32]), nl.load(b[i * 32 : i * 32 + 32]), transpose_x=True)
    nl.store(out, nl.copy(total))
    return out


@pytest.mark.parametrize("start", [False, True])
def test_a_sum_of_products_begins_with_what_was_written(start):
    a, b = _array(96, 16), _array(96, 24)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*accumulate-foreign")
        assert np.allclose(both(sums, a, b, start), a.T @ b + 2 * start, rtol=1e-5)


@jit
def reduced(a, how):
    out = nl.ndarray((a.shape[0], 1), dtype=a.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0 : a.shape[0], 0 : a.shape[1]]
    function = {"sum": nl.sum, "max": nl.max, "min": nl.min, "prod": nl.prod, "mean": nl.mean}[how]
    nl.store(out, function(nl.load(a), axis=1, mask=i_f <= i_p))
    return out


@pytest.mark.parametrize("how", ["sum", "max", "min", "prod"])
def test_a_reduction_leaves_out_what_a_condition_of_two_axes_does(how):
    a = _array(20, 24) - 0.5
    inside = np.tri(20, 24, dtype=bool)
    start = {"sum": 0.0, "max": -np.inf, "min": np.inf, "prod": 1.0}[how]
    wanted = getattr(np, how)(a, axis=1, keepdims=True, where=inside, initial=start)
    assert np.allclose(both(reduced, a, how), wanted, rtol=1e-5)


def test_a_mean_under_such_a_condition_is_refused():
    with pytest.raises(Beta1Error) as caught:
        reduced(_array(4, 4), "mean")
    assert caught.value.code == "beta1.unsupported_expression_in_mask" and "nl.mean" in str(caught.value)


@jit
def kept(a, count):
    out = nl.ndarray((32, 3), dtype=a.dtype, buffer=nl.shared_hbm)
    row = nl.ndarray((1, 32), dtype=a.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.arange(32)[:, None], nl.arange(3)[None, :]
    columns = nl.full((32, 3), 7.0, a.dtype)
    columns[:, 1] = nl.max(nl.load(a), axis=1, mask=i_p < count)
    columns[i_p, i_f] = nl.load(a[i_p, 0], mask=i_p >= 32 - count)
    nl.store(out, columns)
    nl.store(row, nl.zeros((1, 32), a.dtype))
    nl.store(row[0, 0:32], nl.load(a[0, 0:32], mask=nl.arange(32) < count))
    return out, row


def test_an_assignment_keeps_what_the_value_does_not_have():
    a = _array(32, 40)
    for count in (32, 5, 0):
        wanted = np.full((32, 3), 7, np.float32)
        wanted[:count, 1] = a.max(1)[:count]
        wanted[32 - count :] = a[32 - count :, :1]
        flat = np.where(np.arange(32) < count, a[0, :32], 0)[None]
        for kernel in (kept, kept.simulated()):
            out, row = kernel(a, count)
            assert np.array_equal(out, wanted) and np.array_equal(row, flat)


@jit
def windows(a):
    h, w = a.shape
    out = nl.ndarray((h - 2, w - 2), dtype=a.dtype, buffer=nl.shared_hbm)
    back = nl.ndarray((h, w), dtype=a.dtype, buffer=nl.shared_hbm)
    for k in nl.affine_range((h + 127) // 128):
        i_h, i_kh, i_w = nl.mgrid[0:128, 0:3, 0:w]
        rows = nl.load(a[k * 128 + i_h + i_kh, i_w], mask=k * 128 + i_h < h - 2)
        twice = nl.multiply(rows, 2.0, mask=i_w < w - 1)
        j_h, j_kh, j_w, j_kw = nl.mgrid[0:128, 0:3, 0 : w - 2, 0:3]
        best = nl.max(rows[j_h, j_kh, j_w + j_kw], axis=[1, 3])
        more = nl.max(twice[j_h, j_kh, j_w + j_kw], axis=[1, 3])
        o_h, o_w = nl.mgrid[0:128, 0 : w - 2]
        nl.store(out[k * 128 + o_h, o_w], best + more, mask=(k * 128 + o_h < h - 2) & (o_w < w - 3))
        nl.store(out[k * 128 + o_h, o_w], best, mask=(k * 128 + o_h < h - 2) & (o_w >= w - 3))
        p_h, p_w = nl.mgrid[0:128, 0:w]
        own = nl.load(a[k * 128 + p_h, p_w], mask=(k * 128 + p_h < h) & (p_w < w - 4))
        nl.store(back[k * 128 + p_h, p_w], own[p_h, w - 1 - p_w] + 1.0, mask=(k * 128 + p_h < h) & (p_w >= 4))
        nl.store(back[k * 128 + p_h, p_w], nl.zeros((128, w), nl.float32), mask=(k * 128 + p_h < h) & (p_w < 4))
    return out, back


def test_windows_of_what_a_mask_leaves():
    a = _array(300, 40)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*memory.uninitialized")
        pairs = zip(windows(a), windows.simulated()(a), strict=True)
        found = [one for one, two in pairs if np.array_equal(one, two)]
    wanted = np.lib.stride_tricks.sliding_window_view(a, (3, 3)).max((2, 3))
    wanted = np.where(np.arange(38) < 37, 3 * wanted, wanted)
    assert np.array_equal(found[0], wanted)
    turned = a[:, ::-1] + 1
    turned[:, :4] = 0
    assert np.array_equal(found[1], turned)


@jit
def quotients(a):
    out = nl.ndarray(a.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    rows = nl.ndarray(a.shape, dtype=nl.int32, buffer=nl.shared_hbm)
    tile = nl.load(a)
    nl.store(out, tile / 4)
    nl.store(rows, nl.floor(tile / 4, dtype=nl.int32))
    return out, rows


def test_a_quotient_of_integers_is_no_integer():
    a = np.arange(96, dtype=np.int32).reshape(4, 24)
    out, rows = quotients(a)
    assert np.array_equal(out, a / np.float32(4)) and np.array_equal(rows, a // 4)


@jit
def ids_added(a):
    out = nl.ndarray((3, *a.shape), dtype=a.dtype, buffer=nl.shared_hbm)
    i = nl.program_id(0)
    nl.store(out[i], nl.load(a) + i)
    return out


def test_program_ids_are_numbers_of_instructions():
    a = _array(4, 8)
    assert np.array_equal(both(ids_added[3], a), np.stack([a, a + 1, a + 2]))


@jit
def stored_by_other_ranks(x):
    ends = nl.ndarray((3, 128), dtype=x.dtype, buffer=nl.shared_hbm)
    joined = nl.ndarray((128, 4, 8), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(ends, 0.0)
    nl.store(joined, 0.0)
    tile, i = nl.load(x[0:128, 0:8]), nl.arange(128)
    nl.store(ends[0, i], value=tile[:, 0:1], mask=i < 100)
    nl.store(ends[1, 5], value=tile[7:8, 3:4])
    nl.store(ends[2, nl.arange(8)], value=tile[9:10], mask=nl.arange(8) < 5)
    p, b, f = nl.mgrid[0:128, 0:4, 0:8]
    inside = (b > 0) & (f < 5)
    nl.store(
        joined[p, b, f], nl.add(nl.broadcast_to(tile[:, None, :], shape=(128, 4, 8)), tile, mask=inside), mask=inside
    )
    return ends, joined


def test_values_of_another_rank_are_stored_where_the_mask_is_true():
    x = _array(128, 8)
    ends, joined = np.zeros((3, 128), np.float32), np.zeros((128, 4, 8), np.float32)
    ends[0, :100], ends[1, 5], ends[2, :5] = x[:100, 0], x[7, 3], x[9, :5]
    joined[:, 1:, :5] = 2 * x[:, None, :5]
    found = stored_by_other_ranks(x)
    assert np.array_equal(found[0], ends) and np.array_equal(found[1], joined)


@jit
def summed_by_copies(a, b):
    out = nl.ndarray((2, 32, 64), dtype=nl.float32, buffer=nl.shared_hbm)
    sums, half = nl.zeros((64, 64), nl.float32), nl.zeros((32, 64), nl.float16, buffer=nl.psum)
    left, right = nl.load(a), nl.load(b)
    for _ in nl.affine_range(3):
        sums[5:37] += right[5:37]  # no engine begins there: the sum goes by way of a copy
        half += nl.matmul(left, right, transpose_x=True)  # both in PSUM, where an instruction reads one tile
    nl.store(out[0], sums[5:37])
    nl.store(out[1], nl.copy(half, dtype=nl.float32))
    return out


def test_sums_that_take_several_instructions_keep_the_promise_of_affine_range():
    a, b = np.ones((64, 32), np.float32), RANDOM.integers(0, 8, (64, 64)).astype(np.float32)
    wanted = np.stack([3 * b[5:37], np.broadcast_to(3 * b.sum(0), (32, 64))])
    assert np.array_equal(both(summed_by_copies, a, b), wanted)


@jit
def with_new_axes(a):
    out = nl.ndarray((128, 1, 8, 1), dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.load(a).as_tile()
    nl.store(out, nl.expand_dims(tile, (1, 3)) + nl.expand_dims(tile.expand_dims([-1]), 1))
    return out


def test_several_axes_are_put_in_at_once():
    a = _array(128, 8)
    assert np.array_equal(both(with_new_axes, a), 2 * np.expand_dims(a, (1, 3)))


@jit
def replaced(a, b):
    out = nl.ndarray((2, 128, 128), dtype=nl.float32, buffer=nl.shared_hbm)
    x, y = nl.load(a), nl.load(b)
    sums = nl.zeros((2, nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.psum)
    kept = nl.full((2, nl.par_dim(128), 128), 3.0, dtype=nl.float32)
    sums[0] = nl.matmul(x, y, transpose_x=True)
    first = nl.copy(sums[0])
    sums[0] = nl.matmul(y, x, transpose_x=True)
    sums[1] = nl.copy(x)
    sums[1] = nl.matmul(y, y, transpose_x=True)
    kept[0] = first + sums[0]
    kept[1, :, 0:64] = nl.copy(sums[1, :, 0:64])
    for i in range(2):
        nl.store(out[i], kept[i])
    return out


def test_an_assigned_product_adds_to_nothing():
    a, b = _array(128, 128), _array(128, 128)
    found = both(replaced, a, b)
    assert np.allclose(found[0], a.T @ b + b.T @ a, rtol=1e-5)
    assert np.allclose(found[1, :, :64], (b.T @ b)[:, :64], rtol=1e-5)
    assert (found[1, :, 64:] == 3).all()


def test_a_fill_that_nobody_sees_is_left_out():
    """Of two tiles in PSUM and two in SBUF one is not overwritten as a whole."""
    arrays = _array(128, 128), _array(128, 128)
    (tracer,) = trace_only(replaced.launch(), arrays, {}, load_target("trn2"), from_environment())
    fills = [issued for issued in tracer.program.body.walk() if issued.instruction.name == "memset"]
    assert [issued.arguments.value for issued in fills] == [3.0]


def test_messages_name_a_tile_by_the_variable_that_holds_it() -> None:
    @jit
    def outside(a, blocks):
        weights = nl.ndarray((2, nl.par_dim(128), 64), nl.float32) if blocks else nl.load(a)
        other = weights
        return nl.exp(other[0, 0:128, 0:200] if blocks else other[0:128, 0:200])

    @jit
    def named(a):
        weights = nl.ndarray((128, 64), nl.float32, name="w")
        return nl.exp(weights[0:200])

    a = np.ones((128, 128), np.float32)
    for kernel, args, name in ((outside, (a, False), "weights"), (outside, (a, True), "weights"), (named, (a,), "w")):
        with pytest.raises(IndexError, match=rf"tensor `{name}` on dimension"):
            kernel(*args)
