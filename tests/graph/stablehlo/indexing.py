"""Cases of gathers and scatters of all forms, with indices outside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax import lax

from tests.graph.stablehlo.draw import (
    ALL,
    BOOL,
    F32,
    FLOATS,
    INTEGERS,
    Array,
    Case,
    Draw,
    is_float,
    lowered,
    mlir_type,
    type_of,
    written,
)
from tests.graph.stablehlo.pointwise import Generator

_INDEX = tuple(np.dtype(name) for name in ("int32", "int32", "int32", "uint32", "int16", "uint8"))
_MODE = lax.GatherScatterMode.PROMISE_IN_BOUNDS
"""The plain operation, which says itself what becomes of indices outside."""


def _places(draw: Draw) -> tuple[tuple[int, ...], list[int], list[int], list[int], list[int]]:
    """Shape of an operand, its batching dimensions, indexed ones, collapsed ones, sizes of slices."""
    shape = [min(size, 40) for size in draw.shape(1, 4)]
    rank = len(shape)
    batching = [d for d in range(rank) if rank > 1 and draw.chance(0.15)][: rank - 1]
    for d in batching:
        shape[d] = min(shape[d], 4)
    others = [d for d in range(rank) if d not in batching]
    indexed = [d for d in others if draw.chance(0.5)] or [others[0]]
    sizes = [shape[d] if d not in indexed and draw.chance(0.7) else draw.below(shape[d] + 1, 1) for d in range(rank)]
    collapsed = [d for d in others if draw.chance(0.6 if d in indexed else 0.1)]
    for d in (*collapsed, *batching):
        sizes[d] = 1
    return tuple(shape), batching, [indexed[i] for i in draw.order(len(indexed))], collapsed, sizes


def _indices(draw: Draw, shape: tuple[int, ...], indexed: list[int], batch: list[int]) -> Array:
    kind = draw.one(*_INDEX)
    columns = []
    for d in indexed:
        low, high = (-2, shape[d] + 3) if draw.chance(0.3) else (0, shape[d])
        columns.append(draw.random.integers(max(low, 0) if kind.kind == "u" else low, high, batch))
    return np.stack(columns, -1).astype(kind) if columns else np.zeros((*batch, 0), kind)


def _batch(draw: Draw, shape: tuple[int, ...], batching: list[int]) -> tuple[list[int], list[int]]:
    """Sizes of the dimensions of indices, and those that go with the operand's batching dimensions."""
    sizes = [draw.one(1, 2, 3, 5, 9) for _ in range(draw.one(0, 1, 1, 2))]
    if sizes and draw.chance(0.15):
        sizes[0] = draw.one(64, 140)
    along: list[int] = []
    for d in batching:
        at = draw.below(len(sizes) + 1)
        along = [a + (a >= at) for a in along]
        sizes.insert(at, shape[d])
        along.append(at)
    return sizes, along


def _gather(draw: Draw) -> Case:
    shape, batching, indexed, collapsed, sizes = _places(draw)
    batch, along = _batch(draw, shape, batching)
    indices = _indices(draw, shape, indexed, batch)
    x = draw.array(shape, draw.one(*ALL))
    kept = len(shape) - len(collapsed) - len(batching)
    offsets = tuple(sorted(draw.order(kept + len(batch))[:kept]))
    numbers = lax.GatherDimensionNumbers(offsets, tuple(collapsed), tuple(indexed), tuple(batching), tuple(along))
    note = f"{type_of(x)} {type_of(indices)} {numbers} {sizes}"
    return lowered(lambda a, i: lax.gather(a, i, numbers, sizes, mode=_MODE), x, indices, note=note)


