"""What two ranks must not do, in the processes of `collective_cases`: each way of it is an error within seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

from nki.core.errors import DivergenceError
from nki.interop.torch.distributed import beginnings, pending

_SOON = 5.0
"""Seconds within which both ranks know."""


def _groups_crosswise(rank: int, x: torch.Tensor, groups: list[Any]) -> None:
    dist.all_reduce(x, group=groups[rank])


def _a_group_that_one_rank_has_left(rank: int, x: torch.Tensor, groups: list[Any]) -> None:
    if rank == 0:
        dist.all_reduce(x, group=groups[0])
    dist.destroy_process_group(groups[0])
    dist.all_reduce(x)  # which only one rank calls
    dist.all_reduce(x, group=groups[1])


def _a_group_that_one_rank_makes(rank: int, x: torch.Tensor, groups: list[Any]) -> None:
    if rank == 0:
        dist.new_group([0, 1])
    dist.all_reduce(x)


def _other_shapes(rank: int, x: torch.Tensor, groups: list[Any]) -> None:
    dist.all_reduce(x[: 2 + rank])


def _uneven_shards(rank: int, x: torch.Tensor, groups: list[Any]) -> None:
    dist.all_gather_single(torch.empty(4 + 2 * rank, device="neuron"), x[: 2 + rank])


CASES: dict[Callable[[int, torch.Tensor, list[Any]], None], str] = {
    _groups_crosswise: r"ranks\.deadlock.* rank [01] waits at the all_reduce of another group .*bad_input_cases\.py:",
    _a_group_that_one_rank_has_left: r"ranks\.deadlock.*rank [01] (has left the group|waits at the all_reduce of anot)",
    _a_group_that_one_rank_makes: r"ranks\.deadlock.*(all_reduce|new_group) among .*(all_reduce|new_group) among .*:",
    _other_shapes: r"ranks\.mismatch.*bad_input_cases\.py:",
    _uneven_shards: r"ranks\.mismatch.*bad_input_cases\.py:",
}


def run() -> int:
    """How many cases there were; each has a world of its own, since an error ends it."""
    pending._ASK = beginnings._ASK = 0.1  # what each rank asks is the same, but it asks sooner
    for case, expected in CASES.items():
        dist.init_process_group("neuron")
        rank, x = dist.get_rank(), torch.ones(4, device="neuron")
        groups = [dist.new_group([0, 1]) for _ in range(2)]
        dist.all_reduce(x)
        begun = time.monotonic()
        with pytest.raises(DivergenceError, match=expected):
            case(rank, x, groups)
        assert time.monotonic() - begun < _SOON, case
        dist.destroy_process_group()
    return len(CASES)


def a_slow_rank_is_waited_for() -> None:
    """A rank that computes for longer than it takes to find that ranks wait for each other."""
    rank, x = dist.get_rank(), torch.ones(4, device="neuron")
    if rank:
        time.sleep(1.5)
    dist.all_reduce(x)
    assert x.tolist() == [dist.get_world_size()] * 4
