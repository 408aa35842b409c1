"""Costs of the compute engines against numbers that the documents print or that were read from their figures."""

from __future__ import annotations

from typing import Any

import pytest

from nki.core.tensor import ScalarOffset
from nki.language import abs_max, add, copy, exp, multiply, rsqrt, square
from nki.spec.engine import engine as Engine
from nki.spec.engine import matmul_perf_mode
from nki.spec.operator import operator_of
from nki.target.load import load_target
from tests.spec.pieces import alone, psum, sbuf, stepped, steps, streaming

ADD, MULTIPLY, EXP, RSQRT, SQUARE, COPY = (operator_of(f, "op") for f in (add, multiply, exp, rsqrt, square, copy))


def _matmul(dtype: str = "bfloat16", columns: int = 512, loaded: int = 128, **more: Any) -> dict[str, Any]:
    stationary, moving = sbuf(128, loaded, dtype=dtype), sbuf(128, columns, dtype=dtype)
    return {"dst": psum(loaded, columns), "stationary": stationary, "moving": moving} | more


# --- Tensor: 65536 passes in 28.04 ms for 32768 float32 products (kernel-optimization.rst)


def test_a_float32_product_takes_four_cycles_for_a_column() -> None:
    ns = streaming("nc_matmul", "trn2", **_matmul("float32"))
    assert ns == pytest.approx(2048 / 2.4)
    assert ns == pytest.approx(2 * 427.9, rel=0.01)


@pytest.mark.parametrize(("target", "ghz"), [("trn1", 2.8), ("trn2", 2.4), ("trn3", 2.4)])
def test_a_column_takes_a_cycle_and_a_product_at_least_64(target: str, ghz: float) -> None:
    for columns, cycles in ((512, 512), (128, 128), (64, 64), (1, 64)):
        assert streaming("nc_matmul", target, **_matmul(columns=columns)) == pytest.approx(cycles / ghz)


def test_loading_is_faster_than_multiplying() -> None:
    """nki_perf_guide.rst: LS_II ~= 128/4 = 32 cycles, MM_II ~= 64 cycles."""
    load, multiply = steps("nc_matmul", "trn1", **_matmul(columns=1))
    assert (load.name, load.unit, multiply.unit) == ("LoadStationary", "tensor.load", "tensor")
    assert load.ns == pytest.approx(32 / 2.8) and multiply.ns * load_target("trn1").timing["tensor_rate"] == (
        pytest.approx(64 / 2.8)
    )


def test_weights_of_a_float32_product_load_for_each_pass() -> None:
    """Two passes of two cycles for a column; with few moving columns the second load is longer than its pass."""
    load, short = steps("nc_matmul", "trn2", **_matmul("float32", columns=64))
    assert load.ns == pytest.approx(128 * 2 / 2.4)
    assert short.ns == pytest.approx(64 * 2 / 2.4 + load.ns)
    assert steps("nc_matmul", "trn2", **_matmul("float32", columns=256))[1].ns == pytest.approx(2 * 256 * 2 / 2.4)


def test_durations_of_a_float32_product() -> None:
    """v2-zoom.png, v3-zoom.png: 188 and 198 ns for a load; a pass of half the cycles takes about 600 ns."""
    load, multiply = steps("nc_matmul", "trn2", **_matmul("float32"))
    assert load.ns + load.latency == pytest.approx(193, rel=0.05)
    assert multiply.ns / 2 + multiply.latency == pytest.approx(600, rel=0.02)


