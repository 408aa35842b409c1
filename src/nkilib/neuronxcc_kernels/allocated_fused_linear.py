"""``kernels.allocated_fused_linear``: a norm and a projection."""

from __future__ import annotations

from typing import Any

import nki.language as nl
from nkilib import limits
from nkilib.core.qkv.qkv import qkv
from nkilib.core.utils.common_types import NormType

__all__ = ["allocated_fused_rms_norm_qkv"]


def allocated_fused_rms_norm_qkv(hidden: Any, weights: Any, norm_dtype: Any = nl.float32, eps: float = 1e-6) -> Any:
    """``rms_norm(hidden) @ weights``, where weights have the factors of the norm in them.

    Args:
        hidden: (B, S, H).
        weights: (H, I).
        norm_dtype: float32.
        eps: added to the mean of the squares.

    Returns:
        (B, S, I) in the dtype of `hidden`.

    Raises:
        KernelLimit: another dtype of the norm, and what `qkv` refuses.
    """
    limits.one_of("norm_dtype", norm_dtype, (nl.float32,))
    return qkv(hidden, weights, fused_norm_type=NormType.RMS_NORM_SKIP_GAMMA, norm_eps=eps)
