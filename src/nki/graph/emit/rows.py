"""Groups with reductions: rows lie on partitions, what is reduced in the free dimensions, in pieces if it is long."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod

import nki.isa as nisa
import nki.language as nl
from nki.core.dtypes import float32
from nki.core.nki_tensor import NkiTensor
from nki.graph.emit.kit.access import Index, Leaf, NotAffineError, Resolved, flat, resolve
from nki.graph.emit.kit.engines import EngineOps, Form, Splat, storage
from nki.graph.emit.kit.expressions import apply
from nki.graph.emit.kit.reducers import Extreme, Reducer, both, combined, crosses, replaces, with_initial
from nki.graph.emit.kit.tiles import Extent, Merged, TileBlock, TileLoader, best_row_axis, budget, cut, row_parts, store
from nki.graph.emit.pointwise import bound
from nki.graph.errors import unsupported
from nki.graph.ir import Group, Op, Value
from nki.isa import alu
from nki.target.model import Target

_LONG = 128
"""Shorter reductions are not worth a second step over partitions."""

_FEW = 64
"""With fewer rows than this, most partitions would have none."""

_BANK = 512
"""Rows whose sums over partitions fill a bank of PSUM."""


def emit_rows(group: Group, target: Target) -> Callable[..., None]:
    """The kernel of a group of reductions over the same dimensions and pointwise operations before and after them.

    Raises:
        GraphError: reductions over different dimensions, or by a computation that is not known.
    """
    reduces = [op for op in group.ops if op.name == "reduce"]
    for op in reduces:
        combined(op)
    first = reduces[0]
    shape, reduced = first.operands[0].type.shape, tuple(first.attributes["dimensions"])
    try:
        resolved = resolve(group.ops, group.outputs, shape, reduced)
    except NotAffineError:
        raise unsupported(
            first, f"the group has other shapes than {list(shape)} reduced over {reduced}", "split the group"
        ) from None

    def kernel(*tensors: NkiTensor) -> None:
        Rows(resolved, reduced, shape, EngineOps(target), bound(group, tensors)).run()

    return kernel


# ------------------------------------------------------------------------------------------------------------- kernel


class Rows:
    """One run of the kernel."""

    def __init__(
        self,
        phase: Resolved,
        reduced: tuple[int, ...],
        shape: tuple[int, ...],
        engines: EngineOps,
        memory: Mapping[Value, NkiTensor],
    ) -> None:
        self._phase = phase
        self._engines = engines
        self._memory = memory
        self._source = TileLoader(engines, memory)
        space = phase.space
        kept = [axis for dim, axes in enumerate(space.dims) if dim not in reduced for axis in axes]
        outputs = {value: flat(phase.maps[value], value.type.shape) for value in phase.results}
        marker = _numbered(kept, space.sizes)
        merged = Merged.of(phase, [marker, *(leaf.index for leaf in phase.leaves), *outputs.values()])
        self._sizes = merged.sizes
        self._leaves = [Leaf(leaf.value, leaf.source, merged.index(leaf.index)) for leaf in phase.leaves]
        self._outputs = {value: merged.index(index) for value, index in outputs.items()}
        self._rows = [axis for axis, _ in merged.index(marker).terms]
        if not self._rows:
            self._sizes = (*self._sizes, 1)
            self._rows = [len(self._sizes) - 1]
        self._columns = [axis for axis in range(len(self._sizes)) if axis not in self._rows]
        self._levels = _levels(phase.ops)

    def run(self) -> None:
        """All rows."""
        if self._lies_across():
            self._across()
            return
        room = budget(self._phase, self._engines.target)
        length = prod(self._sizes[axis] for axis in self._columns)
        fits = length <= room and len(self._columns) < 4
        row_sizes = [self._sizes[axis] for axis in self._rows]
        indices = [leaf.index for leaf in self._leaves]
        axis = self._rows[best_row_axis(row_sizes, indices, nl.tile_size.pmax)]
        for block in self._row_blocks(axis, max(1, room // length) if fits else 1):
            if fits:
                self._whole(self._widened(block, [Extent(a, 1, self._sizes[a]) for a in self._columns]))
            else:
                self._in_pieces(block, room)

    def _row_blocks(self, row_axis: int, most: int) -> Iterator[TileBlock]:
        """Blocks of rows alone, at most so many for each partition."""
        for first, count, repeat in row_parts(self._sizes[row_axis], nl.tile_size.pmax):
            free = [
                Extent(axis, 1, repeat if axis == row_axis else self._sizes[axis])
                for axis in self._rows
                if axis != row_axis or repeat > 1
            ]
            yield from cut(
                self._sizes,
                Extent(row_axis, repeat, count),
                first,
                [e for e in free if e.count > 1],
                most,
                max(1, 4 - len(self._columns)),
            )

    def _widened(self, block: TileBlock, columns: Sequence[Extent], start: Sequence[int] | None = None) -> TileBlock:
        """Rows with columns, in the order of axes."""
        free = sorted([*block.free, *(e for e in columns if e.count > 1)], key=lambda extent: extent.axis)
        begin = block.start if start is None else tuple(a + b for a, b in zip(block.start, start, strict=True))
        return TileBlock(begin, block.rows, tuple(free))

    # --- what is reduced on partitions

    def _lies_across(self) -> bool:
        """Whether what is reduced fills the partitions better: rows are few, or neighbours in device memory."""
        ops = [op for op in self._phase.ops if op.name == "reduce"]
        narrow = not any(index.step(axis) for index in self._outputs.values() for axis in self._columns)
        simple = all(
            self._levels[op.results[0]] == 1
            and len(op.results) == 1
            and crosses(combined(op), op.results[0].type.dtype)
            for op in ops
        )
        if not narrow or not simple or not self._columns or not self._leaves:
            return False
        count = prod(self._sizes[axis] for axis in self._rows)
        length = prod(self._sizes[axis] for axis in self._columns)
        if length < _LONG:
            return False
        inputs = [leaf.index for leaf in self._leaves if leaf.index.terms]
        beside = any(index.step(axis) == 1 for index in inputs for axis in self._rows)
        return count < _FEW or beside

    def _across(self) -> None:
        """Partial results for each partition, then over partitions."""
        room = budget(self._phase, self._engines.target)
        axis = max(self._columns, key=lambda each: min(self._sizes[each], nl.tile_size.pmax))
        rows = [Extent(a, 1, self._sizes[a]) for a in self._rows if self._sizes[a] > 1]
        nothing = Extent(axis, 0, 1)
        for block in cut(self._sizes, nothing, 0, rows, min(_BANK, room), 2):
            self._across_rows(block, axis, room // prod(block.shape[1:]))

    def _across_rows(self, block: TileBlock, axis: int, room: int) -> None:
        ops = [op for op in self._phase.ops if op.name == "reduce"]
        totals: dict[Value, NkiTensor] = {}
        for first, count, repeat in row_parts(self._sizes[axis], nl.tile_size.pmax):
            extents = [
                Extent(a, 1, repeat if a == axis else self._sizes[a]) for a in self._columns if a != axis or repeat > 1
            ]
            part = Extent(axis, repeat, count)
            kept = [extent for extent in extents if extent.count > 1]
            for piece in cut(self._sizes, part, first, kept, room, 4 - len(block.free)):
                wide = self._widened(TileBlock(block.start, part, block.free), piece.free, piece.start)
                self._add_partitions(wide, ops, totals)
        done: dict[Value, Form] = {}
        for op in ops:
            done[op.results[0]] = self._over_partitions(op, totals[op.results[0]], block)
        for op in ops:
            done.update(self._started(op, _tile(done[op.results[0]]), block, done))
        self._final(block, [block], done)

    def _add_partitions(self, piece: TileBlock, ops: Sequence[Op], totals: dict[Value, NkiTensor]) -> None:
        reducer = Reducer(piece, self._columns, pieces=True)
        found = self._evaluate(piece, {}, [operand for op in ops for operand in op.operands], ops, reducer)
        for op in ops:
            (result,) = op.results
            part = _tile(found[result])
            part = part.reshape((part.shape[0], prod(part.shape[1:])))
            how = combined(op)
            assert not isinstance(how, Extreme)
            if result not in totals:
                totals[result] = part
                continue
            view = totals[result][0 : part.shape[0], 0 : part.shape[1]]
            nisa.tensor_tensor(dst=view, data1=view, data2=part, op=how)

    def _over_partitions(self, op: Op, total: NkiTensor, block: TileBlock) -> NkiTensor:
        """``(1, *rows)``: sums by a product with ones, the rest on GpSimd."""
        e, how = self._engines, combined(op)
        shape = (1, total.shape[1])
        result = e.new(shape, total.dtype)
        if how == alu.ADD:
            ones = e.column(1.0, float32, total.shape[0])
            banked = nl.ndarray(shape, dtype=float32, buffer=nl.psum)
            nisa.nc_matmul(dst=banked, stationary=ones, moving=total)
            nisa.tensor_copy(dst=result, src=banked)
        elif how == alu.MINIMUM:
            least = e.scalar(total, alu.MULTIPLY, -1.0)
            nisa.tensor_partition_reduce(dst=result, op=alu.MAXIMUM, data=least)
            result = e.scalar(result, alu.MULTIPLY, -1.0)
        else:
            nisa.tensor_partition_reduce(dst=result, op=how, data=total)
        return result.reshape(block.shape)

    def _started(self, op: Op, total: NkiTensor, block: TileBlock, done: Mapping[Value, Form]) -> dict[Value, Form]:
        """The initial value and the dtype of the result."""
        found = self._evaluate(block, done, op.operands[1:], (), None)
        tile = with_initial(self._engines, op, total, found[op.operands[1]])
        wanted = storage(op.results[0].type.dtype)
        return {op.results[0]: tile if tile.dtype == wanted else self._engines.copy(tile, wanted)}

    # --- one piece

    def _whole(self, block: TileBlock) -> None:
        reducer = Reducer(block, self._columns)
        values = {leaf.value: self._source.form(leaf, block) for leaf in self._leaves}
        wanted = list(self._phase.results.values())
        found = apply(self._phase.ops, values, engines=self._engines, keep=wanted, shape=block.shape, reduce=reducer)
        for value in self._outputs:
            self._store(value, found[self._phase.results[value]], block)

    def _store(self, value: Value, form: Form, block: TileBlock) -> None:
        index, memory = self._outputs[value], self._memory[value]
        shape = block.shape_of(index)
        tile = self._engines.tile(form, memory.dtype, shape)
        if tile.dtype != memory.dtype:
            tile = self._engines.copy(tile, memory.dtype)
        store(memory, index, block, self._engines.fit(tile, shape), self._engines)

    # --- several pieces

    def _in_pieces(self, block: TileBlock, room: int) -> None:
        """A pass over the row for the reductions of each level, and one for what has the full shape."""
        done: dict[Value, Form] = {}
        pieces = self._pieces(block, room)
        for level in range(1, max(self._levels.values()) + 1):
            ops = [op for op in self._phase.ops if op.name == "reduce" and self._levels[op.results[0]] == level]
            totals: dict[Value, NkiTensor] = {}
            for piece in pieces:
                reducer = Reducer(piece, self._columns, pieces=True)
                operands = [operand for op in ops for operand in op.operands]
                results = self._evaluate(piece, done, operands, ops, reducer)
                for op in ops:
                    parts = [_tile(results[result]) for result in op.results]
                    self._add_up(op, parts, totals)
            for op in ops:
                done.update(self._finished(op, totals, pieces[0], done))
        self._final(block, pieces, done)

    def _final(self, block: TileBlock, pieces: Sequence[TileBlock], done: Mapping[Value, Form]) -> None:
        wide = [v for v, index in self._outputs.items() if any(index.step(axis) for axis in self._columns)]
        narrow = [v for v in self._outputs if v not in wide]
        for values, parts in ((narrow, pieces[:1]), (wide, pieces)):
            for piece in parts if values else ():
                found = self._evaluate(piece, done, [self._phase.results[v] for v in values], (), None)
                for value in values:
                    self._store(value, found[self._phase.results[value]], piece)

    def _pieces(self, block: TileBlock, room: int) -> list[TileBlock]:
        columns = [Extent(axis, 1, self._sizes[axis]) for axis in self._columns]
        nothing = Extent(self._rows[0], 0, 1)
        cuts = cut(self._sizes, nothing, 0, [extent for extent in columns if extent.count > 1], room, 4)
        return [self._widened(block, part.free, part.start) for part in cuts]

    def _evaluate(
        self,
        piece: TileBlock,
        done: Mapping[Value, Form],
        wanted: Sequence[Value],
        reduces: Sequence[Op],
        reducer: Reducer | None,
    ) -> dict[Value, Form]:
        """Wanted values and reductions in a piece, given the results of earlier reductions."""
        needed = _needed([*wanted, *(result for op in reduces for result in op.results)], self._phase.ops, done)
        rank = len(piece.shape)
        values: dict[Value, Form] = {value: _ranked(form, rank) for value, form in done.items()}
        leaves = {operand for op in needed for operand in op.operands} | set(wanted)
        for leaf in self._leaves:
            if leaf.value in leaves:
                values[leaf.value] = self._source.form(leaf, piece)
        keep = [result for op in reduces for result in op.results] if reduces else list(wanted)
        return apply(needed, values, engines=self._engines, keep=keep, shape=piece.shape, reduce=reducer)

    def _add_up(self, op: Op, parts: Sequence[NkiTensor], totals: dict[Value, NkiTensor]) -> None:
        """Take the results of another piece into account."""
        how, engines = combined(op), self._engines
        parts = [_column(part) for part in parts]
        if op.results[0] not in totals:
            totals.update(zip(op.results, parts, strict=True))
            return
        old = [totals[result] for result in op.results]
        if isinstance(how, Extreme):
            comparison = alu.GREATER if how.op == alu.MAXIMUM else alu.LESS
            better = replaces(engines, parts[0], old[0], comparison)
            totals.update(
                (result, engines.where(better, new, before, before.dtype))
                for result, new, before in zip(op.results, parts, old, strict=True)
            )
            return
        totals[op.results[0]] = both(engines, old[0], parts[0], how)

    def _finished(
        self, op: Op, totals: Mapping[Value, NkiTensor], piece: TileBlock, done: Mapping[Value, Form]
    ) -> dict[Value, Form]:
        """Totals with the initial values, in the dtypes of the results."""
        count = len(op.results)
        found = self._evaluate(piece, done, op.operands[count:], (), None)
        result: dict[Value, Form] = {}
        for value, initial in zip(op.results, op.operands[count:], strict=True):
            tile = totals[value]
            if count == 1:
                tile = with_initial(self._engines, op, tile, _ranked(found[initial], 2))
            wanted = storage(value.type.dtype)
            result[value] = tile if tile.dtype == wanted else self._engines.copy(tile, wanted)
        return result


def _numbered(axes: Sequence[int], sizes: Sequence[int]) -> Index:
    """A row-major number over some axes."""
    step = 1
    terms = []
    for axis in reversed(axes):
        if sizes[axis] != 1:
            terms.append((axis, step))
        step *= sizes[axis]
    return Index(0, tuple(sorted(terms)))


def _levels(ops: Sequence[Op]) -> dict[Value, int]:
    """How many reductions a value waits for."""
    levels: dict[Value, int] = {}
    for op in ops:
        level = max((levels.get(operand, 0) for operand in op.operands), default=0)
        for result in op.results:
            levels[result] = level + (op.name == "reduce")
    return levels


def _needed(wanted: Sequence[Value], ops: Sequence[Op], done: Mapping[Value, Form]) -> list[Op]:
    missing = {value for value in wanted if value not in done}
    found = []
    for op in reversed(ops):
        if any(result in missing for result in op.results):
            found.append(op)
            missing.update(operand for operand in op.operands if operand not in done)
    return found[::-1]


def _tile(form: Form) -> NkiTensor:
    assert isinstance(form, NkiTensor)
    return form


def _column(tile: NkiTensor) -> NkiTensor:
    return tile if len(tile.shape) == 2 else tile.reshape((tile.shape[0], 1))


def _ranked(form: Form, rank: int) -> Form:
    if isinstance(form, Splat) or len(form.shape) == rank:
        return form
    return form.reshape((form.shape[0],) + (1,) * (rank - 1))
