"""The enumerations that instructions of the first NKI take: today's, with their old names."""

from __future__ import annotations

from nki.language.sizes import fp32
from nki.spec.engine import dge_mode, engine, matmul_perf_mode, nc_version, oob_mode, reduce_cmd

tensor_engine = engine.tensor
vector_engine = engine.vector
scalar_engine = engine.scalar
gpsimd_engine = engine.gpsimd
dma_engine = engine.dma
unknown_engine = engine.unknown

__all__ = [
    "dge_mode",
    "dma_engine",
    "engine",
    "fp32",
    "gpsimd_engine",
    "matmul_perf_mode",
    "nc_version",
    "oob_mode",
    "reduce_cmd",
    "scalar_engine",
    "tensor_engine",
    "unknown_engine",
    "vector_engine",
]
