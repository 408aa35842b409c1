"""Loads, stores and copies: between the bytes of a core and the values that bodies compute with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nki.core import dtypes
from nki.core.dtypes import DType
from nki.core.numerics import round_to, stochastic_round, to_f32
from nki.core.tensor import MemoryRegion, ScalarOffset, VectorOffset, View, whole
from nki.options import Options
from nki.sim.addresses import Addresses, DynamicRows
from nki.sim.elements import elements, mark_elements, positions
from nki.sim.memory import LiveStorage, Memory, shadow_of, strided
from nki.sim.notes import Report
from nki.sim.numpy_arrays import F32
from nki.sim.psum import BY_MATMUL, BY_OTHERS, byte_states, forget_states, set_state
from nki.sim.repeats import FIX, RULE, repeated_rows
from nki.sim.rows import every_row, is_block, mark_rows, reach
from nki.sim.window import Window
from nki.sim.written import mark_written
from nki.spec.engine import engine as Engine
from nki.spec.engine import oob_mode
from nki.target.model import Target

_CAST_WHILE_COPYING = frozenset({dtypes.float32, dtypes.bfloat16, dtypes.float16})
"""Floats that NumPy rounds as `round_to` does, so that the rounded values need no array of their own."""


class Moves(Addresses):
    """The memory part of the array namespace."""

    def __init__(self, target: Target, options: Options, memory: Memory, report: Report, core: int) -> None:
        super().__init__(target, options, memory, report, core)
        self._stochastic = options.stochastic_rounding

    # --- reading

    def load(self, view: View) -> np.ndarray:
        storage = self.memory.storage(view)
        if storage.shadow is not None:
            shadow = self._precise(storage, view)
            if shadow is not None:
                return _two_dimensional(shadow, view).copy()
        if view.dynamic is not None and not isinstance(view.dynamic, ScalarOffset):
            return to_f32(_two_dimensional(self._read(storage, view), view), view.dtype)
        window = self._readable(view)
        if view.dtype is dtypes.float32:
            return window.flat()
        return to_f32(window.flat(), view.dtype)

    def load_raw(self, view: View) -> np.ndarray:
        return _two_dimensional(self._read(self.memory.storage(view), view), view)

    def column(self, value: View | float | int) -> Any:
        return self.load(value) if isinstance(value, View) else F32(value)

    def rounded(self, value: float, dtype: DType) -> Any:
        if dtype.is_packed:
            return np.zeros((1, 1), dtype.numpy)
        return round_to(np.full((1, 1), value, F32), dtype)

    # --- writing

    def store(self, view: View, values: Any) -> None:
        values = np.asarray(values, F32)
        storage = self.memory.storage(view)
        direct = view.dtype is dtypes.float32 or (view.dtype in _CAST_WHILE_COPYING and not self._stochastic)
        if direct and storage.shadow is None and (view.dynamic is None or isinstance(view.dynamic, ScalarOffset)):
            placed = self._placed(view)
            if placed is not None:
                self._fill(storage, placed, values)
            return
        values = np.broadcast_to(values, (view.shape[0], view.free_size))
        self._write(view, self._round(values, view.dtype), values)

    def store_raw(self, view: View, values: Any) -> None:
        self._write(view, np.broadcast_to(values, (view.shape[0], view.free_size)), None)

    def _fill(self, storage: LiveStorage, view: View, values: np.ndarray) -> None:
        """Cast and copy in one go what broadcasts to ``(P, F)`` of a static view."""
        window = storage.window(view)
        self._note_write(storage, view, window)
        if window.rows is not None:
            np.copyto(window.rows, values, casting="unsafe")
        else:
            values = np.broadcast_to(values, (view.shape[0], view.free_size))
            np.copyto(window.bits, values.reshape(view.shape), casting="unsafe")

    def _note_write(self, storage: LiveStorage, view: View, window: Window, where: np.ndarray | None = None) -> None:
        """Note a write to a static view, before its bytes change."""
        if where is not None or not window.written:
            mark_written(storage, view, window, where)
        if view.buffer.region is MemoryRegion.psum:
            set_state(storage, view, window, self._writer(), where)

    def _writer(self) -> int:
        """What a PSUM location remembers of the running engine: the Tensor engine writes by matmul and transpose."""
        return BY_MATMUL if self.engine is Engine.tensor else BY_OTHERS

    def _write(
        self, view: View, values: np.ndarray, precise: np.ndarray | None, where: np.ndarray | None = None
    ) -> None:
        storage = self.memory.storage(view)
        values = values.reshape(view.shape)
        precise = None if precise is None else precise.reshape(view.shape)
        where = None if where is None else where.reshape(view.shape)
        if view.dynamic is not None and not isinstance(view.dynamic, ScalarOffset):
            self._scatter(storage, view, values, precise, where)
            return
        placed = self._placed(view)
        if placed is None:
            return
        if storage.shadow is not None and view.dtype == storage.buffer.dtype:
            precise = to_f32(values, view.dtype) if precise is None else precise
            plane = shadow_of(storage, placed)
            assert plane is not None, "there is a shadow of this dtype"
            np.copyto(plane, precise, where=True if where is None else where)
        window = storage.window(placed)
        self._note_write(storage, placed, window, where)
        np.copyto(window.bits, values, where=True if where is None else where)
        if storage.shadow is not None and view.dtype != storage.buffer.dtype:
            self._round_shadow(storage, view)

    def _scatter(
        self,
        storage: LiveStorage,
        view: View,
        values: np.ndarray,
        precise: np.ndarray | None,
        where: np.ndarray | None,
    ) -> None:
        if isinstance(view.dynamic, VectorOffset):
            self._check_repeats(view, view.dynamic, values)
        blocks = isinstance(view.dynamic, VectorOffset) and not view.on_chip and is_block(view)
        if blocks and where is None and storage.shadow is None and reach(view).high < view.row:
            assert isinstance(view.dynamic, VectorOffset), "asked above"
            rows = self._row_starts(view, view.dynamic)
            if rows.partly is None:
                self._scatter_rows(storage, view, values, rows)
                return
        flat, valid = self._indices(view)
        valid = valid if where is None else valid & where
        chosen, bits = flat[valid], values[valid]
        mark_elements(storage, view.dtype, chosen)
        elements(storage, view.dtype)[positions(storage, view.dtype, chosen)] = bits
        if view.buffer.region is MemoryRegion.psum:
            byte_states(storage)[chosen * view.dtype.itemsize] = self._writer()
            forget_states(storage)
        if storage.shadow is None:
            return
        if view.dtype != storage.buffer.dtype:
            self._round_shadow(storage, view)
            return
        storage.shadow.reshape(-1)[chosen] = to_f32(bits, view.dtype) if precise is None else precise[valid]

    def _check_repeats(self, view: View, dynamic: VectorOffset, values: np.ndarray) -> None:
        rows = self._row_starts(view, dynamic)
        kept = rows.inside.all()
        starts, written = (rows.starts, values) if kept else (rows.starts[rows.inside], values[rows.inside])
        message = repeated_rows(view, starts, written)
        if message:
            self.warn("access.repeated-rows", message, FIX, RULE)

    def _scatter_rows(self, storage: LiveStorage, view: View, values: np.ndarray, rows: DynamicRows) -> None:
        """Rows that are one piece of memory each; of rows that overlap the last one stays."""
        starts = rows.starts[rows.inside]
        mark_rows(storage, view, starts)
        every_row(storage, view)[starts] = values if rows.inside.all() else values[rows.inside]

    def _round_shadow(self, storage: LiveStorage, view: View) -> None:
        """Bytes were written under another dtype, so that the float32 values behind them are those of the bytes."""
        self.warn(
            "memory.shadow-reinterpreted",
            f"{storage.buffer.name} keeps float32 values but is written as "
            f"{view.dtype}: its values were rounded to {storage.buffer.dtype}",
            "run with NKI_PRECISE_FP=1",
        )
        assert storage.shadow is not None, "only called with a shadow"
        values = to_f32(strided(storage, whole(storage.buffer)), storage.buffer.dtype)
        storage.shadow[...] = values.reshape(storage.shadow.shape)

    def _round(self, values: np.ndarray, dtype: DType) -> np.ndarray:
        if self._stochastic and dtype.is_float and dtype.itemsize < 4 and not dtype.is_packed:
            bits = self.random_bits(values.shape[0], values.shape[1])
            return stochastic_round(values, dtype, bits)
        return round_to(values, dtype)

    # --- copies

    def copy(self, dst: View, src: View) -> None:
        storage = self.memory.storage(src)
        shadow = self._precise(storage, src)
        raw = self._read(storage, src)
        if dst.dtype == src.dtype:
            self._write(dst, raw, None if shadow is None else shadow.reshape(dst.shape))
        else:
            values = to_f32(raw, src.dtype) if shadow is None else shadow
            self.store(dst, values.reshape(dst.shape[0], -1))

    def dma(self, dst: View, src: View, skip: bool, axes: Sequence[int] | None = None, add: View | None = None) -> None:
        self._oob = oob_mode.skip if skip else oob_mode.error
        try:
            if not self._reachable(dst) or not self._reachable(src):
                return
            if axes is None and add is None and not (skip and isinstance(src.dynamic, VectorOffset)):
                self.copy(dst, src)
            else:
                self._transfer(dst, src, axes or range(src.ndim), add)
        finally:
            self._oob = oob_mode.error

    def _transfer(self, dst: View, src: View, axes: Sequence[int], add: View | None) -> None:
        """A DMA that reorders dimensions, adds, or leaves the destination where a source row is out of bounds."""
        storage = self.memory.storage(src)

        def ordered(values: np.ndarray) -> np.ndarray:
            moved = np.broadcast_to(values, src.shape).transpose(axes)
            return moved if moved.shape == dst.shape else moved.reshape(dst.shape)

        valid = None
        if isinstance(src.dynamic, VectorOffset):
            inside = self._indices(src)[1]
            if not inside.all():
                valid = ordered(inside)
        bits, precise = ordered(self._read(storage, src)), self._precise(storage, src)
        precise = None if precise is None else ordered(precise)
        if add is not None or dst.dtype != src.dtype:
            precise = to_f32(bits, src.dtype) if precise is None else precise
            if add is not None:
                precise = np.add(self.load(add).reshape(dst.shape), precise, dtype=F32)
            bits = self._round(precise.reshape(dst.shape[0], -1), dst.dtype)
        self._write(dst, bits, precise, valid)

    def gather(self, dst: View, src: View, positions: Any) -> None:
        storage = self.memory.storage(src)
        positions = np.broadcast_to(positions, (dst.shape[0], dst.free_size))
        kept = positions < 0
        index = np.where(kept, 0, positions)
        bits, precise = self._read(storage, src), self._precise(storage, src)
        precise = None if precise is None else precise.reshape(-1)[index]
        self._write(dst, bits.reshape(-1)[index], precise, ~kept if kept.any() else None)


def _two_dimensional(values: np.ndarray, view: View) -> np.ndarray:
    return values if values.ndim == 2 else values.reshape(view.shape[0], -1)
