"""Reductions that no kernel does as they are: of several operands, by other regions, from other initial values."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

import numpy as np

from nki.core.dtypes import DType, bool_, int32, uint32
from nki.graph.emit.kit.reducers import Extreme, combined
from nki.graph.errors import GraphError, unsupported
from nki.graph.ir import Op, Region, TensorType, Value
from nki.graph.passes.numpy_ops import compute
from nki.graph.passes.regions import is_plain, on_tensors, operator, taken_apart
from nki.graph.passes.rewriter import Rewriter
from nki.isa import alu

_OF_WINDOWS = frozenset({"add", "multiply", "maximum", "minimum"})
_REPEATABLE = frozenset({"maximum", "minimum", "or", "and"})
"""What changes nothing if the initial value is combined with more than once."""

_MOST_STEPS = 4096
"""Elements of a reduction that is spelled out as halves of halves."""


def reduce(r: Rewriter, op: Op) -> Sequence[Value] | None:
    """Operands one by one where they are independent; else halves are combined until one element is left."""
    if _is_known(op):
        return None
    count = len(op.results)
    each = taken_apart(op.regions[0], count) if count > 1 else None
    if each is not None:
        pairs = zip(op.operands[:count], op.operands[count:], op.results, each, strict=True)
        return [r.op("reduce", [x, s], [result.type], op.attributes, [region])[0] for x, s, result, region in pairs]
    dims = tuple(op.attributes["dimensions"])
    shape = op.operands[0].type.shape
    length = prod(shape[dim] for dim in dims)
    if not is_plain(op.regions[0]) or length > _MOST_STEPS:
        raise unsupported(
            op,
            f"it combines {length} elements by a region that is no single operation",
            "reduce by add, multiply, maximum, minimum, and, or, xor or argmax",
        )
    kept = [dim for dim in range(len(shape)) if dim not in dims]
    sizes = tuple(shape[dim] for dim in kept)
    values = [r.reshape(r.transpose(x, [*dims, *kept]), (length, *sizes)) for x in op.operands[:count]]
    while length > 1:
        half = length // 2
        parts = [(_part(r, x, 0, 0, half), _part(r, x, 0, half, half)) for x in values]
        made = on_tensors(r, op.regions[0], [a for a, _ in parts] + [b for _, b in parts])
        if length % 2:
            made = tuple(_joined(r, x, _part(r, y, 0, length - 1, 1)) for x, y in zip(made, values, strict=True))
        values, length = list(made), half + length % 2
    starts = [r.broadcast(s, (1, *sizes), ()) for s in op.operands[count:]]
    return [r.reshape(x, sizes) for x in on_tensors(r, op.regions[0], [*starts, *values])]


def reduce_window(r: Rewriter, op: Op) -> Sequence[Value] | None:
    """Operands one by one, or the combination of ever longer windows."""
    count, region = len(op.results), op.regions[0]
    each = taken_apart(region, count) if count > 1 else None
    if each is not None:
        pairs = zip(op.operands[:count], op.operands[count:], op.results, each, strict=True)
        return [r.op(op.name, [x, s], [y.type], op.attributes, [inner])[0] for x, s, y, inner in pairs]
    name, dtype = operator(region), op.results[0].type.dtype
    known = name in _OF_WINDOWS or (dtype == bool_ and name in _REPEATABLE)
    if count == 1 and known:
        return _known_window(r, op, name, dtype)
    if not is_plain(region) or not all(prod(value.type.shape) for value in (*op.operands, *op.results)):
        return None
    return _long_windows(r, op)


def _known_window(r: Rewriter, op: Op, name: str, dtype: DType) -> Sequence[Value] | None:
    (x, start) = op.operands
    if dtype.is_integer and dtype not in (int32, uint32) and name in ("add", "multiply"):
        wide = int32 if dtype.signed else uint32
        kind = TensorType(op.results[0].type.shape, wide)
        made = r.op(op.name, [r.convert(x, wide), r.convert(start, wide)], [kind], op.attributes, [_region(name, wide)])
        return [r.convert(made[0], dtype)]
    return None


def _region(name: str, dtype: DType) -> Region:
    scalar = TensorType((), dtype)
    a, b, c = Value(scalar), Value(scalar), Value(scalar)
    return Region((a, b), [Op(name, (a, b), (c,))], (c,))


def _long_windows(r: Rewriter, op: Op) -> Sequence[Value]:
    """Windows of 2, 4, 8, ... elements by combining those of half the length, dimension by dimension."""
    count, region, a = len(op.results), op.regions[0], op.attributes
    starts = op.operands[count:]
    values = [_filled(r, op, x, s) for x, s in zip(op.operands[:count], starts, strict=True)]
    rank = len(values[0].type.shape)
    dilations, strides = a.get("window_dilations") or (1,) * rank, a.get("window_strides") or (1,) * rank
    for dim in range(rank):
        values = _along(r, region, values, (dim, int(a["window_dimensions"][dim]), int(dilations[dim])))
    shape = op.results[0].type.shape
    cut = [_every(r, value, shape, strides) for value in values]
    return on_tensors(r, region, [*(r.broadcast(s, shape, ()) for s in starts), *cut])


def _along(r: Rewriter, region: Region, values: list[Value], window: tuple[int, int, int]) -> list[Value]:
    """Every window along a dimension: its number, how many elements a window has, and how far they are apart."""
    dim, taps, apart = window
    found: list[Value] | None = None
    done, length, power = 0, 1, values
    while True:
        if taps & length:
            found = power if found is None else _together(r, region, found, power, dim, done * apart)
            done += length
        if done == taps:
            assert found is not None, "a window has elements"
            return found
        power = _together(r, region, power, power, dim, length * apart)
        length *= 2


def _together(
    r: Rewriter, region: Region, first: Sequence[Value], second: Sequence[Value], dim: int, shift: int
) -> list[Value]:
    """``region(first[i], second[i + shift])`` for all i for which both are there."""
    size = min(first[0].type.shape[dim], second[0].type.shape[dim] - shift)
    one = [_part(r, x, dim, 0, size) for x in first]
    return list(on_tensors(r, region, [*one, *(_part(r, x, dim, shift, size) for x in second)]))


def _filled(r: Rewriter, op: Op, x: Value, start: Value) -> Value:
    """The operand with its padding and gaps made of the initial value."""
    rank = len(x.type.shape)
    padding = op.attributes.get("padding") or ((0, 0),) * rank
    base = op.attributes.get("base_dilations") or (1,) * rank
    low, high = tuple(int(p[0]) for p in padding), tuple(int(p[1]) for p in padding)
    inner = tuple(int(b) - 1 for b in base)
    if not any((*low, *high, *inner)):
        return x
    sizes = tuple(
        size + max(size - 1, 0) * gap + a + b for size, gap, a, b in zip(x.type.shape, inner, low, high, strict=True)
    )
    return r.one(
        "pad",
        [x, start],
        TensorType(sizes, x.type.dtype),
        edge_padding_low=low,
        edge_padding_high=high,
        interior_padding=inner,
    )


def _every(r: Rewriter, x: Value, shape: Sequence[int], strides: Sequence[int]) -> Value:
    """Every so many elements of each dimension."""
    limits = tuple((size - 1) * int(step) + 1 for size, step in zip(shape, strides, strict=True))
    return _slice(r, x, (0,) * len(limits), limits, tuple(int(step) for step in strides))


def _part(r: Rewriter, x: Value, dim: int, first: int, count: int) -> Value:
    """Some neighbours of a dimension."""
    shape = x.type.shape
    starts = tuple(first if d == dim else 0 for d in range(len(shape)))
    limits = tuple(first + count if d == dim else size for d, size in enumerate(shape))
    return _slice(r, x, starts, limits, (1,) * len(shape))


def _slice(r: Rewriter, x: Value, starts: tuple[int, ...], limits: tuple[int, ...], steps: tuple[int, ...]) -> Value:
    sizes = tuple(-(-(b - a) // step) for a, b, step in zip(starts, limits, steps, strict=True))
    if sizes == x.type.shape:
        return x
    kind = TensorType(sizes, x.type.dtype)
    return r.one("slice", [x], kind, start_indices=starts, limit_indices=limits, strides=steps)


def _joined(r: Rewriter, a: Value, b: Value) -> Value:
    kind = TensorType((a.type.shape[0] + b.type.shape[0], *a.type.shape[1:]), a.type.dtype)
    return r.one("concatenate", [a, b], kind, dimension=0)


# --------------------------------------------------------------------------------------------- the place of an extreme


def _is_known(op: Op) -> bool:
    """Whether the kernel for rows reduces like this; regions with places of extremes are tried on numbers."""
    try:
        how = combined(op)
    except GraphError:
        return False
    return not isinstance(how, Extreme) or _chooses_first(op.regions[0], how.op == alu.MAXIMUM)


def _chooses_first(region: Region, largest: bool) -> bool:
    """Whether a region of (value, place, value, place) keeps the extreme, and the first of equal ones."""
    kinds = [argument.type.dtype.numpy for argument in region.arguments]
    for one, two in product((0, 1, 3), repeat=2):
        numbers = [np.asarray(x).astype(kind) for x, kind in zip((one, 5, two, 8), kinds, strict=True)]
        made = _computed(region, numbers)
        first = one >= two if largest else one <= two
        if made is None or [float(x) for x in made] != [float(x) for x in numbers[:2] if first] + [
            float(x) for x in numbers[2:] if not first
        ]:
            return False
    return True


def _computed(region: Region, arguments: Sequence[np.ndarray]) -> list[np.ndarray] | None:
    """The results of a region for scalars; None if an operation in it is not known in NumPy."""
    known = dict(zip(region.arguments, arguments, strict=True))
    for item in region.ops:
        if not isinstance(item, Op) or len(item.results) != 1 or not all(value in known for value in item.operands):
            return None
        constant = item.attributes.get("value")
        found = compute(item, [known[value] for value in item.operands]) if constant is None else np.asarray(constant)
        if found is None:
            return None
        known[item.results[0]] = found
    return [known[value] for value in region.results]
