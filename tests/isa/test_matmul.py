"""What nc_matmul, nc_matmul_mx and nc_transpose compute beyond the examples: specials, accumulation, rounding."""

from __future__ import annotations

import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nki.isa as family
import nki.language as nl
from nki.core.errors import ArgumentError
from nki.isa.copy import memset
from nki.isa.dma import dma_copy
from nki.isa.quantize import quantize_mx
from nki.spec.engine import engine, matmul_perf_mode
from tests.isa.examples.matmul import matmul, mx, raw, small
from tests.isa.examples.quantize import MxArray, mx_array
from tests.isa.tiles import dma_load as load
from tests.isa.tiles import store
from tests.support import both, rejection

f32, bf16 = np.float32, ml_dtypes.bfloat16
NAN, INF = np.nan, np.inf


def exact(a: Any, b: Any) -> np.ndarray:
    return a.astype(np.float64).T @ b.astype(np.float64)


# --- values


@settings(max_examples=12)
@given(
    k=st.integers(1, 128),
    m=st.integers(1, 128),
    n=st.integers(1, 512),
    dtype=st.sampled_from([f32, bf16, np.float16, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3]),
    target=st.sampled_from(["trn1", "trn2", "trn3"]),
    seed=st.integers(0, 99),
)
def test_any_size_and_dtype_is_close_to_float64(k: int, m: int, n: int, dtype: Any, target: str, seed: int) -> None:
    r = np.random.default_rng(seed)
    a, b = r.standard_normal((k, m)).astype(dtype), r.standard_normal((k, n)).astype(dtype)
    bound = np.abs(a).astype(np.float64).T @ np.abs(b).astype(np.float64) * k * 2.0**-24 + 1e-30
    assert (np.abs(both(matmul((m, n)), a, b, target=target) - exact(a, b)) <= bound).all()


def test_products_of_bfloat16_are_not_rounded_before_they_are_added() -> None:
    a, b = np.array([[1 + 2**-7], [1]]).astype(bf16), np.array([[1 + 2**-7], [-1]]).astype(bf16)
    assert both(matmul((1, 1)), a, b) == 2**-6 + 2**-14


def test_nan_and_infinity_spread_over_the_columns_they_touch() -> None:
    a, b = np.ones((2, 3), f32), np.ones((2, 4), f32)
    a[0, 1], b[1, 2] = NAN, INF
    got = both(matmul((3, 4)), a, b)
    assert np.isnan(got[1]).all()
    assert np.isposinf(got[[0, 2], 2]).all()
    assert (got[[0, 2]][:, [0, 1, 3]] == 2).all()


def test_infinity_times_zero_is_nan() -> None:
    a, b = np.array([[INF], [1]], f32), np.array([[0], [1]], f32)
    assert np.isnan(both(matmul((1, 1)), a, b))


def test_a_view_as_tfloat32_is_rounded_to_ten_bits_ties_to_even() -> None:
    a = np.array([[1 + 2**-11, 1 + 3 * 2**-11, 1 + 2**-11 + 2**-23, 1 + 2**-10, -(1 + 2**-12), 3.0e38]], f32)
    want = np.array(
        [[1.0], [1 + 2**-9], [1 + 2**-10], [1 + 2**-10], [-1.0], [np.ldexp(np.rint(np.ldexp(3e38, -117)), 117)]]
    )
    tf32 = {"left": lambda t: t.view(nl.tfloat32), "right": lambda t: t.view(nl.tfloat32)}
    got = both(matmul((6, 1), **tf32), a, np.ones((1, 1), f32))
    np.testing.assert_array_equal(got[:5], want[:5])
    np.testing.assert_allclose(got[5], want[5], rtol=2**-11)
    np.testing.assert_array_equal(both(matmul((6, 1)), a, np.ones((1, 1), f32)), a.T)


