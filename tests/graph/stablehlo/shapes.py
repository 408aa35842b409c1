"""Cases of operations that move elements."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.graph.stablehlo.draw import ALL, BOOL, INTEGERS, Case, Draw, lowered, mlir_type, type_of, written
from tests.graph.stablehlo.pointwise import Generator

_INDEX = tuple(d for d in INTEGERS if d.itemsize > 1)


def _broadcast_in_dim(draw: Draw) -> Case:
    shape = draw.shape(0, 4)
    dims = draw.some(len(shape))
    x = draw.array([shape[d] if draw.chance(0.8) else 1 for d in dims], draw.one(*ALL))
    return lowered(lambda a: lax.broadcast_in_dim(a, shape, dims), x, note=f"{type_of(x)} {dims} of {shape}")


def _broadcast(draw: Draw) -> Case:
    x, sizes = draw.array(draw.shape(0, 2), draw.one(*ALL)), draw.shape(1, 2)
    result = mlir_type((*sizes, *x.shape), x.dtype)
    listed = ", ".join(map(str, sizes))
    return written(f"%r0 = stablehlo.broadcast %a0, sizes = [{listed}] : ({type_of(x)}) -> {result}", [result], x)


def _reshape(draw: Draw) -> Case:
    x = draw.array(draw.shape(), draw.one(*ALL))
    left, sizes = x.size, []
    while left > 1 and draw.chance(0.8):
        size = draw.one(*(d for d in range(1, left + 1) if left % d == 0))
        sizes.append(size)
        left //= size
    if left > 1 or draw.chance(0.3):
        sizes.append(left)
    shape = [sizes[d] for d in draw.order(len(sizes))]
    if draw.chance(0.5):
        return lowered(lambda a: jnp.reshape(a, shape), x, note=f"{type_of(x)} to {shape}")
    order = draw.order(x.ndim)
    return lowered(lambda a: jnp.reshape(jnp.transpose(a, order), shape), x, note=f"{type_of(x)} {order} to {shape}")


def _transpose(draw: Draw) -> Case:
    x = draw.array(draw.shape(1, 5), draw.one(*ALL))
    order = draw.order(x.ndim)
    if draw.chance(0.3):
        y = draw.array([x.shape[d] for d in order], x.dtype, False, top=9)
        return lowered(
            lambda a, b: jnp.maximum(jnp.transpose(a, order), b), x, y, note=f"{type_of(x)} {order}, maximum"
        )
    return lowered(lambda a: jnp.transpose(a, order), x, note=f"{type_of(x)} {order}")


def _slice(draw: Draw) -> Case:
    x = draw.array(draw.shape(1, 5), draw.one(*ALL))
    starts = [draw.below(size) for size in x.shape]
    limits = [draw.below(size + 1, start + 1) for start, size in zip(starts, x.shape, strict=True)]
    steps = [draw.one(1, 1, 2, 3, 7) for _ in x.shape]
    return lowered(lambda a: lax.slice(a, starts, limits, steps), x, note=f"{type_of(x)} {starts} {limits} {steps}")


def _pad(draw: Draw) -> Case:
    x = draw.array(draw.shape(0, 4), draw.one(*ALL))
    edges = [(draw.below(5, -2), draw.below(5, -2), draw.one(0, 0, 1, 2)) for _ in x.shape]
    wide = [size + max(size - 1, 0) * e[2] for size, e in zip(x.shape, edges, strict=True)]
    edges = [(max(e[0], 1 - w) if e[1] <= 0 else e[0], e[1], e[2]) for e, w in zip(edges, wide, strict=True)]
    edges = [e if w + e[0] + e[1] > 0 else (0, 0, e[2]) for e, w in zip(edges, wide, strict=True)]
    value = draw.array((), x.dtype)
    if draw.chance(0.5):
        return lowered(lambda a: lax.pad(a, value, edges), x, note=f"{type_of(x)} {edges}")
    return lowered(lambda a, b: lax.pad(a, b, edges), x, value, note=f"{type_of(x)} {edges}")


def _concatenate(draw: Draw) -> Case:
    shape, dtype = list(draw.shape(1, 4)), draw.one(*ALL)
    dim = draw.below(len(shape))
    sizes = [draw.one(1, 2, 3, 5, 16) for _ in range(draw.below(5, 1))]
    parts = [draw.array((*shape[:dim], size, *shape[dim + 1 :]), dtype) for size in sizes]
    return lowered(lambda *a: lax.concatenate(a, dim), *parts, note=f"dim {dim}, {type_of(parts[0])}, ...")


def _reverse(draw: Draw) -> Case:
    x = draw.array(draw.shape(1, 4), draw.one(*ALL))
    dims = draw.some(x.ndim)
    return lowered(lambda a: lax.rev(a, dims), x, note=f"{type_of(x)} {dims}")


def _dynamic_slice(draw: Draw) -> Case:
    x = draw.array(draw.shape(1, 4), draw.one(*ALL))
    sizes = [draw.below(size + 1, 1) for size in x.shape]
    kind = draw.one(*_INDEX)
    starts = [np.asarray(draw.below(size + 3, 0 if kind.kind == "u" else -3)).astype(kind) for size in x.shape]
    types = [type_of(x), *map(type_of, starts)]
    result = mlir_type(sizes, x.dtype)
    names = ", ".join(f"%a{n}" for n in range(len(types)))
    line = f"%r0 = stablehlo.dynamic_slice {names}, sizes = {sizes} : ({', '.join(types)}) -> {result}"
    return written(line, [result], x, *starts, note=f"{type_of(x)} {sizes} at {[int(s) for s in starts]} {kind.name}")


def _dynamic_update_slice(draw: Draw) -> Case:
    x = draw.array(draw.shape(1, 4), draw.one(*ALL))
    update = draw.array([draw.below(size + 1, 1) for size in x.shape], x.dtype)
    kind = draw.one(*_INDEX)
    starts = [np.asarray(draw.below(size + 3, 0 if kind.kind == "u" else -3)).astype(kind) for size in x.shape]
    inputs = [x, update, *starts]
    names = ", ".join(f"%a{n}" for n in range(len(inputs)))
    line = f"%r0 = stablehlo.dynamic_update_slice {names} : ({', '.join(map(type_of, inputs))}) -> {type_of(x)}"
    note = f"{type_of(x)} {update.shape} at {[int(s) for s in starts]} {kind.name}"
    return written(line, [type_of(x)], *inputs, note=note)


def _barrier(draw: Draw) -> Case:
    a, b = draw.array(draw.shape(), draw.one(*ALL)), draw.array(draw.shape(), draw.one(*ALL))
    return lowered(lambda x, y: lax.optimization_barrier((x, y)), a, b, note=type_of(a))


def _dimension_size(draw: Draw) -> Case:
    x = draw.array(draw.shape(1), draw.one(*ALL))
    line = f"%r0 = stablehlo.get_dimension_size %a0, dim = {draw.below(x.ndim)} : ({type_of(x)}) -> tensor<i32>"
    return written(line, ["tensor<i32>"], x, note=type_of(x))


def _tuple(draw: Draw) -> Case:
    a, b = draw.array(draw.shape(), draw.one(*ALL)), draw.array(draw.shape(), draw.one(*ALL))
    kinds = f"tuple<{type_of(a)}, {type_of(b)}>"
    lines = f"""%t = stablehlo.tuple %a0, %a1 : {kinds}
    %r0 = stablehlo.get_tuple_element %t[1] : ({kinds}) -> {type_of(b)}
    %r1 = stablehlo.get_tuple_element %t[0] : ({kinds}) -> {type_of(a)}"""
    return written(lines, [type_of(b), type_of(a)], a, b, note=kinds)


def _empty(draw: Draw) -> Case:
    """Tensors without elements, beside others."""
    dtype, shape = draw.one(*(d for d in ALL if d != BOOL)), list(draw.shape(1, 3))
    dim = draw.below(len(shape))
    x = draw.array(shape, dtype, False, top=9)
    none = draw.array((*shape[:dim], 0, *shape[dim + 1 :]), dtype)
    form = draw.one("concatenate", "sum", "slice", "pad")
    if form == "concatenate":
        return lowered(lambda a, b: lax.concatenate([a, b], dim), x, none, note=f"concatenate {type_of(none)}")
    if form == "sum":
        return lowered(lambda b: jnp.sum(b, dim), none, note=f"sum {type_of(none)}")
    if form == "slice":
        return lowered(lambda a: lax.slice_in_dim(a, 0, 0, axis=dim), x, note=f"slice {type_of(none)}")
    edges = [(1, 1, 0) if d == dim else (0, 0, 0) for d in range(x.ndim)]
    return lowered(lambda b: lax.pad(b, dtype.type(3), edges), none, note=f"pad {type_of(none)}")


def _chain(draw: Draw) -> Case:
    """Several moves one after another, which passes join."""
    x = draw.array(draw.shape(2, 4), draw.one(*ALL))
    order, dims = draw.order(x.ndim), draw.some(x.ndim)
    first = draw.below(x.ndim)
    half = max(1, x.shape[first] // 2)

    def moved(a: jnp.ndarray) -> tuple[jnp.ndarray, ...]:
        b = lax.slice_in_dim(a, 0, half, axis=first)
        c = jnp.transpose(lax.rev(b, dims), order)
        d = jnp.reshape(c, (prod(c.shape),))
        return jnp.concatenate([d, jnp.reshape(b, -1)]), c

    return lowered(moved, x, note=f"{type_of(x)} {order} {dims}")


SHAPES: Mapping[str, Generator] = {
    "broadcast_in_dim": _broadcast_in_dim,
    "broadcast": _broadcast,
    "reshape": _reshape,
    "transpose": _transpose,
    "slice": _slice,
    "pad": _pad,
    "concatenate": _concatenate,
    "reverse": _reverse,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "optimization_barrier": _barrier,
    "get_dimension_size": _dimension_size,
    "tuple, get_tuple_element": _tuple,
    "tensors without elements": _empty,
    "several moves": _chain,
}
"""By the name of the operation."""
