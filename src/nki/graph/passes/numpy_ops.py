"""StableHLO operations on NumPy arrays, for constants; None where NumPy would not do what StableHLO says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from nki.graph.ir import Op

Array = npt.NDArray[Any]


def compute(op: Op, operands: list[Array]) -> Array | None:
    """The result of an operation on constants, or None if it is not computed here."""
    kind = op.results[0].type
    with np.errstate(all="ignore"):
        if op.name in _ELEMENTWISE:
            result = _elementwise(op, operands)
        elif op.name in _MOVES:
            result = _MOVES[op.name](op, operands)
        else:
            return None
    if result is None:
        return None
    if result.shape != kind.shape:
        return None
    return result if result.dtype == kind.dtype.numpy else result.astype(kind.dtype.numpy)


def is_elementwise(name: str) -> bool:
    """True if the operation is computed here element by element."""
    return name in _ELEMENTWISE


def _elementwise(op: Op, operands: list[Array]) -> Array | None:
    """Small floats are computed in float32 and rounded once, as the device does."""
    stored = operands[0].dtype
    small = stored.kind == "V" or (stored.kind == "f" and stored.itemsize < np.dtype(np.float32).itemsize)
    if small and op.name != "convert":
        operands = [array.astype(np.float32) if array.dtype == stored else array for array in operands]
    return _ELEMENTWISE[op.name](op, *operands)


def _integer(array: Array) -> bool:
    return bool(array.dtype.kind in "iu")


def _divide(op: Op, x: Array, y: Array) -> Array | None:
    if not _integer(x):
        return np.divide(x, y)
    if not np.all(y) or np.any((x == np.iinfo(x.dtype).min) & (y.astype(np.int64) == -1)):
        return None
    wide = x.astype(np.int64), y.astype(np.int64)
    return (np.sign(wide[0]) * np.sign(wide[1]) * (abs(wide[0]) // abs(wide[1]))).astype(x.dtype)


def _remainder(op: Op, x: Array, y: Array) -> Array | None:
    if _integer(x) and not np.all(y):
        return None
    return np.fmod(x, y)


def _convert(op: Op, x: Array) -> Array | None:
    to = op.results[0].type.dtype
    if to.kind == "bool":
        return np.asarray(x != 0)
    if to.is_integer and not _integer(x) and x.dtype != np.bool_:
        wide = x.astype(np.float64)
        if not np.all(np.isfinite(wide)) or np.any(wide <= to.min - 1) or np.any(wide >= to.max + 1):
            return None
        return wide.astype(to.numpy)
    return x.astype(to.numpy)


def _shift(function: Callable[[Array, Array], Array]) -> Callable[..., Array | None]:
    def shifted(op: Op, x: Array, y: Array) -> Array | None:
        bits = 8 * x.dtype.itemsize
        wide = y.astype(np.int64)
        return None if np.any((wide < 0) | (wide >= bits)) else np.asarray(function(x, y))

    return shifted


def _logical_right(x: Array, y: Array) -> Array:
    unsigned = np.dtype(f"u{x.dtype.itemsize}")
    return np.right_shift(x.view(unsigned), y.astype(unsigned)).view(x.dtype)


_COMPARE: Mapping[str, Callable[[Array, Array], Array]] = {
    "EQ": np.equal, "NE": np.not_equal, "GE": np.greater_equal, "GT": np.greater, "LE": np.less_equal, "LT": np.less,
}  # fmt: skip


def _compare(op: Op, x: Array, y: Array) -> Array | None:
    if op.attributes.get("compare_type") == "TOTALORDER":
        return None
    return np.asarray(_COMPARE[op.attributes["comparison_direction"]](x, y))


def _float_only(function: Callable[..., Array]) -> Callable[..., Array | None]:
    return lambda op, *x: None if _integer(x[0]) else np.asarray(function(*x))


def _any(function: Callable[..., Array]) -> Callable[..., Array | None]:
    return lambda op, *x: np.asarray(function(*x))


def _negate(op: Op, x: Array) -> Array | None:
    return np.asarray(0 - x if x.dtype.kind == "u" else -x).astype(x.dtype)


def _add(op: Op, x: Array, y: Array) -> Array:
    return np.asarray(x | y if x.dtype == np.bool_ else x + y)


def _multiply(op: Op, x: Array, y: Array) -> Array:
    return np.asarray(x & y if x.dtype == np.bool_ else x * y)


def _power(op: Op, x: Array, y: Array) -> Array | None:
    return None if _integer(x) else np.power(x, y)


def _bitcast(op: Op, x: Array) -> Array | None:
    kind = op.results[0].type.dtype.numpy
    return np.ascontiguousarray(x).view(kind) if np.dtype(kind).itemsize == x.dtype.itemsize else None


def _sign(op: Op, x: Array) -> Array:
    return np.asarray(np.where(x == 0, x, np.sign(x)).astype(x.dtype))


_ELEMENTWISE: Mapping[str, Callable[..., Array | None]] = {
    "abs": _any(np.abs),
    "add": _add,
    "and": _any(np.bitwise_and),
    "atan2": _float_only(np.arctan2),
    "bitcast_convert": _bitcast,
    "cbrt": _float_only(np.cbrt),
    "ceil": _float_only(np.ceil),
    "clamp": _any(lambda low, x, high: np.minimum(np.maximum(x, low), high)),
    "compare": _compare,
    "convert": _convert,
    "cosine": _float_only(np.cos),
    "divide": _divide,
    "exponential": _float_only(np.exp),
    "exponential_minus_one": _float_only(np.expm1),
    "floor": _float_only(np.floor),
    "is_finite": _any(np.isfinite),
    "log": _float_only(np.log),
    "log_plus_one": _float_only(np.log1p),
    "logistic": _float_only(lambda x: 1 / (1 + np.exp(-x))),
    "maximum": _any(np.maximum),
    "minimum": _any(np.minimum),
    "multiply": _multiply,
    "negate": _negate,
    "not": _any(lambda x: np.logical_not(x) if x.dtype == np.bool_ else np.invert(x)),
    "or": _any(np.bitwise_or),
    "power": _power,
    "remainder": _remainder,
    "round_nearest_even": _float_only(np.rint),
    "rsqrt": _float_only(lambda x: (1 / np.sqrt(x.astype(np.float64))).astype(x.dtype)),
    "select": _any(np.where),
    "shift_left": _shift(np.left_shift),
    "shift_right_arithmetic": _shift(
        lambda x, y: np.right_shift(x.view(f"i{x.dtype.itemsize}"), y.astype(f"i{x.dtype.itemsize}")).view(x.dtype)
    ),
    "shift_right_logical": _shift(_logical_right),
    "sign": _sign,
    "sine": _float_only(np.sin),
    "sqrt": _float_only(np.sqrt),
    "subtract": _any(np.subtract),
    "tan": _float_only(np.tan),
    "tanh": _float_only(np.tanh),
    "xor": _any(np.bitwise_xor),
}

# ------------------------------------------------------------------------------------------------------------ movement


def _broadcast(op: Op, operands: list[Array]) -> Array:
    (x,) = operands
    shape = op.results[0].type.shape
    place = [1] * len(shape)
    for dim, size in zip(op.attributes["broadcast_dimensions"], x.shape, strict=True):
        place[dim] = size
    return np.broadcast_to(x.reshape(place), shape)


def _iota(op: Op, operands: list[Array]) -> Array:
    kind = op.results[0].type
    dim = op.attributes["iota_dimension"]
    place = [1] * len(kind.shape)
    place[dim] = kind.shape[dim]
    return np.broadcast_to(np.arange(kind.shape[dim]).astype(kind.dtype.numpy).reshape(place), kind.shape)


def _slice(op: Op, operands: list[Array]) -> Array:
    a = op.attributes
    bounds = zip(a["start_indices"], a["limit_indices"], a["strides"], strict=True)
    return operands[0][tuple(slice(start, limit, stride) for start, limit, stride in bounds)]


def _pad(op: Op, operands: list[Array]) -> Array | None:
    a = op.attributes
    x, value = operands
    kind = op.results[0].type
    low, high, inner = a["edge_padding_low"], a["edge_padding_high"], a["interior_padding"]
    if min((*low, *high), default=0) < 0:
        return None
    result = np.full(kind.shape, value.reshape(-1)[0], x.dtype)
    steps = (
        slice(start, start + (size - 1) * (gap + 1) + 1 if size else start, gap + 1)
        for start, gap, size in zip(low, inner, x.shape, strict=True)
    )
    result[tuple(steps)] = x
    return result


def _gather(op: Op, operands: list[Array]) -> Array:
    """Slices at the indices' places; a slice that would reach beyond the operand begins where it fits."""
    a, (x, indices) = op.attributes, operands
    axis = int(a.get("index_vector_dim", 0))
    starts = np.moveaxis(indices, axis, -1) if axis < indices.ndim else indices[..., None]
    batch, sizes = starts.shape[:-1], a["slice_sizes"]
    where, along = a["start_index_map"], a.get("operand_batching_dims", ())
    kept = [dim for dim in range(x.ndim) if dim not in a.get("collapsed_slice_dims", ()) and dim not in along]
    places = []
    for dim, (size, length) in enumerate(zip(sizes, x.shape, strict=True)):
        place = np.zeros(batch, np.int64)
        if dim in where:
            place = np.clip(starts[..., list(where).index(dim)].astype(np.int64), 0, length - size)
        elif dim in along:
            beside = a["start_indices_batching_dims"][list(along).index(dim)]
            beside -= beside > axis
            place = place + np.arange(length).reshape([-1 if d == beside else 1 for d in range(len(batch))])
        offset = np.arange(size).reshape([-1 if d == dim else 1 for d in kept]) if dim in kept else 0
        places.append(place.reshape((*batch, *[1] * len(kept))) + offset)
    found = x[tuple(places)]
    return np.moveaxis(found, range(len(batch), found.ndim), a["offset_dims"])


_MOVES: Mapping[str, Callable[[Op, list[Array]], Array | None]] = {
    "broadcast_in_dim": _broadcast,
    "bitcast_convert": lambda op, x: (
        np.ascontiguousarray(x[0]).view(op.results[0].type.dtype.numpy)
        if x[0].dtype.itemsize == op.results[0].type.dtype.itemsize and x[0].dtype != np.bool_
        else None
    ),
    "concatenate": lambda op, x: np.concatenate(x, axis=op.attributes["dimension"]),
    "gather": _gather,
    "iota": _iota,
    "pad": _pad,
    "reshape": lambda op, x: x[0].reshape(op.results[0].type.shape),
    "reverse": lambda op, x: np.flip(x[0], op.attributes["dimensions"]),
    "slice": _slice,
    "transpose": lambda op, x: np.transpose(x[0], op.attributes["permutation"]),
}
