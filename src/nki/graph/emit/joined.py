"""Groups that end with a concatenation of elementwise results: each piece is computed and stored where it goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import nki.language as nl
from nki.core.nki_tensor import NkiTensor
from nki.graph.emit.kit.access import Index, Leaf, Resolved, flat, resolve
from nki.graph.emit.kit.engines import EngineOps, storage
from nki.graph.emit.kit.tiles import Merged, TileBlock, TileLoader, best_row_axis, blocks, budget, store
from nki.graph.emit.pointwise import bound, evaluate
from nki.graph.ir import Group, Op, Value
from nki.target.model import Target

_WIDEST = 1024
"""Elements of rows that are assembled in SBUF."""


def emit_joined(group: Group, target: Target) -> Callable[..., None]:
    """The kernel of a concatenation and of the elementwise operations that make its operands.

    Raises:
        NotAffineError: views that are no regular pattern; fusion asks `pieces` before.
    """
    found = pieces(group.ops)
    (output,) = group.outputs

    def kernel(*tensors: NkiTensor) -> None:
        engines = EngineOps(target)
        memory = bound(group, tensors)
        together = _Together.of(found, engines, memory, memory[output])
        if together is not None:
            together.run()
            return
        for phase, place in found:
            _compute(phase, place, memory[output], engines, memory)

    return kernel


def pieces(ops: tuple[Op, ...]) -> list[tuple[Resolved, Index]]:
    """For each operand of the concatenation, which is the last operation, how it is computed and where it goes.

    Raises:
        NotAffineError: views that are no regular pattern.
    """
    join, work = ops[-1], ops[:-1]
    dim, whole = join.attributes["dimension"], join.results[0].type.shape
    start, found = 0, []
    for value in join.operands:
        phase = resolve(work, [value])
        place = list(phase.maps[value])
        place[dim] = replace(place[dim], offset=place[dim].offset + start)
        found.append((phase, flat(tuple(place), whole)))
        start += value.type.shape[dim]
    return found


def _compute(
    phase: Resolved, place: Index, there: NkiTensor, engines: EngineOps, memory: Mapping[Value, NkiTensor]
) -> None:
    """All elements of one piece."""
    space = Merged.of(phase, [*(leaf.index for leaf in phase.leaves), place])
    leaves = [Leaf(leaf.value, leaf.source, space.index(leaf.index)) for leaf in phase.leaves]
    index = space.index(place)
    partitions = nl.tile_size.pmax
    axis = best_row_axis(space.sizes, [*(leaf.index for leaf in leaves), index], partitions)
    source = TileLoader(engines, memory)
    (wanted,) = phase.results.values()
    for block in blocks(space.sizes, axis, partitions, budget(phase, engines.target)):
        values = evaluate(phase.ops, leaves, [wanted], block, source, engines)
        tile = engines.tile(values[wanted], there.dtype, block.shape)
        if tile.dtype != there.dtype:
            tile = engines.copy(tile, there.dtype)
        store(there, index, block, engines.fit(tile, block.shape), engines)


class _Together:
    """Pieces of one size side by side in rows: what they read of a tensor is loaded as whole rows once, and the rows of
    the result are stored as a whole."""

    def __init__(
        self,
        phases: Sequence[Resolved],
        leaves: Sequence[Sequence[Leaf]],
        places: Sequence[Index],
        sizes: Sequence[int],
        tensors: tuple[EngineOps, Mapping[Value, NkiTensor], NkiTensor],
    ) -> None:
        self._phases, self._leaves, self._places, self._sizes = phases, leaves, places, tuple(sizes)
        self._engines, self._memory, self._there = tensors
        self._source = TileLoader(self._engines, self._memory)
        self._base = _bases(leaves)

    @classmethod
    def of(
        cls,
        found: Sequence[tuple[Resolved, Index]],
        engines: EngineOps,
        memory: Mapping[Value, NkiTensor],
        there: NkiTensor,
    ) -> _Together | None:
        """None if the pieces are of another form."""
        phases = [phase for phase, _ in found]
        if any(phase.space.sizes != phases[0].space.sizes for phase in phases):
            return None
        indices = [index for phase, place in found for index in (*(leaf.index for leaf in phase.leaves), place)]
        space = Merged.of(phases[0], indices)
        places = [space.index(place) for _, place in found]
        leaves = [[Leaf(leaf.value, leaf.source, space.index(leaf.index)) for leaf in p.leaves] for p in phases]
        made = cls(phases, leaves, places, space.sizes, (engines, memory, there))
        width = space.sizes[-1]
        expected = [places[0].offset + number * width for number in range(len(places))]
        rows = len(space.sizes) > 1 and places[0].step(len(space.sizes) - 1) == 1
        rows = rows and [place.offset for place in places] == expected and width * len(places) <= _WIDEST
        return made if rows and there.dtype == storage(there.dtype) else None

    def run(self) -> None:
        """All rows."""
        partitions, last = nl.tile_size.pmax, len(self._sizes) - 1
        indices = [*(leaf.index for leaves in self._leaves for leaf in leaves), *self._places]
        axis = best_row_axis(self._sizes[:last], indices, partitions)
        elements = min(budget(phase, self._engines.target) for phase in self._phases) // len(self._phases)
        for block in blocks(self._sizes, axis, partitions, max(elements, self._sizes[last])):
            self._block(block)

    def _block(self, block: TileBlock) -> None:
        count, e = len(self._phases), self._engines
        width = block.shape[-1]
        wide = e.new((*block.shape[:-1], width * count), self._there.dtype)
        for number, phase in enumerate(self._phases):
            parts = {leaf.value: self._part(leaf, block) for leaf in self._leaves[number]}
            given = {value: part for value, part in parts.items() if part is not None}
            rest = [leaf for leaf in self._leaves[number] if leaf.value not in given]
            (wanted,) = phase.results.values()
            made = evaluate(phase.ops, rest, [wanted], block, self._source, e, given)
            tile = e.tile(made[wanted], wide.dtype, block.shape)
            e.copy(tile, wide.dtype, wide[(..., slice(number * width, (number + 1) * width))])
        store(self._there, self._places[0], _widened(block, count), wide, e)

    def _part(self, leaf: Leaf, block: TileBlock) -> NkiTensor | None:
        """A leaf that other pieces read beside this one, as a part of the whole rows; None for any other leaf."""
        last = len(self._sizes) - 1
        source, width = leaf.source, self._sizes[last]
        if not isinstance(source, Value) or leaf.index.step(last) != 1:
            return None
        base, end = self._base[source, leaf.index.terms]
        count, rest = divmod(end - base, width)
        place, beside = divmod(leaf.index.offset - base, width)
        if rest or beside or count + 1 > len(self._phases) or not count:
            return None
        rows = Leaf(leaf.value, source, replace(leaf.index, offset=base))
        tile = self._source.form(replace(rows, value=source), _widened(block, count + 1))
        assert isinstance(tile, NkiTensor)
        return tile[(..., slice(place * width, (place + 1) * width))]


def _bases(leaves: Sequence[Sequence[Leaf]]) -> dict[tuple[Value, tuple[tuple[int, int], ...]], tuple[int, int]]:
    """The first and the last offset at which pieces read a tensor, by tensor and steps."""
    found: dict[tuple[Value, tuple[tuple[int, int], ...]], tuple[int, int]] = {}
    for leaf in (leaf for piece in leaves for leaf in piece):
        if isinstance(leaf.source, Value):
            key = leaf.source, leaf.index.terms
            low, high = found.get(key, (leaf.index.offset, leaf.index.offset))
            found[key] = min(low, leaf.index.offset), max(high, leaf.index.offset)
    return found


def _widened(block: TileBlock, count: int) -> TileBlock:
    """The block with rows that are several times as long."""
    *outer, inner = block.free
    return replace(block, free=(*outer, replace(inner, count=inner.count * count)))
