"""Target numbers against facts typed again from the architecture guides, and relations that must hold between them."""

import dataclasses

import pytest
from tests.together import together

from nki.target import FEATURES, TIMING, load_target

KIB, MIB, GIB = 2**10, 2**20, 2**30

# name: generation, SBUF, HBM, tensor/vector/scalar/gpsimd GHz, device DMA engines, bf16 TFLOPS, cores
GUIDE = {
    "trn1": (2, 24 * MIB, 32 * GIB, (2.8, 1.12, 1.4, 1.4), 32, 92, 2),
    "trn2": (3, 28 * MIB, 96 * GIB, (2.4, 0.96, 1.2, 1.2), 128, 79, 8),
    "trn3": (4, 32 * MIB, 144 * GIB, (2.4, 1.2, 1.2, 1.2), 128, 79, 8),
}


@pytest.mark.parametrize("name", GUIDE)
def test_headline_figures(name: str) -> None:
    generation, sbuf, hbm, clocks, dma_engines, tflops, cores = GUIDE[name]
    t = load_target(name)
    assert (t.generation, t.cores_per_device, t.sub_version, t.validated) == (generation, cores, 0, name != "trn3")
    assert t.sbuf.bytes_per_partition * t.partitions == sbuf
    assert t.psum.bytes_per_partition * t.partitions == 2 * MIB
    assert (t.psum.banks, t.psum.bank_bytes) == (8, 2 * KIB)
    assert t.hbm.bytes == hbm
    assert tuple(t.engines[e].ghz for e in ("tensor", "vector", "scalar", "gpsimd")) == clocks
    assert t.dma.engines * t.cores_per_device == dma_engines
    assert t.peak.tensor_bf16_tflops == tflops
    assert t.registers_per_sequencer == 64


@pytest.mark.parametrize("name", GUIDE)
def test_peak_tensor_rate_follows_from_clock_and_array(name: str) -> None:
    t = load_target(name)
    computed = 2 * t.pe.rows * t.pe.columns * t.engines.tensor.ghz * 1e9 / 1e12
    assert computed == pytest.approx(t.peak.tensor_bf16_tflops, rel=0.01)
    assert computed / t.issue.fp32_matmul_factor == pytest.approx(t.peak.tensor_fp32_tflops, rel=0.02)


@pytest.mark.parametrize(("name", "rate", "total"), [("trn1", 17, 272), ("trn2", 23, 368), ("trn3", 33, 528)])
def test_dma_rates(name: str, rate: int, total: int) -> None:
    dma = load_target(name).dma
    assert (dma.engine_bytes_per_ns, dma.aggregate_gbps) == (rate, total)
    assert dma.engines * dma.engine_bytes_per_ns == dma.aggregate_gbps
    assert dma.engine_bytes_per_ns < dma.engine_gbps
    assert dma.fixed_overhead_ns == 1300


@pytest.mark.parametrize(("name", "usable"), [("trn1", 176 * KIB), ("trn2", 208 * KIB - 8), ("trn3", 240 * KIB - 8)])
def test_usable_sbuf_is_an_estimate(name: str, usable: int) -> None:
    t = load_target(name)
    assert t.sbuf.usable_bytes_per_partition == usable
    assert t.provenance("sbuf.usable_bytes_per_partition").estimate


@pytest.mark.parametrize(
    ("name", "f32", "bf16", "psum"),
    [("trn1", 512, 512, {"float32"}), ("trn2", 512, 512, {"float32"}), ("trn3", 4096, 8192, {"float32", "bfloat16"})],
)
def test_matmul_limits(name: str, f32: int, bf16: int, psum: set[str]) -> None:
    pe = load_target(name).pe
    assert (pe.max_moving("float32"), pe.max_moving("bfloat16")) == (f32, bf16)
    assert set(pe.psum_dtypes) == psum
    assert (pe.rows, pe.columns, pe.max_stationary_free) == (128, 128, 128)


