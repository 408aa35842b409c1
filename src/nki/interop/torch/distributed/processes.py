"""The groups of this process, and who the other processes of the world are."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from nki.core.errors import DivergenceError, NkiError
from nki.core.locks import lock
from nki.core.source import UNKNOWN
from nki.interop.torch.distributed import generations
from nki.interop.torch.distributed.beginnings import Beginning
from nki.interop.torch.distributed.group import Group, World
from nki.interop.torch.distributed.peers import Peers
from nki.interop.torch.distributed.waits import Waits
from nki.interop.torch.memory import DEVICE

_GROUPS: weakref.WeakKeyDictionary[Any, Group] = weakref.WeakKeyDictionary()
"""What stands behind a process group of PyTorch, as long as that lives."""
_WORLD: dict[int, World] = {}
"""What is known of all ranks, by the identity of the store of the world; one entry."""
_LOCK = lock()


def world() -> World:
    """What is known of the processes of the default group."""
    store = c10d._get_default_store()
    with _LOCK:
        found = _WORLD.get(id(store))
        if found is None:
            rank, size = dist.get_rank(), dist.get_world_size()
            peers = _claim(store, rank)
            part, _ = _generation(c10d._get_default_group())
            _WORLD.clear()
            found = _WORLD[id(store)] = World(peers, Waits(part, rank, size))
    return found


def _claim(store: Any, rank: int) -> Peers:
    """Tell the other processes of a store that this one is a rank."""
    peers = Peers(store)
    other = peers.tell(rank)
    if other is not None:
        raise _twice(rank, other.number)
    return peers


def begun(options: Any) -> Any:
    """Wait until all ranks make a group.

    Args:
        options: what PyTorch gives to a backend that makes a group.

    Returns:
        The part of the store that belongs to the group from now on.

    Raises:
        DivergenceError: "distributed.rank-twice", another process is this rank; "ranks.deadlock", a rank does not come.
    """
    place = options.group_rank
    peers, waits = _claim(options.store, place), None
    number = generations.begun(options.store, place)
    part = generations.part(options.store, number)
    members = options.global_ranks_in_group or range(options.group_size)
    if dist.is_initialized():
        peers, waits = world()
    group = Beginning(part, f"{options.group_id} {number}", members, members[place])
    group.wait(peers, waits, options.timeout.total_seconds())
    return part


def group_of(process_group: Any) -> Group:
    """The calls of a process group; made when it is first used."""
    found = _GROUPS.get(process_group)
    if found is None:
        ranks = world()
        with _LOCK:
            found = _GROUPS.get(process_group)
            if found is None:
                gloo = process_group._get_backend(torch.device(DEVICE))
                members = dist.get_process_group_ranks(process_group)
                part, name = _generation(process_group)
                found = Group(gloo, members, process_group.rank(), part, ranks, name)
                _GROUPS[process_group] = found
                weakref.finalize(process_group, found.close)
    return found


def _generation(process_group: Any) -> tuple[Any, str]:
    """The part of the store that belongs to a group since it was made last, and its name since then."""
    whole = dist.PrefixStore(f"{DEVICE}/", process_group.get_group_store())  # as PyTorch gives it to the backend
    number = generations.current(whole, process_group.rank())
    return generations.part(whole, number), f"{process_group.group_name} {number}"


def install() -> None:
    """Have groups that a program destroys tell those that wait for them."""
    shutdown: Callable[[Any], Any] = dist.ProcessGroup.shutdown

    def close(process_group: Any) -> Any:
        found = _GROUPS.get(process_group)
        if found is not None:
            found.close()
        elif torch.device(DEVICE) in process_group._device_types and dist.is_initialized():
            with contextlib.suppress(RuntimeError, NkiError):  # who has made no call at all has no more to tell
                world().waits.leave(_generation(process_group)[1])
        return shutdown(process_group)

    dist.ProcessGroup.shutdown = close


def _twice(rank: int, number: int) -> NkiError:
    return DivergenceError(
        "distributed.rank-twice",
        f"this process is rank {rank}, and so is process {number}",
        location=UNKNOWN,
        rule="each rank of a group is one process",
        fix="give each process a RANK of its own, or let torchrun start them",
    )
