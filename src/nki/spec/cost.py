"""What instructions cost on the engines that stream elements through their lanes: Vector, Scalar and GpSimd.

A lane takes one element per cycle, so that an instruction streams for ``max(MIN_II, N)`` cycles, where N is the number
of elements per partition. Its engine is occupied a little longer (``timing.issue_cycles``: decode and the filling of
the pipeline, which do not overlap the instruction before). What comes beyond that, up to the
published duration of an instruction, is `Step.latency`: the next independent instruction starts without waiting for it.
Shapes of formulas stand here, every coefficient stands in the data of the target.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from operator import attrgetter
from typing import Any

from nki.core.dtypes import DType
from nki.core.tensor import MemoryRegion, View
from nki.spec.engine import engine as Engine
from nki.spec.step import Cost, Step
from nki.target.model import Target

Factor = Callable[[Target], float]
_PSUM = MemoryRegion.psum

GUIDE = "nki/guides/architecture/trainium_inferentia2_arch.rst, Cost Model"
READOUT = "nki/guides/architecture/trainium_inferentia2_arch.rst, Scalar Engine: ActReadAccumulator"
MODES = "nki/guides/architecture/trainium2_arch.rst, Vector Engine Performance Mode"
LATENCY = "the latency is fitted to published profiles (timing.vector_fixed_cycles and its like)"
OLDER = "formula of an older public revision of the instruction reference, the current one prints none; " + LATENCY
UNPUBLISHED = "no document gives a cost; one element per cycle as most instructions of the engine; " + LATENCY


def elements(view: View) -> int:
    """Elements per partition."""
    shape = view.shape
    return shape[1] if len(shape) == 2 else prod(shape[1:])


def in_psum(value: Any) -> bool:
    """True for a tensor in PSUM."""
    return type(value) is View and value.buffer.region is _PSUM


def _innermost(view: View) -> int:
    """Distance of neighbours in the innermost dimension that has any, in elements; 0 if there is one element."""
    strides = view.strides
    for axis in range(len(strides) - 1, 0, -1):
        if view.shape[axis] != 1:
            return strides[axis]
    return 0


def _contiguous(view: View) -> bool:
    return (view.strides[-1] == 1 and view.shape[-1] != 1) or _innermost(view) in (0, 1)


def paced(cycles: float, target: Target, *values: Any) -> float:
    """Cycles to stream tensors: more if one of them has far steps in its innermost dimension (Access pattern)."""
    for value in values:
        if type(value) is not View or _contiguous(value):
            continue
        if abs(_innermost(value)) * value.dtype.itemsize > target.access.stride_penalty_bytes:
            return cycles * target.access.stride_penalty_factor
    return cycles


# --- one instruction of an engine


def _on_vector(name: str, cycles: float, target: Target) -> Step:
    timing, ghz = target.timing, target.engines.vector.ghz
    issue = timing["issue_cycles"]
    latency = max(0.0, timing["vector_fixed_cycles"] - issue)
    return Step(name, "vector", (_streaming(cycles, target) + issue) / ghz, latency / ghz)


def _on_scalar(name: str, cycles: float, target: Target) -> Step:
    timing, ghz = target.timing, target.engines.scalar.ghz
    issue = timing["issue_cycles"]
    latency = max(0.0, timing["scalar_fixed_cycles"] - issue)
    return Step(name, "scalar", (_streaming(cycles, target) + issue) / ghz, latency / ghz)


def _streaming(cycles: float, target: Target) -> float:
    least = target.issue.min_ii_cycles
    return cycles if cycles > least else least


def _on_gpsimd(name: str, cycles: float, target: Target) -> Step:
    issue, ghz = target.issue, target.engines.gpsimd.ghz
    return Step(name, "gpsimd", (issue.gpsimd_startup_cycles + cycles) / ghz, issue.access_overhead_cycles / ghz)


_ON: dict[Engine, Callable[[str, float, Target], Step]] = {
    Engine.vector: _on_vector,
    Engine.scalar: _on_scalar,
    Engine.gpsimd: _on_gpsimd,
}


def on(engine: Engine, name: str, cycles: float, target: Target) -> Step:
    """A step of Vector, Scalar or GpSimd that streams for so many cycles."""
    return _ON[engine](name, cycles, target)


# --- performance modes


def _narrow(dtype: DType, target: Target) -> bool:
    """Whether the widest performance mode takes the dtype."""
    if dtype.kind != "float":
        return False
    return dtype.itemsize == 2 or (dtype.itemsize == 1 and "vector_perf_mode_fp8" in target.features)


def _vector_rate(dst: View, src: View, target: Target) -> float:
    """Elements per lane and cycle of a copy or a tensor_scalar on Vector."""
    if "vector_perf_mode" not in target.features:
        return 1.0
    vector = target.engines.vector
    psum = (dst.buffer.region is _PSUM) + (src.buffer.region is _PSUM)
    contiguous = _contiguous(dst) and _contiguous(src)
    if _narrow(dst.dtype, target) and _narrow(src.dtype, target):
        widest = vector.peak_16bit / vector.lanes
        if psum == 0:
            return widest if contiguous else widest / 2
        return widest / 2 if psum == 1 and contiguous else 1.0
    return vector.peak_32bit / vector.lanes if psum == 0 and contiguous else 1.0


def _scalar_rate(dst: View, src: View, target: Target) -> float:
    """Elements per lane and cycle of a copy or a tensor_scalar on Scalar, whose mode is the 2x mode of Vector."""
    if "scalar_perf_mode" not in target.features or not (dst.dtype.kind == src.dtype.kind == "float"):
        return 1.0
    scalar = target.engines.scalar
    if not dst.dtype.itemsize == src.dtype.itemsize == 2:
        return 1.0
    psum = in_psum(dst) + in_psum(src)
    contiguous = _contiguous(dst) and _contiguous(src)
    return scalar.peak_16bit / scalar.lanes if psum == 0 or (psum == 1 and contiguous) else 1.0


def gpsimd_rate(dst: View, src: View, target: Target) -> float:
    """Elements per 32-bit lane and cycle of GpSimd, whose lanes split for narrow dtypes."""
    gpsimd = target.engines.gpsimd
    size = max(dst.dtype.itemsize, src.dtype.itemsize)
    return (gpsimd.peak_8bit if size == 1 else gpsimd.peak_16bit if size == 2 else gpsimd.peak_32bit) / gpsimd.lanes


_RATE: dict[Engine, Callable[[View, View, Target], float]] = {
    Engine.vector: _vector_rate,
    Engine.scalar: _scalar_rate,
    Engine.gpsimd: gpsimd_rate,
}


def one_input_cycles(dst: View, src: View, target: Target, engine: Engine) -> float:
    """Cycles of a copy or a tensor_scalar, in the performance mode that the hardware chooses."""
    rate = _RATE[engine](dst, src, target)
    cycles = elements(dst) / rate
    return cycles if rate > 1.0 else paced(cycles, target, dst, src)


def two_input_cycles(dst: View, first: Any, second: Any, target: Target) -> float:
    """Cycles of Vector with two input tiles: ``issue.two_input_factor`` as many if both come from SBUF.

    NeuronCore-v2 reads one operand after the other there. Since NeuronCore-v3 the data path carries two float32
    operands in a cycle, as it does two elements of a copy.
    """
    cycles = paced(elements(dst), target, dst, first, second)
    if type(first) is not View or type(second) is not View or in_psum(first) or in_psum(second):
        return cycles
    return cycles * target.issue.two_input_factor


# --- formulas of instructions


def _once(target: Target) -> float:
    return 1.0


def streams(
    name: str, size: str, *others: str, factor: Factor = _once, source: str = GUIDE, estimate: str = LATENCY
) -> Cost:
    """An instruction that streams the elements of the operand `size`, each in `factor` cycles.

    `others` are operands that may slow it down by their strides.
    """
    largest, rest = attrgetter(size), [attrgetter(other) for other in others]

    def formula(a: Any, target: Target, engine: Engine) -> tuple[Step, ...]:
        view = largest(a)
        cycles = paced(elements(view) * factor(target), target, view, *[get(a) for get in rest])
        return (on(engine, name, cycles, target),)

    return Cost(formula, source, estimate)


def two_inputs(name: str, first: str, second: str, *, source: str = GUIDE, estimate: str = LATENCY) -> Cost:
    """An instruction ``dst = f(first, second)`` on Vector."""
    get_first, get_second = attrgetter(first), attrgetter(second)

    def formula(a: Any, target: Target, engine: Engine) -> tuple[Step, ...]:
        cycles = two_input_cycles(a.dst, get_first(a), get_second(a), target)
        return (on(engine, name, cycles, target),)

    return Cost(formula, source, estimate)


def activates(name: str) -> Cost:
    """An activation, and the reading of the accumulator registers if a result is asked for."""

    def formula(a: Any, target: Target, engine: Engine) -> tuple[Step, ...]:
        step = _on_scalar(name, paced(elements(a.data), target, a.dst, a.data), target)
        if a.reduce_res is None:
            return (step,)
        ns = target.issue.act_read_accumulator_cycles / target.engines.scalar.ghz
        return step, Step("ActReadAccumulator", "scalar", ns, step.latency)

    return Cost(formula, READOUT, LATENCY)


_ACTIVATIONS = frozenset({"activation", "activation_reduce", "activate2"})
_NO_TABLE = frozenset({"copy"})


def activation_table(arguments: Any, target: Target) -> str | None:
    """The table that Scalar needs for an instruction; loading another one takes ``timing.activation_table_load_ns``.

    It is called by the functions that share it (``activation.function_sets``). None if the instruction needs none.
    """
    if type(arguments).__name__ not in _ACTIVATIONS or arguments.op.name in _NO_TABLE:
        return None
    name = str(arguments.op.name)
    return " and ".join(next((group for group in target.activation.function_sets if name in group), (name,)))
