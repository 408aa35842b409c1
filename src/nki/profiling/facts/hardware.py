"""Numbers of a target that a profile carries, so that whoever shows it needs no target."""

from __future__ import annotations

from typing import Any

from nki.target.model import Target


def hardware(target: Target) -> dict[str, Any]:
    """JSON types only; sizes in bytes, clocks in GHz, rates in bytes per ns or TFLOPS."""
    return {
        "title": target.title,
        "partitions": target.partitions,
        "quadrant": target.quadrant,
        "sbuf_bytes_per_partition": target.sbuf.bytes_per_partition,
        "psum_bytes_per_partition": target.psum.bytes_per_partition,
        "psum_banks": target.psum.banks,
        "psum_bank_bytes": target.psum.bank_bytes,
        "hbm_bytes_per_ns": target.hbm.bandwidth_gbps / target.hbm.stacks,
        "dma_engines": target.dma.engines,
        "dma_bytes_per_ns": target.dma.aggregate_gbps,
        "pe_rows": target.pe.rows,
        "pe_columns": target.pe.columns,
        "base_ghz": target.base_ghz,
        "ghz": {name: target.engines[name].ghz for name in ("tensor", "vector", "scalar", "gpsimd", "sync")},
        "lanes": {name: target.engines[name].lanes for name in ("vector", "scalar", "gpsimd")},
        "peak_tflops": {
            "bfloat16": target.peak.tensor_bf16_tflops,
            "float32": target.peak.tensor_fp32_tflops,
            "float8": target.peak.tensor_fp8_tflops,
        },
    }
