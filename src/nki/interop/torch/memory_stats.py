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

_NOW: dict[int, dict[str, int]] = {}
"""Bytes by the number of the device, as `torch.neuron` tells them: four numbers each."""


def _of(index: int) -> dict[str, int]:
    return _NOW.setdefault(index, {"current": 0, "peak": 0, "allocated": 0, "freed": 0})


def _more(index: int, size: int) -> None:
    now = _of(index)
    now["current"] += size
    now["allocated"] += size
    now["peak"] = max(now["peak"], now["current"])


def _less(index: int, size: int) -> None:
    now = _of(index)
    now["current"] -= size
    now["freed"] += size


def count(tensor: torch.Tensor) -> torch.Tensor:
    """Count the memory of a tensor that was put on the device, until nobody has it."""
    storage = tensor.untyped_storage()
    size, place, number, index = storage.nbytes(), storage.data_ptr(), storage._cdata, tensor.device.index or 0
    if not size or number in _WATCHED:
        return tensor

    def gone(_: object) -> None:
        with _LOCK:
            _WATCHED.pop(number, None)
            back = _GIVEN_BACK.pop(number, 0)
            _HOLDERS[place] -= 1
            if not _HOLDERS[place]:
                del _HOLDERS[place]
                _less(index, size - back)

    with _LOCK:
        _WATCHED[number] = weakref.ref(storage, gone)
        _HOLDERS[place] += 1
        if _HOLDERS[place] == 1:
            _more(index, size)
    return tensor


def given_back(storage: torch.UntypedStorage) -> bool:
    """Note that a storage has no memory any more; False if another one has the same."""
    number, size = storage._cdata, storage.nbytes()
    with _LOCK:
        if number not in _WATCHED or number in _GIVEN_BACK or _HOLDERS[storage.data_ptr()] > 1:
            return False
        _GIVEN_BACK[number] = size
        _less(storage.device.index or 0, size)
        return True


def taken_back(storage: torch.UntypedStorage) -> None:
    """Note that a storage has its memory again."""
    with _LOCK:
        size = _GIVEN_BACK.pop(storage._cdata, 0)
        _more(storage.device.index or 0, size)


def usage(index: int) -> dict[str, int]:
    """Bytes that tensors of a device have now, had at most, and got and gave back in all."""
    with _LOCK:
        return dict(_of(index))


def forget_peak(index: int) -> None:
    """The most from now on."""
    with _LOCK:
        now = _of(index)
        now["peak"] = now["current"]


def forget_totals(index: int) -> None:
    """What tensors got and gave back from now on."""
    with _LOCK:
        now = _of(index)
        now["allocated"], now["freed"] = now["current"], 0


def target() -> Target:
    """The target of the environment, whose device is simulated."""
    return host_target()
