"""What matmuls and transposes cost on the Tensor engine: loading the stationary tile, multiplying the moving one."""

from __future__ import annotations

from typing import Any

from nki.core.dtypes import float32
from nki.core.tensor import View
from nki.spec.cost import LATENCY, elements, on, paced
from nki.spec.engine import engine as Engine
from nki.spec.engine import matmul_perf_mode
from nki.spec.step import Cost, Step
from nki.target.model import Target

_GUIDE = "nki/guides/architecture/trainium_inferentia2_arch.rst, Tensor Engine: Cost Model, Fast LoadStationary"
_EXACT = "nki/guides/architecture/trainium2_arch.rst, Built-in Transpose Support"
_MX = "nki/guides/architecture/trainium3_arch.rst, Quad-MXFP8/MXFP4 Matmul Performance"
_ESTIMATE = (
    "loading is up to 4x faster, of which timing.load_factor is what profiles show; onezero operands up to 2x, taken "
    f"as reached; tiles of parts of the array count as if they ran one after the other; {LATENCY}"
)


def _load(columns: float, factor: float, stationary: View, target: Target) -> Step:
    """LoadStationary: its columns stream ``timing.load_factor`` times as fast as those of a multiplication."""
    timing, ghz = target.timing, target.engines.tensor.ghz
    ns = paced(columns * factor / timing["load_factor"], target, stationary) / ghz
    return Step("LoadStationary", "tensor.load", ns, timing["load_fixed_cycles"] / ghz)


def _multiply(name: str, columns: float, factor: float, moving: View | None, target: Target) -> Step:
    cycles = max(paced(columns, target, moving), target.issue.matmul_min_ii_cycles)
    timing, ghz = target.timing, target.engines.tensor.ghz
    return Step(name, "tensor", cycles * factor / (ghz * timing["tensor_rate"]), timing["tensor_fixed_cycles"] / ghz)


def _matmul(a: Any, target: Target, engine: Engine) -> tuple[Step, ...]:
    stationary, moving, issue = a.stationary, a.moving, target.issue
    loaded: float = elements(stationary)
    streamed: float = elements(moving)
    if a.perf_mode is matmul_perf_mode.double_row:
        loaded, streamed = loaded / target.pe.double_row_factor, streamed / target.pe.double_row_factor
    factor, name = 1.0, "MultiplyMoving"
    if stationary.dtype is float32:
        onezero = a.is_stationary_onezero or a.is_moving_onezero
        factor = issue.fp32_matmul_factor / issue.onezero_factor if onezero else issue.fp32_matmul_factor
    if a.is_transpose:
        name = "Transpose"
        factor = min(factor, issue.fp32_transpose_factor)
    return _load(loaded, factor, stationary, target), _multiply(name, streamed, factor, moving, target)


def _matmul_mx(a: Any, target: Target, engine: Engine) -> tuple[Step, ...]:
    return (
        _load(elements(a.stationary), 1.0, a.stationary, target),
        _multiply("MultiplyMoving", elements(a.moving), 1.0, a.moving, target),
    )


def _transpose(a: Any, target: Target, engine: Engine) -> tuple[Step, ...]:
    if engine is not Engine.tensor:
        return (on(engine, "Transpose", paced(elements(a.data), target, a.dst, a.data), target),)
    factor = target.issue.fp32_transpose_factor if a.data.dtype.itemsize == 4 else 1.0
    # the moving operand is an identity matrix with a column for each partition of the data
    return (
        _load(elements(a.data), factor, a.data, target),
        _multiply("Transpose", a.data.shape[0], factor, None, target),
    )


MATMUL = Cost(_matmul, _GUIDE, _ESTIMATE)
"""nc_matmul."""

MATMUL_MX = Cost(_matmul_mx, _MX, _ESTIMATE)
"""nc_matmul_mx: the cycles of a bfloat16 matmul of the same tile."""

TRANSPOSE = Cost(
    _transpose,
    _EXACT,
    "on Tensor a matmul by an identity matrix; on Vector a cycle for each element, as in an older revision of the "
    "instruction reference; " + LATENCY,
)
"""nc_transpose."""
