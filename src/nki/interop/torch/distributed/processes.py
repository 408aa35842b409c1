"""The groups of this process, and who the other processes of the world are."""

from __future__ import annotations

import weakref
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from nki.core.errors import DivergenceError, NkiError
from nki.core.locks import lock
from nki.core.source import UNKNOWN
from nki.interop.torch.distributed import generations
from nki.interop.torch.distributed.group import Group
from nki.interop.torch.distributed.peers import Peers
from nki.interop.torch.memory import DEVICE

_GROUPS: weakref.WeakKeyDictionary[Any, Group] = weakref.WeakKeyDictionary()
"""What stands behind a process group of PyTorch, as long as that lives."""
_WORLD: dict[int, Peers] = {}
"""Who the processes of the world are, by the identity of its store; one entry."""
_LOCK = lock()


def peers_of_world() -> Peers:
    """The processes of the default group."""
    store = c10d._get_default_store()
    with _LOCK:
        found = _WORLD.get(id(store))
        if found is None:
            _WORLD.clear()
            found = _WORLD[id(store)] = Peers(store)
            other = found.tell(dist.get_rank())
            if other is not None:
                del _WORLD[id(store)]
                raise _twice(dist.get_rank(), other.number)
    return found


def group_of(process_group: Any) -> Group:
    """The calls of a process group; made when it is first used."""
    found = _GROUPS.get(process_group)
    if found is None:
        peers = peers_of_world()
        with _LOCK:
            found = _GROUPS.get(process_group)
            if found is None:
                gloo = process_group._get_backend(torch.device(DEVICE))
                members = dist.get_process_group_ranks(process_group)
                rank = process_group.rank()
                store = generations.current(process_group.get_group_store(), rank)
                found = _GROUPS[process_group] = Group(gloo, members, rank, store, peers, process_group.group_name)
                weakref.finalize(process_group, found.close)
    return found


def _twice(rank: int, number: int) -> NkiError:
    return DivergenceError(
        "distributed.rank-twice",
        f"this process is rank {rank}, and so is process {number}",
        location=UNKNOWN,
        rule="each rank of a group is one process",
        fix="give each process a RANK of its own, or let torchrun start them",
    )
