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
_WIDE = 2.0
"""Cycles for a column of 32-bit elements in one pass; two passes make the 4 cycles of a float32 product."""

_ESTIMATE = (
    "loading is up to 4x faster, taken as reached but for float32, which profiles show to load no faster than it "
    "multiplies; onezero operands up to 2x, taken as reached; tiles of parts of the array count as if they ran one "
    f"after the other; {LATENCY}"
)


def _load(columns: float, factor: float, stationary: View, target: Target) -> Step:
    """LoadStationary of one pass: its columns stream ``issue.fast_load_factor`` times as fast as those of a product.

    Those of 32-bit elements (a `factor` above 1) do not: the published loads of 128 float32 columns (v2-zoom.png,
    v3-zoom.png) last as much longer than the published load of one column (nki_perf_guide.rst, fig20-21.png) as 128
    columns take in a pass.
    """
    timing, ghz = target.timing, target.engines.tensor.ghz
    each = _WIDE if factor > 1.0 else 1.0 / target.issue.fast_load_factor
    ns = paced(columns * each, target, stationary) / ghz
    return Step("LoadStationary", "tensor.load", ns, timing["load_fixed_cycles"] / ghz)


def _multiply(name: str, columns: float, factor: float, moving: View | None, load: Step, target: Target) -> Step:
    """All passes of a product; the weights are loaded again for every pass, behind the one before."""
    cycles = max(paced(columns, target, moving), target.issue.matmul_min_ii_cycles)
    timing, ghz = target.timing, target.engines.tensor.ghz
    passes = max(1.0, factor / _WIDE)
    each = cycles * factor / passes / (ghz * timing["tensor_rate"])
    return Step(name, "tensor", each + (passes - 1.0) * max(each, load.ns), timing["tensor_fixed_cycles"] / ghz)


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
    load = _load(loaded, factor, stationary, target)
    return load, _multiply(name, streamed, factor, moving, load, target)


def _matmul_mx(a: Any, target: Target, engine: Engine) -> tuple[Step, ...]:
    """Four packed weights fill both registers of a cell, that of the product and that of the next weights.

    So the array multiplies nothing while they load, and they load a column of 32 bits per cycle. A published product of
    16384 x 16384 x 16384 takes 253 ns for 512 columns, 40 ns more than they stream.
    """
    timing, ghz = target.timing, target.engines.tensor.ghz
    streams = paced(elements(a.stationary), target, a.stationary) / ghz
    load = Step("LoadStationary", "tensor.load", streams, timing["load_fixed_cycles"] / ghz)
    product = _multiply("MultiplyMoving", elements(a.moving), 1.0, a.moving, load, target)
    return load, product._replace(ns=product.ns + load.ns)


def _transpose(a: Any, target: Target, engine: Engine) -> tuple[Step, ...]:
    if engine is not Engine.tensor:
        return (on(engine, "Transpose", paced(elements(a.data), target, a.dst, a.data), target),)
    factor = target.issue.fp32_transpose_factor if a.data.dtype.itemsize == 4 else 1.0
    # the moving operand is an identity matrix with a column for each partition of the data
    load = _load(elements(a.data), factor, a.data, target)
    return load, _multiply("Transpose", a.data.shape[0], factor, None, load, target)


MATMUL = Cost(_matmul, _GUIDE, _ESTIMATE)
"""nc_matmul."""

MATMUL_MX = Cost(
    _matmul_mx,
    _MX,
    "that packed weights load at a column per cycle, and that nothing hides it, is 5 % from the one published time; "
    + LATENCY,
)
"""nc_matmul_mx: the columns of a bfloat16 matmul of the same tile, and the loading of its weights."""

TRANSPOSE = Cost(
    _transpose,
    _EXACT,
    "on Tensor a matmul by an identity matrix; on Vector a cycle for each element, as in an older revision of the "
    "instruction reference; " + LATENCY,
)
"""nc_transpose."""
