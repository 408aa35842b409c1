"""Coalescing: one work for all calls from a start to an end. PyTorch asks a backend that only C++ can have."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from nki.interop.torch.distributed.calls import Call
from nki.interop.torch.distributed.processes import group_of
from nki.interop.torch.distributed.ways import COALESCED
from nki.interop.torch.distributed.work import NeuronWork
from nki.interop.torch.memory import DEVICE
from nki.interop.torch.user_location import user_line

Method = Callable[[Any, torch.device], Any]


def install() -> None:
    """Let process groups coalesce calls on the device; on other devices they do what they did."""
    kind = dist.ProcessGroup
    kind._start_coalescing = _on_device(_start, kind._start_coalescing)
    kind._end_coalescing = _on_device(_end, kind._end_coalescing)


def _on_device(own: Callable[[Any], Any], other: Method) -> Method:
    def method(process_group: Any, device: torch.device) -> Any:
        return own(process_group) if torch.device(device).type == DEVICE else other(process_group, device)

    return method


def _start(process_group: Any) -> None:
    group_of(process_group).begun[threading.get_ident()] = []


def _end(process_group: Any) -> Any:
    """A work for all calls since the start. A group carries its collectives out in their order."""
    group = group_of(process_group)
    begun = group.begun.pop(threading.get_ident(), [])

    def wait_for_messages(_: Any) -> None:
        for pending in begun:
            pending.wait()

    call = Call(("coalesced",), user_line())
    tensors = [tensor for pending in begun for tensor in pending.tensors]
    pending = group.submit(call, wait_for_messages, tensors, COALESCED)
    pending.parts = begun
    return NeuronWork(pending)
