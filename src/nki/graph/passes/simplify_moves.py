"""Simpler forms of operations that move elements, and of products of moved operands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from nki.graph.ir import Op, TensorType, Value
from nki.graph.passes.rewriter import Rewriter

Simplifier = Callable[[Rewriter, Op], "Sequence[Value] | None"]


def _unchanged(r: Rewriter, op: Op) -> Sequence[Value] | None:
    return [op.operands[0]] if op.operands[0].type == op.results[0].type else None


def _reshape(r: Rewriter, op: Op) -> Sequence[Value] | None:
    inner = r.maker(op.operands[0], "reshape")
    if inner is not None:
        return [r.reshape(inner.operands[0], op.results[0].type.shape)]
    value = r.scalar_of(op.operands[0])
    return None if value is None else [r.full(value, op.results[0].type)]


def _transpose(r: Rewriter, op: Op) -> Sequence[Value] | None:
    value, permutation = op.operands[0], tuple(op.attributes["permutation"])
    if permutation == tuple(range(len(permutation))):
        return [value]
    shape = value.type.shape
    real = [dim for dim in permutation if shape[dim] != 1]
    if real == sorted(real):
        return [r.reshape(value, op.results[0].type.shape)]
    inner = r.maker(value, "transpose")
    if inner is not None:
        before = inner.attributes["permutation"]
        return [r.transpose(inner.operands[0], [before[dim] for dim in permutation])]
    number = r.scalar_of(value)
    if number is not None:
        return [r.full(number, op.results[0].type)]
    return _transposed_dot(r, op)


def _transposed_dot(r: Rewriter, op: Op) -> Sequence[Value] | None:
    """The transpose of a product that nothing else uses, if its rows become columns: the product with its operands
    exchanged, and a transpose that leaves the last dimension where it is, if one is left."""
    dot = r.maker(op.operands[0], "dot_general")
    if dot is None or r.uses.get(op.operands[0], 0) != 1:
        return None
    a = dot.attributes
    batch = len(a["lhs_batching_dimensions"])
    left = len(dot.operands[0].type.shape) - batch - len(a["lhs_contracting_dimensions"])
    rank = len(op.operands[0].type.shape)
    place = {
        old: new for new, old in enumerate((*range(batch), *range(batch + left, rank), *range(batch, batch + left)))
    }
    permutation = tuple(place[dim] for dim in op.attributes["permutation"])
    if left == 0 or batch + left == rank or permutation[-1] != rank - 1:
        return None
    swapped = {
        **a,
        **{f"{one}_{kind}_dimensions": a[f"{two}_{kind}_dimensions"] for kind in ("batching", "contracting")
           for one, two in (("lhs", "rhs"), ("rhs", "lhs"))},
    }  # fmt: skip
    if "precision_config" in a:
        swapped["precision_config"] = tuple(reversed(a["precision_config"]))
    if "algorithm" in a:
        return None
    shape = dot.results[0].type.shape
    kind = TensorType(tuple(shape[dim] for dim in place), op.results[0].type.dtype)
    (made,) = r.op("dot_general", dot.operands[::-1], [kind], swapped)
    return [r.transpose(made, permutation)]


def _broadcast(r: Rewriter, op: Op) -> Sequence[Value] | None:
    """One broadcast of a value without dimensions of 1 that are added or stretched."""
    value, kind = op.operands[0], op.results[0].type
    dims = tuple(op.attributes["broadcast_dimensions"])
    if value.type.shape == kind.shape and dims == tuple(range(len(dims))):
        return [value]
    constant = r.maker(value, "constant")
    if constant is not None and value.type.size == 1:
        return [r.full(constant.attributes["value"].reshape(-1)[0], kind)]
    inner = r.maker(value, "broadcast_in_dim")
    if inner is not None:
        through = tuple(dims[dim] for dim in inner.attributes["broadcast_dimensions"])
        return [r.one("broadcast_in_dim", [inner.operands[0]], kind, broadcast_dimensions=through)]
    if value.type.size == kind.size and list(dims) == sorted(dims):
        return [r.reshape(value, kind.shape)]
    return _without_units(r, op, value, dims)


def _without_units(r: Rewriter, op: Op, value: Value, dims: Sequence[int]) -> Sequence[Value] | None:
    source = r.maker(value, "reshape")
    kept = tuple((size, dim) for size, dim in zip(value.type.shape, dims, strict=True) if size != 1)
    if len(kept) == len(dims):
        return None
    if source is not None:
        squeezed = tuple(size for size in source.operands[0].type.shape if size != 1)
        if squeezed != tuple(size for size, _ in kept):
            return None
        value = source.operands[0]
    flat = r.reshape(value, tuple(size for size, _ in kept))
    wanted = tuple(dim for _, dim in kept)
    return [r.one("broadcast_in_dim", [flat], op.results[0].type, broadcast_dimensions=wanted)]


def _slice(r: Rewriter, op: Op) -> Sequence[Value] | None:
    value, a = op.operands[0], op.attributes
    if value.type == op.results[0].type:
        return [value]
    number = r.scalar_of(value)
    if number is not None:
        return [r.full(number, op.results[0].type)]
    inner = r.maker(value, "slice")
    if inner is not None:
        return _slice_of_slice(r, op, inner)
    parts = r.maker(value, "concatenate")
    return _slice_of_parts(r, op, parts) if parts is not None and set(a["strides"]) <= {1} else None


def _slice_of_slice(r: Rewriter, op: Op, inner: Op) -> Sequence[Value]:
    one, two = inner.attributes, op.attributes
    pairs = list(zip(one["strides"], two["strides"], strict=True))
    starts = tuple(
        b + s * c for b, s, c in zip(one["start_indices"], one["strides"], two["start_indices"], strict=True)
    )
    strides = tuple(s * t for s, t in pairs)
    sizes = op.results[0].type.shape
    limits = tuple(b + (n - 1) * s + 1 if n else b for b, n, s in zip(starts, sizes, strides, strict=True))
    return r.op(
        "slice",
        inner.operands,
        [op.results[0].type],
        {"start_indices": starts, "limit_indices": limits, "strides": strides},
    )


def _slice_of_parts(r: Rewriter, op: Op, parts: Op) -> Sequence[Value] | None:
    """A slice that lies in one part of a concatenation."""
    dim = parts.attributes["dimension"]
    start, limit = op.attributes["start_indices"][dim], op.attributes["limit_indices"][dim]
    offset = 0
    for part in parts.operands:
        size = part.type.shape[dim]
        if offset <= start and limit <= offset + size:
            starts, limits = list(op.attributes["start_indices"]), list(op.attributes["limit_indices"])
            starts[dim], limits[dim] = start - offset, limit - offset
            attributes = {**op.attributes, "start_indices": tuple(starts), "limit_indices": tuple(limits)}
            return r.op("slice", [part], [op.results[0].type], attributes)
        offset += size
    return None


def _pad(r: Rewriter, op: Op) -> Sequence[Value] | None:
    a = op.attributes
    value, filler = op.operands
    if not any((*a["edge_padding_low"], *a["edge_padding_high"], *a["interior_padding"])):
        return [value]
    if min((*a["edge_padding_low"], *a["edge_padding_high"])) < 0:
        return _cropped(r, op)
    inner = r.maker(value, "pad")
    if inner is None or inner.operands[1] is not filler or any((*a["interior_padding"], *_negative(inner))):
        return None
    b = inner.attributes
    both = {
        name: tuple(x + y for x, y in zip(a[name], b[name], strict=True))
        for name in ("edge_padding_low", "edge_padding_high", "interior_padding")
    }
    return r.op("pad", inner.operands, [op.results[0].type], both)


def _negative(op: Op) -> list[bool]:
    a = op.attributes
    return [size < 0 for size in (*a["edge_padding_low"], *a["edge_padding_high"])]


def _cropped(r: Rewriter, op: Op) -> Sequence[Value]:
    """Negative padding as a slice of the padded tensor."""
    a = op.attributes
    value, filler = op.operands
    low, high, gaps = a["edge_padding_low"], a["edge_padding_high"], a["interior_padding"]
    more = {
        "edge_padding_low": tuple(max(n, 0) for n in low),
        "edge_padding_high": tuple(max(n, 0) for n in high),
        "interior_padding": tuple(gaps),
    }
    shape = tuple(
        n + max(b, 0) + max(c, 0) + max(n - 1, 0) * g
        for n, b, c, g in zip(value.type.shape, low, high, gaps, strict=True)
    )
    (padded,) = r.op("pad", [value, filler], [TensorType(shape, value.type.dtype)], more)
    starts = tuple(max(-n, 0) for n in low)
    limits = tuple(n - max(-c, 0) for n, c in zip(shape, high, strict=True))
    attributes = {"start_indices": starts, "limit_indices": limits, "strides": (1,) * len(shape)}
    return r.op("slice", [padded], [op.results[0].type], attributes)


def _concatenate(r: Rewriter, op: Op) -> Sequence[Value] | None:
    dim = op.attributes["dimension"]
    parts: list[Value] = []
    for value in op.operands:
        inner = r.maker(value, "concatenate")
        if inner is not None and inner.attributes["dimension"] == dim and r.uses.get(value, 0) == 1:
            parts += inner.operands
        elif value.type.shape[dim]:
            parts.append(value)
    if len(parts) == 1:
        return parts
    if tuple(parts) == op.operands or not parts:
        return None
    return r.op("concatenate", parts, [op.results[0].type], op.attributes)


def _reverse(r: Rewriter, op: Op) -> Sequence[Value] | None:
    value = op.operands[0]
    dims = tuple(dim for dim in op.attributes["dimensions"] if value.type.shape[dim] > 1)
    if not dims:
        return [value]
    inner = r.maker(value, "reverse")
    if inner is not None and set(inner.attributes["dimensions"]) == set(op.attributes["dimensions"]):
        return [inner.operands[0]]
    return None


def _starts(r: Rewriter, values: Sequence[Value], limits: Sequence[int]) -> list[int] | None:
    """Start indices that are known, clamped as StableHLO clamps them."""
    found = [r.scalar_of(value) for value in values]
    if any(number is None for number in found):
        return None
    return [min(max(int(number), 0), limit) for number, limit in zip(found, limits, strict=True)]


def _dynamic_slice(r: Rewriter, op: Op) -> Sequence[Value] | None:
    value, *indices = op.operands
    sizes = op.results[0].type.shape
    starts = _starts(r, indices, [n - s for n, s in zip(value.type.shape, sizes, strict=True)])
    if starts is None:
        return None
    limits = tuple(b + s for b, s in zip(starts, sizes, strict=True))
    attributes = {"start_indices": tuple(starts), "limit_indices": limits, "strides": (1,) * len(sizes)}
    return r.op("slice", [value], [op.results[0].type], attributes)


def _dynamic_update_slice(r: Rewriter, op: Op) -> Sequence[Value] | None:
    value, update = op.operands[:2]
    return [update] if update.type == value.type else None


_SIDES = ("lhs", "rhs")


def _dot(r: Rewriter, op: Op) -> Sequence[Value] | None:
    """Products of transposed operands read them as they are, if the order of the free dimensions stays."""
    operands, attributes = list(op.operands), dict(op.attributes)
    for number, side in enumerate(_SIDES):
        inner = r.maker(operands[number], "transpose")
        if inner is None:
            continue
        permutation = inner.attributes["permutation"]
        names = [f"{side}_{kind}_dimensions" for kind in ("batching", "contracting")]
        moved = {name: tuple(permutation[dim] for dim in attributes[name]) for name in names}
        taken = {dim for name in names for dim in attributes[name]}
        free = [permutation[dim] for dim in range(len(permutation)) if dim not in taken]
        if free == sorted(free):
            attributes.update(moved)
            operands[number] = inner.operands[0]
    if tuple(operands) == op.operands:
        return None
    return r.op("dot_general", operands, [op.results[0].type], attributes)


def _reduce(r: Rewriter, op: Op) -> Sequence[Value] | None:
    """A reduce over dimensions of 1 is a reshape, where the initial value is the unit of the operation."""
    if len(op.results) != 1 or len(op.regions[0].ops) != 1:
        return None
    value, start = op.operands
    if value.type.size != op.results[0].type.size or not value.type.size:
        return None
    inner = op.regions[0].ops[0]
    if not isinstance(inner, Op):
        return None
    first = r.scalar_of(start)
    dtype = value.type.dtype
    low, high = (dtype.min, dtype.max) if not dtype.is_float else (-np.inf, np.inf)
    units = {"maximum": low, "minimum": high, "multiply": 1, "add": 0}
    if inner.name not in units or first is None or float(first) != units[inner.name] or dtype.kind == "bool":
        return None
    if inner.name == "add" and dtype.is_float and not np.signbit(np.float32(first)):
        shaped = r.reshape(value, op.results[0].type.shape)  # -0 + 0 is 0, so the addition stays
        return [r.same("add", shaped, r.full(0.0, shaped.type))]
    return [r.reshape(value, op.results[0].type.shape)]


MOVES: Mapping[str, tuple[Simplifier, ...]] = {
    "broadcast_in_dim": (_broadcast,),
    "concatenate": (_concatenate,),
    "dot_general": (_dot,),
    "dynamic_slice": (_unchanged, _dynamic_slice),
    "dynamic_update_slice": (_dynamic_update_slice,),
    "pad": (_pad,),
    "reduce": (_reduce,),
    "reshape": (_unchanged, _reshape),
    "reverse": (_reverse,),
    "slice": (_slice,),
    "transpose": (_transpose,),
}
"""Rules by operation."""
