"""What DMA moves: order, casts, dynamic addresses, skipped rows, transposes and sums."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nki
import nki.isa as nisa
import nki.language as nl
from nki.core import dtypes
from nki.isa import alu, dma_compute, dma_transpose
from nki.isa.register import register_alloc
from tests.isa.examples.dma import gathered
from tests.isa.tiles import dma_load as load
from tests.isa.tiles import store
from tests.support import both, environment, rejection

BF16 = ml_dtypes.bfloat16
SKIP = nisa.oob_mode.skip
QUIET_NAN, SIGNALLING_NAN = 0x7FC01234, 0x7F812345


def floats(*bits: int) -> np.ndarray:
    return np.array(bits, np.uint32).view(np.float32)


def bits_of(array: Any) -> np.ndarray:
    array = np.ascontiguousarray(array)
    return array.view(f"u{array.dtype.itemsize}")


def shared(array: Any, dtype: Any = None) -> Any:
    """A copy in device memory."""
    out = nl.ndarray(array.shape, dtype or array.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=array)
    return out


def prefilled(shape: tuple[int, ...], dtype: Any, value: float) -> Any:
    tile = nl.ndarray(shape, dtype, buffer=nl.sbuf)
    nisa.memset(dst=tile, value=value)
    return tile


# --- order and casts


@given(
    st.permutations(range(3)),
    st.tuples(*[st.integers(1, 6)] * 3),
    st.sampled_from([np.float32, np.int32, np.uint8, np.float16]),
    st.booleans(),
)
def test_elements_keep_their_order_whatever_the_shapes(
    order: list[int], shape: tuple[int, ...], dtype: Any, through_sbuf: bool
) -> None:
    data = np.arange(int(np.prod(shape)), dtype=np.int64).astype(dtype).reshape(shape)

    def kernel(a: Any) -> Any:
        out = nl.ndarray((a.size, 1), a.dtype, buffer=nl.shared_hbm)
        view = a.permute(tuple(order))
        if through_sbuf:
            tile = nl.ndarray((view.shape[0], view.shape[2], view.shape[1]), a.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=view)
            nisa.dma_copy(dst=out, src=tile)
        else:
            nisa.dma_copy(dst=out, src=view)
        return out

    places = (tuple(index[order.index(d)] for d in range(3)) for index in np.ndindex(*(shape[d] for d in order)))
    assert both(kernel, data).ravel().tolist() == [data[place].item() for place in places]


CASTS = [
    (np.float32, np.int8, [300.0, -300.0, 2.5, 3.5, -0.5, np.nan, np.inf], [127, -128, 2, 4, 0, 0, 127]),
    (np.float32, np.uint8, [300.0, -1.0, 254.5, 255.5, np.inf], [255, 0, 254, 255, 255]),
    (np.float32, np.int32, [2.0**31, -(2.0**31), 1e10, 16777217.0], [2**31 - 1, -(2**31), 2**31 - 1, 16777216]),
    (np.int32, np.float32, [2**24 + 1, 2**24 + 3, -(2**31)], [2.0**24, 2.0**24 + 4, -(2.0**31)]),
    (np.int32, np.uint32, [2**24 + 1, -5], [2**24, 0]),
    (np.uint32, np.int32, [2**32 - 1, 7], [2**31 - 1, 7]),
    (np.float32, BF16, [1.00390625, 1.01171875, 3.4e38, -0.0], [1.0, 1.015625, np.inf, -0.0]),
    (np.float32, np.float16, [65520.0, 1e-8, 65519.0], [np.inf, 0.0, 65504.0]),
    (BF16, np.float32, [1.0078125, np.inf], [1.0078125, np.inf]),
]


@pytest.mark.parametrize(("source", "target", "values", "wanted"), CASTS)
def test_casts_pass_through_float32(source: Any, target: Any, values: list[Any], wanted: list[Any]) -> None:
    def kernel(a: Any) -> Any:
        return store(load(a, target))

    result = both(kernel, np.array([values], source))
    assert np.array_equal(bits_of(result), bits_of(np.array([wanted], target)))


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint32, np.float16, BF16, ml_dtypes.float8_e5m2, np.bool_])
def test_equal_dtypes_move_as_bits(dtype: Any) -> None:
    raw = np.random.default_rng(0).integers(0, 256, 48 * np.dtype(dtype).itemsize).astype(np.uint8)
    if dtype is np.bool_:
        raw &= 1
    data = raw.view(dtype).reshape(4, 12)

    def kernel(a: Any) -> Any:
        return store(load(a))

    assert np.array_equal(bits_of(both(kernel, data)), bits_of(data))


def test_psum_is_out_of_reach() -> None:
    def from_psum(a: Any) -> Any:
        tile = nl.ndarray((4, 4), np.float32, buffer=nl.psum)
        nisa.memset(dst=tile, value=0.0)
        return store(tile)

    def to_psum(a: Any) -> Any:
        tile = nl.ndarray((4, 4), np.float32, buffer=nl.psum)
        nisa.dma_copy(dst=tile, src=a)
        return a

    for kernel in (from_psum, to_psum):
        assert rejection(kernel, np.zeros((4, 4), np.float32)).code == "operand.region"


# --- rows by an index tensor


def gather_kernel(dtype: Any = None, mode: Any = SKIP, fill: float = 7) -> Any:
    def kernel(data: Any, rows: Any) -> Any:
        tile = prefilled((rows.shape[0], data.shape[1]), dtype or data.dtype, fill)
        index = load(rows)
        nisa.dma_copy(dst=tile, src=gathered(data, index), oob_mode=mode)
        return store(tile)

    return kernel


@pytest.mark.parametrize("outside", [-1, 4, 2**31 - 1, -(2**31)])
def test_skipped_rows_of_a_gather_stay_and_integers_keep_their_bits(outside: int) -> None:
    data = np.array([[2**24 + 1, -1], [2**31 - 1, -(2**31)], [3, 4], [5, 16777219]], np.int32)
    rows = np.array([[1], [outside], [3], [0]], np.int32)
    result = both(gather_kernel(), data, rows)
    assert result.tolist() == [data[1].tolist(), [7, 7], data[3].tolist(), data[0].tolist()]


@pytest.mark.parametrize("sentinel", [2**32 - 1, 2])
def test_unsigned_indices_beyond_the_table_are_skipped(sentinel: int) -> None:
    data = floats(QUIET_NAN, SIGNALLING_NAN, 1, 0x80000000).reshape(2, 2)
    result = both(gather_kernel(), data, np.array([[sentinel], [1], [0]], np.uint32))
    assert np.array_equal(bits_of(result), bits_of(np.stack([np.float32([7, 7]), data[1], data[0]])))


def test_a_skipping_gather_casts_through_float32() -> None:
    data = np.array([[1.25, -3.5], [1e9, 2.5]], np.float32)
    result = both(gather_kernel(np.int16), data, np.array([[1], [9], [0]], np.int32))
    assert result.tolist() == [[32767, 2], [7, 7], [1, -4]]


def test_a_gather_of_packed_values_can_skip() -> None:
    words = np.arange(24, dtype=np.uint32).reshape(4, 6) * 0x01020304

    def kernel(data: Any, rows: Any) -> Any:
        table = nl.ndarray((4, 6), dtypes.float8_e4m3fn_x4, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=table.view(dtypes.uint32), src=data)
        tile = prefilled((3, 6), dtypes.float8_e4m3fn_x4, 0)
        index = load(rows)
        nisa.dma_copy(dst=tile, src=gathered(table, index), oob_mode=SKIP)
        return store(tile.view(dtypes.uint32))

    result = both(kernel, words, np.array([[3], [-1], [2]], np.int32))
    assert np.array_equal(result, np.stack([words[3], words[3] * 0, words[2]]))


def test_a_negative_row_is_outside_even_if_the_pattern_starts_late() -> None:
    data = np.arange(8, dtype=np.float32).reshape(4, 2)

    def kernel(a: Any, rows: Any) -> Any:
        tile = prefilled((2, 2), a.dtype, -1.0)
        index = load(rows)
        nisa.dma_copy(dst=tile, src=a.ap([[2, 2], [1, 2]], offset=4, vector_offset=index), oob_mode=SKIP)
        return store(tile)

    assert both(kernel, data, np.array([[-1], [1]], np.int32)).tolist() == [[-1, -1], [6, 7]]


def test_a_row_that_leaves_the_tensor_is_skipped_as_a_whole() -> None:
    def kernel(a: Any, rows: Any) -> Any:
        tile = prefilled((2, 2), a.dtype, -1.0)
        index = load(rows)
        nisa.dma_copy(dst=tile, src=a.ap([[3, 2], [1, 2]], offset=2, vector_offset=index), oob_mode=SKIP)
        return store(tile)

    data = np.arange(9, dtype=np.float32).reshape(3, 3)
    assert both(kernel, data, np.array([[2], [1]], np.int32)).tolist() == [[-1, -1], [5, 6]]


def scatter_kernel(mode: Any) -> Any:
    def kernel(data: Any, rows: Any) -> Any:
        out = nl.ndarray((6, data.shape[1]), data.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=prefilled(out.shape, data.dtype, 9))
        index = load(rows)
        nisa.dma_copy(dst=gathered(out, index), src=load(data), oob_mode=mode)
        return out

    return kernel


@pytest.mark.parametrize("dtype", [np.int32, np.float32, np.uint8])
def test_a_scatter_writes_only_rows_inside(dtype: Any) -> None:
    data = np.arange(12).reshape(4, 3).astype(dtype)
    wanted = np.full((6, 3), 9, dtype)
    wanted[5], wanted[0] = data[0], data[2]
    rows = np.array([[5], [6], [0], [-2]], np.int32)
    assert np.array_equal(both(scatter_kernel(SKIP), data, rows), wanted)


@pytest.mark.parametrize("scatter", [False, True])
@pytest.mark.parametrize("row", [6, -1])
def test_rows_outside_raise_by_default(scatter: bool, row: int) -> None:
    kernel = scatter_kernel(nisa.oob_mode.error) if scatter else gather_kernel(mode=nisa.oob_mode.error)
    error = rejection(kernel, np.zeros((2 if scatter else 6, 2), np.float32), np.array([[1], [row]], np.int32))
    assert error.code == "access.dynamic-out-of-bounds"
    assert f"row 1 has index {row}," in error.message


def test_more_rows_than_partitions_come_from_a_table_of_three_dimensions() -> None:
    """An index counts rows of the tensor that .ap was called on; the leading stride of the pattern is ignored."""
    data = np.arange(5 * 2 * 3, dtype=np.float32).reshape(5, 2, 3)

    def kernel(a: Any, rows: Any) -> Any:
        tile = nl.ndarray((3, 3), a.dtype, buffer=nl.sbuf)
        index = load(rows)
        nisa.dma_copy(dst=tile, src=a.ap([[1, 3], [1, 3]], offset=3, vector_offset=index))
        return store(tile)

    rows = np.array([[4], [0], [2]], np.int32)
    assert np.array_equal(both(kernel, data, rows), np.stack([data[4, 1], data[0, 1], data[2, 1]]))


def test_the_last_of_repeated_rows_stays() -> None:
    data = np.arange(6, dtype=np.float32).reshape(3, 2)
    result = both(scatter_kernel(nisa.oob_mode.error), data, np.array([[2], [2], [1]], np.int32))
    assert result[1:3].tolist() == [[4, 5], [2, 3]]


# --- scalar offsets


def scalar_kernel(by_register: bool, mode: Any = nisa.oob_mode.error, dim: int = 1) -> Any:
    def kernel(data: Any, start: Any) -> Any:
        tile = prefilled((2, 3), data.dtype, -1)
        index = load(start)
        offset = register_alloc(index) if by_register else index
        view = data.ap([[4, 2], [1, 3]], offset=1, scalar_offset=offset, indirect_dim=dim)
        nisa.dma_copy(dst=tile, src=view, oob_mode=mode)
        return store(tile)

    return kernel


@pytest.mark.parametrize("by_register", [False, True])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_a_scalar_offset_steps_along_a_dimension_of_the_base(by_register: bool, dim: int) -> None:
    data = np.arange(3 * 5 * 4, dtype=np.int32).reshape(3, 5, 4)
    start = 1 + 2 * (20, 4, 1)[dim]
    wanted = [[start + 4 * i + j for j in range(3)] for i in range(2)]
    assert both(scalar_kernel(by_register, dim=dim), data, np.array([[2]], np.int32)).tolist() == wanted


@pytest.mark.parametrize("by_register", [False, True])
@pytest.mark.parametrize(("dtype", "start"), [(np.uint32, 2**32 - 1), (np.int32, 14), (np.int32, -1)])
def test_a_scalar_offset_outside_raises_or_copies_nothing(by_register: bool, dtype: Any, start: int) -> None:
    data, index = np.arange(60, dtype=np.float32).reshape(3, 5, 4), np.array([[start]], dtype)
    assert np.all(both(scalar_kernel(by_register, SKIP), data, index) == -1)
    error = rejection(scalar_kernel(by_register), data, index)
    assert error.code == "access.dynamic-out-of-bounds"


def test_a_skipped_destination_leaves_everything() -> None:
    def kernel(data: Any, start: Any) -> Any:
        out = shared(data)
        index = load(start)
        nisa.dma_copy(dst=out.select(0, index), src=load(data)[0:1, :], oob_mode=SKIP)
        return out

    data = np.arange(8, dtype=np.float32).reshape(4, 2)
    assert np.array_equal(both(kernel, data, np.array([[4]], np.int32)), data)


def test_offsets_scale_with_the_size_of_a_reinterpreted_element() -> None:
    def kernel(data: Any, start: Any) -> Any:
        tile = nl.ndarray((1, 8), dtypes.uint8, buffer=nl.sbuf)
        index = load(start)
        view = data.ap([[8, 1], [1, 8]], scalar_offset=index, indirect_dim=0, dtype=dtypes.uint8)
        nisa.dma_copy(dst=tile, src=view)
        return store(tile)

    data = np.arange(8, dtype=np.int32).reshape(4, 2) * 257
    result = both(kernel, data, np.array([[3]], np.int32))
    assert result.tobytes() == data[3].tobytes()


def test_a_free_offset_does_not_leave_the_partition() -> None:
    """On chip, the element behind the end of a row is in another tensor, not in the next partition."""

    def kernel(data: Any, start: Any) -> Any:
        tile, index = load(data), load(start)
        part = nl.ndarray((2, 3), data.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=part, src=tile.ap([[8, 2], [1, 3]], scalar_offset=index, indirect_dim=1))
        return store(part)

    data = np.arange(32, dtype=np.float32).reshape(4, 8)
    assert np.array_equal(both(kernel, data, np.array([[5]], np.int32)), data[:2, 5:8])
    assert rejection(kernel, data, np.array([[6]], np.int32)).code == "access.dynamic-out-of-bounds"


# --- what was never written


def test_a_gather_reports_rows_that_nobody_wrote() -> None:
    def kernel(data: Any, rows: Any) -> Any:
        table = nl.ndarray((4, 2), data.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=table[0:2, :], src=data)
        tile = nl.ndarray((2, 2), data.dtype, buffer=nl.sbuf)
        index = load(rows)
        nisa.dma_copy(dst=tile, src=gathered(table, index))
        return store(tile)

    data = np.ones((2, 2), np.float32)
    assert np.all(both(kernel, data, np.array([[1], [0]], np.int32)) == 1)
    with pytest.warns(UserWarning, match=r"memory\.uninitialized"):
        both(kernel, data, np.array([[1], [3]], np.int32))


def test_skipped_rows_do_not_count_as_written() -> None:
    def kernel(data: Any, rows: Any) -> Any:
        tile = nl.ndarray((2, 2), data.dtype, buffer=nl.sbuf)
        index = load(rows)
        nisa.dma_copy(dst=tile, src=gathered(data, index), oob_mode=SKIP)
        return store(tile)

    data = np.ones((2, 2), np.float32)
    with pytest.warns(UserWarning, match=r"memory\.uninitialized"):
        assert np.isnan(both(kernel, data, np.array([[1], [3]], np.int32))[1]).all()


# --- low precision that keeps float32 values


def simulate(kernel: Any, *args: Any, precise: bool, target: str = "trn2", lnc: int | None = None) -> Any:
    with environment(NKI_PRECISE_FP=str(int(precise)), NEURON_PLATFORM_TARGET_OVERRIDE=target):
        made = nki.simulate(kernel)
        return (made if lnc is None else made[lnc])(*args)


def round_trip(move: Any) -> Any:
    """float32 into bfloat16 tensors, moved there, and back into float32."""

    def kernel(data: Any, rows: Any) -> Any:
        table, index = shared(data, BF16), load(rows)
        moved = move(table, index)
        out = nl.ndarray(moved.shape, np.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=moved)
        return out

    return kernel


def by_gather(table: Any, index: Any) -> Any:
    tile = prefilled((3, 4), BF16, 0.0)
    nisa.dma_copy(dst=tile, src=gathered(table, index))
    return tile


def by_skipping_gather(table: Any, index: Any) -> Any:
    tile = prefilled((3, 4), BF16, 0.0)
    nisa.dma_copy(dst=tile, src=gathered(table, index), oob_mode=SKIP)
    return tile


def by_scatter(table: Any, index: Any) -> Any:
    target = shared(table, BF16)
    nisa.dma_copy(dst=gathered(target, index), src=load(table)[3:6, :])
    return target


def by_scalar(table: Any, index: Any) -> Any:
    tile = nl.ndarray((2, 4), BF16, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=table.ap([[4, 2], [1, 4]], scalar_offset=index[0:1, :]))
    return tile


def by_transpose(table: Any, index: Any) -> Any:
    tile = nl.ndarray((4, 6), BF16, buffer=nl.sbuf)
    dma_transpose(dst=tile, src=table)
    return tile


def by_sum(table: Any, index: Any) -> Any:
    tile = prefilled((3, 4), BF16, 0.0)
    dma_compute(tile, [tile, gathered(table, index)], alu.ADD)
    return tile


MOVES = {
    by_gather: lambda t, r: t[r],
    by_skipping_gather: lambda t, r: t[r],
    by_scatter: lambda t, r: np.stack([t[3], t[1], t[5], t[3], t[4], t[4]]),  # rows 3 to 5 into 0, 5 and 2
    by_scalar: lambda t, r: t[r[0] : r[0] + 2],
    by_transpose: lambda t, r: t.T,
    by_sum: lambda t, r: t[r],
}


@pytest.mark.parametrize("move", MOVES, ids=lambda m: m.__name__)
@pytest.mark.parametrize("precise", [True, False])
def test_dynamic_addresses_work_with_and_without_precise_low_precision(move: Any, precise: bool) -> None:
    data = (1 + np.arange(24, dtype=np.float32).reshape(6, 4) / 1000).astype(np.float32)
    rows = np.array([[0], [5], [2]], np.int32)
    table = data.astype(BF16).astype(np.float32) if precise else data
    assert np.array_equal(simulate(round_trip(move), data, rows, precise=precise), MOVES[move](table, rows[:, 0]))


# --- transposes


@given(st.sampled_from([2, 3, 4]), st.data(), st.sampled_from([np.float32, BF16, np.int16]), st.booleans())
def test_transposes_of_all_ranks(rank: int, data: Any, dtype: Any, from_sbuf: bool) -> None:
    shape = tuple(data.draw(st.integers(1, 20)) for _ in range(rank))
    order = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}[rank]
    array = np.random.default_rng(1).integers(0, 2**15, shape).astype(dtype)

    def kernel(a: Any) -> Any:
        tile = nl.ndarray(tuple(shape[axis] for axis in order), a.dtype, buffer=nl.sbuf)
        dma_transpose(dst=tile, src=load(a) if from_sbuf else a)
        return store(tile)

    result = both(kernel, array)
    for index in np.ndindex(shape):
        assert result[tuple(index[axis] for axis in order)] == array[index]


def test_a_transpose_moves_bits() -> None:
    data = floats(QUIET_NAN, SIGNALLING_NAN, 1, 0x80000000, 0xFF800000, 0x7F7FFFFF).reshape(2, 3)

    def kernel(a: Any) -> Any:
        tile = nl.ndarray((3, 2), a.dtype, buffer=nl.sbuf)
        dma_transpose(dst=tile, src=a)
        return store(tile)

    assert np.array_equal(bits_of(both(kernel, data)), bits_of(data).T)


def test_a_skipping_transpose_leaves_the_columns_of_rows_outside() -> None:
    """The simulator of 0.5 fixed the same thing: such columns were overwritten with zeros."""
    data = np.arange(60).reshape(20, 3).astype(np.float16)
    rows = np.array([[i if i % 5 else 2**32 - 1] for i in range(16)], np.uint32)

    def kernel(a: Any, index: Any) -> Any:
        tile, table = prefilled((3, 16), a.dtype, -4.0), load(index)
        dma_transpose(dst=tile, src=a.vector_select(0, table), oob_mode=SKIP)
        return store(tile)

    wanted = np.stack([data[i] if i % 5 else np.float16([-4] * 3) for i in range(16)], axis=1)
    assert np.array_equal(both(kernel, data, rows), wanted)


@pytest.mark.parametrize(("start", "found"), [(1, True), (3, False)])
def test_a_transpose_from_a_scalar_offset_can_skip(start: int, found: bool) -> None:
    data = np.arange(24, dtype=np.float32).reshape(4, 2, 3)

    def kernel(a: Any, index: Any) -> Any:
        tile, offset = prefilled((3, 4), a.dtype, -1.0), load(index)
        view = a.ap([[3, 4], [1, 3]], scalar_offset=offset, indirect_dim=0)
        dma_transpose(dst=tile, src=view, oob_mode=SKIP, dge_mode=nisa.dge_mode.swdge)
        return store(tile)

    wanted = data.reshape(8, 3)[2 * start : 2 * start + 4].T if found else np.full((3, 4), -1.0)
    assert np.array_equal(both(kernel, data, np.array([[start]], np.int32)), wanted)


# --- sums


def test_sums_go_from_left_to_right_in_float32_and_round_once() -> None:
    values = [np.float32([[1e8]]), np.float32([[3.0]]), np.float32([[-1e8]]), np.float32([[0.1]])]

    def kernel(a: Any, b: Any, c: Any, d: Any) -> Any:
        out = nl.ndarray((1, 1), np.float32, buffer=nl.shared_hbm)
        dma_compute(out, [a, b, c, d], alu.ADD)
        return out

    total = values[0]
    for value in values[1:]:
        total = np.float32(total + value)
    assert both(kernel, *values) == total


def test_a_sum_of_integers_saturates_after_float32() -> None:
    def kernel(a: Any, b: Any) -> Any:
        tile = load(a)
        dma_compute(tile, [tile, b], alu.ADD)
        return store(tile)

    a, b = np.array([[100, -100, 5, 2]], np.int8), np.array([[100, -100, 6, 1]], np.int8)
    assert both(kernel, a, b).tolist() == [[127, -128, 11, 3]]


@pytest.mark.parametrize("scatter", [True, False])
def test_updates_skip_rows_outside(scatter: bool) -> None:
    table, data = np.arange(8, dtype=np.float32).reshape(4, 2), np.full((3, 2), 10, np.float32)
    rows = np.array([[3], [7], [0]], np.int32)

    def kernel(a: Any, b: Any, r: Any) -> Any:
        target, tile, index = shared(a), load(b), load(r)
        view = gathered(target, index)
        if scatter:
            dma_compute(view, [tile, view], alu.ADD, oob_mode=SKIP)
            return target
        dma_compute(tile, [tile, view], alu.ADD, oob_mode=SKIP)
        return store(tile)

    wanted = [[10, 11], [2, 3], [4, 5], [16, 17]] if scatter else [[16, 17], [10, 10], [10, 11]]
    assert np.array_equal(both(kernel, table, data, rows), wanted)


def test_an_update_rounds_to_the_dtype_of_its_destination() -> None:
    table, data = np.array([[1.0, 256.0]], BF16), np.array([[0.0078125, 1.0]], np.float32)

    def kernel(a: Any, b: Any, r: Any) -> Any:
        target, index = shared(a), load(r)
        view = gathered(target, index)
        dma_compute(view, [view, load(b)], alu.ADD)
        return target

    wanted = (table.astype(np.float32) + data).astype(BF16)
    assert np.array_equal(both(kernel, table, data, np.array([[0]], np.int32)), wanted)


def test_rows_that_repeat_in_an_update_are_reported() -> None:
    def kernel(a: Any, b: Any, r: Any) -> Any:
        target, index = shared(a), load(r)
        view = gathered(target, index)
        dma_compute(view, [view, load(b)], alu.ADD, oob_mode=SKIP)
        return target

    table, data = np.zeros((3, 1), np.float32), np.ones((3, 1), np.float32)
    both(kernel, table, data, np.array([[5], [1], [5]], np.int32))
    with pytest.warns(UserWarning, match=r"dma_compute\.repeated-index"):
        both(kernel, table, data, np.array([[1], [2], [1]], np.int32))


def test_scales_of_one_are_accepted() -> None:
    def kernel(a: Any) -> Any:
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        dma_compute(out, (a, a), scales=[1.0, 1], reduce_op=alu.ADD)
        return out

    data = np.arange(4, dtype=np.float32).reshape(2, 2)
    assert np.array_equal(both(kernel, data), 2 * data)


# --- keywords of older kernels


def test_old_keywords_are_accepted_where_they_change_nothing() -> None:
    def kernel(a: Any, **old: Any) -> Any:
        tile = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=a, **old)
        return store(tile)

    data = np.arange(4, dtype=np.float32).reshape(2, 2)
    with pytest.warns(DeprecationWarning, match="unique_indices"):
        assert np.array_equal(both(lambda a: kernel(a, unique_indices=True), data), data)
    assert rejection(lambda a: kernel(a, dst_rmw_op=alu.ADD), data).code == "call.deprecated"
    assert rejection(lambda a: kernel(a, mask=None), data).code == "call.unknown-argument"


# --- the same addressing in tensors with an explicit address


def test_tensors_with_an_explicit_address_are_addressed_like_others() -> None:
    """Offsets on the free dimension, read and written, and rows by an index, all in tensors that the kernel placed."""

    def kernel(a: Any, offsets: Any, rows: Any) -> Any:
        table = nl.ndarray((16, 8), a.dtype, buffer=nl.sbuf, address=(32, 1024))
        nisa.dma_copy(dst=table, src=a)
        index = nl.ndarray((16, 1), np.uint16, buffer=nl.sbuf, address=(32, 0))
        nisa.dma_copy(dst=index, src=offsets)
        taken = nl.ndarray((16, 16), a.dtype, buffer=nl.sbuf, address=(32, 4096))
        nisa.memset(dst=taken, value=0.0)
        nisa.tensor_copy(dst=taken[:, 0:5], src=table.indirect(index, 5))
        nisa.tensor_copy(dst=taken[:, 8:16].indirect(index, 3), src=table[:, 0:3])
        number = nl.ndarray((2, 1), np.int32, buffer=nl.sbuf, address=(0, 64))
        nisa.dma_copy(dst=number, src=rows)
        first = nl.ndarray((2, 8), a.dtype, buffer=nl.sbuf, address=(64, 0))
        nisa.dma_copy(dst=first, src=gathered(a, number))
        return store(taken), store(first)

    data = np.arange(128, dtype=np.float32).reshape(16, 8)
    offsets = np.array([[i * 3 % 8] for i in range(16)], np.uint16)
    taken, first = both(kernel, data, offsets, np.array([[9], [4]], np.int32), target="trn3")
    wanted = np.zeros((16, 16), np.float32)
    for p in range(16):
        for i in range(5):
            wanted[p, i] = data[p, offsets[i, 0]]
        for i in range(3):
            wanted[p, 8 + offsets[i, 0]] = data[p, i]
    assert np.array_equal(taken, wanted) and np.array_equal(first, data[[9, 4]])
