"""``nki.collectives``: operations in which several ranks take part."""

from __future__ import annotations

from nki.collectives.dense import all_gather, all_reduce, all_to_all, reduce_scatter
from nki.collectives.permute import (
    collective_permute,
    collective_permute_implicit,
    collective_permute_implicit_current_processing_rank_id,
    collective_permute_implicit_reduce,
    rank_id,
)
from nki.collectives.variable import (
    all_gather_v,
    all_gather_v_prepare,
    all_gather_v_trigger,
    all_to_all_v,
    all_to_all_v_prepare,
    all_to_all_v_trigger,
)
from nki.spec.replica_group import ReplicaGroup

__all__ = [
    "ReplicaGroup",
    "all_gather",
    "all_gather_v",
    "all_gather_v_prepare",
    "all_gather_v_trigger",
    "all_reduce",
    "all_to_all",
    "all_to_all_v",
    "all_to_all_v_prepare",
    "all_to_all_v_trigger",
    "collective_permute",
    "collective_permute_implicit",
    "collective_permute_implicit_current_processing_rank_id",
    "collective_permute_implicit_reduce",
    "rank_id",
    "reduce_scatter",
]
