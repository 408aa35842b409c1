"""Mixtures of experts for many tokens."""

from nkilib.core.moe.moe_cte.moe_cte import (
    MoECTEImplementation,
    MoECTESpec,
    QuantizationConfig,
    ShardOnBlockConfig,
    ShardOnIConfig,
    moe_cte,
)
from nkilib.core.moe.moe_cte.moe_cte_utils import BlockShardStrategy, SkipMode

__all__ = [
    "BlockShardStrategy",
    "MoECTEImplementation",
    "MoECTESpec",
    "QuantizationConfig",
    "ShardOnBlockConfig",
    "ShardOnIConfig",
    "SkipMode",
    "moe_cte",
]
