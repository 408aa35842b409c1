"""The parts of a group of products: the products of one left operand, their epilogue, and transposes where they go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nki.graph.emit.coordinates import Coordinates, Leaf
from nki.graph.emit.panels import strides_of
from nki.graph.errors import unsupported
from nki.graph.ir import Group, Op, Value


@dataclass(frozen=True, slots=True)
class ProductGroup:
    """What a kernel of products computes.

    Attributes:
        roots: products of the same left operand, of one shape.
        inner: the first product and the epilogue; results of the other products are inputs, what is transposed at
            the end is an output.
        ends: the permutation of an output, and what it is the transpose of.
    """

    roots: tuple[Op, ...]
    inner: Group
    ends: Mapping[Value, tuple[Value, tuple[int, ...]]]

    def stored(self, where: Coordinates, output: Value) -> Leaf | None:
        """Where the elements of a transposed output lie, seen from the product; None for one in the product's order."""
        if output not in self.ends:
            return None
        value, permutation = self.ends[output]
        steps = [0] * len(permutation)
        for dim, step in zip(permutation, strides_of(output.type.shape), strict=True):
            steps[dim] = step
        return Leaf(output, fine_strides(where.counts, value.type.shape, steps))


def fine_strides(counts: Sequence[int], shape: Sequence[int], steps: Sequence[int]) -> tuple[int, ...]:
    """Steps of the fine axes into which dimensions are split, from those of the dimensions."""
    found, axis = [0] * len(counts), len(counts) - 1
    for size, step in zip(reversed(shape), reversed(steps), strict=True):
        done = 1
        while done < size:
            found[axis] = step * done
            done *= counts[axis]
            axis -= 1
    return tuple(found)


def split(group: Group) -> ProductGroup:
    """The parts of a group that starts with its products."""
    kind = group.ops[0].name
    roots = tuple(op for op in group.ops if op.name == kind)
    used = {value for op in group.ops for value in op.operands}
    final = frozenset(group.outputs) - used
    from_product = {result for op in roots for result in op.results}
    for op in group.ops:
        if any(value in from_product for value in op.operands):
            from_product.update(op.results)
    ends = {
        op.results[0]: (op.operands[0], tuple(op.attributes["permutation"]))
        for op in group.ops
        if op.name == "transpose" and op.results[0] in final and op.operands[0] in from_product
    }
    others = {op.results[0]: None for op in roots[1:]}
    kept = tuple(op for op in group.ops if op is roots[0] or (op.name != kind and op.results[0] not in ends))
    inputs = (*group.inputs, *others)
    outputs = dict.fromkeys(ends[value][0] if value in ends else value for value in group.outputs)
    return ProductGroup(roots, Group(group.kind, kept, inputs, tuple(outputs)), ends)


def in_order(parts: ProductGroup, where: Coordinates) -> dict[Value, Value]:
    """Leaves of the epilogue that are the other products, in the order of the first one, and which they are.

    Raises:
        GraphError: another order (``graph.unsupported``).
    """
    others = {op.results[0] for op in parts.roots[1:]}
    wanted = fine_strides(where.counts, [parts.roots[0].results[0].type.size], [1])
    found = {}
    for value, leaf in where.leaves.items():
        if leaf.source in others:
            if leaf.strides != wanted:
                raise unsupported(
                    parts.roots[0],
                    "another product of its left operand is used in another order in the epilogue",
                    "compile with the products in groups of their own",
                )
            found[value] = leaf.source
    return found