def test_modes_of_the_tensor_engine() -> None:
    plain = streaming("nc_matmul", "trn2", **_matmul())
    paired = {"stationary": sbuf(128, 2, 128, dtype="float8_e4m3"), "moving": sbuf(128, 2, 512, dtype="float8_e4m3")}
    assert streaming("nc_matmul", "trn2", **_matmul(columns=511)) < plain
    assert streaming("nc_matmul", "trn2", dst=psum(128, 512), perf_mode=matmul_perf_mode.double_row, **paired) == plain
    assert streaming("nc_matmul", "trn2", **_matmul("float8_e4m3")) == plain
    packed = {
        "stationary": sbuf(128, 128, dtype="float8_e4m3fn_x4"),
        "moving": sbuf(128, 512, dtype="float8_e4m3fn_x4"),
    }
    product = streaming("nc_matmul_mx", "trn3", dst=psum(128, 512), **packed)
    assert product == pytest.approx(streaming("nc_matmul", "trn3", **_matmul()) + 128 / 2.4)
    assert product == pytest.approx(253.5, rel=0.06)  # 65521 products in 16613.8 us of active time
    onezero = streaming("nc_matmul", "trn2", **_matmul("float32", is_moving_onezero=True))
    assert onezero == streaming("nc_matmul", "trn2", **_matmul("float32")) / 2


def test_transposes_of_float32_are_twice_as_fast_in_transpose_mode() -> None:
    tile = {"dst": psum(128, 128), "data": sbuf(128, 128)}
    assert streaming("nc_transpose", "trn1", **tile) == pytest.approx(4 * 128 / 2.8)
    assert streaming("nc_transpose", "trn2", **tile) == pytest.approx(2 * 128 / 2.4)
    assert streaming("nc_matmul", "trn2", **_matmul("float32", columns=128, is_transpose=True)) == pytest.approx(
        256 / 2.4
    )
    narrow = {"dst": psum(128, 128, dtype="bfloat16"), "data": sbuf(128, 128, dtype="bfloat16")}
    assert streaming("nc_transpose", "trn2", **narrow) == pytest.approx(128 / 2.4)
    small = {"dst": sbuf(32, 32), "data": sbuf(32, 32)}
    assert streaming("nc_transpose", "trn2", **small) == pytest.approx(64 / 0.96)


# --- Vector


def test_vector_instructions_of_the_matmul_tutorial() -> None:
    """v5-zoom.png and v3-zoom.png, +-15 ns, for 512 float32 elements."""
    sum_ = alone("tensor_tensor", dst=sbuf(128, 512), data1=sbuf(128, 512), data2=psum(128, 512), op=ADD)
    assert sum_ == pytest.approx(694, rel=0.04)
    assert alone("tensor_copy", dst=sbuf(128, 512), src=sbuf(128, 512)) == pytest.approx(428, rel=0.04)
    assert alone("tensor_copy", dst=sbuf(128, 512), src=psum(128, 512)) == pytest.approx(700, rel=0.04)


def test_vector_instructions_of_the_quantization_design() -> None:
    """profile_phase_2.png and profile_phase_3.png."""
    row = sbuf(80, 16384, dtype="bfloat16")
    assert alone("tensor_reduce", dst=sbuf(80, 1), data=row, op=operator_of(abs_max, "op")) == pytest.approx(
        17250, rel=0.01
    )
    quantized = sbuf(80, 16384, dtype="float8_e4m3")
    assert alone("tensor_scalar", dst=quantized, data=row, op0=MULTIPLY, operand0=2.0) == pytest.approx(8866, rel=0.03)
    scaled = steps("scalar_tensor_tensor", dst=sbuf(80, 512), data=sbuf(80, 512), operand1=psum(80, 512))[0]
    assert pytest.approx(scaled.ns, rel=0.07) == 655


def test_two_inputs_from_sbuf_take_two_cycles_for_an_element() -> None:
    """fused_mamba.rst: of the instructions of one step only those with an input in PSUM take one cycle."""
    a, b, p = sbuf(128, 512), sbuf(128, 512), psum(128, 512)
    assert streaming("tensor_tensor", "trn1", dst=a, data1=a, data2=b, op=ADD) == pytest.approx(1024 / 1.12)
    assert streaming("tensor_tensor", "trn1", dst=a, data1=a, data2=p, op=ADD) == pytest.approx(512 / 1.12)
    assert streaming("tensor_tensor_scan", "trn1", dst=a, data0=a, data1=b, initial=0.0) == pytest.approx(1024 / 1.12)
    assert streaming("tensor_scalar", "trn1", dst=a, data=a, op0=ADD, operand0=1.0) == pytest.approx(512 / 1.12)
    assert streaming(
        "tensor_scalar", "trn1", dst=sbuf(128, 8), data=sbuf(128, 8), op0=ADD, operand0=1.0
    ) == pytest.approx(64 / 1.12)


