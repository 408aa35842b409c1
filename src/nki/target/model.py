"""What one hardware generation is: plain numbers and features, each of which can name the document it comes from."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from nki.core.errors import TargetError
from nki.target.names import FEATURES, TIMING

__all__ = ["FEATURES", "TIMING", "Provenance", "Target"]

_WIDE_PSUM = frozenset({"float32", "tfloat32", "int32", "uint32"})


def _feature(name: str) -> Any:
    """A field that repeats a feature: the data states it once, under ``features``."""
    return field(metadata={"feature": name})


@dataclass(frozen=True, slots=True)
class Provenance:
    """One value with its origin: exactly one of ``source`` (a documentation file) and ``estimate`` (why) is set."""

    value: object
    source: str
    estimate: str
    note: str


@dataclass(frozen=True, slots=True)
class Sbuf:
    """State buffer of one core; sizes per partition."""

    bytes_per_partition: int
    usable_bytes_per_partition: int  # what allocation may use; the rest is reserved by the system
    min_align: int  # bytes
    max_free_elements: int  # per instruction operand


@dataclass(frozen=True, slots=True)
class Psum:
    """Partial-sum buffer of one core; sizes per partition."""

    bytes_per_partition: int
    banks: int
    bank_bytes: int
    min_align: int  # bytes
    accumulate_granule_bytes: int
    allocations_start_at_bank: bool
    max_free_elements: int  # per instruction operand


@dataclass(frozen=True, slots=True)
class Pe:
    """The Tensor Engine's array of processing elements; sizes in elements, dtypes by name."""

    rows: int
    columns: int
    max_stationary_free: int
    max_moving_free_f32: int
    max_moving_free_bf16: int
    input_dtypes: tuple[str, ...]
    psum_dtypes: tuple[str, ...]
    transpose_psum_dtypes: tuple[str, ...]
    row_tile_sizes: tuple[int, ...]
    column_tile_sizes: tuple[int, ...]
    double_row_dtypes: tuple[str, ...]
    double_row_factor: int
    mx_input_dtypes: tuple[str, ...]
    mx_scale_dtypes: tuple[str, ...]
    mx_pack: int  # values per packed element
    mx_group_partitions: int  # partitions that share one scale
    mx_input_per_cycle: int
    double_row: bool = _feature("double_row")
    mx: bool = _feature("nc_matmul_mx")
    multi_bank_output: bool = _feature("matmul_multi_bank")
    accumulate_over_foreign_psum: bool = _feature("accumulate_over_foreign_psum")
    transpose_exact: bool = _feature("transpose_exact")

    def max_moving(self, dst_dtype: object) -> int:
        """Most moving elements per partition for a PSUM destination of this dtype (a name, or what prints as one)."""
        return self.max_moving_free_f32 if str(dst_dtype) in _WIDE_PSUM else self.max_moving_free_bf16


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine. The cost formulas stream ``lanes`` elements per cycle; peaks include performance modes."""

    ghz: float
    lanes: int
    peak_8bit: int  # elements per cycle; of the inputs for the Tensor Engine
    peak_16bit: int
    peak_32bit: int


@dataclass(frozen=True, slots=True)
class Engines:
    """The five engines of one core; also by name: ``engines["vector"]``."""

    tensor: Engine
    vector: Engine
    scalar: Engine
    gpsimd: Engine
    sync: Engine

    def __getitem__(self, name: str) -> Engine:
        by_name = {
            "tensor": self.tensor,
            "vector": self.vector,
            "scalar": self.scalar,
            "gpsimd": self.gpsimd,
            "sync": self.sync,
        }
        if name not in by_name:
            raise TargetError("target.engine", f"no engine {name!r}", fix=f"use one of {', '.join(by_name)}")
        return by_name[name]


@dataclass(frozen=True, slots=True)
class Gpsimd:
    """What is special about GpSimd: its processors and their own DMA (0: none)."""

    cores: int
    partitions_per_core: int
    simd_bits: int
    tcm_bytes: int  # per processor
    dma_gbps: float  # GB/s, all processors, both directions
    dma_direction_gbps: float


@dataclass(frozen=True, slots=True)
class AccessLimits:
    """How compute engines may address SBUF and PSUM. Sizes and strides in elements unless named bytes."""

    max_free_dims: int
    max_dim_size: int
    min_stride: int
    max_stride: int
    partition_stride: int
    start_rules: tuple[tuple[int, tuple[int, ...]], ...]  # (most partitions, legal starts), ascending
    stride_penalty_bytes: int  # innermost strides beyond it are slow
    stride_penalty_factor: float
    indirect_group: int  # rows of the index snake on Vector, Scalar, GpSimd; 0 without indirection
    indirect_group_tensor: int
    parallel_sbuf_vector_gpsimd: bool = _feature("sbuf_parallel_vector_gpsimd")
    parallel_psum_vector_scalar: bool = _feature("psum_parallel_vector_scalar")
    vector_borrows_gpsimd_bus: bool = _feature("vector_borrows_gpsimd_bus")

    def start_partitions(self, n_partitions: int) -> tuple[int, ...]:
        """Legal first partitions of an operand with that many partitions; empty if the count itself is illegal."""
        if n_partitions < 1:
            return ()
        return next((starts for most, starts in self.start_rules if n_partitions <= most), ())


@dataclass(frozen=True, slots=True)
class Dma:
    """DMA engines of one core. GB/s is 1e9 bytes per second, the same as bytes per ns."""

    engines: int
    queues: int  # per engine
    queue_scheduling: str  # "round_robin" or "qos"
    engine_gbps: float  # theoretical, one engine
    engine_bytes_per_ns: float  # sustained, one engine
    aggregate_gbps: float  # sustained, one core
    device_gbps: float
    fixed_overhead_ns: float
    overhead_bound_bytes: int  # per partition: below it, overhead dominates
    good_bytes_per_partition: int
    full_rate_bytes_per_partition: int
    ideal_transfer_bytes: int
    partitions_per_engine: int
    semaphore_bytes: int
    hwdge_instances: int
    hwdge_engines: tuple[str, ...]
    priorities: int  # number of priority classes; 0: none
    transpose_dtype_bytes: tuple[int, ...]
    transpose_rate_hbm: float  # fraction of the copy rate
    transpose_rate_sbuf: float
    compute_rate: float  # dma_compute, fraction of the copy rate
    gpsimd_bytes_8bit: int  # sendrecv through GpSimd: bytes per partition, by element width
    gpsimd_bytes_16bit: int
    gpsimd_bytes_32bit: int
    hwdge: bool = _feature("hwdge")
    swdge: bool = _feature("swdge")

    def gpsimd_max_bytes(self, itemsize: int) -> int:
        """Most bytes per partition of a GpSimd DMA for elements of ``itemsize`` bytes; 0: not possible."""
        by_size = {1: self.gpsimd_bytes_8bit, 2: self.gpsimd_bytes_16bit, 4: self.gpsimd_bytes_32bit}
        return by_size.get(itemsize, 0)


@dataclass(frozen=True, slots=True)
class Hbm:
    """Memory of one device."""

    bytes: int
    stacks: int
    cores_per_stack: int
    bandwidth_gbps: float
    write_bytes: int  # writes of less read what lies around them first

    @property
    def bytes_per_stack(self) -> int:
        """Capacity that the cores of one stack share."""
        return self.bytes // self.stacks


@dataclass(frozen=True, slots=True)
class Link:
    """NeuronLink between devices."""

    links: int
    bandwidth_gbps: float  # per device


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of single instructions that are the same for all their operands."""

    gemm_moving_fmax: int  # what nl.tile_size reports; the hardware limit is pe.max_moving
    bn_stats_max_free: int
    tensor_transpose: int  # largest side of a transposed tile
    vector_transpose: int
    search_min_free: int  # max8, nc_find_index8, nc_match_replace8
    search_max_free: int
    local_gather_max_indices: int
    dma_compute_max_sources: int