def test_all_elements_of_higher_ranks_are_used_also_through_strided_views() -> None:
    a = small((16, 4, 6), (16, 4, 6))()[0]
    image = small((16, 9, 9), (16, 9, 9))()[1]

    def kernel(w: Any, x: Any) -> Any:
        filters, pixels = load(w), load(x)
        result = nl.ndarray((24, 4, 4), nl.float32, buffer=nl.psum)
        family.nc_matmul(result, filters, pixels[:, 1:9:2, 0:8:2])
        return store(result)

    want = np.einsum("kab,khw->abhw", a, image[:, 1:9:2, 0:8:2]).reshape(24, 4, 4)
    np.testing.assert_array_equal(both(kernel, a, image), want)


def test_double_row_adds_both_halves_and_gives_a_result_of_plain_size() -> None:
    a, b = small((96, 2, 10), (96, 2, 14), dtype=ml_dtypes.float8_e4m3)()
    want = exact(a[:, 0], b[:, 0]) + exact(a[:, 1], b[:, 1])
    got = both(matmul((10, 14), perf_mode=matmul_perf_mode.double_row), a, b)
    assert got.shape == (10, 14)
    np.testing.assert_array_equal(got, want)


def test_double_row_takes_halves_that_lie_apart() -> None:
    a, b = small((32, 20), (32, 28), dtype=ml_dtypes.float8_e5m2)()

    def halves(columns: int) -> Any:
        return lambda t: t.ap([[2 * columns, 32], [columns, 2], [1, columns]])

    kernel = matmul((10, 14), left=halves(10), right=halves(14), perf_mode=matmul_perf_mode.double_row)
    want = exact(a[:, :10], b[:, :14]) + exact(a[:, 10:], b[:, 14:])
    np.testing.assert_array_equal(both(kernel, a, b), want)


# --- accumulation


def test_overlapping_regions_overwrite_or_add_location_by_location() -> None:
    a, b = small((16, 8), (16, 40))()

    def kernel(w: Any, x: Any) -> Any:
        weights, data = load(w), load(x)
        result = nl.ndarray((8, 60), nl.float32, buffer=nl.psum)
        for start in (0, 10, 20):
            family.nc_matmul(result[:, start : start + 40], weights, data)
        return store(result)

    want = np.zeros((8, 60))
    for start in (0, 10, 20):
        want[:, start : start + 40] += exact(a, b)
    np.testing.assert_array_equal(both(kernel, a, b), want)


def test_overlap_of_strided_regions_is_told_apart_element_by_element() -> None:
    a, b = small((16, 8), (16, 20))()

    def kernel(w: Any, x: Any) -> Any:
        weights, data = load(w), load(x)
        result = nl.ndarray((8, 40), nl.float32, buffer=nl.psum)
        family.nc_matmul(result[:, 0:40:2], weights, data)
        family.nc_matmul(result[:, 1:40:2], weights, data)
        family.nc_matmul(result[:, 0:20], weights, data)
        return store(result)

    once = exact(a, b)
    want = np.repeat(once, 2, axis=1)
    want[:, 0:20] += once
    np.testing.assert_array_equal(both(kernel, a, b), want)


def test_a_register_chooses_the_location_that_is_added_to() -> None:
    a, b = small((16, 8), (16, 20))()

    def kernel(w: Any, x: Any) -> Any:
        weights, data = load(w), load(x)
        result = nl.ndarray((8, 3, 20), nl.float32, buffer=nl.psum)
        family.nc_matmul(result[:, 1, :], weights, data)

        def body(i: Any) -> None:
            family.nc_matmul(result.select(1, i), weights, data)

        nl.fori_loop(0, 3, body)
        return store(result)

    once = exact(a, b)
    np.testing.assert_array_equal(both(kernel, a, b), np.stack([once, 2 * once, once], axis=1))


