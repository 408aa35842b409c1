"""How many devices a process has, and which of them is the current one."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from nki.core.errors import LaunchError, UsageError
from nki.interop.torch.user_location import user_line

DEVICE = "neuron"
"""Name of the device."""

_VISIBLE, _NUMBER, _LOCAL = "NEURON_RT_VISIBLE_CORES", "NEURON_RT_NUM_CORES", "LOCAL_WORLD_SIZE"

ENVIRONMENT: tuple[tuple[str, str], ...] = (
    (_VISIBLE, "cores of the process, such as `0-3` or `0,2`: as many devices, numbered from 0"),
    (_NUMBER, "how many, unless the first variable says it; 0: not said"),
    (_LOCAL, "set by torchrun: how many, unless one of the others says it"),
)
"""Variables that say how many devices there are, with what they mean."""


@cache  # as PyTorch does, which has tables with an entry for each device
def count() -> int:
    """How many devices there are, numbered from 0.

    As many as NEURON_RT_VISIBLE_CORES names; or else as NEURON_RT_NUM_CORES says; or else as many as torchrun has
    started processes on this host, so that each of them finds the device of its LOCAL_RANK; or else one.

    Raises:
        UsageError: a variable that makes no sense ("option.value").
    """
    visible = os.environ.get(_VISIBLE, "").strip()
    if visible:
        return len({core for part in visible.split(",") for core in _cores(part, visible)})
    return _number(_NUMBER) or _number(_LOCAL) or 1


def _cores(part: str, text: str) -> range:
    first, dash, last = part.strip().partition("-")
    if not first.isdecimal() or (dash and not last.isdecimal()) or (dash and int(last) < int(first)):
        raise _senseless(_VISIBLE, text, "write cores and ranges of them, such as 0-3 or 0,2")
    return range(int(first), int(last or first) + 1)


def _number(name: str) -> int:
    text = os.environ.get(name, "0").strip() or "0"
    if not text.isdecimal():
        raise _senseless(name, text, "write a whole number")
    return int(text)


def _senseless(name: str, text: str, fix: str) -> UsageError:
    return UsageError("option.value", f"{name}={text!r}", rule=f"{name} says how many devices there are", fix=fix)


class _Chosen(threading.local):
    index = 0


_CHOSEN = _Chosen()
"""The current device of each thread, as PyTorch has it for its own devices."""

_LATER: list[Callable[[], Any]] = []
"""What has to be done before a device other than the first one is the current one; done once in the process."""


def current() -> int:
    """The number of the current device of this thread: the one that ``device="neuron"`` means."""
    return _CHOSEN.index


def choose(index: int) -> int:
    """Make a device the current one of this thread; returns the one before."""
    before, _CHOSEN.index = _CHOSEN.index, index
    while index and _LATER:
        _LATER.pop()()
    return before


def before_another(task: Callable[[], Any]) -> None:
    """Do something when a device other than the first one becomes the current one."""
    _LATER.append(task)


def index_of(device: object = None) -> int:
    """The number of a device: itself, that of a `torch.device` or its name, the current one for None.

    Raises:
        LaunchError: "torch.device-index", there is no such device.
    """
    found: int | None = None
    if device is None or (isinstance(device, int) and device == -1):  # -1: PyTorch's word for no device
        return current()
    if isinstance(device, int):
        found = device
    else:
        try:
            named = torch.device(str(device))
        except RuntimeError:
            named = torch.device("cpu")
        if named.type == DEVICE:
            found = current() if named.index is None else named.index
    if found is None or not 0 <= found < count():
        raise LaunchError(
            "torch.device-index",
            f"torch.{DEVICE} is asked for the device {device!r}",
            rule=f"there are {count()} simulated devices, {DEVICE}:0 to {DEVICE}:{count() - 1}"
            if count() > 1
            else f"there is one simulated device, {DEVICE}:0",
            source=f"{_VISIBLE}, {_NUMBER}",
            fix=f'write "{DEVICE}", or start the process with {_NUMBER}',
            location=user_line(),
        )
    return found
