"""The NumPy machine: executes one instruction after the other on the bytes of one core."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nki.core.dtypes import DType
from nki.core.errors import ExecutionError, NkiError
from nki.core.numerics import cast, round_to, stochastic_round, to_f32
from nki.core.register import VirtualRegister
from nki.core.source import UNKNOWN, Location
from nki.core.tensor import FreeIndirection, ScalarOffset, VectorOffset, View
from nki.options import Options
from nki.sim.memory import (
    LiveStorage,
    Memory,
    mark_written,
    psum_state,
    shadow_of,
    strided,
    written_mask,
)
from nki.sim.numpy_arrays import F32, NumpyArrays
from nki.sim.random import VECTOR_STREAMS, Generator
from nki.spec.engine import engine as Engine
from nki.spec.engine import oob_mode
from nki.spec.program import Issued
from nki.spec.rule import Finding
from nki.target.model import Target

_BY_MATMUL = 1
_BY_OTHERS = 2
_SNAKE_TENSOR = 32
_SNAKE_OTHERS = 16

Report = Callable[[Finding], None]
Meet = Callable[[Any, Any, Location], Any]


class Machine(NumpyArrays):
    """Executes `Issued` records; one per core."""

    def __init__(
        self, target: Target, options: Options, memory: Memory, report: Report, core: int = 0, meet: Meet | None = None
    ) -> None:
        self.target = target
        self.core = core
        self.engine = Engine.unknown
        self.memory = memory
        self.ordered_matmul = options.matmul == "ordered"
        self._stochastic = options.stochastic_rounding
        self._report = report
        self._meet = meet
        self._location: Location = UNKNOWN
        self._registers: dict[int, int] = {}
        self._accumulators = {e: np.zeros((target.partitions, 1), F32) for e in (Engine.vector, Engine.scalar)}
        self._generators: dict[Engine, Generator] = {}
        self._seed = options.seed
        self._oob = oob_mode.error
        self._printer: Callable[[str], None] = print
        self._warned: set[tuple[str, Location]] = set()

    def run(self, issued: Issued) -> None:
        """Execute one verified instruction; an error gets its location."""
        instruction, arguments, location, engine = issued
        self.engine = engine
        self._location = location
        try:
            instruction.execute(arguments, self)
        except NkiError as error:
            if error.location is UNKNOWN or not error.location.frames:
                error.location = location
            raise

    # --- memory

    def load(self, view: View) -> np.ndarray:
        storage = self.memory.storage(view)
        shadow = shadow_of(storage, view) if storage.shadow is not None and view.dynamic is None else None
        if shadow is not None:
            return _rows(shadow, view).copy()
        return to_f32(_rows(self._read(storage, view), view), view.dtype)

    def load_raw(self, view: View) -> np.ndarray:
        return _rows(self._read(self.memory.storage(view), view), view)

    def column(self, value: View | float | int) -> Any:
        return self.load(value) if isinstance(value, View) else F32(value)

    def rounded(self, value: float, dtype: DType) -> Any:
        if dtype.is_packed:
            return np.zeros((1, 1), dtype.numpy)
        return round_to(np.full((1, 1), value, F32), dtype)

    def store(self, view: View, values: Any) -> None:
        values = np.broadcast_to(np.asarray(values, F32), (view.shape[0], view.free_size))
        self._write(view, self._round(values, view.dtype), values)

    def store_raw(self, view: View, values: Any) -> None:
        self._write(view, np.broadcast_to(values, (view.shape[0], view.free_size)), None)

    def copy(self, dst: View, src: View) -> None:
        storage = self.memory.storage(src)
        shadow = shadow_of(storage, src) if storage.shadow is not None and src.dynamic is None else None
        raw = self._read(storage, src)
        if dst.dtype == src.dtype:
            values = None if shadow is None else shadow.reshape(dst.shape)
            self._write(dst, np.ascontiguousarray(raw).reshape(dst.shape[0], -1), values)
        elif shadow is not None:
            self.store(dst, shadow.reshape(dst.shape[0], -1))
        else:
            converted = cast(np.ascontiguousarray(raw), src.dtype, dst.dtype)
            self._write(dst, converted.reshape(dst.shape[0], -1), None)

    def dma(self, dst: View, src: View, skip: bool) -> None:
        self._oob = oob_mode.skip if skip else oob_mode.error
        try:
            if self._reachable(dst) and self._reachable(src):
                self._gather(dst, src) if skip and isinstance(src.dynamic, VectorOffset) else self.copy(dst, src)
        finally:
            self._oob = oob_mode.error

    def _gather(self, dst: View, src: View) -> None:
        """A gather that keeps the destination where the index is out of bounds."""
        valid = self._indices(src)[1].reshape(dst.shape)
        raw = self._read(self.memory.storage(src), src)
        values = cast(np.ascontiguousarray(raw), src.dtype, dst.dtype).reshape(dst.shape)
        old = strided(self.memory.storage(dst), dst)
        self._write(dst, np.where(valid, values, old).reshape(dst.shape[0], -1), None)

    def _reachable(self, view: View) -> bool:
        """False if the view starts at a dynamic address outside its tensor and such accesses are skipped."""
        return not isinstance(view.dynamic, ScalarOffset) or self._placed(view) is not None

    def accumulate(self, dst: View, product: Any, mode: bool | None) -> None:
        storage = self.memory.storage(dst)
        state = psum_state(storage, dst)
        self._check_psum(state, dst, mode)
        previous = _rows(state, dst) != 0
        values = product
        if mode or (mode is None and previous.any()):
            old = to_f32(_rows(strided(storage, dst), dst), dst.dtype)
            total = np.add(old, product, dtype=F32)
            values = total if mode or previous.all() else np.where(previous, total, product)
        self._write(dst, self._round(np.asarray(values, F32), dst.dtype), None)
        state[...] = _BY_MATMUL

    def _check_psum(self, state: np.ndarray, dst: View, mode: bool | None) -> None:
        if mode is False:
            return
        if mode and not state.all():
            self.warn(
                "psum.accumulate-unwritten",
                f"accumulate=True on {dst.buffer.name or 'PSUM'} that no matmul wrote",
                "pass accumulate=False in the first matmul, or omit accumulate",
            )
        if not self.target.pe.accumulate_over_foreign_psum and (state == _BY_OTHERS).any():
            self.warn(
                "psum.accumulate-foreign",
                f"a matmul accumulates onto {dst.buffer.name or 'PSUM'} that another engine wrote, which is undefined "
                f"on {self.target.name}",
                "start the accumulation with a matmul, and add the initial value afterwards",
            )

    def _read(self, storage: LiveStorage, view: View) -> np.ndarray:
        if view.dynamic is None:
            self._check_written(storage, view)
            return strided(storage, view)
        if isinstance(view.dynamic, ScalarOffset):
            placed = self._placed(view)
            if placed is None:
                raise _skipped()
            self._check_written(storage, placed)
            return strided(storage, placed)
        flat, valid = self._indices(view)
        values = _elements(storage, view.dtype)[np.where(valid, flat, 0)]
        return values.reshape(view.shape)

    def _write(self, view: View, values: np.ndarray, precise: np.ndarray | None) -> None:
        storage = self.memory.storage(view)
        if view.dynamic is not None and not isinstance(view.dynamic, ScalarOffset):
            flat, valid = self._indices(view)
            _elements(storage, view.dtype)[flat[valid]] = values.reshape(view.shape)[valid]
            _mark_elements(storage, view.dtype, flat[valid])
            return
        placed = self._placed(view)
        if placed is None:
            return
        if storage.shadow is not None:
            self._write_shadow(storage, placed, values, precise)
        strided(storage, placed)[...] = values.reshape(view.shape)
        mark_written(storage, placed)
        if storage.psum_state is not None:
            psum_state(storage, placed)[...] = _BY_OTHERS

    def _write_shadow(self, storage: LiveStorage, view: View, values: np.ndarray, precise: np.ndarray | None) -> None:
        shadow = shadow_of(storage, view)
        if shadow is None:
            self.warn(
                "memory.shadow-reinterpreted",
                f"{storage.buffer.name} keeps float32 values but is written as "
                f"{view.dtype}: its values were rounded to {storage.buffer.dtype}",
                "run with NKI_PRECISE_FP=1",
            )
            strided(storage, view)[...] = values.reshape(view.shape)
            plane = storage.shadow
            assert plane is not None, "only called with a shadow"
            whole = _elements(storage, storage.buffer.dtype).reshape(plane.shape)
            plane[...] = to_f32(whole, storage.buffer.dtype)
            return
        shadow[...] = (to_f32(values, view.dtype) if precise is None else precise).reshape(view.shape)

    def _round(self, values: np.ndarray, dtype: DType) -> np.ndarray:
        if self._stochastic and dtype.is_float and dtype.itemsize < 4 and not dtype.is_packed:
            bits = self.random_bits(values.shape[0], values.shape[1])
            return stochastic_round(values, dtype, bits)
        return round_to(values, dtype)

    def _check_written(self, storage: LiveStorage, view: View) -> None:
        if storage.written is not None and not written_mask(storage, view).all():
            self.warn(
                "memory.uninitialized",
                f"{view.buffer.name or view.describe()} is read where nothing was written",
                "write it first, for example with nisa.memset, or read only the part that was written",
            )

    # --- dynamic addresses

    def _placed(self, view: View) -> View | None:
        """The static view at run time; None if it is out of bounds and skipped."""
        dynamic = view.dynamic
        if dynamic is None:
            return view
        assert isinstance(dynamic, ScalarOffset), "gathers are resolved element by element"
        index = dynamic.indices
        value = self._index_values(index).item() if isinstance(index, View) else self.read_register(index)
        placed = view._replace(offset=view.offset + int(value) * dynamic.scale, dynamic=None)
        spans = [(n - 1) * s for n, s in zip(view.shape, view.strides, strict=True)]
        low = placed.offset + sum(min(0, s) for s in spans)
        high = placed.offset + sum(max(0, s) for s in spans)
        total = view.buffer.nbytes // view.dtype.itemsize
        if low >= 0 and high < total:
            return placed
        if self._oob is oob_mode.skip:
            return None
        raise _out_of_bounds(view, f"index {int(value)} reaches elements {low} to {high}", total)

    def _indices(self, view: View) -> tuple[np.ndarray, np.ndarray]:
        """Flat element numbers of a gather or scatter in the buffer, and which of them are inside it."""
        dynamic = view.dynamic
        if isinstance(dynamic, VectorOffset):
            start = self._index_values(dynamic.indices).reshape(-1, order="F")[: view.shape[0]] * dynamic.scale
            strides = view.strides[1:]
        else:
            assert isinstance(dynamic, FreeIndirection), "the two indirect kinds"
            return self._snake(view, dynamic)
        grid = start.reshape(-1, *[1] * (view.ndim - 1)) + view.offset
        for axis, (size, stride) in enumerate(zip(view.shape[1:], strides, strict=True)):
            grid = grid + (np.arange(size) * stride).reshape([-1 if a == axis + 1 else 1 for a in range(view.ndim)])
        flat = np.broadcast_to(grid, view.shape)
        total = view.buffer.nbytes // view.dtype.itemsize
        valid = (flat >= 0) & (flat < total)
        if not valid.all() and self._oob is oob_mode.error:
            row = int(np.argmin(valid.reshape(view.shape[0], -1).all(axis=1)))
            raise _out_of_bounds(view, f"row {row} has index {int(start[row] // dynamic.scale)}", total)
        return flat, valid

    def _snake(self, view: View, dynamic: FreeIndirection) -> tuple[np.ndarray, np.ndarray]:
        group = _SNAKE_TENSOR if self.engine is Engine.tensor else _SNAKE_OTHERS
        table = self._index_values(dynamic.indices).reshape(dynamic.indices.shape[0], -1)
        partitions, count = view.shape
        first = (np.arange(partitions) // group) * group
        order = np.arange(count)
        rows = np.minimum(first[:, None] + (order % group)[None, :], partitions - 1)
        offsets = table[rows, (order // group)[None, :]]
        flat = view.offset + np.arange(partitions)[:, None] * view.row + offsets
        valid = (offsets >= 0) & (view.free_offset + offsets < view.row)
        if not valid.all() and self._oob is oob_mode.error:
            raise _out_of_bounds(view, f"free offset {int(offsets[~valid][0])}", view.row)
        return flat, valid

    def _index_values(self, view: View) -> np.ndarray:
        raw = self._read(self.memory.storage(view), view)
        return raw.astype(np.int64)

    # --- state of the engines

    def read_accumulator(self, partitions: int) -> np.ndarray:
        return self._accumulators[self.engine][:partitions].copy()

    def write_accumulator(self, values: Any) -> None:
        self._accumulators[self.engine][: values.shape[0]] = values

    def read_register(self, register: VirtualRegister | int) -> int:
        if isinstance(register, int):
            return register
        if register.id not in self._registers:
            raise ExecutionError(
                "register.uninitialized",
                f"{register} is read before anything was moved into it",
                fix="give nisa.register_alloc an initial value, or load it first",
            )
        return self._registers[register.id]

    def write_register(self, register: VirtualRegister, value: int) -> None:
        self._registers[register.id] = (int(value) + (1 << 31)) % (1 << 32) - (1 << 31)

    def random_bits(self, partitions: int, count: int) -> np.ndarray:
        return self._generator().bits(partitions, count)

    def seed_random(self, state: Any) -> None:
        self._generator().seed(state)

    def random_state(self, partitions: int, words: int) -> np.ndarray:
        return self._generator().state(partitions, words)

    def _generator(self) -> Generator:
        if self.engine not in self._generators:
            streams = VECTOR_STREAMS if self.engine is Engine.vector else 1
            seed = self._seed + (self.core << 8) + self.engine.value
            self._generators[self.engine] = Generator(self.target.partitions, seed, streams)
        return self._generators[self.engine]

    # --- other cores and the outside

    def barrier(self) -> None:
        self._together(("barrier",), None)

    def exchange(self, key: int, values: Any, to: int, source: int) -> Any:
        return self._together(("sendrecv", key), values)

    def _together(self, key: Any, values: Any) -> Any:
        if self._meet is None:
            raise ExecutionError(
                "cores.alone",
                "the kernel waits for another core but was launched on one",
                fix="launch it as kernel[2](...)",
            )
        return self._meet(key, values, self._location)

    def say(self, prefix: str, view: View) -> None:
        values = np.array2string(self.load(view).reshape(view.shape), threshold=64, precision=6)
        self._printer(f"{prefix}{values}")

    def warn(self, code: str, message: str, fix: str) -> None:
        if (code, self._location) not in self._warned:
            self._warned.add((code, self._location))
            self._report(Finding(code, "warning", message, "", "", fix, self._location, {}))


def _rows(values: np.ndarray, view: View) -> np.ndarray:
    return values if values.ndim == 2 else values.reshape(view.shape[0], -1)


def _elements(storage: LiveStorage, dtype: DType) -> np.ndarray:
    end = storage.start + storage.buffer.nbytes
    if storage.pitch != storage.buffer.row_bytes and storage.buffer.on_chip:
        raise ExecutionError(
            "access.indirect-address",
            f"{storage.buffer.name} has an explicit address and cannot be gathered from",
            fix="let the allocator place it",
        )
    return storage.base[storage.start : end].view(dtype.numpy)


def _mark_elements(storage: LiveStorage, dtype: DType, flat: np.ndarray) -> None:
    if storage.written is not None:
        storage.written.reshape(-1, dtype.itemsize)[flat] = True


def _out_of_bounds(view: View, what: str, total: int) -> ExecutionError:
    return ExecutionError(
        "access.dynamic-out-of-bounds",
        f"{what}, but {view.buffer.name or 'the tensor'} holds {total} elements of {view.dtype}",
        rule="dynamic addresses stay inside their tensor",
        source="nki/api/nki/isa dma_copy",
        fix="correct the index, or pass oob_mode=nisa.oob_mode.skip",
    )


def _skipped() -> ExecutionError:
    return ExecutionError(
        "access.skipped-read", "a skipped access was read", fix="use oob_mode with DMA instructions only"
    )
