"""Groups that end with a concatenation of elementwise results: every piece is computed where it goes in device memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import nki.language as nl
from nki.core.nki_tensor import NkiTensor
from nki.graph.emit.access import Index, Leaf, Resolved, flat, resolve
from nki.graph.emit.engines import Engines
from nki.graph.emit.pointwise import bound, evaluate
from nki.graph.emit.tiles import Merged, Source, best_row_axis, blocks, budget, store
from nki.graph.ir import Group, Op, Value
from nki.target.model import Target


def joined(group: Group, target: Target) -> Callable[..., None]:
    """The kernel of a concatenation and of the elementwise operations that make its operands.

    Raises:
        NotAffineError: views that are no regular pattern; fusion asks `pieces` before.
    """
    found = pieces(group.ops)
    (output,) = group.outputs

    def kernel(*tensors: NkiTensor) -> None:
        engines = Engines(target)
        memory = bound(group, tensors)
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
    phase: Resolved, place: Index, there: NkiTensor, engines: Engines, memory: Mapping[Value, NkiTensor]
) -> None:
    """All elements of one piece."""
    space = Merged.of(phase, [*(leaf.index for leaf in phase.leaves), place])
    leaves = [Leaf(leaf.value, leaf.source, space.index(leaf.index)) for leaf in phase.leaves]
    index = space.index(place)
    partitions = nl.tile_size.pmax
    axis = best_row_axis(space.sizes, [*(leaf.index for leaf in leaves), index], partitions)
    source = Source(engines, memory)
    (wanted,) = phase.results.values()
    for block in blocks(space.sizes, axis, partitions, budget(phase, engines.target)):
        values = evaluate(phase.ops, leaves, [wanted], block, source, engines)
        tile = engines.tile(values[wanted], there.dtype, block.shape)
        if tile.dtype != there.dtype:
            tile = engines.copy(tile, there.dtype)
        store(there, index, block, engines.fit(tile, block.shape), engines)