def test_a_scattered_destination_is_added_to_where_it_was_written() -> None:
    a, b = small((32, 8), (32, 4))()
    offsets = np.array([[6], [4], [2], [0], *[[99]] * 28], np.uint16)

    def kernel(w: Any, x: Any, index: Any) -> Any:
        weights, data, where = load(w), load(x), load(index)
        result = nl.ndarray((32, 8), nl.float32, buffer=nl.psum)
        family.nc_matmul(result[0:8, 0:4], weights, data)
        family.nc_matmul(result[0:8, :].indirect(where[0:8, :], 4), weights, data)
        memset(result[0:8, 5:8:2], 7.0)
        return store(result[0:8, 0:8])

    once = exact(a, b)
    want = np.zeros((8, 8))
    want[:, 0:4] = once
    for column, place in enumerate((6, 4, 2, 0)):
        want[:, place] += once[:, column]
    want[:, 5:8:2] = 7
    np.testing.assert_array_equal(both(kernel, a, b, offsets, target="trn3"), want)


def test_bfloat16_psum_is_rounded_at_every_accumulation() -> None:
    r = np.random.default_rng(2)
    a, b = r.standard_normal((4, 64, 16)).astype(bf16), r.standard_normal((4, 64, 24)).astype(bf16)

    def kernel(w: Any, x: Any) -> Any:
        result = nl.ndarray((16, 24), nl.bfloat16, buffer=nl.psum)
        for i in range(4):
            family.nc_matmul(result, load(w[i]), load(x[i]))
        return store(result)

    total = np.zeros((16, 24), f32)
    for left, right in zip(a, b, strict=True):
        total = (total + exact(left, right)).astype(f32).astype(bf16).astype(f32)
    got = both(kernel, a, b, target="trn3").astype(f32)
    unrounded = sum(exact(left, right) for left, right in zip(a, b, strict=True)).astype(f32).astype(bf16).astype(f32)
    assert (got == total).mean() > 0.99  # float32 sums may fall on the other side of a tie
    assert (got != unrounded).any()


def onto(first: Any, mode: Any) -> Any:
    def kernel(w: Any, x: Any) -> Any:
        weights, data = load(w), load(x)
        result = nl.ndarray((8, 20), nl.float32, buffer=nl.psum)
        first(result, weights)
        family.nc_matmul(result, weights, data, accumulate=mode)
        return store(result)

    return kernel


ONTO = small((20, 8), (20, 20))


def test_accumulating_onto_unwritten_psum_warns() -> None:
    with pytest.warns(UserWarning, match=r"psum\.accumulate-unwritten"):
        both(onto(lambda result, _: None, True), *ONTO())


@pytest.mark.parametrize("mode", [True, None])
@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_accumulating_onto_a_fill_warns_where_it_is_undefined(target: str, mode: bool | None) -> None:
    with pytest.warns(UserWarning, match=r"psum\.accumulate-foreign"):
        both(onto(lambda result, _: memset(result, 5.0), mode), *ONTO(), target=target)


def test_accumulating_onto_a_fill_adds_where_it_is_defined() -> None:
    a, b = ONTO()
    got = both(onto(lambda result, _: memset(result, 5.0), True), a, b, target="trn3")
    np.testing.assert_array_equal(got, exact(a, b) + 5)


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
def test_overwriting_a_fill_is_defined_everywhere(target: str) -> None:
    a, b = ONTO()
    got = both(onto(lambda result, _: memset(result, 5.0), False), a, b, target=target)
    np.testing.assert_array_equal(got, exact(a, b))


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
def test_a_transpose_by_the_tensor_engine_counts_as_a_matmul(target: str) -> None:
    a, b = ONTO()
    got = both(onto(family.nc_transpose, True), a, b, target=target)
    np.testing.assert_array_equal(got, exact(a, b) + a.T)


# --- transpose mode


def transposed(mode: Any, times: int) -> Any:
    def kernel(a: Any, eye: Any) -> Any:
        data, identity = load(a), load(eye)
        result = nl.ndarray((a.shape[1], a.shape[0]), a.dtype, buffer=nl.psum)
        for _ in range(times):
            family.nc_matmul(result, data, identity, is_transpose=True, accumulate=mode)
        return raw(result)

    return kernel


