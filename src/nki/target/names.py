"""The names that the data of every target must define: its features and its timing coefficients."""

from collections.abc import Mapping
from types import MappingProxyType

FEATURES: Mapping[str, str] = MappingProxyType(
    {
        # Tensor Engine
        "double_row": "nc_matmul has the FP8 mode that contracts two rows per pass at the cycles of one.",
        "nc_matmul_mx": "nc_matmul_mx exists: microscaled FP8/FP4 matmul with scales applied by the engine.",
        "fp8_e4m3fn": "nc_matmul takes float8_e4m3fn (OCP FP8) operands.",
        "bf16_psum": "A matmul may write and accumulate bfloat16 in PSUM.",
        "matmul_multi_bank": "The output of one matmul may span several PSUM banks.",
        "accumulate_over_foreign_psum": "Accumulating onto PSUM that another engine has written is defined.",
        "transpose_exact": "Tensor Engine transposes move bits: NaN and Inf stay in place, 2-byte data stays 2-byte.",
        "background_load": "Loading the next stationary tile overlaps the running matmul.",
        "background_transpose": "A transpose may run while another matmul or transpose runs.",
        # Vector Engine
        "range_select": "nisa.range_select exists.",
        "exponential": "nisa.exponential exists (fast exp on Vector).",
        "quantize_mx": "nisa.quantize_mx exists.",
        "rand2": "nisa.rand2 exists (XORWOW uniform numbers on Vector).",
        "abs_max": "The operators abs_max and abs_min exist.",
        "tensor_scalar_unary": "square and relu may be op0 of tensor_scalar and tensor_scalar_reduce.",
        "sums_in_order": "tensor_reduce with add sums in float32, one element after the other.",
        "vector_perf_mode": "Vector runs contiguous 2-byte float copies and tensor_scalar up to 4x faster.",
        "vector_perf_mode_fp8": "The Vector data path is as wide for FP8 as for 2-byte floats.",
        # Scalar Engine
        "activate2": "nisa.activate2 exists.",
        "scalar_bias_immediate": "The bias of an activation may be a constant instead of a [P, 1] tile.",
        "scalar_copy_bias": "activation(op=copy) adds its bias; else it is reported to leave it out.",
        "reciprocal_bias": "activation(op=reciprocal) may have a bias.",
        "reduce_op_any_scalar": "Scalar can reduce with max, min, abs_max and abs_min (activate2), not add alone.",
        "scalar_tensor_copy": "tensor_copy may run on Scalar.",
        "scalar_copy_exact": "Copies on Scalar between equal dtypes are bit exact instead of passing through float32.",
        "scalar_tensor_scalar": "tensor_scalar may run on Scalar, at least as multiply and/or add.",
        "scalar_tensor_scalar_any_op": "tensor_scalar on Scalar takes every arithmetic operator, as on Vector.",
        "scalar_perf_mode": "Scalar runs 2-byte float tensor_copy and tensor_scalar up to 2x faster.",
        # GpSimd Engine
        "gpsimd_psum": "GpSimd can access PSUM.",
        "gpsimd_dma": "GpSimd has its own DMA: sendrecv(dma_engine=gpsimd_dma).",
        "nonzero_with_count": "nisa.nonzero_with_count exists.",
        "topk": "nisa.topk exists.",
        "rng_gpsimd": "nisa.rng may run on GpSimd besides Vector.",
        "rand_state": "rand_set_state and rand_get_state exist on GpSimd.",
        "rand_state_vector": "rand_set_state and rand_get_state exist on Vector.",
        "rand_state_psum": "rand_get_state may write to PSUM.",
        # On-chip memory
        "tensor_indirection": "Compute instructions take .indirect() views: gather and scatter along free dimensions.",
        "sbuf_parallel_vector_gpsimd": "Vector and GpSimd may access SBUF at the same time.",
        "psum_parallel_vector_scalar": "Vector and Scalar may access different PSUM banks at the same time.",
        "vector_borrows_gpsimd_bus": "Vector performance modes use a memory bus shared with GpSimd.",
        # DMA and cores
        "swdge": "GpSimd can build DMA descriptors at run time (dge_mode.swdge).",
        "hwdge": "A hardware block builds DMA descriptors at run time (dge_mode.hwdge).",
        "dma_indirect": "DMA gathers and scatters rows by an index tensor (vector_offset).",
        "dma_transpose": "nisa.dma_transpose exists.",
        "dma_indirect_transpose": "dma_transpose gathers rows by an index tensor.",
        "dma_compute": "nisa.dma_compute exists.",
        "dma_priority": "DMA transfers have priority classes (priority=).",
        "core_barrier": "nisa.core_barrier exists (two cores as one logical core).",
        "sendrecv": "nisa.sendrecv exists (two cores as one logical core).",
    }
)

COLLECTIVE: Mapping[str, str] = MappingProxyType(
    {
        "start_ns": "Until the first hop of a collective begins.",
        "hop_ns": "Latency of one hop between chips, or between the cores of a chip.",
        "network_hop_ns": "Latency of one hop through the network.",
        "dma_share": "Part of the DMA of its cores with which a rank moves data in a collective.",
        "link_share": "Part of the rate of a link that data gets.",
        "mesh_slowdown": "How much longer data takes in a mesh, for each hop of the mean distance of its chips.",
        "rdh_slowdown": "How much longer data takes in recursive doubling and halving.",
    }
)
"""Coefficients of collectives: an instance has them, and a target of somebody's own may state them anew."""

TIMING: Mapping[str, str] = MappingProxyType(
    {
        "issue_cycles": "Cycles for which Vector or Scalar is occupied by an instruction beyond its streaming cycles.",
        "vector_fixed_cycles": "Duration of a Vector instruction beyond its streaming cycles.",
        "scalar_fixed_cycles": "Duration of an activation beyond its streaming cycles.",
        "tensor_rate": "Part of a moving column for every cycle that long streams of matmuls reach.",
        "tensor_fixed_cycles": "Duration of a matmul beyond its streaming cycles.",
        "load_fixed_cycles": "Duration of loading a stationary tile beyond its columns.",
        "activation_table_load_ns": "Loading the table of another activation function.",
        "dma_trigger_ns": "From a trigger on the Sync engine to the first byte.",
        "dma_trigger_gpsimd_ns": "From a trigger on GpSimd (software descriptors) to the first byte.",
        "dma_trigger_instruction_ns": "Time of the engine that triggers a transfer, beside the making of descriptors.",
        "hwdge_descriptor_ns": "Time of the block that generates descriptors for each of them.",
        "dma_skew_ns": "From the begin of the first of all DMA engines of a transfer to that of the last one.",
        "dma_signal_ns": "Time of every DMA engine for the signal that ends a transfer.",
        "dma_floor_ns": "Least time of the data of a collective.",
        "dma_completion_ns": "From the last byte to the start of a waiting instruction.",
        "dma_read_bytes_per_ns": "Rate of one engine from HBM to SBUF.",
        "dma_write_bytes_per_ns": "Rate of one engine from SBUF to HBM.",
        "semaphore_ns": "From the end of an instruction to the start of one that waits for it on another engine.",
        "launch_ns": "Start and end of a program on the device, beside its instructions; no part of a timeline.",
    }
)
