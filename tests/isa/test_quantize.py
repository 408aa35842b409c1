"""What quantize_mx computes beyond the examples: specials, the ends of the scale, and how large the error is."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.isa.examples.quantize import LARGEST, quantize, reference
from tests.support import both, rejection

bf16 = ml_dtypes.bfloat16
KINDS = ("float8_e4m3fn", "float8_e5m2")


def run(values: Any, kind: str = "float8_e4m3fn") -> tuple[np.ndarray, np.ndarray]:
    """Elements as float64 ``(P, F)``, and the bytes of the scales ``(P/8, F/4)``."""
    words, tensor = both(quantize(kind), values, target="trn3")
    elements = words.view(getattr(ml_dtypes, kind)).astype(np.float64)
    groups = values.shape[0] // 8
    return elements, tensor[[32 * (g // 4) + g % 4 for g in range(groups)]]


def group(fill: float, dtype: Any = bf16, **at: float) -> np.ndarray:
    """32 partitions x 4 elements; the first group holds `fill`, but other values at ``p<row>``."""
    values = np.zeros((32, 4))
    values[0:8] = fill
    for place, value in at.items():
        values[int(place[1:]), 1] = value
    return values.astype(dtype)


@pytest.mark.parametrize(("kind", "byte"), [("float8_e4m3fn", 127 + 8 - 7), ("float8_e5m2", 127 + 8 - 14)])
def test_the_scale_is_twice_that_of_the_sample_algorithm(kind: str, byte: int) -> None:
    elements, scales = run(group(448.0), kind)
    assert scales[0, 0] == byte
    assert elements[0, 0] * 2.0 ** (byte - 127) == 448


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_of_zeros_has_scale_byte_zero_and_keeps_its_signs(kind: str) -> None:
    elements, scales = run(group(-0.0), kind)
    assert (scales == 0).all()
    assert (elements == 0).all()
    assert np.signbit(elements[0:8]).all()
    assert not np.signbit(elements[8:]).any()


@pytest.mark.parametrize("kind", KINDS)
def test_values_just_below_a_power_of_two_do_not_saturate(kind: str) -> None:
    below = float(np.nextafter(np.float32(256), np.float32(0)).astype(bf16))
    elements, scales = run(group(255.0, p3=below), kind)
    largest = LARGEST[kind][1]
    assert np.abs(elements).max() < largest
    np.testing.assert_array_equal(elements[3, 1] * 2.0 ** (scales[0, 0] - 127.0), 256)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("magnitude", [2.0**-126, 2.0**-133, 3 * 2.0**-130, 2.0**-120, 2.0**-112])
def test_the_scale_ends_at_its_smallest_power(kind: str, magnitude: float) -> None:
    values = group(magnitude)
    elements, scales = run(values, kind)
    data, wanted = reference(values, kind)
    np.testing.assert_array_equal(scales, wanted)
    np.testing.assert_array_equal(elements, data.view(getattr(ml_dtypes, kind)).astype(np.float64))


@pytest.mark.parametrize("kind", KINDS)
def test_the_largest_numbers_fit(kind: str) -> None:
    largest = float(ml_dtypes.finfo(bf16).max)
    elements, scales = run(group(-largest), kind)
    assert scales[0, 0] == 127 + 127 - (LARGEST[kind][0] - 1)
    np.testing.assert_allclose(elements[0] * 2.0 ** (scales[0, 0] - 127.0), -largest, rtol=2**-3)
    tiny, small_scale = run(group(2.0**-24, np.float16), kind)
    assert tiny[0, 0] * 2.0 ** (small_scale[0, 0] - 127.0) == 2.0**-24


@pytest.mark.parametrize(("kind", "byte"), [("float8_e4m3fn", 248), ("float8_e5m2", 241)])
def test_nan_and_infinity_count_as_the_largest_exponent(kind: str, byte: int) -> None:
    elements, scales = run(group(1.0, p2=np.nan, p4=-np.inf), kind)
    assert scales[0, 0] == byte
    assert np.isnan(elements[2, 1])
    assert elements[4, 1] == -LARGEST[kind][1]
    others = np.delete(elements[0:8].reshape(-1), [2 * 4 + 1, 4 * 4 + 1])
    assert (others == 0).all()
    assert (scales[1:] == 0).all()


def test_groups_take_eight_partitions_and_four_neighbours() -> None:
    values = np.ones((64, 8))
    values[15, 3] = 2.0**6
    _, scales = run(values.astype(bf16))
    want = np.full((8, 2), 127 - 7)
    want[1, 0] += 6
    np.testing.assert_array_equal(scales, want)


@settings(max_examples=15)
@given(
    quadrants=st.integers(1, 4),
    columns=st.integers(1, 20),
    kind=st.sampled_from(KINDS),
    dtype=st.sampled_from([bf16, np.float16]),
    seed=st.integers(0, 999),
)
def test_any_tile_agrees_with_the_definition(quadrants: int, columns: int, kind: str, dtype: Any, seed: int) -> None:
    r = np.random.default_rng(seed)
    shape = (32 * quadrants, 4 * columns)
    values = (r.standard_normal(shape) * np.exp2(r.integers(-12, 12, shape))).astype(dtype)
    elements, scales = run(values, kind)
    data, wanted = reference(values, kind)
    np.testing.assert_array_equal(scales, wanted)
    np.testing.assert_array_equal(elements, data.view(getattr(ml_dtypes, kind)).astype(np.float64))
    spread = np.repeat(np.repeat(np.exp2(scales.astype(np.float64) - 127), 8, 0), 4, 1)
    step = 2.0 ** -(4 if kind == "float8_e4m3fn" else 3)
    largest = np.repeat(np.repeat(np.abs(values.astype(np.float64)).reshape(-1, 8, columns, 4).max((1, 3)), 8, 0), 4, 1)
    assert (np.abs(elements * spread - values.astype(np.float64)) <= step * largest).all()


@pytest.mark.parametrize("fill", [0, 255])
def test_the_rest_of_a_shared_scale_tensor_is_not_touched(fill: int) -> None:
    values = np.ones((128, 8), bf16)
    _, tensor = both(quantize(view=lambda t: t[8:, :], fill=fill), values, target="trn3")
    written = np.zeros(128, bool)
    for quadrant in range(4):
        written[32 * quadrant + 8 : 32 * quadrant + 12] = True
    assert (tensor[written] == 120).all()
    assert (tensor[~written] == fill).all()


def test_it_needs_a_target_that_has_it() -> None:
    assert rejection(quantize(), np.ones((32, 8), bf16), target="trn2").code == "instruction.unavailable"


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.float8_e5m2])
def test_other_inputs_are_refused(dtype: Any) -> None:
    assert rejection(quantize(), np.ones((32, 8), dtype), target="trn3").code == "operand.dtype"


def test_there_is_no_fp4_output() -> None:
    def kernel(a: Any) -> Any:
        return quantize("float4_e2m1fn", dst_shape=(32, 2))(a)

    assert rejection(kernel, np.ones((32, 8), bf16), target="trn3").code == "operand.dtype"
