"""``nki.isa``: the instructions."""

from __future__ import annotations

from nki.core.errors import VerificationError as NkiValidationError
from nki.core.register import VirtualRegister
from nki.isa.copy import memset, tensor_copy, tensor_copy_predicated
from nki.isa.dma import dma_copy
from nki.isa.elementwise import tensor_scalar, tensor_tensor
from nki.spec.engine import dge_mode, dma_engine, engine, matmul_perf_mode, nc_version, oob_mode, reduce_cmd
from nki.spec.instruction import NkiInstruction

tensor_engine = engine.tensor
vector_engine = engine.vector
scalar_engine = engine.scalar
gpsimd_engine = engine.gpsimd
unknown_engine = engine.unknown

__all__ = [
    "NkiInstruction",
    "NkiValidationError",
    "VirtualRegister",
    "dge_mode",
    "dma_copy",
    "dma_engine",
    "engine",
    "gpsimd_engine",
    "matmul_perf_mode",
    "memset",
    "nc_version",
    "oob_mode",
    "reduce_cmd",
    "scalar_engine",
    "tensor_copy",
    "tensor_copy_predicated",
    "tensor_engine",
    "tensor_scalar",
    "tensor_tensor",
    "unknown_engine",
    "vector_engine",
]
