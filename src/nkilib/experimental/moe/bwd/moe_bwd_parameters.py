"""Options of `blockwise_mm_bwd`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import nki.language as nl
from nkilib.core.moe.moe_cte.moe_cte_utils import SkipMode
from nkilib.core.utils.common_types import ActFnType

__all__ = ["ActFnType", "AffinityOption", "ClampLimits", "KernelTypeOption", "ShardOption", "SkipMode"]


@dataclass(frozen=True)
class ClampLimits(nl.NKIObject):
    """Where the forward pass clamped: gradients are 0 there.

    Attributes:
        linear_clamp_upper_limit, linear_clamp_lower_limit: of the activation's factor.
        non_linear_clamp_upper_limit, non_linear_clamp_lower_limit: of the activation's argument.
    """

    linear_clamp_upper_limit: float | None = None
    linear_clamp_lower_limit: float | None = None
    non_linear_clamp_upper_limit: float | None = None
    non_linear_clamp_lower_limit: float | None = None


class ShardOption(Enum):
    """What two cores share of a block; this library's share both dimensions, whichever is named."""

    AUTO = 0
    SHARD_ON_HIDDEN = 1
    SHARD_ON_INTERMEDIATE = 2


class AffinityOption(Enum):
    """What affinities scaled in the forward pass."""

    AFFINITY_ON_H = 0
    """The results of experts, biases included."""
    AFFINITY_ON_I = 1
    """What the last product got."""


class KernelTypeOption(Enum):
    """How blocks were made."""

    DROPPING = 0
    """One for each expert."""
    DROPLESS = 1
    """As many as an expert needs."""
