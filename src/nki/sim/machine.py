"""The NumPy machine: executes one instruction after the other on the bytes of one core."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nki.core.dtypes import DType, unpack_x4
from nki.core.errors import ExecutionError, NkiError
from nki.core.numerics import round_to, stochastic_round, to_f32
from nki.core.register import VirtualRegister
from nki.core.source import UNKNOWN, Location
from nki.core.tensor import FreeIndirection, ScalarOffset, VectorOffset, View, whole
from nki.options import Options
from nki.sim.elements import elements, mark_elements, positions, written_elements
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
from nki.sim.parcel import Parcel, check_contents, check_route
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
        reducing = (Engine.vector, Engine.scalar)
        self._accumulators = {e: np.full((target.partitions, 1), np.nan, F32) for e in reducing}
        self._accumulated = {e: np.zeros((target.partitions, 1), F32) for e in reducing}
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
            if not error.placed:
                error.location = location
            raise

    def tap(self, name: str, view: View, location: Location) -> None:
        """A named intermediate value: nothing to do unless somebody watches."""

    # --- memory

    def load(self, view: View) -> np.ndarray:
        storage = self.memory.storage(view)
        shadow = self._precise(storage, view)
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
        shadow = self._precise(storage, src)
        raw = self._read(storage, src)
        if dst.dtype == src.dtype:
            values = None if shadow is None else shadow.reshape(dst.shape)
            self._write(dst, np.ascontiguousarray(raw).reshape(dst.shape[0], -1), values)
        else:
            values = to_f32(np.ascontiguousarray(raw), src.dtype) if shadow is None else shadow
            self.store(dst, values.reshape(dst.shape[0], -1))

    def dma(self, dst: View, src: View, skip: bool, axes: Sequence[int] | None = None, add: bool = False) -> None:
        self._oob = oob_mode.skip if skip else oob_mode.error
        try:
            if not self._reachable(dst) or not self._reachable(src):
                return
            if axes is None and not add and not (skip and isinstance(src.dynamic, VectorOffset)):
                self.copy(dst, src)
            else:
                self._transfer(dst, src, axes or range(src.ndim), add)
        finally:
            self._oob = oob_mode.error

    def _transfer(self, dst: View, src: View, axes: Sequence[int], add: bool) -> None:
        """A DMA that reorders dimensions, adds, or leaves the destination where a source row is out of bounds."""
        storage = self.memory.storage(src)

        def ordered(values: np.ndarray) -> np.ndarray:
            return np.broadcast_to(values, src.shape).transpose(axes).reshape(dst.shape[0], -1)

        valid = ordered(self._indices(src)[1]) if isinstance(src.dynamic, VectorOffset) else None
        bits, precise = ordered(self._read(storage, src)), self._precise(storage, src)
        precise = None if precise is None else ordered(precise)
        if add or dst.dtype != src.dtype:
            precise = to_f32(bits, src.dtype) if precise is None else precise
            precise = np.add(self.load(dst), precise, dtype=F32) if add else precise
            bits = self._round(precise, dst.dtype)
        self._write(dst, bits, precise, valid)

    def gather(self, dst: View, src: View, positions: Any) -> None:
        storage = self.memory.storage(src)
        positions = np.broadcast_to(positions, (dst.shape[0], dst.free_size))
        kept = positions < 0
        index = np.where(kept, 0, positions)
        bits, precise = self._read(storage, src), self._precise(storage, src)
        precise = None if precise is None else precise.reshape(-1)[index]
        self._write(dst, bits.reshape(-1)[index], precise, ~kept if kept.any() else None)

    def _reachable(self, view: View) -> bool:
        """False if the view starts at a dynamic address outside its tensor and such accesses are skipped."""
        return not isinstance(view.dynamic, ScalarOffset) or self._placed(view) is not None

    def accumulate(self, dst: View, product: Any, mode: bool | None) -> None:
        storage = self.memory.storage(dst)
        state, stored = self._psum_before(storage, dst)
        self._check_psum(state, dst, mode)
        previous = _rows(state, dst) != 0
        values = product
        if mode or (mode is None and previous.any()):
            old = to_f32(_rows(stored, dst), dst.dtype)
            total = np.add(old, product, dtype=F32)
            values = total if mode or previous.all() else np.where(previous, total, product)
        self._write(dst, self._round(np.asarray(values, F32), dst.dtype), None)

    def _psum_before(self, storage: LiveStorage, dst: View) -> tuple[np.ndarray, np.ndarray]:
        """Who wrote the elements of a PSUM view, and what they hold, wherever a dynamic address points."""
        if isinstance(dst.dynamic, FreeIndirection):
            assert storage.psum_state is not None, "matmul results go to PSUM"
            flat = self._indices(dst)[0]
            where = positions(storage, dst.dtype, flat)
            return storage.psum_state[flat * dst.dtype.itemsize], elements(storage, dst.dtype)[where]
        placed = self._placed(dst)
        assert placed is not None, "only DMA skips what is out of bounds"
        return psum_state(storage, placed), strided(storage, placed)

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
        self._check_elements(storage, view, flat[valid])
        return elements(storage, view.dtype)[positions(storage, view.dtype, np.where(valid, flat, 0))]

    def _precise(self, storage: LiveStorage, view: View) -> np.ndarray | None:
        """The float32 values behind a view where they are kept: an alias for a static or scalar address."""
        if storage.shadow is None or view.dtype != storage.buffer.dtype:
            return None
        if view.dynamic is None or isinstance(view.dynamic, ScalarOffset):
            placed = self._placed(view)
            return None if placed is None else shadow_of(storage, placed)
        flat, valid = self._indices(view)
        return storage.shadow.reshape(-1)[np.where(valid, flat, 0)]

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
        np.copyto(strided(storage, placed), values, where=True if where is None else where)
        mark_written(storage, placed, where)
        if storage.psum_state is not None:
            np.copyto(psum_state(storage, placed), self._writer(), where=True if where is None else where)
        if storage.shadow is not None and view.dtype != storage.buffer.dtype:
            self._round_shadow(storage, view)

    def _writer(self) -> int:
        """What a PSUM location remembers of the running engine: the Tensor engine writes by matmul and transpose."""
        return _BY_MATMUL if self.engine is Engine.tensor else _BY_OTHERS

    def _scatter(
        self,
        storage: LiveStorage,
        view: View,
        values: np.ndarray,
        precise: np.ndarray | None,
        where: np.ndarray | None,
    ) -> None:
        flat, valid = self._indices(view)
        valid = valid if where is None else valid & where
        chosen, bits = flat[valid], values[valid]
        elements(storage, view.dtype)[positions(storage, view.dtype, chosen)] = bits
        mark_elements(storage, view.dtype, chosen)
        if storage.psum_state is not None:
            storage.psum_state[chosen * view.dtype.itemsize] = self._writer()
        if storage.shadow is None:
            return
        if view.dtype != storage.buffer.dtype:
            self._round_shadow(storage, view)
            return
        storage.shadow.reshape(-1)[chosen] = to_f32(bits, view.dtype) if precise is None else precise[valid]

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

    def _check_written(self, storage: LiveStorage, view: View) -> None:
        if storage.written is not None and not written_mask(storage, view).all():
            self._uninitialized(view)

    def _check_elements(self, storage: LiveStorage, view: View, flat: np.ndarray) -> None:
        if storage.written is not None and not written_elements(storage, view.dtype, flat).all():
            self._uninitialized(view)

    def _uninitialized(self, view: View) -> None:
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
        start, dims, total = placed.offset, 0, view.buffer.nbytes // view.dtype.itemsize
        if view.on_chip and dynamic.scale % view.row:  # a free offset stays in the tensor's part of the partition
            start, dims, total = view.free_offset + int(value) * dynamic.scale, 1, view.row
        spans = [(n - 1) * s for n, s in zip(view.shape[dims:], view.strides[dims:], strict=True)]
        low = start + sum(min(0, s) for s in spans)
        high = start + sum(max(0, s) for s in spans)
        if low >= 0 and high < total:
            return placed
        if self._oob is oob_mode.skip:
            return None
        raise _out_of_bounds(view, f"index {int(value)} reaches elements {low} to {high}", total)

    def _indices(self, view: View) -> tuple[np.ndarray, np.ndarray]:
        """Flat element numbers of a gather or scatter in the buffer, and which of them are inside it."""
        dynamic = view.dynamic
        if isinstance(dynamic, VectorOffset):
            rows = self._index_values(dynamic.indices).reshape(-1, order="F")[: view.shape[0]]
            start, strides = rows * dynamic.scale, view.strides[1:]
        else:
            assert isinstance(dynamic, FreeIndirection), "the two indirect kinds"
            return self._snake(view, dynamic)
        grid = start.reshape(-1, *[1] * (view.ndim - 1)) + view.offset
        for axis, (size, stride) in enumerate(zip(view.shape[1:], strides, strict=True)):
            grid = grid + (np.arange(size) * stride).reshape([-1 if a == axis + 1 else 1 for a in range(view.ndim)])
        flat = np.broadcast_to(grid, view.shape)
        total = view.buffer.nbytes // view.dtype.itemsize
        inside = ((flat >= 0) & (flat < total)).reshape(view.shape[0], -1).all(axis=1) & (rows >= 0)
        if not inside.all() and self._oob is oob_mode.error:
            row = int(np.argmin(inside))
            raise _out_of_bounds(view, f"row {row} has index {int(rows[row])}", total, dynamic.scale)
        return flat, np.broadcast_to(inside.reshape(-1, *[1] * (view.ndim - 1)), view.shape)

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
        self._accumulated[self.engine][: values.shape[0]] = 1

    def clobber_accumulator(self) -> None:
        self._accumulators[self.engine][...] = np.nan
        self._accumulated[self.engine][...] = 0

    def accumulator_defined(self, partitions: int) -> np.ndarray:
        return self._accumulated[self.engine][:partitions].copy()

    def read_register(self, register: VirtualRegister | int) -> int:
        if isinstance(register, int):
            return register
        if register.id not in self._registers:
            raise ExecutionError(
                "register.uninitialized",
                "a register is read before anything was moved into it",
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

    def exchange(self, key: int, dst: View, src: View, to: int, source: int) -> None:
        storage = self.memory.storage(src)
        precise = self._precise(storage, src)
        bits = np.array(self._read(storage, src)).reshape(src.shape)
        sent = Parcel(self.core, to, source, src.dtype, bits, None if precise is None else precise.copy())
        taken = sent
        if to != self.core or source != self.core:
            check_route(sent, sent)
            taken = self._together(("sendrecv", key), sent)
            check_route(sent, taken)
        check_contents(taken, dst)
        self._write(dst, taken.bits, taken.precise)

    def _together(self, key: Any, values: Any) -> Any:
        if self._meet is None:
            raise ExecutionError(
                "cores.alone",
                "the kernel waits for another core but was launched on one",
                fix="launch it as kernel[2](...)",
            )
        return self._meet(key, values, self._location)

    def say(self, prefix: str, view: View) -> None:
        raw = self.load_raw(view).reshape(view.shape)
        if view.dtype.is_packed:
            values = unpack_x4(raw, view.dtype)
        else:
            values = raw if view.dtype.kind in ("int", "uint", "bool") else self.load(view).reshape(view.shape)
        self._printer(f"{prefix}{np.array2string(values, threshold=64, precision=6)}")

    def warn_outside(self, values: Any, low: float, high: float, code: str, message: str, fix: str) -> None:
        if (code, self._location) in self._warned:
            return
        smallest, largest = np.fmin.reduce(values, axis=None), np.fmax.reduce(values, axis=None)
        if smallest == 0 and low > 0:
            smallest = np.fmin.reduce(values, axis=None, where=values != 0, initial=largest)
        for value in (smallest, largest):
            if value != 0 and (value < low or value > high):
                self.warn(code, message.format(value=float(value)), fix)

    def check(self, condition: Any, code: str, message: str, fix: str) -> None:
        if not np.all(condition):
            self.warn(code, message, fix)

    def warn(self, code: str, message: str, fix: str) -> None:
        if (code, self._location) not in self._warned:
            self._warned.add((code, self._location))
            self._report(Finding(code, "warning", message, "", "", fix, self._location, {}))


def _rows(values: np.ndarray, view: View) -> np.ndarray:
    return values if values.ndim == 2 else values.reshape(view.shape[0], -1)


def _out_of_bounds(view: View, what: str, total: int, row: int = 0) -> ExecutionError:
    """`total` elements are there; `row` is how many of them an index counts by, where it counts rows."""
    whole = row > 0 and total % row == 0
    extent = f"has {total // row} rows" if whole else f"holds {total} elements of {view.dtype}"
    return ExecutionError(
        "access.dynamic-out-of-bounds",
        f"{what}, but {view.buffer.name or 'the tensor'} {extent}",
        rule="dynamic addresses stay inside their tensor",
        source="nki/api/nki/isa dma_copy",
        fix="correct the index, or pass oob_mode=nisa.oob_mode.skip",
    )


def _skipped() -> ExecutionError:
    return ExecutionError(
        "access.skipped-read", "a skipped access was read", fix="use oob_mode with DMA instructions only"
    )