def test_a_moving_tile_of_the_largest_size_fills_the_psum_it_may_use() -> None:
    for name in GUIDE:
        t = load_target(name)
        room = t.psum.bytes_per_partition if t.pe.multi_bank_output else t.psum.bank_bytes
        assert t.pe.max_moving("float32") * 4 == room
        assert t.pe.max_moving("bfloat16") * 2 <= room


@pytest.mark.parametrize("name", ["trn1", "trn2", "trn3", "unit"])
def test_start_partitions(name: str) -> None:
    access = load_target(name).access
    for count in range(1, 129):
        width = 128 if count > 64 else 64 if count > 32 else 32
        assert access.start_partitions(count) == tuple(range(0, 128, width))
    assert access.start_partitions(0) == access.start_partitions(129) == access.start_partitions(-1) == ()


SINCE = {
    3: "double_row transpose_exact range_select scalar_bias_immediate scalar_copy_bias reciprocal_bias "
    "scalar_tensor_copy scalar_copy_exact vector_perf_mode rng_gpsimd rand_state nonzero_with_count topk hwdge "
    "dma_transpose dma_indirect dma_indirect_transpose core_barrier sendrecv gpsimd_dma sbuf_parallel_vector_gpsimd "
    "psum_parallel_vector_scalar vector_borrows_gpsimd_bus",
    4: "nc_matmul_mx fp8_e4m3fn bf16_psum matmul_multi_bank accumulate_over_foreign_psum background_transpose "
    "exponential quantize_mx rand2 abs_max tensor_scalar_unary vector_perf_mode_fp8 activate2 reduce_op_any_scalar "
    "scalar_tensor_scalar_any_op scalar_perf_mode rand_state_vector rand_state_psum tensor_indirection dma_priority",
    2: "background_load swdge dma_compute scalar_tensor_scalar sums_in_order",
    99: "gpsimd_psum",
}


@pytest.mark.parametrize("name", GUIDE)
def test_features_begin_with_a_generation(name: str) -> None:
    t = load_target(name)
    expected = {f for since, names in SINCE.items() if since <= t.generation for f in names.split()}
    assert t.features == expected
    assert {f for names in SINCE.values() for f in names.split()} == set(FEATURES)


THE_SAME_EVERYWHERE = {
    "quadrant": 32,
    "sbuf.max_free_elements": 64 * KIB,
    "psum.max_free_elements": 4 * KIB,
    "psum.accumulate_granule_bytes": 4,
    "access.max_free_dims": 4,
    "access.max_dim_size": 2**16 - 1,
    "access.min_stride": -(2**15),
    "access.stride_penalty_bytes": 16,
    "dma.engines": 16,
    "dma.queues": 16,
    "dma.full_rate_bytes_per_partition": 4 * KIB,
    "dma.ideal_transfer_bytes": 32 * KIB,
    "issue.min_ii_cycles": 64,
    "issue.dependent_overhead_cycles": 100,
    "issue.access_overhead_cycles": 60,
    "issue.matmul_min_ii_cycles": 64,
    "issue.act_read_accumulator_cycles": 64,
    "issue.fast_load_factor": 4.0,
    "issue.fp32_matmul_factor": 4.0,
    "issue.gpsimd_startup_cycles": 150,
    "limits.bn_stats_max_free": 512,
    "limits.vector_transpose": 32,
    "limits.search_max_free": 16 * KIB,
    "limits.dma_compute_max_sources": 16,
}

