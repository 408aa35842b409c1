"""``_private_kernels.rmsnorm``: rows in 8 bits."""

from __future__ import annotations

from typing import Any

import nki.language as nl
from nkilib import limits
from nkilib.core.rmsnorm.rmsnorm_quant import RmsNormQuantKernelArgs, rmsnorm_quant_kernel
from nkilib.core.utils.common_types import NormType
from nkilib.neuronxcc_kernels.outputs import give

__all__ = ["rmsnorm_quant_isa_kernel"]

_NORMS = {"QuantOnly": NormType.NO_NORM, "RmsNormQuant": NormType.RMS_NORM}


def rmsnorm_quant_isa_kernel(
    inp: Any, ln_w: Any, lower_bound: float, out: Any, kernel_name: str = "RmsNormQuant", eps: float = 1e-6
) -> None:
    """Quantise each row to float8 with a scale of its own, after a norm with "RmsNormQuant".

    Args:
        inp: (B, S, H), bfloat16, float16 or float32.
        ln_w: (1, H) or (H,), factors of the norm.
        lower_bound: numbers are clipped to this magnitude; 0 for no bound.
        out: (B, S, H + 4), bytes or float8: the last four are the row's scale as float32.
        kernel_name: "QuantOnly" or "RmsNormQuant".
        eps: added to the mean of the squares.

    Raises:
        KernelLimit: another name (``nkilib.option``), and what `rmsnorm_quant_kernel` refuses.
    """
    limits.one_of("kernel_name", kernel_name, tuple(_NORMS))
    limits.dtype("out", out, (nl.int8, nl.uint8, nl.float8_e4m3))
    norm = _NORMS[kernel_name]
    made = rmsnorm_quant_kernel(
        inp,
        None if norm is NormType.NO_NORM else ln_w,
        RmsNormQuantKernelArgs(lower_bound=lower_bound, norm_type=norm, eps=eps),
    )
    give(made.view(out.dtype), out)
