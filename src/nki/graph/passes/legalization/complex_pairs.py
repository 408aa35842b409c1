"""Complex numbers as pairs: no engine has them, so each tensor of them becomes two of float32.

At the model's border they are one tensor of float32 with a last dimension of 2, real part first, as they lie in memory
of the host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nki.core.dtypes import complex64, float32
from nki.graph.errors import unsupported
from nki.graph.ir import Function, Module, Op, Region, TensorType, Value
from nki.graph.passes.legalization import complex_numbers
from nki.graph.passes.legalization.complex_numbers import Pair
from nki.graph.passes.legalization.fourier import transform
from nki.graph.passes.rewriter import Rewriter, rewrite

_EACH = frozenset(
    ("add", "subtract", "negate", "reshape", "transpose", "broadcast_in_dim", "broadcast", "slice", "dynamic_slice",
     "dynamic_update_slice", "concatenate", "pad", "reverse", "gather", "scatter", "select", "reduce", "reduce_window",
     "optimization_barrier", "copy", "all_gather", "all_reduce", "all_to_all", "collective_broadcast",
     "collective_permute", "reduce_scatter")
)  # fmt: skip
"""What is done to both parts alike."""

_COMBINED = frozenset(("add",))
"""Operations in regions that both parts can do alike."""

_BRANCHES = frozenset(("if", "case"))

_PRODUCTS = frozenset(("dot_general", "dot", "convolution"))


def without_complex(module: Module) -> Module:
    """The model with pairs in the place of complex numbers.

    Raises:
        GraphError: "graph.unsupported" for what is not defined here, such as loops that carry complex numbers.
    """
    if not any(_is_complex(value) for value in _values(module)):
        return module
    pairs: dict[Value, Pair] = {}

    def rule(r: Rewriter, op: Op) -> Sequence[Value] | None:
        touched = [value for value in (*op.operands, *op.results) if _is_complex(value)]
        if not touched or (r.depth and all(v not in pairs for v in op.operands if _is_complex(v)) and op.operands):
            return None  # the second: inside of a region, which the operation around it takes apart
        return _split(r, op, pairs)

    for function in module.functions.values():
        _open(function, pairs)
    module = rewrite(module, rule)
    for function in module.functions.values():
        _close(function, pairs)
    return module


def _is_complex(value: Value) -> bool:
    return value.type.dtype is complex64


def _values(module: Module) -> list[Value]:
    found = [value for function in module.functions.values() for value in function.arguments]
    return found + [value for op in module.walk() for value in op.results]


def _part(kind: TensorType) -> TensorType:
    return TensorType(kind.shape, float32)


# ------------------------------------------------------------------------------------------------------- the border


def _open(function: Function, pairs: dict[Value, Pair]) -> None:
    """Arguments become tensors with a last dimension of 2, which are taken apart first of all."""
    made: list[Op] = []
    arguments = []
    for value in function.arguments:
        if not _is_complex(value):
            arguments.append(value)
            continue
        shape = value.type.shape
        whole = Value(TensorType((*shape, 2), float32), value.name)
        parts = []
        for place in range(2):
            part, flat = Value(TensorType((*shape, 1), float32)), Value(_part(value.type))
            starts, limits = (*(0 for _ in shape), place), (*shape, place + 1)
            bounds = {"start_indices": starts, "limit_indices": limits, "strides": (1,) * len(limits)}
            made += [Op("slice", (whole,), (part,), bounds), Op("reshape", (part,), (flat,), {})]
            parts.append(flat)
        pairs[value] = (parts[0], parts[1])
        arguments.append(whole)
    function.arguments = tuple(arguments)
    function.body[:0] = made


def _close(function: Function, pairs: Mapping[Value, Pair]) -> None:
    """Complex results are put together, as `_open` takes arguments apart."""
    results = []
    for value in function.results:
        if not _is_complex(value):
            results.append(value)
            continue
        shape = value.type.shape
        columns = [Value(TensorType((*shape, 1), float32)) for _ in range(2)]
        for part, column in zip(pairs[value], columns, strict=True):
            function.body.append(Op("reshape", (part,), (column,), {}))
        whole = Value(TensorType((*shape, 2), float32), value.name)
        function.body.append(Op("concatenate", tuple(columns), (whole,), {"dimension": len(shape)}))
        results.append(whole)
    function.results = tuple(results)


# ---------------------------------------------------------------------------------------------------- one operation


def _split(r: Rewriter, op: Op, pairs: dict[Value, Pair]) -> Sequence[Value]:
    """The operation on pairs. A complex result stays the value that it was, which only `pairs` knows."""
    given = [pairs.get(value, value) for value in op.operands]
    if op.name in _BRANCHES:
        made = _branches(r, op, pairs)
    elif any(isinstance(value, Value) and _is_complex(value) for value in given):
        raise unsupported(op, "its complex numbers come from a region", "compute with real and imaginary parts there")
    else:
        made = _made(r, op, given)
    results = []
    for result, value in zip(op.results, made, strict=True):
        if isinstance(value, tuple):
            pairs[result] = value
            results.append(result)
        else:
            results.append(value)
    return results


def _branches(r: Rewriter, op: Op, pairs: Mapping[Value, Pair]) -> list[Any]:
    """A choice: each branch gives both parts of its complex results."""
    places = [2 if _is_complex(value) else 1 for value in op.results]
    types = [_part(v.type) if n > 1 else v.type for v, n in zip(op.results, places, strict=True) for _ in range(n)]
    regions = [
        Region(
            region.arguments, region.ops, tuple(part for value in region.results for part in pairs.get(value, (value,)))
        )
        for region in op.regions
    ]
    rest = iter(r.op(op.name, op.operands, types, op.attributes, regions))
    return [(next(rest), next(rest)) if count > 1 else next(rest) for count in places]


def _made(r: Rewriter, op: Op, given: list[Any]) -> list[Any]:
    if op.name == "constant":
        array = np.asarray(op.attributes["value"])
        return [(r.constant(_half(array, "real")), r.constant(_half(array, "imag")))]
    if op.name == "fft":
        return [transform(r, op, given[0])]
    if op.name in _EACH:
        return _alike(r, op, given)
    if op.name in _PRODUCTS:
        return [_product(r, op, *given)]
    rule = complex_numbers.RULES.get(op.name)
    if rule is None or op.regions:
        raise unsupported(op, "it is not defined for complex numbers", "compute with real and imaginary parts")
    return [rule(r, op, *given)]


def _half(array: np.ndarray, name: str) -> np.ndarray:
    """One part of an array; strides of 0 stay."""
    splat = array.size > 1 and not any(array.strides)
    source = array[(slice(0, 1),) * array.ndim] if splat else array
    return np.broadcast_to(np.ascontiguousarray(getattr(source, name)).reshape(source.shape), array.shape)


def _alike(r: Rewriter, op: Op, given: list[Any]) -> list[Any]:
    """An operation that is done to the real parts and to the imaginary ones alike."""
    types = [_part(value.type) if _is_complex(value) else value.type for value in op.results]
    parts = []
    for place in range(2):
        operands = [value[place] if isinstance(value, tuple) else value for value in given]
        parts.append(r.op(op.name, operands, types, op.attributes, [_real(op, region) for region in op.regions]))
    return [
        pair if _is_complex(result) else pair[0]
        for result, pair in zip(op.results, zip(*parts, strict=True), strict=True)
    ]


def _real(op: Op, region: Region) -> Region:
    """A region on complex scalars that adds, or keeps an argument, on real ones."""
    arguments = tuple(Value(_part(value.type)) for value in region.arguments)
    known: dict[Value, Value] = dict(zip(region.arguments, arguments, strict=True))
    made = []
    for inner in region.ops:
        if not isinstance(inner, Op) or inner.name not in _COMBINED:
            name = inner.name if isinstance(inner, Op) else "a kernel"
            raise unsupported(op, f"it combines complex numbers by {name}", "only sums of complex numbers are defined")
        results = tuple(Value(_part(value.type)) for value in inner.results)
        operands = tuple(known[value] for value in inner.operands)
        made.append(Op(inner.name, operands, results, inner.attributes, (), inner.location))
        known.update(zip(inner.results, results, strict=True))
    return Region(arguments, list(made), tuple(known[value] for value in region.results))


def _product(r: Rewriter, op: Op, x: Any, y: Any) -> Pair:
    kind = _part(op.results[0].type)

    def times(left: Value, right: Value) -> Value:
        return r.op(op.name, [left, right], [kind], op.attributes)[0]

    (a, b), (c, d) = x, y
    return r.same("subtract", times(a, c), times(b, d)), r.same("add", times(a, d), times(b, c))
