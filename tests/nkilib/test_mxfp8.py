"""Quantization to MXFP8 and products of what it gives: against the references, odd sizes, and what is refused."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ml_dtypes import bfloat16

import nki
import nki.language as nl
from nkilib.errors import KernelLimit
from nkilib.experimental.matmul_mxfp8 import matmul_mxfp8
from nkilib.experimental.matmul_mxfp8.matmul_mxfp8_generic_kernel_reference import matmul_mxfp8_reference
from nkilib.experimental.quantize_mxfp8 import quantize_block_mxfp8_kernel, should_store_packed_scales
from nkilib.experimental.quantize_mxfp8.quantize_mxfp8_reference import quantize_block_mxfp8_kernel_reference


@pytest.fixture(autouse=True)
def _trn3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")


def matrix(rows: int, depth: int) -> Any:
    """Numbers of many magnitudes, and a group of zeros."""
    rng = np.random.default_rng(16)
    found = (rng.standard_normal((rows, depth)) * 2.0 ** rng.integers(-20, 20, (rows, 1))).astype(bfloat16)
    found[0] = 0
    return found


def equal(made: Any, wanted: Any) -> None:
    for some, exact in zip(made, wanted, strict=True):
        assert np.array_equal(np.asarray(some).view(np.uint8), np.asarray(exact).view(np.uint8))


@settings(max_examples=6, deadline=None)
@given(
    rows=st.sampled_from([1, 127, 129, 513]),
    depth=st.sampled_from([128, 256, 384, 512, 896, 2048 + 640]),
    dtype=st.sampled_from(["float8_e4m3fn", "float8_e5m2"]),
    packing=st.booleans(),
)
def test_quantized_bit_for_bit(rows: int, depth: int, dtype: str, packing: bool) -> None:
    source = matrix(rows, depth)
    made = nki.simulate(quantize_block_mxfp8_kernel)(source, dtype, False, packing)
    equal(made, quantize_block_mxfp8_kernel_reference(source, dtype, False, packing))


def test_compiled_on_two_cores() -> None:
    source = matrix(600, 640)
    made = quantize_block_mxfp8_kernel[2](source, "float8_e5m2", True)
    equal(made, quantize_block_mxfp8_kernel_reference(source, "float8_e5m2"))


def test_scales_are_stored_after_four_tiles_and_at_the_end() -> None:
    assert [should_store_packed_scales(tile, 6) for tile in range(6)] == [False, False, False, True, False, True]


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ((matrix(8, 130), "float8_e4m3fn"), "nkilib.shape", "K is 130, 2 more"),
        ((matrix(8, 128), "float8_e4m3"), "nkilib.option", "return_fp8_dtype is"),
        ((np.zeros((8, 128), np.float32), "float8_e4m3fn"), "nkilib.dtype", "src_tensor is float32"),
        ((matrix(8, 128), "float8_e4m3fn", True), "nkilib.argument", "run_with_lnc2 is True on one core"),
    ],
)
def test_what_is_refused(arguments: tuple[Any, ...], code: str, text: str) -> None:
    with pytest.raises(KernelLimit, match=text) as caught:
        nki.simulate(quantize_block_mxfp8_kernel)(*arguments)
    assert caught.value.code == code


def test_an_older_target_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    with pytest.raises(KernelLimit, match="NeuronCore-v3"):
        nki.simulate(quantize_block_mxfp8_kernel)(matrix(8, 128), "float8_e4m3fn")


def operand(rows: int, depth: int, kind: str, seed: int) -> Any:
    """(F, K), swizzled, or quantized with packed scales or not."""
    values = np.random.default_rng(seed).standard_normal((rows, depth)).astype(bfloat16)
    if kind == "plain":
        return values
    if kind == "swizzled":
        return swizzled(values)
    scales, data = quantize_block_mxfp8_kernel_reference(values, "float8_e4m3fn", False, kind == "packed")
    return data, scales


def swizzled(values: Any) -> Any:
    """(K / 4, F * 4) of (F, K), a multiple of 512 or less."""
    rows, depth = values.shape
    parts = [values[:, first : first + 512] for first in range(0, depth, 512)]
    return np.concatenate(
        [part.reshape(rows, 4, part.shape[1] // 4).transpose(2, 0, 1).reshape(-1, rows * 4) for part in parts]
    )


@settings(max_examples=6, deadline=None)
@given(
    rows=st.sampled_from([2, 126, 130]),
    columns=st.sampled_from([1, 127, 129, 513]),
    depth=st.sampled_from([128, 512, 1024, 2560]),
    kinds=st.tuples(*[st.sampled_from(["plain", "swizzled", "packed", "unpacked"])] * 2),
    cores=st.sampled_from([1, 2]),
)
def test_products(rows: int, columns: int, depth: int, kinds: tuple[str, str], cores: int) -> None:
    left, right = operand(rows, depth, kinds[0], 17), operand(columns, depth, kinds[1], 18)
    options = {"lhs_is_swizzled": kinds[0] == "swizzled", "rhs_is_swizzled": kinds[1] == "swizzled"}
    made = np.asarray(nki.simulate(matmul_mxfp8)[cores](left, right, **options, output_dtype=nl.float32))
    wanted = matmul_mxfp8_reference(left, right, **options)
    assert np.abs(made - wanted).max() <= 1e-5 * np.abs(wanted).max()


def test_product_compiled_on_two_cores_that_share_rows() -> None:
    left, right = operand(260, 640, "plain", 19), operand(40, 640, "plain", 20)
    options = {"lhs_is_swizzled": False, "rhs_is_swizzled": False, "float8_dtype": "float8_e4m3fn"}
    made = np.asarray(matmul_mxfp8[2](left, right, **options, lnc_2_shard_rhs=False), np.float64)
    wanted = matmul_mxfp8_reference(left, right, **options)
    assert np.abs(made - wanted).max() <= 5e-3 * np.abs(wanted).max()  # bfloat16 keeps 8 bits
    exact = left.astype(np.float64) @ right.astype(np.float64).T
    assert np.abs(wanted - exact).max() <= 0.05 * np.abs(exact).max()  # 4 bits of each number


@pytest.mark.parametrize(
    ("left", "right", "options", "code", "text"),
    [
        (matrix(3, 128), matrix(8, 128), {}, "nkilib.shape", "M is 3"),
        (matrix(4, 128), matrix(8, 256), {}, "nkilib.argument", "K of rhs is 256"),
        (matrix(4, 128), matrix(8, 128), {"quant_scheme": "1x32"}, "nkilib.not-built", "quant_scheme"),
        (matrix(4, 128), matrix(8, 128), {"lhs_is_f_by_k": False}, "nkilib.not-built", "lhs_is_f_by_k"),
    ],
)
def test_products_that_are_refused(left: Any, right: Any, options: dict[str, Any], code: str, text: str) -> None:
    plain = {"lhs_is_swizzled": False, "rhs_is_swizzled": False}
    with pytest.raises(KernelLimit, match=text) as caught:
        nki.simulate(matmul_mxfp8)(left, right, **plain, **options)
    assert caught.value.code == code
