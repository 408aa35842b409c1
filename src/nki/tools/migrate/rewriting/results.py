"""Results of instructions: tiles that are allocated in front of them, and what masks leave of these."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

import libcst as cst

from nki.tools.migrate.facts import Fact
from nki.tools.migrate.masks import Bounds
from nki.tools.migrate.rewriting.context import Context
from nki.tools.migrate.rewriting.creation import sizes_of_shape
from nki.tools.migrate.rewriting.regions import Cuts, cut_sizes, extents, joint, only, without
from nki.tools.migrate.rewriting.tiles import sizes_of_tile

Arguments = Mapping[str, cst.BaseExpression]

_TRANSPOSES = ("nc_transpose", "dma_transpose")
_ROWS = (
    *("tensor_reduce", "activation_reduce", "tensor_scalar_reduce", "tensor_partition_reduce"),
    *("bn_stats", "bn_aggr", "max8", "nc_find_index8"),
)
"""Instructions that leave the partitions alone, and make other free axes."""


def tiles_of(c: Context, given: Arguments) -> list[cst.BaseExpression]:
    """The arguments that are tiles."""
    return [node for node in given.values() if c.facts.kind(node) == "tensor"]


def product_cuts(c: Context, stationary: cst.BaseExpression, moving: cst.BaseExpression) -> Cuts:
    """What is left of a product: of its partitions as of the columns that stay, of the rest as of what moves."""
    found = {key: cut for key, cut in extents(c, moving).items() if key}
    rows = extents(c, stationary).get(-1)
    return {**found, 0: rows} if rows is not None else found


def operand_cuts(c: Context, instruction: str, given: Arguments, mask: Bounds) -> Cuts:
    """What a mask leaves of the operands of an instruction."""
    if instruction == "nc_matmul" or instruction in _TRANSPOSES:
        return dict(mask.axes)
    return joint(c, tiles_of(c, given), mask)


def result_cuts(instruction: str, cuts: Cuts) -> Cuts:
    """What is left of the result, for what is left of the operands."""
    if instruction in _TRANSPOSES:
        return {{0: -1, -1: 0}.get(key, key): cut for key, cut in cuts.items()}
    if instruction == "nc_matmul":
        return without(cuts, 0)
    return only(cuts, 0) if instruction in _ROWS else cuts


def result_shape(
    c: Context, instruction: str, given: Arguments, cuts: Cuts, result: Fact, shape: cst.BaseExpression | None
) -> list[str]:
    """The sizes of a result, in the user's names where that is possible."""
    if shape is not None:
        return sizes_of_shape(c, shape)
    found = _sizes(c, instruction, given, result)
    if len(found) != len(result.shape):
        found = [str(size) for size in result.shape]
    return cut_sizes(c, found, result_cuts(instruction, cuts))


def _sizes(c: Context, instruction: str, given: Arguments, result: Fact) -> list[str]:
    if instruction == "nc_matmul":
        stationary, moving = sizes_of_tile(c, given["stationary"]), sizes_of_tile(c, given["moving"])
        return [stationary[-1], *moving[1:]]
    operands = tiles_of(c, given)
    if instruction in _TRANSPOSES:
        return sizes_of_tile(c, operands[0])[::-1]
    if instruction == "tensor_reduce" and operands:
        return _reduced(c, operands[0], given, result)
    for operand in operands if instruction not in _ROWS else ():
        fact = c.facts.one(operand)
        if fact is not None and fact.shape == result.shape:
            return sizes_of_tile(c, operand)
    found = [str(size) for size in result.shape]
    if operands and len(result.shape) == 2 and result.shape[0] == c.facts.known(operands[0]).shape[0]:
        found[0] = sizes_of_tile(c, operands[0])[0]
    return found


def _reduced(c: Context, operand: cst.BaseExpression, given: Arguments, result: Fact) -> list[str]:
    """The sizes that a reduction leaves: those of the axes that it does not reduce, and the numbers of all others."""
    sizes, rank = sizes_of_tile(c, operand), len(c.facts.known(operand).shape)
    axes = axes_of(c, given["axis"], rank) if "axis" in given else None
    found = [str(size) for size in result.shape]
    if axes is None or len(sizes) != rank:
        return [sizes[0], *found[1:]]
    if len(found) == rank:
        return ["1" if axis in axes else size for axis, size in enumerate(sizes)]
    left = [size for axis, size in enumerate(sizes) if axis not in axes]
    return left if len(left) == len(found) else [sizes[0], *found[1:]]


def axes_of(c: Context, node: cst.BaseExpression, rank: int) -> list[int] | None:
    """Axes that are written as numbers, counted from the first one; None for others."""
    try:
        value = ast.literal_eval(c.one_line(node))
    except (ValueError, SyntaxError):
        return None
    return sorted(int(axis) % rank for axis in (value if isinstance(value, tuple | list) else [value]))


def dtype_of_result(c: Context, given: Arguments, result: Fact) -> str:
    """The dtype of a result: that of an operand which has a name, where it is the same."""
    for node in given.values():
        fact = c.facts.one(node)
        owner = node.value if isinstance(node, cst.Subscript) else node
        base = c.facts.one(owner)
        if not isinstance(owner, cst.Name) or base is None or base.kind != "tensor":
            continue
        if fact is not None and fact.dtype == result.dtype:
            return f"{owner.value}{'[0]' * base.blocks}.dtype"
    return c.nl(result.dtype)


def allocate(c: Context, name: str | None, result: Fact, sizes: list[str], dtype: str) -> str:
    """Emit the allocation of a tile; returns its name."""
    made = name if name is not None else c.fresh("tile")
    owner = _owner_of(sizes)
    shape = f"({', '.join(sizes)})"
    if owner and len(c.shapes.get(owner, sizes)) == len(sizes):
        shape = f"{owner}.shape"
    c.emit(f"{made} = {c.nl('ndarray')}({shape}, dtype={dtype}, buffer={c.nl(result.buffer)})")
    c.shapes[made] = [f"{made}.shape[{at}]" for at in range(len(sizes))]
    return made


def _owner_of(sizes: list[str]) -> str:
    """The tile whose sizes these are, all of them in its order; "" if there is none."""
    found = [re.fullmatch(rf"(\w+)\.shape\[{at}\]", size) for at, size in enumerate(sizes)]
    names = {each[1] if each is not None else "" for each in found}
    return names.pop() if len(names) == 1 else ""