def _gather_text(draw: Draw) -> Case:
    """The indices' components in any dimension."""
    x = draw.array((draw.one(3, 9), draw.one(2, 5), draw.one(1, 4)), draw.one(*ALL))
    count, at = draw.one(1, 4, 7), draw.one(0, 1)
    indices = draw.random.integers(-1, 9, (2, count) if at == 0 else (count, 2)).astype(np.int32)
    result = mlir_type((count, x.shape[2]), x.dtype)
    line = f"""%r0 = "stablehlo.gather"(%a0, %a1) {{dimension_numbers = #stablehlo.gather<offset_dims = [1],
    collapsed_slice_dims = [0, 1], start_index_map = [1, 0], index_vector_dim = {at}>,
    slice_sizes = array<i64: 1, 1, {x.shape[2]}>, indices_are_sorted = false}}
    : ({type_of(x)}, {type_of(indices)}) -> {result}"""
    return written(line, [result], x, indices, note=f"{type_of(x)} {type_of(indices)}")


def _torch_index_select(draw: Draw) -> Case:
    x = draw.array(draw.shape(1, 3), draw.one(*ALL))
    dim = draw.below(x.ndim)
    indices = draw.random.integers(0, x.shape[dim], draw.one((3,), (2, 2), ())).astype(np.int32)
    result = mlir_type((*x.shape[:dim], *indices.shape, *x.shape[dim + 1 :]), x.dtype)
    line = f"""%r0 = "stablehlo.torch_index_select"(%a0, %a1) {{dim = {dim} : i64, batch_dims = 0 : i64}}
    : ({type_of(x)}, {type_of(indices)}) -> {result}"""
    return written(line, [result], x, indices, note=f"{type_of(x)} {type_of(indices)} dim {dim}")


def _jax_indexing(draw: Draw) -> Case:
    """What people write: taking and putting rows."""
    x = draw.array(draw.shape(2, 3), draw.one(F32, np.dtype("int32")), False, top=99)
    i = draw.random.integers(-x.shape[0], x.shape[0], draw.one((4,), (2, 3))).astype(np.int32)
    form = draw.one("take", "set", "add", "grad")
    functions: Mapping[str, Any] = {
        "take": lambda a, n: a[n],
        "set": lambda a, n: a.at[n].set(7),
        "add": lambda a, n: a.at[n].add(1),
        "grad": lambda a, n: jax.vjp(lambda b: b[n] * b.dtype.type(2), a)[1](a[n])[0],
    }
    if form == "grad" and x.dtype != F32:
        form = "take"
    return lowered(functions[form], x, i, scaled=1e-6, note=f"{form} {type_of(x)} {type_of(i)}")


_SCATTERS: Mapping[str, Any] = {
    "": lax.scatter,
    "add": lax.scatter_add,
    "multiply": lax.scatter_mul,
    "maximum": lax.scatter_max,
    "minimum": lax.scatter_min,
}


def _scatter(name: str) -> Generator:
    def make(draw: Draw) -> Case:
        shape, batching, indexed, collapsed, sizes = _places(draw)
        batch, along = _batch(draw, shape, batching)
        kinds = (*FLOATS, *INTEGERS, *((BOOL,) if not name else ()))
        dtype = draw.one(*kinds)
        indices = _indices(draw, shape, indexed, batch)
        if not name:  # which of several updates of an element stays is not said
            indices = _distinct(draw, shape, indexed, sizes, indices)
        kept = [d for d in range(len(shape)) if d not in (*collapsed, *batching)]
        windows = tuple(sorted(draw.order(len(kept) + len(batch))[: len(kept)]))
        updates, outer, inner = [], iter(batch), iter(kept)
        for d in range(len(kept) + len(batch)):
            updates.append(sizes[next(inner)] if d in windows else next(outer))
        numbers = lax.ScatterDimensionNumbers(windows, tuple(collapsed), tuple(indexed), tuple(batching), tuple(along))
        special = None if name in ("", "maximum", "minimum") else False
        top = draw.one(0, 9)
        x, u = draw.array(shape, dtype, special, top), draw.array(updates, dtype, special, top)
        scaled = 0.0
        if is_float(dtype) and name in ("add", "multiply"):
            scaled = 4e-6 if dtype == F32 else 2.0**-5
            if name == "multiply":
                u = draw.unit(updates, dtype, 0.7, 1.3)
        note = f"{type_of(x)} {type_of(indices)} {type_of(u)} {numbers}"
        function = _SCATTERS[name]
        return lowered(lambda a, i, b: function(a, i, b, numbers, mode=_MODE), x, indices, u, scaled=scaled, note=note)

    return make