@dataclass(frozen=True, slots=True)
class Issue:
    """Coefficients of the cost formulas, in cycles of the engine or as factors."""

    min_ii_cycles: int  # least time between two instructions
    dependent_overhead_cycles: int  # tiny or chained instructions
    access_overhead_cycles: int
    matmul_min_ii_cycles: int
    fast_load_factor: float  # loading stationary is so much faster than multiplying
    fp32_matmul_factor: float
    fp32_transpose_factor: float  # the same for transposes of 4-byte elements
    onezero_factor: float  # float32 matmul with an operand of ones and zeros is so much faster
    act_read_accumulator_cycles: int
    two_input_factor: float  # Vector with two SBUF inputs
    scan_factor: float  # tensor_tensor_scan: cycles for an element
    reciprocal_vector_factor: float
    rsqrt_gpsimd_factor: float
    gpsimd_startup_cycles: int
    dynamic_offset_min_cycles: int
    exponential_factor: float  # Vector's exponential against an activation of Scalar
    quantize_mx_rate: float  # elements per lane and cycle
    rand2_rate: float  # numbers per lane and cycle
    bn_aggr_cycles: float  # for one triple of statistics
    topk_cycles: float  # for one element of a snake
    gather_setup_cycles: float  # local_gather, for one index
    gather_element_cycles: float  # local_gather, for one element of a run
    n_gather_elements: int  # nc_n_gather: elements per partition of one hardware instruction


