"""Matmul results in PSUM: overwriting, adding, and what is wrong with adding to what nobody or another engine wrote."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki.core import dtypes
from nki.core.numerics import to_f32
from nki.core.tensor import FreeIndirection, View
from nki.sim.elements import elements, positions, written_elements
from nki.sim.memory import LiveStorage, strided
from nki.sim.moves import Moves
from nki.sim.numpy_arrays import F32
from nki.sim.overlay import as_seen
from nki.sim.psum import BY_OTHERS, UNWRITTEN, byte_states, common_state, psum_state
from nki.sim.window import UNKNOWN_STATE
from nki.sim.written import is_written


class Accumulation(Moves):
    """The PSUM part of the array namespace."""

    def accumulate(self, dst: View, product: Any, mode: bool | None) -> None:
        storage = self.memory.storage(dst)
        if dst.dtype is dtypes.float32 and not isinstance(dst.dynamic, FreeIndirection):
            placed = self._placed(dst)
            assert placed is not None, "only DMA skips what is out of bounds"
            if self._accumulate_uniform(storage, placed, product, mode):
                return
        state, stored = self._psum_before(storage, dst)
        self._check_psum(bool(state.all()), bool((state == BY_OTHERS).any()), dst, mode)
        previous = state.reshape(dst.shape[0], -1) != UNWRITTEN
        values = product
        if mode or (mode is None and previous.any()):
            old = to_f32(stored.reshape(dst.shape[0], -1), dst.dtype)
            total = np.add(old, product, dtype=F32)
            values = total if mode or previous.all() else np.where(previous, total, product)
        self._write(dst, self._round(np.asarray(values, F32), dst.dtype), None)

    def _accumulate_uniform(self, storage: LiveStorage, dst: View, product: np.ndarray, mode: bool | None) -> bool:
        """Accumulate in place, if all float32 elements of a static view were last written in one way; else False."""
        window = storage.window(dst)
        state = common_state(storage, dst, window)
        if state == UNKNOWN_STATE or window.rows is None:
            return False
        self._check_psum(state != UNWRITTEN, state == BY_OTHERS, dst, mode)
        adds = mode or (mode is None and state != UNWRITTEN)
        if adds and storage.overlaid and not is_written(storage, dst, window):
            return False
        if adds:
            storage.settle()
        self._note_write(storage, dst, window)
        if adds:
            np.add(window.rows, product, out=window.rows, dtype=F32)
        else:
            np.copyto(window.rows, product)
        return True

    def _psum_before(self, storage: LiveStorage, dst: View) -> tuple[np.ndarray, np.ndarray]:
        """Who wrote the elements of a PSUM view, and what they hold, wherever a dynamic address points."""
        if isinstance(dst.dynamic, FreeIndirection):
            flat = self._indices(dst)[0]
            state = byte_states(storage)[flat * dst.dtype.itemsize]
            seen = storage if written_elements(storage, dst.dtype, flat).all() else as_seen(storage)
            return state, elements(seen, dst.dtype)[positions(seen, dst.dtype, flat)]
        placed = self._placed(dst)
        assert placed is not None, "only DMA skips what is out of bounds"
        state = psum_state(storage, placed)
        if not storage.overlaid or is_written(storage, placed, storage.window(placed)):
            return state, strided(storage, placed)
        return state, strided(as_seen(storage), placed)

    def _check_psum(self, all_written: bool, foreign: bool, dst: View, mode: bool | None) -> None:
        if mode is False:
            return
        if mode and not all_written:
            self.warn(
                "psum.accumulate-unwritten",
                f"accumulate=True on {dst.buffer.name or 'PSUM'} that no matmul wrote",
                "pass accumulate=False in the first matmul, or omit accumulate",
            )
        if foreign and not self.target.pe.accumulate_over_foreign_psum:
            self.warn(
                "psum.accumulate-foreign",
                f"a matmul accumulates onto {dst.buffer.name or 'PSUM'} that another engine wrote, which is undefined "
                f"on {self.target.name}",
                "start the accumulation with a matmul, and add the initial value afterwards",
            )
