"""Where a view lies while the program runs: dynamic addresses, their bounds, and reading what is there."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nki.core.errors import ExecutionError
from nki.core.tensor import FreeIndirection, ScalarOffset, VectorOffset, View
from nki.options import Options
from nki.sim.elements import elements, positions, written_elements
from nki.sim.engines import EngineState
from nki.sim.memory import LiveStorage, Memory, shadow_of
from nki.sim.notes import Report
from nki.sim.overlay import as_seen
from nki.sim.rows import every_row, is_block, reach, rows_written
from nki.sim.window import Window
from nki.sim.written import is_written
from nki.spec.engine import engine as Engine
from nki.spec.engine import oob_mode
from nki.target.model import Target

_SNAKE_TENSOR = 32
_SNAKE_OTHERS = 16
_SKIP = "correct the index, or pass oob_mode=nisa.oob_mode.skip"


class DynamicRows(NamedTuple):
    """Rows at dynamic addresses.

    Attributes:
        starts: the first element of each.
        inside: which of them are inside the buffer.
        partly: which of the others begin inside it and run past its end, where accesses out of bounds are skipped; None
            if none does.
    """

    starts: np.ndarray
    inside: np.ndarray
    partly: np.ndarray | None = None


class Addresses(EngineState):
    """Resolves views and reads what they show."""

    def __init__(self, target: Target, options: Options, memory: Memory, report: Report, core: int) -> None:
        super().__init__(target, options, report, core)
        self.memory = memory
        self._oob = oob_mode.error

    def _readable(self, view: View) -> Window:
        """The window of a view whose address is static or a scalar; warns where nothing was written."""
        if view.dynamic is not None:
            placed = self._placed(view)
            if placed is None:
                raise _skipped()
            view = placed
        storage = self.memory.storage(view)
        window = storage.window(view)
        if not (window.readable or is_written(storage, view, window)):
            self._uninitialized(view)
            return as_seen(storage).window(view)
        return window

    def _read(self, storage: LiveStorage, view: View) -> np.ndarray:
        if view.dynamic is None or isinstance(view.dynamic, ScalarOffset):
            return self._readable(view).bits
        if isinstance(view.dynamic, VectorOffset):
            rows = self._row_starts(view, view.dynamic)
            if rows.partly is None:
                return self._read_rows(storage, view, rows)
        flat, valid = self._indices(view)
        return self._elements(storage, view, flat, valid)

    def _elements(self, storage: LiveStorage, view: View, flat: np.ndarray, valid: np.ndarray) -> np.ndarray:
        """Elements by number; those that are not valid are any."""
        if not self._check_elements(storage, view, flat[valid]):
            storage = as_seen(storage)
        return elements(storage, view.dtype)[positions(storage, view.dtype, np.where(valid, flat, 0))]

    def _read_rows(self, storage: LiveStorage, view: View, rows: DynamicRows) -> np.ndarray:
        """The elements of rows at dynamic addresses; what stands in those that are outside does not matter."""
        if not rows.inside.all():
            starts = np.where(rows.inside, rows.starts, 0)
        else:
            starts = rows.starts
        low, high = reach(view)
        if view.on_chip or low < 0 or high >= view.row:
            flat = _spread(view, rows.starts)
            valid = np.broadcast_to(_column(rows.inside, view), view.shape)
            return self._elements(storage, view, flat, valid)
        if storage.written is not None or storage.fresh:
            inner = rows.starts[rows.inside]
            if not (is_block(view) and rows_written(storage, view, inner)):
                self._check_elements(storage, view, _spread(view, inner))
        return every_row(storage, view)[starts]

    def _precise(self, storage: LiveStorage, view: View) -> np.ndarray | None:
        """The float32 values behind a view where they are kept: an alias for a static or scalar address."""
        if storage.shadow is None or view.dtype != storage.buffer.dtype:
            return None
        if view.dynamic is None or isinstance(view.dynamic, ScalarOffset):
            placed = self._placed(view)
            return None if placed is None else shadow_of(storage, placed)
        flat, valid = self._indices(view)
        return storage.shadow.reshape(-1)[np.where(valid, flat, 0)]

    def _check_elements(self, storage: LiveStorage, view: View, flat: np.ndarray) -> bool:
        """Whether all elements with these numbers were written; warns if not."""
        storage.settle()
        if storage.written is None or bool(written_elements(storage, view.dtype, flat).all()):
            return True
        self._uninitialized(view)
        return False

    def _uninitialized(self, view: View) -> None:
        self.warn(
            "memory.uninitialized",
            f"{view.buffer.name or view.describe()} is read where nothing was written",
            "write it first, for example with nisa.memset, or read only the part that was written",
        )

    def _reachable(self, view: View) -> bool:
        """False if the view starts at a dynamic address outside its tensor and such accesses are skipped."""
        return not isinstance(view.dynamic, ScalarOffset) or self._placed(view) is not None

    def _placed(self, view: View) -> View | None:
        """The static view at run time; None if it is out of bounds and skipped."""
        dynamic = view.dynamic
        if dynamic is None:
            return view
        assert isinstance(dynamic, ScalarOffset), "gathers are resolved element by element"
        index = dynamic.indices
        value = int(self._readable(index).bits.item()) if isinstance(index, View) else self.read_register(index)
        placed = view._replace(offset=view.offset + value * dynamic.scale, dynamic=None)
        start, dims, total = placed.offset, 0, view.buffer.nbytes // view.dtype.itemsize
        if view.on_chip and dynamic.scale % view.row:  # a free offset stays in the tensor's part of the partition
            start, dims, total = view.free_offset + value * dynamic.scale, 1, view.row
        spans = [(n - 1) * s for n, s in zip(view.shape[dims:], view.strides[dims:], strict=True)]
        low = start + sum([s for s in spans if s < 0])
        high = start + sum([s for s in spans if s > 0])
        if low >= 0 and high < total:
            return placed
        if self._oob is oob_mode.skip:
            return None
        raise _out_of_bounds(view, f"index {value} reaches elements {low} to {high}", total, first=placed.offset)

    def _row_starts(self, view: View, dynamic: VectorOffset) -> DynamicRows:
        """The rows of a gather or scatter; out of bounds is an error unless such accesses are skipped.

        Skipped are indices out of bounds (nki/api/nki/isa dma_copy, `oob_mode`). Of a row whose index is inside, what
        lies inside is moved; hardware goes on to whatever follows the tensor in memory.
        """
        rows = self._index_values(dynamic.indices).reshape(-1, order="F")[: view.shape[0]]
        rows = np.broadcast_to(rows, view.shape[:1])
        starts = rows * dynamic.scale + view.offset
        low, high = reach(view)
        total = view.buffer.nbytes // view.dtype.itemsize
        inside = (starts + low >= 0) & (starts + high < total) & (rows >= 0)
        if inside.all():
            return DynamicRows(starts, inside)
        partly = ~inside & (starts >= 0) & (starts < total) & (rows >= 0)
        row = int(np.argmax(partly if partly.any() else ~inside))
        if not partly[row]:
            if self._oob is oob_mode.error:
                raise _out_of_bounds(
                    view, f"row {row} has index {int(rows[row])}", total, dynamic.scale, first=int(starts[row])
                )
            return DynamicRows(starts, inside)
        reached = (
            f"row {row} has index {int(rows[row])} and reaches elements {starts[row] + low} to {starts[row] + high}"
        )
        if self._oob is oob_mode.error:
            raise _out_of_bounds(view, reached, total, fix="correct the index, or make the rows of the view shorter")
        self._past_end(view, reached, total)
        return DynamicRows(starts, inside, partly)

    def _past_end(self, view: View, reached: str, total: int) -> None:
        self.warn(
            "access.past-end",
            f"{reached}, but {view.buffer.name or 'the tensor'} holds {total}: the rest of the row is left alone",
            "make rows end with the tensor: oob_mode.skip is for indices that are out of bounds",
        )

    def _indices(self, view: View) -> tuple[np.ndarray, np.ndarray]:
        """Flat element numbers of a gather or scatter in the buffer, and which of them are inside it."""
        dynamic = view.dynamic
        if isinstance(dynamic, VectorOffset):
            rows = self._row_starts(view, dynamic)
            flat, valid = _spread(view, rows.starts), np.broadcast_to(_column(rows.inside, view), view.shape)
            if rows.partly is not None:
                total = view.buffer.nbytes // view.dtype.itemsize
                valid = valid | (_column(rows.partly, view) & (flat >= 0) & (flat < total))
            return flat, valid
        assert isinstance(dynamic, FreeIndirection), "the two indirect kinds"
        return self._snake(view, dynamic)

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
        return self._read(self.memory.storage(view), view).astype(np.int64)


def _spread(view: View, starts: np.ndarray) -> np.ndarray:
    """The number of every element, from that of the first one of each row."""
    grid = _column(starts, view)
    for axis, (size, stride) in enumerate(zip(view.shape[1:], view.strides[1:], strict=True)):
        grid = grid + (np.arange(size) * stride).reshape([-1 if a == axis + 1 else 1 for a in range(view.ndim)])
    return np.broadcast_to(grid, (len(starts), *view.shape[1:]))


def _column(values: np.ndarray, view: View) -> np.ndarray:
    return values.reshape(-1, *[1] * (view.ndim - 1))


def _out_of_bounds(
    view: View, what: str, total: int, row: int = 0, fix: str = _SKIP, first: int | None = None
) -> ExecutionError:
    """The error for an address outside of a tensor.

    Args:
        total: elements that are there.
        row: how many of them an index counts by, where it counts rows.
        first: the element that the index means, where it means one.
    """
    whole = row > 0 and total % row == 0
    extent = f"has {total // row} rows" if whole else f"holds {total} elements of {view.dtype}"
    return ExecutionError(
        "access.dynamic-out-of-bounds",
        f"{what}, but {view.buffer.name or 'the tensor'} {extent}",
        rule="dynamic addresses stay inside their tensor",
        source="nki/api/nki/isa dma_copy",
        fix=fix,
        facts={"total": total} if first is None else {"total": total, "element": first},
    )


def _skipped() -> ExecutionError:
    return ExecutionError(
        "access.skipped-read", "a skipped access was read", fix="use oob_mode with DMA instructions only"
    )
