"""Memory of an eager call goes with the call: the next one finds it free, whether garbage was collected or not."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.sim.memory import LiveStorage, Memory


@pytest.fixture
def without_collector() -> Iterator[None]:
    """Only reference counts free memory."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def looped(a: Any) -> Any:
    """Registers, a device loop, tiles and a result."""
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a)
    for _ in nl.dynamic_range(3):
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
    nisa.dma_copy(dst=out, src=tile)
    return out


@pytest.mark.parametrize("cores", [1, 2])
def test_no_storage_outlives_its_call(cores: int, monkeypatch: pytest.MonkeyPatch, without_collector: None) -> None:
    seen: list[weakref.ref[LiveStorage]] = []
    allocate = Memory.allocate

    def noted(memory: Memory, buffer: Any) -> LiveStorage:
        storage = allocate(memory, buffer)
        seen.append(weakref.ref(storage))
        return storage

    monkeypatch.setattr(Memory, "allocate", noted)
    kernel = nki.simulate(nki.jit(looped))[cores]
    result = kernel(np.zeros((128, 4), np.float32))
    assert (result == 3).all()
    assert len(seen) >= 2 and all(storage() is None for storage in seen)
