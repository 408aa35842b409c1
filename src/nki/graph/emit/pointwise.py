"""Groups of pointwise operations: whole tensors in tiles of up to 128 partitions, each element read once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import nki.language as nl
from nki.core.dtypes import bool_, uint8
from nki.core.nki_tensor import NkiTensor
from nki.graph.emit.kit.access import Leaf, NotAffineError, Resolved, flat, resolve
from nki.graph.emit.kit.engines import EngineOps, Form
from nki.graph.emit.kit.expressions import apply
from nki.graph.emit.kit.tiles import Merged, TileBlock, TileLoader, best_row_axis, blocks, budget, store
from nki.graph.errors import unsupported
from nki.graph.ir import Group, Op, Value
from nki.target.model import Target


def emit_pointwise(group: Group, target: Target) -> Callable[..., None]:
    """The kernel of a group of pointwise operations.

    Raises:
        GraphError: an operation without instructions, or views that are no regular pattern.
    """
    phases = [resolved_or_refused(group, outputs) for outputs in same_shapes(group.outputs)]

    def kernel(*tensors: NkiTensor) -> None:
        engines = EngineOps(target)
        memory = bound(group, tensors)
        for phase in phases:
            compute(phase, engines, memory)

    return kernel


def same_shapes(outputs: Sequence[Value]) -> list[list[Value]]:
    """Outputs of one shape can share a pass."""
    by_shape: dict[tuple[int, ...], list[Value]] = {}
    for value in outputs:
        by_shape.setdefault(value.type.shape, []).append(value)
    return list(by_shape.values())


def resolved_or_refused(group: Group, outputs: Sequence[Value]) -> Resolved:
    """The operations over the shape of the outputs.

    Raises:
        GraphError: views that are no regular pattern.
    """
    try:
        return resolve(group.ops, outputs)
    except NotAffineError:
        views = [op for op in group.ops if op.name == "reshape"] or list(group.ops)
        raise unsupported(
            views[0], "its elements are not read in a regular pattern", "give the reshape a group of its own"
        ) from None


def bound(group: Group, tensors: Sequence[NkiTensor]) -> dict[Value, NkiTensor]:
    """The device memory of inputs and outputs; truth values as bytes."""
    values = (*group.inputs, *group.outputs)
    return {
        value: tensor.view(uint8) if tensor.dtype == bool_ else tensor
        for value, tensor in zip(values, tensors, strict=True)
    }


def compute(phase: Resolved, engines: EngineOps, memory: Mapping[Value, NkiTensor]) -> None:
    """All elements of outputs of one shape."""
    outputs = {value: flat(phase.maps[value], value.type.shape) for value in phase.results}
    indices = [*(leaf.index for leaf in phase.leaves), *outputs.values()]
    space = Merged.of(phase, indices)
    leaves = [Leaf(leaf.value, leaf.source, space.index(leaf.index)) for leaf in phase.leaves]
    targets = {value: space.index(index) for value, index in outputs.items()}
    partitions = nl.tile_size.pmax
    axis = best_row_axis(space.sizes, [*(leaf.index for leaf in leaves), *targets.values()], partitions)
    source = TileLoader(engines, memory)
    for block in blocks(space.sizes, axis, partitions, budget(phase, engines.target)):
        values = evaluate(phase.ops, leaves, list(phase.results.values()), block, source, engines)
        for value, index in targets.items():
            tile = engines.tile(values[phase.results[value]], memory[value].dtype, block.shape)
            if tile.dtype != memory[value].dtype:
                tile = engines.copy(tile, memory[value].dtype)
            store(memory[value], index, block, engines.fit(tile, block.shape), engines)


def evaluate(
    ops: Sequence[Op],
    leaves: Sequence[Leaf],
    wanted: Sequence[Value],
    block: TileBlock,
    source: TileLoader,
    engines: EngineOps,
    given: Mapping[Value, Form] | None = None,
) -> dict[Value, Form]:
    """Wanted values in one block, as tiles or numbers."""
    values = {leaf.value: source.form(leaf, block) for leaf in leaves} | dict(given or {})
    return apply(ops, values, engines=engines, keep=wanted, shape=block.shape)
