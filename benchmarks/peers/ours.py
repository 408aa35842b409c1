"""This package: variant "eager" runs instruction by instruction, "compiled" is a kernel's usual call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from benchmarks.peers.cases import Case, on_chip_layout
from benchmarks.peers.kernels import KERNELS

import nki
from nki.core.errors import UsageError
from nki.kernel import Kernel
from nki.options import from_environment


def build(case: Case, arrays: list[np.ndarray], variant: str) -> tuple[Callable[[], Any], Callable[[Any], np.ndarray]]:
    """A call, and how its result becomes a float32 array."""
    kernel, given = kernel_of(case, variant), on_chip_layout(case, arrays)
    build.facts = lambda: facts(kernel)  # type: ignore[attr-defined]
    return lambda: kernel(*given), lambda result: result.astype(np.float32)


def kernel_of(case: Case, variant: str) -> Kernel:
    """The kernel of a case."""
    kernel: Kernel = nki.jit(KERNELS[case.kernel])
    return nki.simulate(kernel) if variant == "eager" else kernel


def facts(kernel: Kernel) -> dict[str, Any]:
    """What the last call says about itself."""
    report = kernel.report
    if report is None:
        return {}
    return {"provenance": report.provenance(), "instructions": sum(report.instructions().values())}


def fast_matmul() -> str:
    """The fastest mode of products that this version has."""
    try:
        return from_environment({"NKI_MATMUL": "fast"}).matmul
    except UsageError:
        return "blas"
