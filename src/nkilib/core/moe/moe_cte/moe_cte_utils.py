"""Settings of `moe_cte` that its variants share."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import nki.language as nl


@dataclass(frozen=True)
class SkipMode(nl.NKIObject):
    """What need not be moved.

    Attributes:
        skip_token: ids of padding are outside the tokens, such as -1, instead of T; nothing is moved for them.
        skip_weight: weights of a block need not be loaded again if the block before has the same expert. It is a
            permission, and the results are the same: weights stream through SBUF, so that they are gone by then.
    """

    skip_token: bool = False
    skip_weight: bool = False


class BlockShardStrategy(Enum):
    """Which blocks each of two cores computes."""

    HI_LO = 0
    """The first half of them, or the second half."""
    PING_PONG = 1
    """Every other one."""
