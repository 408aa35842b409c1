"""``init_process_group("neuron")``: the backend, as `torch.distributed` knows it."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch.distributed as dist

from nki.interop.torch.distributed import coalescing, operators, processes, ranks
from nki.interop.torch.memory import DEVICE


@cache  # PyTorch has one table for the process
def install() -> None:
    """Let `torch.distributed` know the backend of the device; nothing where PyTorch was built without it."""
    if not dist.is_available():
        return
    operators.install()
    processes.install()
    coalescing.install()
    if DEVICE not in dist.Backend.backend_list:  # PyTorch may have loaded its name by itself
        dist.Backend.register_backend(DEVICE, create, extended_api=True, devices=[DEVICE])
    ranks.install()


def create(options: Any, _: Any) -> Any:
    """The transport of a group, once all its ranks make it: what is on top of it are the operators of the device."""
    store = processes.begun(options)
    return dist.ProcessGroupGloo(store, options.group_rank, options.group_size, options.timeout)