@dataclass(frozen=True, slots=True)
class Activation:
    """The tables of the Scalar Engine."""

    function_sets: tuple[tuple[str, ...], ...]  # functions that share a table; every other one has its own


@dataclass(frozen=True, slots=True)
class Throttle:
    """Current-ramp limit of the Tensor Engine (a start utilization of 1 means none)."""

    start_utilization: float
    ramp_ns: float
    release_utilization: float  # below it over a window, the limit is back
    window_ns: float


@dataclass(frozen=True, slots=True)
class Peak:
    """Documented peak rates of one core, in TFLOPS (0: not a mode of this target)."""

    tensor_bf16_tflops: float
    tensor_fp32_tflops: float
    tensor_fp8_tflops: float
    tensor_mx_tflops: float
    vector_fp32_tflops: float
    scalar_fp32_tflops: float


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Target:
    """One hardware generation. Equality is identity: :func:`nki.target.load_target` returns one object per target."""

    name: str
    title: str
    generation: int  # value of nisa.nc_version
    sub_version: int
    aliases: tuple[str, ...]
    toy: bool  # for tests only, no hardware
    validated: bool  # timing compared with published measurements
    partitions: int
    quadrant: int
    cores_per_device: int
    collective_cores: int
    lnc: tuple[int, ...]
    registers_per_sequencer: int
    base_ghz: float
    sbuf: Sbuf
    psum: Psum
    pe: Pe
    engines: Engines
    gpsimd: Gpsimd
    access: AccessLimits
    dma: Dma
    hbm: Hbm
    link: Link
    limits: Limits
    issue: Issue
    activation: Activation
    throttle: Throttle
    peak: Peak
    features: frozenset[str]
    timing: Mapping[str, float]
    collectives: Mapping[str, float]  # coefficients of collectives that take the place of the instance's
    provenances: Mapping[str, Provenance]

    def __repr__(self) -> str:
        return f"Target({self.name})"

    def has(self, feature: str) -> bool:
        """Whether the target has a feature of :data:`FEATURES`. Raises TargetError for any other name."""
        if feature not in FEATURES:
            raise TargetError(
                "target.feature", f"no feature is called {feature!r}", fix="use a name of nki.target.FEATURES"
            )
        return feature in self.features

    def provenance(self, path: str) -> Provenance:
        """Value and origin of one leaf by its path: ``"psum.banks"``, ``"features.hwdge"``, ``"timing.semaphore_ns"``.

        Raises TargetError for an unknown path.
        """
        if path not in self.provenances:
            raise TargetError(
                "target.leaf", f"target {self.name} has no value {path!r}", fix="list the paths with Target.leaves()"
            )
        return self.provenances[path]

    def leaves(self) -> Iterator[tuple[str, Provenance]]:
        """Every value as (path, provenance); a field that repeats a feature appears under both paths."""
        return iter(self.provenances.items())
