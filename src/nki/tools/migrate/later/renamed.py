"""Names that another one stands for today."""

from __future__ import annotations

from collections.abc import Mapping

RENAMED: Mapping[str, str] = {
    "nl.bfp16": "nl.bfloat16",
    "nl.cast": "nl.copy",
    "nl.dot": "nl.matmul",
    "nl.range": "range",
    "nl.affine_range": "range",
    "nl.sequential_range": "range",
    "nl.static_range": "range",
    "nl.static_cast": "nl.copy",
    "nisa.tensor_copy_dynamic_dst": "nisa.tensor_copy",
    "nisa.tensor_copy_dynamic_src": "nisa.tensor_copy",
    "nl.tile_size.psum_fmax": "nl.tile_size.psum_bank_fmax",
    "nl.tile_size.total_available_sbuf_size": "nl.tile_size.sbuf_fmax_bytes",
    **{f"nisa.{name}_engine": f"nisa.engine.{name}" for name in ("tensor", "vector", "scalar", "gpsimd", "unknown")},
}
"""By how names are called here (`nki.tools.migrate.names`)."""

RANGES = frozenset(("nl.affine_range", "nl.sequential_range", "nl.static_range", "nl.dynamic_range", "nl.range"))

JIT_KEYWORDS = ("debug_kernel", "show_compiler_tb", "experimental_flags", "additional_compile_opt", "mode")
"""Keywords of ``nki.jit`` without an effect."""
SETTINGS = {
    "platform_target": "set NEURON_PLATFORM_TARGET_OVERRIDE in its place",
    "grid": "launch the kernel with kernel[2](...) in its place",
}
"""Keywords of ``nki.jit`` that say what is said somewhere else today."""