@pytest.mark.filterwarnings("ignore:.psum.overwritten.")
@pytest.mark.parametrize("target", ["trn2", "trn3"])
@pytest.mark.parametrize("mode", [None, False])
def test_a_repeated_transpose_overwrites(target: str, mode: bool | None) -> None:
    a = np.array([[1.5, NAN], [-INF, -0.0]], bf16)
    got = both(transposed(mode, 3), a, np.eye(2).astype(bf16), target=target)
    np.testing.assert_array_equal(got, a.view(np.uint16).T)


def test_an_accumulating_transpose_adds() -> None:
    a = np.array([[1.5, 2.0], [-4.0, INF]], f32)

    def kernel(x: Any, eye: Any) -> Any:
        data, identity = load(x), load(eye)
        result = nl.ndarray((2, 2), nl.float32, buffer=nl.psum)
        family.nc_matmul(result, data, identity, is_transpose=True)
        family.nc_matmul(result, data, identity, is_transpose=True, accumulate=True)
        return store(result)

    np.testing.assert_array_equal(both(kernel, a, np.eye(2, dtype=f32)), 2 * a.T)


def test_the_label_changes_nothing_where_there_is_no_transpose_mode() -> None:
    a, b = small((16, 8), (16, 20))()
    np.testing.assert_array_equal(both(matmul((8, 20), is_transpose=True), a, b, target="trn1"), exact(a, b))


def test_a_moving_operand_that_is_no_identity_is_told() -> None:
    a, eye = small((16, 8), (16, 8))()[0], np.eye(16, dtype=f32)
    eye[3, 4] = 1
    with pytest.warns(UserWarning, match=r"nc_matmul\.transpose-identity"):
        both(matmul((8, 16), is_transpose=True), a, eye)


@pytest.mark.parametrize("side", ["stationary", "moving"])
def test_a_broken_promise_of_zeros_and_ones_is_told(side: str) -> None:
    a, b = np.ones((16, 8), f32), np.zeros((16, 20), f32)
    kernel = matmul((8, 20), **{f"is_{side}_onezero": True})
    np.testing.assert_array_equal(both(kernel, a, b), exact(a, b))
    a[3, 3] = b[3, 3] = 0.5
    with pytest.warns(UserWarning, match=r"nc_matmul\.onezero-values"):
        both(kernel, a, b)


def transpose_of(**options: Any) -> Any:
    def kernel(a: Any) -> Any:
        result = nl.ndarray((a.shape[1], a.shape[0]), a.dtype, buffer=nl.psum)
        family.nc_transpose(result, load(a), **options)
        return store(result)

    return kernel


def test_nan_and_infinity_spoil_a_row_where_the_tensor_engine_multiplies() -> None:
    a = np.arange(12, dtype=f32).reshape(4, 3) + 1
    a[2, 1], a[0, 2] = NAN, INF
    got = both(transpose_of(), a, target="trn1")
    np.testing.assert_array_equal(got[0], a[:, 0])
    assert np.isnan(got[1]).all()
    assert np.isinf(got[2, 0])
    assert np.isnan(got[2, 1:]).all()
    kept = both(transpose_of(engine=engine.vector), a, target="trn1")
    np.testing.assert_array_equal(kept, a.T)


@pytest.mark.parametrize(
    ("buffer", "asked", "runs"),
    [
        (nl.psum, engine.unknown, engine.tensor),
        (nl.sbuf, engine.unknown, engine.vector),
        (nl.psum, engine.vector, engine.vector),
    ],
)
def test_the_engine_follows_the_buffers_unless_it_is_given(buffer: Any, asked: engine, runs: engine) -> None:
    found = []

    def kernel(a: Any) -> Any:
        data = load(a)
        result = nl.ndarray((8, 16), nl.float32, buffer=buffer)
        found.append(family.nc_transpose(result, data, engine=asked).issued.engine)
        return store(result)

    both(kernel, np.zeros((16, 8), f32))
    assert set(found) == {runs}


