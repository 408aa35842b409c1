"""How much memory tensors of the device have, now and at most."""

from __future__ import annotations

import weakref
from collections import Counter

import torch

from nki.core.locks import rlock
from nki.driver.prepare import host_target
from nki.target.model import Target

_LOCK = rlock()
_HOLDERS: Counter[int] = Counter()
"""How many storages there are of the memory at an address: tensors that kernels write to and return share theirs."""

_WATCHED: dict[int, weakref.ref[torch.UntypedStorage]] = {}
"""The storages that are counted, by their identity in C++; one goes when its memory does."""

_GIVEN_BACK: dict[int, int] = {}
"""Bytes of storages that have no memory at the moment, by the same identity."""

_NOW = {"current": 0, "peak": 0, "allocated": 0, "freed": 0}
"""Bytes of the process, as `torch.neuron` tells them: four numbers."""


def count(tensor: torch.Tensor) -> torch.Tensor:
    """Count the memory of a tensor that was put on the device, until nobody has it."""
    storage = tensor.untyped_storage()
    size, place, number = storage.nbytes(), storage.data_ptr(), storage._cdata
    if not size or number in _WATCHED:
        return tensor

    def gone(_: object) -> None:
        with _LOCK:
            _WATCHED.pop(number, None)
            back = _GIVEN_BACK.pop(number, 0)
            _HOLDERS[place] -= 1
            if not _HOLDERS[place]:
                del _HOLDERS[place]
                _NOW["current"] -= size - back
                _NOW["freed"] += size - back

    with _LOCK:
        _WATCHED[number] = weakref.ref(storage, gone)
        _HOLDERS[place] += 1
        if _HOLDERS[place] == 1:
            _NOW["current"] += size
            _NOW["allocated"] += size
            _NOW["peak"] = max(_NOW["peak"], _NOW["current"])
    return tensor


def given_back(storage: torch.UntypedStorage) -> bool:
    """Note that a storage has no memory any more; False if another one has the same."""
    number, size = storage._cdata, storage.nbytes()
    with _LOCK:
        if number not in _WATCHED or number in _GIVEN_BACK or _HOLDERS[storage.data_ptr()] > 1:
            return False
        _GIVEN_BACK[number] = size
        _NOW["current"] -= size
        _NOW["freed"] += size
        return True


def taken_back(storage: torch.UntypedStorage) -> None:
    """Note that a storage has its memory again."""
    with _LOCK:
        size = _GIVEN_BACK.pop(storage._cdata, 0)
        _NOW["current"] += size
        _NOW["allocated"] += size
        _NOW["peak"] = max(_NOW["peak"], _NOW["current"])


def usage() -> dict[str, int]:
    """Bytes that tensors have now, had at most, and got and gave back in all."""
    with _LOCK:
        return dict(_NOW)


def forget_peak() -> None:
    """The most from now on."""
    with _LOCK:
        _NOW["peak"] = _NOW["current"]


def forget_totals() -> None:
    """What tensors got and gave back from now on."""
    with _LOCK:
        _NOW["allocated"], _NOW["freed"] = _NOW["current"], 0


def target() -> Target:
    """The target of the environment, whose device is simulated."""
    return host_target()
