"""Backward passes of mixtures of experts."""

from nkilib.experimental.moe.bwd.blockwise_mm_backward import blockwise_mm_bwd
from nkilib.experimental.moe.bwd.moe_bwd_parameters import (
    AffinityOption,
    ClampLimits,
    KernelTypeOption,
    ShardOption,
    SkipMode,
)

__all__ = ["AffinityOption", "ClampLimits", "KernelTypeOption", "ShardOption", "SkipMode", "blockwise_mm_bwd"]