@settings(max_examples=10)
@given(
    p=st.integers(1, 128),
    f=st.integers(1, 128),
    dtype=st.sampled_from([np.uint32, np.int16, f32, bf16, np.float16]),
    seed=st.integers(0, 99),
)
def test_any_tile_is_transposed_bit_by_bit(p: int, f: int, dtype: Any, seed: int) -> None:
    size = np.dtype(dtype).itemsize
    bits = np.random.default_rng(seed).integers(0, 256, (p, f * size), np.uint8)

    def kernel(a: Any) -> Any:
        result = nl.ndarray((f, p), a.dtype, buffer=nl.psum)
        family.nc_transpose(result, load(a))
        return raw(result)

    got = both(kernel, bits.view(dtype))
    np.testing.assert_array_equal(got, bits.view(f"u{size}").T)


def test_packed_values_are_transposed_as_they_are() -> None:
    words = np.random.default_rng(4).integers(0, 2**32, (32, 40), np.uint32)

    def kernel(a: Any) -> Any:
        result = nl.ndarray((40, 32), nl.float8_e4m3fn_x4, buffer=nl.psum)
        family.nc_transpose(result, load(a).view(nl.float8_e4m3fn_x4))
        return raw(result)

    np.testing.assert_array_equal(both(kernel, words, target="trn3"), words.T)


# --- microscaling


def ones_mx() -> tuple[MxArray, np.ndarray]:
    """Ones with scales of 1, in 32 partitions x 4 columns."""
    words = np.full((32, 4), 0x38383838, np.uint32)  # 1.0 in e4m3fn
    return MxArray(words, "float8_e4m3fn_x4"), np.full((4, 4), 127, np.uint8)


def test_a_scale_of_255_makes_nan_where_its_group_takes_part() -> None:
    data, scale = ones_mx()
    broken = scale.copy()
    broken[2, 1] = 255
    got = both(mx((4, 4)), data, broken, data, scale, target="trn3")
    assert np.isnan(got[1]).all()
    assert (got[[0, 2, 3]] == 128).all()


def test_the_smallest_and_a_large_scale_cancel() -> None:
    data, scale = ones_mx()
    got = both(mx((4, 4)), data, np.zeros_like(scale), data, np.full_like(scale, 247), target="trn3")
    np.testing.assert_array_equal(got, 128 * 2.0**-7)


def test_nan_elements_stay_nan() -> None:
    data, scale = ones_mx()
    words = data.words.copy()
    words[5, 2] = 0x387F3838
    got = both(mx((4, 4)), data, scale, MxArray(words, data.dtype), scale, target="trn3")
    assert np.isnan(got[:, 2]).all()
    assert (got[:, [0, 1, 3]] == 128).all()


def test_each_group_has_its_own_scale() -> None:
    data, scale = ones_mx()
    weights = np.array([[127], [128], [130], [134]], np.uint8).repeat(4, 1)
    np.testing.assert_array_equal(
        both(mx((4, 4)), data, weights, data, scale, target="trn3"), np.full((4, 4), 32 * (1 + 2 + 8 + 128))
    )


def test_scales_that_no_quadrant_needs_may_be_unwritten() -> None:
    r = np.random.default_rng(9)
    a, a_scale = mx_array(r, "float8_e5m2", 64, 8)

    def kernel(data: MxArray, scales: Any) -> Any:
        values = load(data.words).view(data.dtype)
        sparse = nl.ndarray((64, 8), nl.uint8, buffer=nl.sbuf)
        for first in (0, 32):
            rows = nl.ds(first, 4)
            dma_copy(sparse[rows, :], scales[rows, :])
        result = nl.ndarray((8, 8), nl.float32, buffer=nl.psum)
        family.nc_matmul_mx(result, values, values, sparse, sparse)
        return store(result)

    values = a.dequantized(a_scale)
    want = np.einsum("pmq,pnq->mn", values, values)
    np.testing.assert_array_equal(both(kernel, a, a_scale, target="trn3"), want)


