"""Operations spelled out in others: a table from name to rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

import numpy as np

from nki.core import dtypes
from nki.graph.errors import unsupported
from nki.graph.ir import Op, Value
from nki.graph.passes.legalization.decompose_bits import bitcast_convert, reduce_precision, rng_bit_generator
from nki.graph.passes.legalization.decompose_chlo import erfc
from nki.graph.passes.legalization.decompose_collectives import COLLECTIVES
from nki.graph.passes.legalization.decompose_index import scatter, torch_index_select
from nki.graph.passes.legalization.decompose_integers import convolution, dot_general
from nki.graph.passes.legalization.decompose_reduce import reduce, reduce_window
from nki.graph.passes.legalization.patches import patches
from nki.graph.passes.regions import is_plain, on_tensors
from nki.graph.passes.rewriter import Rewriter
from nki.graph.references import is_reference

Spelling = Callable[[Rewriter, Op], "Sequence[Value] | None"]


def _dot(r: Rewriter, op: Op) -> Sequence[Value]:
    attributes = {
        "lhs_batching_dimensions": (),
        "rhs_batching_dimensions": (),
        "lhs_contracting_dimensions": (len(op.operands[0].type.shape) - 1,),
        "rhs_contracting_dimensions": (0,),
        **op.attributes,
    }
    return r.op("dot_general", op.operands, [op.results[0].type], attributes)


def _broadcast(r: Rewriter, op: Op) -> Sequence[Value]:
    value, kind = op.operands[0], op.results[0].type
    first = len(kind.shape) - len(value.type.shape)
    return [r.one("broadcast_in_dim", [value], kind, broadcast_dimensions=tuple(range(first, len(kind.shape))))]


def _full_predicate(r: Rewriter, op: Op) -> Sequence[Value] | None:
    predicate, shape = op.operands[0], op.results[0].type.shape
    if predicate.type.shape == shape:
        return None
    full = r.broadcast(predicate, shape, ())
    return r.op("select", [full, *op.operands[1:]], [op.results[0].type])


def _full_limits(r: Rewriter, op: Op) -> Sequence[Value] | None:
    low, value, high = op.operands
    shape = value.type.shape
    if low.type.shape == shape and high.type.shape == shape:
        return None
    low, high = (v if v.type.shape == shape else r.broadcast(v, shape, ()) for v in (low, high))
    return [r.same("clamp", low, value, high)]


def _square(r: Rewriter, op: Op) -> Sequence[Value]:
    return [r.same("multiply", op.operands[0], op.operands[0])]


def _map(r: Rewriter, op: Op) -> Sequence[Value] | None:
    """The region computes on scalars; the same operations on whole tensors."""
    return on_tensors(r, op.regions[0], op.operands) if is_plain(op.regions[0]) else None


def _dimension_size(r: Rewriter, op: Op) -> Sequence[Value]:
    return [r.constant(np.array(op.operands[0].type.shape[op.attributes["dimension"]], np.int32))]


# ----------------------------------------------------------------------------------------------- batch normalization


def _along(r: Rewriter, value: Value, like: Value, dim: int) -> Value:
    return r.broadcast(value, like.type.shape, (dim,))


def _others(value: Value, dim: int) -> tuple[int, ...]:
    return tuple(d for d in range(len(value.type.shape)) if d != dim)


def _wide(r: Rewriter, values: Sequence[Value]) -> list[Value]:
    return [r.convert(value, dtypes.float32) for value in values]


def _normalized(r: Rewriter, op: Op, x: Value, mean: Value, variance: Value) -> tuple[Value, Value]:
    """x - mean, and 1 / standard deviation for each feature."""
    epsilon = r.full(op.attributes["epsilon"], variance.type)
    scale = r.same("rsqrt", r.same("add", variance, epsilon))
    return r.same("subtract", x, _along(r, mean, x, op.attributes["feature_index"])), scale


def _batch_norm_inference(r: Rewriter, op: Op) -> Sequence[Value]:
    x, scale, offset, mean, variance = _wide(r, op.operands)
    return [_scaled(r, op, x, scale, offset, mean, variance)]


def _scaled(r: Rewriter, op: Op, x: Value, scale: Value, offset: Value, mean: Value, variance: Value) -> Value:
    dim = op.attributes["feature_index"]
    centered, inverse = _normalized(r, op, x, mean, variance)
    result = r.same("multiply", centered, _along(r, r.same("multiply", inverse, scale), x, dim))
    result = r.same("add", result, _along(r, offset, x, dim))
    return r.convert(result, op.results[0].type.dtype)


def _mean(r: Rewriter, value: Value, dim: int) -> Value:
    others = _others(value, dim)
    total = r.reduce(value, others, "add", 0.0)
    count = prod(value.type.shape[d] for d in others)
    return r.same("divide", total, r.full(count, total.type))


def _batch_norm_training(r: Rewriter, op: Op) -> Sequence[Value]:
    x, scale, offset = _wide(r, op.operands)
    dim = op.attributes["feature_index"]
    mean = _mean(r, x, dim)
    centered = r.same("subtract", x, _along(r, mean, x, dim))
    variance = _mean(r, r.same("multiply", centered, centered), dim)
    result = _scaled(r, op, x, scale, offset, mean, variance)
    return [result, *(r.convert(v, kind.type.dtype) for v, kind in zip((mean, variance), op.results[1:], strict=True))]


def _batch_norm_grad(r: Rewriter, op: Op) -> Sequence[Value]:
    x, scale, mean, variance, gradient = _wide(r, op.operands)
    dim = op.attributes["feature_index"]
    others = _others(x, dim)
    centered, inverse = _normalized(r, op, x, mean, variance)
    normal = r.same("multiply", centered, _along(r, inverse, x, dim))
    of_offset = r.reduce(gradient, others, "add", 0.0)
    of_scale = r.reduce(r.same("multiply", gradient, normal), others, "add", 0.0)
    count = r.full(prod(x.type.shape[d] for d in others), of_offset.type)
    part = r.same("multiply", normal, _along(r, r.same("divide", of_scale, count), x, dim))
    inner = r.same("subtract", gradient, _along(r, r.same("divide", of_offset, count), x, dim))
    inner = r.same("subtract", inner, part)
    of_x = r.same("multiply", inner, _along(r, r.same("multiply", inverse, scale), x, dim))
    found = (of_x, of_scale, of_offset)
    return [r.convert(value, kind.type.dtype) for value, kind in zip(found, op.results, strict=True)]


_ANNOTATIONS = frozenset({"Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "annotate_device_placement"})


def _custom_call(r: Rewriter, op: Op) -> Sequence[Value] | None:
    """Annotations for several devices mean nothing on one; some operations of other dialects hide behind calls."""
    name = op.attributes.get("call_target_name")
    if name in _ANNOTATIONS and [v.type for v in op.operands] == [v.type for v in op.results]:
        return op.operands
    if name == "mhlo.erf":
        return [r.same("chlo.erf", op.operands[0])]
    if name == "mhlo.topk" and op.attributes.get("mhlo.attributes", {}).get("largest", True):
        attributes = {"k": op.results[0].type.shape[-1]}
        return r.op("chlo.top_k", op.operands, [value.type for value in op.results], attributes)
    if not is_reference(op):
        raise unsupported(op, f"nothing is known about the target {name}", "call a kernel that this package compiled")
    return None


DECOMPOSITIONS: Mapping[str, Spelling] = {
    **COLLECTIVES,
    "chlo.erfc": erfc,
    "batch_norm_grad": _batch_norm_grad,
    "batch_norm_inference": _batch_norm_inference,
    "batch_norm_training": _batch_norm_training,
    "bitcast_convert": bitcast_convert,
    "broadcast": _broadcast,
    "chlo.square": _square,
    "clamp": _full_limits,
    "custom_call": _custom_call,
    "dot": _dot,
    "get_dimension_size": _dimension_size,
    "convolution": lambda r, op: patches(r, op) or convolution(r, op),
    "dot_general": dot_general,
    "map": _map,
    "reduce": reduce,
    "reduce_precision": reduce_precision,
    "reduce_window": reduce_window,
    "rng_bit_generator": rng_bit_generator,
    "scatter": scatter,
    "select": _full_predicate,
    "torch_index_select": torch_index_select,
}
"""What is not here stays as it is."""
