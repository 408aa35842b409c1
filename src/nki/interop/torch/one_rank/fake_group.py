"""PyTorch's fake process group in the place of whatever a script asks for: one rank runs, and communicates nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch.testing._internal.distributed.fake_pg import FakeStore

from nki.core.errors import LaunchError
from nki.core.source import UNKNOWN
from nki.interop.torch.device.registration import enable_device
from nki.interop.torch.memory import DEVICE


@contextmanager
def as_rank(rank: int, ranks: int) -> Iterator[None]:
    """This process as one of many ranks, as torchrun would have started it.

    `torch.distributed.init_process_group` then finds the group made, whatever backend it names.

    Raises:
        LaunchError: the process has a group already (``step.process-group``).
    """
    if dist.is_initialized():
        raise LaunchError(
            "step.process-group",
            "this process has a process group",
            rule="a step is taken down in a process that is no rank of a real group",
            fix="call torch.distributed.destroy_process_group() before, or leave init_process_group out",
            location=UNKNOWN,
        )
    kept, told = dict(os.environ), _environment(rank, ranks)
    os.environ.update(told)
    enable_device()
    devices = dist.Backend.backend_capability[dist.Backend.FAKE]
    if DEVICE not in devices:
        devices.append(DEVICE)
    real = c10d.init_process_group
    real(dist.Backend.FAKE, rank=rank, world_size=ranks, store=FakeStore())
    try:
        _replace(_made_already)
        yield
    finally:
        _replace(real)
        if dist.is_initialized():
            dist.destroy_process_group()
        for name in told:
            os.environ.pop(name)
            if name in kept:
                os.environ[name] = kept[name]


def _replace(function: Any) -> None:
    c10d.init_process_group = dist.init_process_group = function


def _made_already(*_: Any, **__: Any) -> None:
    """In the place of `init_process_group`: the group is there."""


def _environment(rank: int, ranks: int) -> dict[str, str]:
    found = {"RANK": rank, "LOCAL_RANK": rank, "GROUP_RANK": 0, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
    return {
        **{name: str(value) for name, value in found.items()},
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
    }
