"""Groups of one name that are made one after another, as when a program destroys its groups and begins anew.

PyTorch gives them the same part of the store. A process that reads the address of another one there may get that of the
group before, and both wait for each other. So each generation has a part of its own. Every rank counts for itself: all
of them make the same groups in the same order.
"""

from __future__ import annotations

from typing import Any

import torch.distributed as dist


def begun(store: Any, rank: int) -> int:
    """The number of the generation that this rank begins."""
    return int(store.add(_key(rank), 1))


def current(store: Any, rank: int) -> int:
    """The number of the generation that this rank began last; 0 before the first one."""
    return int(store.add(_key(rank), 0))


def part(store: Any, number: int) -> Any:
    """The part of a group's store for a generation."""
    return dist.PrefixStore(f"nki/{number}", store)


def _key(rank: int) -> str:
    return f"nki/generation/{rank}"