H, F = "bfloat16", "float32"
# dst, src, and the elements per cycle on trn1, trn2 and trn3 (Vector Engine Performance Mode)
RATES = [
    (sbuf(128, 512, dtype=H), sbuf(128, 512, dtype="float16"), (1, 4, 4)),
    (sbuf(128, 512, dtype=H), stepped(sbuf(128, 1024, dtype=H), 2), (1, 2, 2)),
    (sbuf(128, 512, dtype=H), psum(128, 512, dtype=H), (1, 2, 2)),
    (psum(128, 512, dtype=H), psum(128, 512, dtype=H), (1, 1, 1)),
    (sbuf(128, 512, dtype=H), psum(128, 512, dtype=F), (1, 1, 1)),
    (sbuf(128, 512, dtype=F), sbuf(128, 512, dtype=F), (1, 2, 2)),
    (sbuf(128, 512, dtype="float8_e5m2"), sbuf(128, 512, dtype=H), (1, 2, 4)),
    (sbuf(128, 512, dtype=F), stepped(sbuf(128, 4096, dtype=F), 8), (0.5, 0.5, 0.5)),
    (sbuf(128, 512, dtype=F), stepped(sbuf(128, 2048, dtype=F), 4), (1, 1, 1)),
]


@pytest.mark.parametrize(("dst", "src", "rates"), RATES)
def test_performance_modes_of_copies(dst: Any, src: Any, rates: tuple[float, ...]) -> None:
    for target, ghz, rate in zip(("trn1", "trn2", "trn3"), (1.12, 0.96, 1.2), rates, strict=True):
        assert streaming("tensor_copy", target, dst=dst, src=src) == pytest.approx(512 / rate / ghz)
        assert streaming("tensor_scalar", target, dst=dst, data=src, op0=ADD, operand0=1.0) == pytest.approx(
            512 / rate / ghz
        )


def test_two_inputs_from_sbuf_by_generation() -> None:
    narrow, wide = sbuf(128, 512, dtype=H), sbuf(128, 512)
    for target, ghz, factor in (("trn1", 1.12, 2), ("trn2", 0.96, 1), ("trn3", 1.2, 1)):
        for tile in (narrow, wide):
            ns = streaming("tensor_tensor", target, dst=tile, data1=tile, data2=narrow, op=ADD)
            assert ns == pytest.approx(512 * factor / ghz)
    assert streaming("tensor_tensor_scan", dst=wide, data0=wide, data1=wide, initial=0.0) == pytest.approx(1024 / 0.96)


@pytest.mark.parametrize(("columns", "active"), [(608, 0.74 * 586e3), (1368, 0.69 * 582.5e3), (2304, 0.63 * 610.5e3)])
def test_an_optimizer_step_keeps_vector_busy_as_published(columns: int, active: float) -> None:
    """Four scalar_tensor_tensor for each element, both inputs float32 in SBUF, 87552 elements of a partition a core."""
    tile = sbuf(128, columns)
    one = steps("scalar_tensor_tensor", dst=tile, data=tile, operand0=0.5, operand1=tile)[0].ns
    assert 4 * (87552 / columns) * one == pytest.approx(active, rel=0.06)


def test_scalar_has_the_mode_of_two_elements_in_the_last_generation() -> None:
    narrow = {"dst": sbuf(128, 512, dtype=H), "src": sbuf(128, 512, dtype=H), "engine": Engine.scalar}
    assert streaming("tensor_copy", "trn2", **narrow) == pytest.approx(512 / 1.2)
    assert streaming("tensor_copy", "trn3", **narrow) == pytest.approx(256 / 1.2)
    assert streaming(
        "tensor_copy", "trn3", dst=sbuf(128, 512), src=sbuf(128, 512), engine=Engine.scalar
    ) == pytest.approx(512 / 1.2)