# path: trn1, trn2, trn3
BY_GENERATION: dict[str, tuple[object, object, object]] = {
    "lnc": ((1,), (1, 2), (1, 2)),
    "collective_cores": (6, 20, 20),
    "base_ghz": (1.4, 1.2, 1.2),
    "hbm.bandwidth_gbps": (820.0, 3000.0, 4700.0),
    "hbm.stacks": (2, 4, 4),
    "link.bandwidth_gbps": (384.0, 1280.0, 2560.0),
    "dma.device_gbps": (1000.0, 3500.0, 4900.0),
    "issue.two_input_factor": (2.0, 1.0, 1.0),
    "issue.reciprocal_vector_factor": (3.0, 8.0, 8.0),
    "dma.partitions_per_engine": (1, 8, 8),
    "dma.queue_scheduling": ("round_robin", "round_robin", "qos"),
    "gpsimd.dma_gbps": (0.0, 307.0, 307.0),
    "engines.vector.peak_16bit": (128, 512, 512),
    "engines.vector.peak_8bit": (128, 256, 512),
    "engines.scalar.peak_16bit": (128, 128, 256),
    "pe.row_tile_sizes": ((64, 128), (32, 64, 128), (32, 64, 128)),
    "throttle.start_utilization": (1.0, 0.5, 0.5),
    "throttle.ramp_ns": (0.0, 3000.0, 3000.0),
    "peak.tensor_fp8_tflops": (92.0, 158.0, 158.0),
    "peak.tensor_mx_tflops": (0.0, 0.0, 315.0),
    "peak.vector_fp32_tflops": (2.3, 1.0, 1.2),
    "timing.dma_read_bytes_per_ns": (17.0, 23.0, 33.0),
}


@together("path", THE_SAME_EVERYWHERE)
def test_figures_of_all_generations(path: str) -> None:
    assert [load_target(name).provenance(path).value for name in GUIDE] == [THE_SAME_EVERYWHERE[path]] * 3


@together("path", BY_GENERATION)
def test_figures_that_differ(path: str) -> None:
    assert tuple(load_target(name).provenance(path).value for name in GUIDE) == BY_GENERATION[path]


def test_what_belongs_together() -> None:
    for name in (*GUIDE, "unit"):
        t = load_target(name)
        assert t.pe.double_row == t.has("double_row") == bool(t.pe.double_row_dtypes)
        assert t.pe.mx == t.has("nc_matmul_mx") == bool(t.pe.mx_input_dtypes) == bool(t.pe.mx_pack)
        assert t.has("bf16_psum") == ("bfloat16" in t.pe.psum_dtypes)
        assert t.has("fp8_e4m3fn") == ("float8_e4m3fn" in t.pe.input_dtypes)
        assert t.has("dma_priority") == (t.dma.priorities > 0)
        assert t.dma.hwdge == t.has("hwdge") == bool(t.dma.hwdge_engines) == bool(t.dma.hwdge_instances)
        assert t.has("gpsimd_dma") == (t.dma.gpsimd_max_bytes(4) > 0)
        assert t.has("tensor_indirection") == (t.access.indirect_group > 0)
        assert t.has("core_barrier") == (2 in t.lnc)
        assert t.timing.keys() == TIMING.keys()


def test_gpsimd_dma_limits_shrink_with_the_element() -> None:
    dma = load_target("trn2").dma
    assert [dma.gpsimd_max_bytes(size) for size in (1, 2, 4, 8)] == [256, 512, 1024, 0]


def test_timing_reproduces_the_points_it_was_read_from() -> None:
    t = load_target("trn2")
    for elements, ns in ((128, 401), (4096, 3712)):
        assert (t.timing["scalar_fixed_cycles"] + elements) / t.engines.scalar.ghz == pytest.approx(ns, rel=0.02)
    assert (t.timing["vector_fixed_cycles"] + 512) / t.engines.vector.ghz == pytest.approx(694, rel=0.03)
    assert 32 * KIB / t.timing["dma_read_bytes_per_ns"] == pytest.approx(1416, rel=0.02)
    assert 32 * KIB / t.timing["dma_write_bytes_per_ns"] == pytest.approx(1225, rel=0.05)
    assert t.timing["activation_table_load_ns"] == pytest.approx(1330, rel=0.01)


def test_the_toy_is_small_and_says_so() -> None:
    t = load_target("unit")
    assert t.toy and (t.sbuf.bytes_per_partition, t.psum.banks) == (KIB, 2)
    assert {t.engines[e].ghz for e in ("tensor", "vector", "scalar", "gpsimd", "sync")} == {1.0}
    assert all(leaf.estimate and not leaf.source for _, leaf in t.leaves())
    assert dataclasses.replace(t, name="mine").sbuf is t.sbuf