def _distinct(draw: Draw, shape: tuple[int, ...], indexed: list[int], sizes: list[int], indices: Array) -> Array:
    """Indices whose windows have no element in common: all but the first of those that do are outside."""
    flat = indices.reshape(-1, indices.shape[-1]).astype(np.int64)
    taken: list[Any] = []
    outside = max(shape) + 1
    for row in flat:
        if any(all(abs(a - b) < sizes[d] for a, b, d in zip(row, other, indexed, strict=True)) for other in taken):
            row[:] = outside
        else:
            taken.append(row.copy())
    return flat.reshape(indices.shape).astype(indices.dtype)


def _scatter_apply(draw: Draw) -> Case:
    """Other computations of an update: the difference, bits, what ignores the old value."""
    shape = draw.shape(1, 2)
    name, dtype = draw.one(("subtract", F32), ("or", np.dtype("int32")), ("xor", np.dtype("uint8")), ("and", BOOL))
    x = draw.array(shape, dtype, False)
    indices = draw.random.integers(-1, shape[0] + 1, (draw.one(1, 3, 8), 1)).astype(np.int32)
    u = draw.array((indices.shape[0], *shape[1:]), dtype, False)
    scalar, dims = mlir_type((), dtype), ", ".join(str(d) for d in range(1, len(shape)))
    line = f"""%r0 = "stablehlo.scatter"(%a0, %a1, %a2) ({{
    ^bb0(%p: {scalar}, %q: {scalar}):
      %s = stablehlo.{name} %p, %q : {scalar}
      stablehlo.return %s : {scalar}
    }}) {{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [{dims}], inserted_window_dims = [0],
    scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, indices_are_sorted = false, unique_indices = false}}
    : ({type_of(x)}, {type_of(indices)}, {type_of(u)}) -> {type_of(x)}"""
    return written(line, [type_of(x)], x, indices, u, scaled=4e-6, note=f"{name} {type_of(x)} {type_of(indices)}")


def _scatter_two(draw: Draw) -> Case:
    """Two tensors with the same indices."""
    shape = draw.shape(1, 2)
    a, b = draw.array(shape, F32, False), draw.array(shape, np.dtype("int32"), False, top=99)
    indices = draw.random.permutation(shape[0])[: max(1, shape[0] // 2), None].astype(np.int32)
    u, v = (
        draw.array((len(indices), *shape[1:]), F32, False),
        draw.array((len(indices), *shape[1:]), b.dtype, False, top=9),
    )
    dims = ", ".join(str(d) for d in range(1, len(shape)))
    types = [a, b, indices, u, v]
    line = f"""%r0, %r1 = "stablehlo.scatter"(%a0, %a1, %a2, %a3, %a4) ({{
    ^bb0(%p: tensor<f32>, %q: tensor<i32>, %s: tensor<f32>, %t: tensor<i32>):
      %m = stablehlo.add %p, %s : tensor<f32>
      %n = stablehlo.maximum %q, %t : tensor<i32>
      stablehlo.return %m, %n : tensor<f32>, tensor<i32>
    }}) {{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [{dims}], inserted_window_dims = [0],
    scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, indices_are_sorted = false, unique_indices = true}}
    : ({", ".join(map(type_of, types))}) -> ({type_of(a)}, {type_of(b)})"""
    return written(line, [type_of(a), type_of(b)], *types, note=f"{type_of(a)} {type_of(indices)}")


INDEXING: Mapping[str, Generator] = {
    "gather": _gather,
    "gather, any index_vector_dim": _gather_text,
    "torch_index_select": _torch_index_select,
    "gather and scatter in JAX": _jax_indexing,
    "scatter set": _scatter(""),
    "scatter add": _scatter("add"),
    "scatter multiply": _scatter("multiply"),
    "scatter maximum": _scatter("maximum"),
    "scatter minimum": _scatter("minimum"),
    "scatter with other regions": _scatter_apply,
    "scatter of two operands": _scatter_two,
}
"""By the name of the operation."""