# --- Scalar


@pytest.mark.parametrize(("elements", "ns"), [(128, 401), (4096, 3712), (1, 341)])
def test_activations_of_the_dma_overview(elements: int, ns: float) -> None:
    """nki-dma-intro-3.png and -5.png; one element in profile_phase_2.png."""
    tile = sbuf(128, elements, dtype=H)
    assert alone("activation", dst=tile, data=tile, op=EXP) == pytest.approx(ns, abs=12)


def test_activation_of_one_element_of_the_first_generation() -> None:
    """nki_perf_guide.rst."""
    assert alone("activation", "trn1", dst=sbuf(128, 1), data=sbuf(128, 1), op=RSQRT) == pytest.approx(159, abs=1)


def test_a_reduction_reads_the_registers_in_64_cycles() -> None:
    tile = sbuf(80, 16384, dtype=H)
    activate, read = steps("activation_reduce", dst=tile, data=tile, op=SQUARE, reduce_res=sbuf(80, 1))
    assert activate.ns + activate.latency + 1330 == pytest.approx(15318, rel=0.005)
    assert (read.name, read.unit, read.ns) == ("ActReadAccumulator", "scalar", pytest.approx(64 / 1.2))
    assert len(steps("activation", dst=tile, data=tile, op=SQUARE)) == 1


# --- formulas that the documents print


def test_printed_formulas() -> None:
    tile = sbuf(128, 512)
    assert streaming("reciprocal", dst=tile, data=tile) == pytest.approx(8 * 512 / 0.96)
    assert streaming("reciprocal", "trn1", dst=tile, data=tile) == pytest.approx(3 * 512 / 1.12)  # at most, measured
    assert streaming("reciprocal", dst=sbuf(128, 4), data=sbuf(128, 4)) == pytest.approx(64 / 0.96)
    activated = streaming("activation", "trn3", dst=tile, data=tile, op=EXP)
    assert streaming("exponential", "trn3", dst=tile, src=tile) == pytest.approx(activated / 4)
    assert streaming("quantize_mx", "trn3", src=sbuf(128, 2048, dtype=H)) == pytest.approx(512 / 1.2)
    assert streaming("rand2", "trn3", dst=sbuf(128, 2048)) == pytest.approx(512 / 1.2)
    # 4 n + K cycles, and 150 to start
    assert streaming("topk", val_dst=sbuf(16, 8, dtype=H), n=256) == pytest.approx((150 + 4 * 256 + 8) / 1.2)
    assert streaming("iota", dst=tile) == pytest.approx((150 + 512) / 1.2)
    assert streaming("bn_aggr", data=sbuf(128, 300)) == pytest.approx(1300 / 0.96)
    slow = streaming("tensor_scalar", dst=tile, data=tile, op0=RSQRT, operand0=0.0)
    assert slow == pytest.approx((150 + 4 * 512) / 1.2)


def test_gathers() -> None:
    indices = sbuf(128, 1100, dtype="uint32")
    assert len(steps("nc_n_gather", dst=sbuf(128, 1100), data=sbuf(128, 64), indices=indices)) == 3
    index = sbuf(128, 8, dtype="uint16")
    single = streaming("local_gather", dst=sbuf(128, 128), index=index, num_elem_per_idx=1)
    runs = streaming("local_gather", dst=sbuf(128, 1024), index=index, num_elem_per_idx=8)
    assert single < runs < 8 * single


def test_a_start_from_a_register_takes_600_cycles() -> None:
    moved = sbuf(128, 512)._replace(dynamic=ScalarOffset(sbuf(1, 1, dtype="int32"), 1))
    assert streaming("tensor_copy", dst=sbuf(128, 512), src=moved) == pytest.approx(600 / 0.96)
