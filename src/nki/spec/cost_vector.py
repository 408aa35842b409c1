"""What single instructions of Vector, Scalar and GpSimd cost that take more, or less, than a cycle for an element."""

from __future__ import annotations

from typing import Any

from nki.core.tensor import ScalarOffset, View
from nki.spec.cost import (
    GUIDE,
    LATENCY,
    MODES,
    OLDER,
    elements,
    gpsimd_rate,
    on,
    one_input_cycles,
    paced,
    streams,
    two_input_cycles,
)
from nki.spec.engine import engine as Engine
from nki.spec.step import Cost, Step
from nki.target.model import Target

_SHARED = "nki/api/nki.api.shared.rst, NKI Engine Selection"
_TRN3 = "nki/guides/architecture/trainium3_arch.rst"
_GPSIMD = "on GpSimd, whose cost no document gives, one 32-bit access for each tensor, element and cycle; "
_TRIPLE = 3
_BOTH = 2
"""Accesses for an element: of two tensors, or in two rounds."""
_WORD = 4


def _moves(view: View) -> bool:
    return type(view.dynamic) is ScalarOffset


def _copy(a: Any, target: Target, engine: Engine) -> tuple[Step, ...]:
    cycles = one_input_cycles(a.dst, a.src, target, engine)
    if _moves(a.dst) or _moves(a.src):
        cycles = max(cycles, target.issue.dynamic_offset_min_cycles)
    return (on(engine, "TensorCopy", cycles, target),)


def _memset(a: Any, target: Target, engine: Engine) -> tuple[Step, ...]:
    return (on(engine, "Memset", one_input_cycles(a.dst, a.dst, target, engine), target),)


def _tensor_tensor(a: Any, target: Target, engine: Engine) -> tuple[Step, ...]:
    if engine is Engine.gpsimd:
        cycles = _BOTH * elements(a.dst) / gpsimd_rate(a.dst, a.data1, target)
    else:
        cycles = two_input_cycles(a.dst, a.data1, a.data2, target)
    return (on(engine, "TensorTensor", cycles, target),)


def _tensor_scalar(a: Any, target: Target, engine: Engine) -> tuple[Step, ...]:
    if engine is Engine.gpsimd and any(op is not None and op.name == "rsqrt" for op in (a.op0, a.op1)):
        cycles = elements(a.dst) * target.issue.rsqrt_gpsimd_factor
    else:
        cycles = one_input_cycles(a.dst, a.data, target, engine)
    return (on(engine, "TensorScalar", cycles, target),)


def _tensor_scalar_reduce(a: Any, target: Target, engine: Engine) -> tuple[Step, ...]:
    step = on(engine, "TensorScalarReduce", paced(elements(a.data), target, a.dst, a.data), target)
    if a.reduce_res is None:
        return (step,)
    return step, on(engine, "ReadAccumulator", target.issue.min_ii_cycles, target)


COPY = Cost(
    _copy,
    MODES,
    "start addresses from registers take issue.dynamic_offset_min_cycles in an older revision of the instruction "
    f"reference; other dtypes than 16-bit floats take the width of the data path, as measured; {LATENCY}",
)
"""tensor_copy."""

MEMSET = Cost(_memset, MODES, f"a fill counts as a copy within its memory; {LATENCY}")
"""memset."""

TENSOR_TENSOR = Cost(
    _tensor_tensor,
    f"{GUIDE}; {MODES}",
    f"with an input in PSUM a cycle for an element, as measured; {_GPSIMD}{LATENCY}",
)
"""tensor_tensor."""

TENSOR_SCALAR = Cost(_tensor_scalar, f"{MODES}; {_SHARED}", f"{_GPSIMD}{LATENCY}")
"""tensor_scalar."""

TENSOR_SCALAR_REDUCE = Cost(_tensor_scalar_reduce, "", OLDER)
"""tensor_scalar_reduce: the result is read from the registers by a second, short instruction."""

EXPONENTIAL = streams(
    "Exponential",
    "src",
    "dst",
    factor=lambda t: t.engines.vector.ghz / (t.engines.scalar.ghz * t.issue.exponential_factor),
    source=f"{_TRN3}, Fast Exponential Evaluation",
)
"""exponential: so many times as fast as an activation on Scalar."""

VECTOR_RECIPROCAL = streams(
    "Reciprocal", "data", "dst", factor=lambda t: t.issue.reciprocal_vector_factor, source=_SHARED
)
"""reciprocal."""

QUANTIZE_MX = streams(
    "QuantizeMx", "src", factor=lambda t: 1 / t.issue.quantize_mx_rate, source=f"{_TRN3}, MX data-type Quantization"
)
"""quantize_mx."""

RAND2 = streams("Rand2", "dst", factor=lambda t: 1 / t.issue.rand2_rate, source=f"{_TRN3}, XORWOW-based PRNG")
"""rand2."""

BN_AGGR = streams("BnAggr", "data", factor=lambda t: t.issue.bn_aggr_cycles / _TRIPLE, source="", estimate=OLDER)
"""bn_aggr."""

SCAN = streams(
    "TensorTensorScan",
    "data0",
    "data1",
    "dst",
    factor=lambda t: t.issue.scan_factor,
    source="nki/guides/tutorials/fused_mamba.rst",
    estimate=f"two cycles for an element, also with an input in PSUM, fit the measured kernels; {LATENCY}",
)
"""tensor_tensor_scan."""


# --- GpSimd


def _gather_cycles(count: float, run: int, itemsize: int, target: Target) -> float:
    """Cycles to gather `count` elements in runs: a set-up for each run, and words of up to 4 bytes."""
    issue = target.issue
    work = issue.gather_element_cycles * run
    return count * (issue.gather_setup_cycles + work) / work / min(_WORD / itemsize, run)


def _local_gather(a: Any, target: Target, engine: Engine) -> tuple[Step, ...]:
    held = elements(a.index) * target.gpsimd.partitions_per_core
    count = (held if a.num_valid_indices is None else a.num_valid_indices) * a.num_elem_per_idx
    cycles = _gather_cycles(count, a.num_elem_per_idx, a.dst.dtype.itemsize, target)
    return (on(engine, "LocalGather", cycles, target),)


def _n_gather(a: Any, target: Target, engine: Engine) -> tuple[Step, ...]:
    left, most, steps = elements(a.indices), target.issue.n_gather_elements, []
    while left > 0:
        cycles = _gather_cycles(min(left, most), 1, a.dst.dtype.itemsize, target)
        steps.append(on(engine, "NGather", cycles, target))
        left -= most
    return tuple(steps)


def _topk(a: Any, target: Target, engine: Engine) -> tuple[Step, ...]:
    return (on(engine, "TopK", target.issue.topk_cycles * a.n + elements(a.val_dst), target),)


LOCAL_GATHER = Cost(
    _local_gather,
    "",
    "formula of an older public revision of the instruction reference, which divides by the cycles of an element where "
    "this multiplies: as printed, longer runs would be slower",
)
"""local_gather."""

N_GATHER = Cost(
    _n_gather,
    "nki/api/nki/isa nc_n_gather",
    "the number of instructions is documented, an instruction counts as a local_gather of single elements",
)
"""nc_n_gather."""

TOPK = Cost(_topk, "nki/api/nki/isa topk, Estimated instruction cost", "the start of the instruction is an estimate")
"""topk."""

PARTITION_REDUCE = streams(
    "TensorPartitionReduce",
    "data",
    factor=lambda _: _BOTH,
    source="",
    estimate="no document gives a cost; each processor reduces its partitions, and then all processors their results, "
    "with a cycle for an element each time",
)
"""tensor_partition_reduce."""
