"""``_pre_prod_kernels.output_proj``: from the heads of attention back to hidden states."""

from __future__ import annotations

from typing import Any

from nkilib.core.output_projection.output_projection_cte.output_projection_cte import output_projection_cte
from nkilib.neuronxcc_kernels.outputs import give

__all__ = ["output_proj_kernel"]


def output_proj_kernel(active: Any, weight: Any, out: Any, bias: Any = None) -> None:
    """``out = active @ weight + bias``.

    Args:
        active: (B, heads, d, S).
        weight: (heads * d, H).
        out: (B, S, H), written.
        bias: (1, H), or None.

    Raises:
        KernelLimit: what `output_projection_cte` refuses.
    """
    give(output_projection_cte(active, weight, bias=bias, output_dtype=out.dtype), out)