def test_two_quantized_tensors_share_one_scale_tensor() -> None:
    r = np.random.default_rng(6)
    a, b = (r.integers(-4, 5, (128, 4 * n)).astype(bf16) for n in (16, 24))

    def kernel(x: Any, y: Any) -> Any:
        scales = nl.ndarray((128, 24), nl.uint8, buffer=nl.sbuf)
        left = nl.ndarray((128, 16), nl.float8_e4m3fn_x4, buffer=nl.sbuf)
        right = nl.ndarray((128, 24), nl.float8_e5m2_x4, buffer=nl.sbuf)
        left_scale, right_scale = scales[0:, :16], scales[4:, :]
        quantize_mx(left, load(x), left_scale)
        quantize_mx(right, load(y), right_scale)
        result = nl.ndarray((16, 24), nl.float32, buffer=nl.psum)
        family.nc_matmul_mx(result, left, right, left_scale, right_scale)
        return store(result)

    want = np.einsum("pmq,pnq->mn", a.reshape(128, 16, 4).astype(f32), b.reshape(128, 24, 4).astype(f32))
    np.testing.assert_array_equal(both(kernel, a, b, target="trn3"), want)


# --- calls of older kernels


@pytest.mark.parametrize("old", [{"psumAccumulateFlag": 3}, {"is_moving_zero": False}, {"mask": None}])
def test_removed_arguments_without_effect_are_accepted_with_a_warning(old: dict[str, Any]) -> None:
    a, b = small((16, 8), (16, 20))()
    with pytest.warns(DeprecationWarning, match=next(iter(old))):
        got = both(matmul((8, 20), **old), a, b)
    np.testing.assert_array_equal(got, exact(a, b))


def test_a_mask_is_refused() -> None:
    assert rejection(matmul((8, 20), mask=3), *small((16, 8), (16, 20))()).code == "call.deprecated"


def test_a_dtype_of_a_transpose_is_accepted_if_it_is_that_of_dst() -> None:
    a = small((16, 8), (16, 8))()[0]
    with pytest.warns(DeprecationWarning, match="dtype"):
        got = both(transpose_of(dtype=nl.float32), a)
    np.testing.assert_array_equal(got, a.T)
    assert rejection(transpose_of(dtype=nl.bfloat16), a).code == "call.deprecated"


def test_a_matmul_without_a_destination_says_what_is_missing() -> None:
    def kernel(a: Any, b: Any) -> Any:
        return store(family.nc_matmul(stationary=load(a), moving=load(b), mask=True))  # type: ignore[call-arg]

    error = rejection(kernel, *small((16, 8), (16, 20))())
    assert isinstance(error, ArgumentError)
    assert error.code == "call.destination"
    assert error.fix == (
        "allocate the result with nl.ndarray(..., buffer=nl.psum), and write "
        "nisa.nc_matmul(dst=result, stationary=load(a), moving=load(b))"
    )


def test_an_error_names_the_numbers_and_the_limit() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        error = rejection(matmul((48, 513)), *small((64, 48), (64, 513))())
    assert "513" in error.message
    assert "512" in error.rule


def test_operands_and_results_are_where_the_engine_reaches_them() -> None:
    a, b = small((16, 8), (16, 20))()

    def to_sbuf(x: Any, y: Any) -> Any:
        result = nl.ndarray((8, 20), nl.float32, buffer=nl.sbuf)
        family.nc_matmul(result, load(x), load(y))
        return store(result)

    def from_hbm(x: Any, y: Any) -> Any:
        result = nl.ndarray((8, 20), nl.float32, buffer=nl.psum)
        family.nc_matmul(result, x, load(y))
        return store(result)

    assert rejection(to_sbuf, a, b).code == rejection(from_hbm, a, b).code == "operand.region"


def test_microscaling_needs_a_target_that_has_it() -> None:
    data, scale = ones_mx()
    error = rejection(mx((4, 4)), data, scale, data, scale, target="trn2")
    assert error.code == "instruction.unavailable"
