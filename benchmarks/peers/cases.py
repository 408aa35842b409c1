"""The eleven cases: inputs and what the results have to be close to."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

BF16 = np.dtype(ml_dtypes.bfloat16)
F32 = np.dtype(np.float32)
SIZE = 2048
HEAD = 128
EPSILON, SCALE, SHIFT = 1e-6, 1.5, 0.25


@dataclass(frozen=True, slots=True)
class Case:
    """One kernel on one shape.

    Attributes:
        name: of the case.
        kernel: of the kernel that every row implements in its own way.
        dtype: of inputs and results.
        size: rows and columns; for attention the length of the sequence.
        tolerance: largest error over the largest result, against float32 arithmetic: twice what rounding the result,
            and for attention also the weights, to the dtype may cost.
    """

    name: str
    kernel: str
    dtype: np.dtype
    size: int
    tolerance: float


CASES = {
    case.name: case
    for case in (
        Case("vadd_f32", "vadd", F32, SIZE, 1e-6),
        Case("gelu_f32", "gelu", F32, SIZE, 1e-6),
        Case("gelu_bf16", "gelu", BF16, SIZE, 8e-3),
        Case("softmax_bf16", "softmax", BF16, SIZE, 8e-3),
        Case("rmsnorm_bf16", "rmsnorm", BF16, SIZE, 8e-3),
        *(Case(f"matmul_{n}", "matmul", BF16, n, 8e-3) for n in (512, 1024, 2048)),
        *(Case(f"attention_{n}", "attention", BF16, n, 1.6e-2) for n in (1024, 2048, 4096)),
    )
}


def inputs(case: Case) -> list[np.ndarray]:
    """Random: matmul (K, M) and (K, N); attention q, k and v as (sequence, 128); rmsnorm has a weight (1, columns)."""
    draw = np.random.default_rng(0)
    shapes = {
        "vadd": [(case.size, SIZE)] * 2,
        "gelu": [(case.size, SIZE)],
        "softmax": [(case.size, SIZE)],
        "rmsnorm": [(case.size, SIZE), (1, SIZE)],
        "matmul": [(case.size, case.size)] * 2,
        "attention": [(case.size, HEAD)] * 3,
    }[case.kernel]
    return [draw.standard_normal(shape, dtype=np.float32).astype(case.dtype) for shape in shapes]


def on_chip_layout(case: Case, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """As kernels for the hardware take them: q and k of attention with the head dimension first."""
    if case.kernel != "attention":
        return arrays
    q, k, v = arrays
    return [np.ascontiguousarray(q.T), np.ascontiguousarray(k.T), v]
