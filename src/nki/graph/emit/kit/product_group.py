"""The parts of a group of products: those of one left operand, their epilogue, and transposes where the results go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nki.graph.emit.kit.coordinates import Coordinates, Leaf
from nki.graph.emit.kit.panels import strides_of
from nki.graph.errors import unsupported
from nki.graph.ir import Group, Op, Value

_ROOTS = frozenset({"dot_general", "convolution"})


@dataclass(frozen=True, slots=True)
class ProductGroup:
    """What a kernel of products computes.

    Attributes:
        views: what makes operands of the products.
        roots: products of the same left operand, of one shape.
        epilogue: what is computed of them, without the transposes at the end.
        inner: the first product, and of the epilogue what has as many elements. Results of the other products and
            reduced values that are repeated are inputs; what is transposed at the end or reduced is an output.
        given: those of the inputs that are computed.
        wanted: results of the epilogue that are stored, perhaps transposed.
        ends: the permutation of an output, and what it is the transpose of.
    """

    views: Mapping[Value, Op]
    roots: tuple[Op, ...]
    epilogue: tuple[Op, ...]
    inner: Group
    given: frozenset[Value]
    wanted: tuple[Value, ...]
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
    """The parts of a group that starts with its products.

    Raises:
        GraphError: an epilogue that is not computed row by row (``graph.unsupported``).
    """
    first = next(position for position, op in enumerate(group.ops) if op.name in _ROOTS)
    views, kind = {op.results[0]: op for op in group.ops[:first]}, group.ops[first].name
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
    epilogue = tuple(op for op in group.ops[first:] if op.name != kind and op.results[0] not in ends)
    if any(value in views for value in (*group.outputs, *(value for op in epilogue for value in op.operands))):
        raise unsupported(
            roots[0], "a view of an operand is used beside the product", "compile with the view in its own group"
        )
    wanted = tuple(dict.fromkeys(ends[value][0] if value in ends else value for value in group.outputs))
    narrow, wide = _by_row(roots[0], epilogue, wanted)
    given = (*(op.results[0] for op in roots[1:]), *wide)
    kept = tuple(op for op in epilogue if op.results[0] not in narrow and op.results[0] not in given)
    outputs = dict.fromkeys((*wanted, *(op.operands[0] for op in epilogue if op.name == "reduce")))
    inner = Group(group.kind, (roots[0], *kept), (*group.inputs, *given), tuple(outputs))
    return ProductGroup(views, roots, epilogue, inner, frozenset(given), wanted, ends)


def _by_row(root: Op, epilogue: Sequence[Op], wanted: Sequence[Value]) -> tuple[set[Value], list[Value]]:
    """Values with one element for each row of the product, and those that repeat them along it.

    Raises:
        GraphError: reductions over other dimensions, or reduced values that are used in another way
            (``graph.unsupported``).
    """
    narrow: set[Value] = set()
    wide: list[Value] = []
    kind = root.results[0].type
    makers = {op.results[0]: op for op in epilogue}
    columns = columns_of(root)
    rows = tuple(dim for dim in range(len(kind.shape)) if dim not in columns)
    for op in epilogue:
        if op.name == "reduce":
            whole = tuple(sorted(op.attributes["dimensions"])) == columns and op.operands[0].type.shape == kind.shape
            narrow.add(op.results[0])
        elif not any(value in narrow for value in op.operands):
            continue
        elif op.name == "broadcast_in_dim":
            whole = tuple(op.attributes["broadcast_dimensions"]) == rows and op.results[0].type.shape == kind.shape
            wide.append(op.results[0])
        else:
            whole = all(value in narrow or _is_constant(makers.get(value)) for value in op.operands)
            whole = whole and op.name != "transpose"
            narrow.add(op.results[0])
        if not whole:
            raise unsupported(
                op, "it is no value for each row of a product", "compile with the reduction in its own group"
            )
    if not narrow.isdisjoint(wanted):
        raise unsupported(root, "reduced values of its rows are results", "compile with the reduction in its own group")
    return narrow, wide


def _is_constant(op: Op | None) -> bool:
    return op is not None and op.name == "constant" and not any(op.attributes["value"].strides)


def columns_of(root: Op) -> tuple[int, ...]:
    """The dimensions of a product that come from its right operand alone, which are the last ones; a convolution has
    none."""
    if root.name != "dot_general":
        return ()
    a, right = root.attributes, root.operands[1].type.shape
    count = len(right) - len(a["rhs_batching_dimensions"]) - len(a["rhs_contracting_dimensions"])
    rank = len(root.results[0].type.shape)
    return tuple(range(rank - count, rank))


def checked(parts: ProductGroup, where: Coordinates) -> ProductGroup:
    """The parts as they are, if what is computed besides the first product is used in its order.

    Raises:
        GraphError: another order (``graph.unsupported``).
    """
    wanted = fine_strides(where.counts, [parts.roots[0].results[0].type.size], [1])
    if any(leaf.source in parts.given and leaf.strides != wanted for leaf in where.leaves.values()):
        raise unsupported(
            parts.roots[0],
            "another product of its left operand is used in another order in the epilogue",
            "compile with the products in groups of their own",
        )
    return parts
