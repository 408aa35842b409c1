"""Which operations are computed element by element, and which kind of kernel computes the others."""

from __future__ import annotations

from collections.abc import Mapping

from nki.graph.ir import Op, TensorType

ELEMENTWISE = frozenset({
    "abs", "add", "and", "atan2", "cbrt", "ceil", "clamp", "compare", "convert", "cosine", "count_leading_zeros",
    "divide", "exponential", "exponential_minus_one", "floor", "is_finite", "log", "log_plus_one", "logistic",
    "maximum", "minimum", "multiply", "negate", "not", "or", "popcnt", "power", "reduce_precision", "remainder",
    "round_nearest_afz", "round_nearest_even", "rsqrt", "select", "shift_left", "shift_right_arithmetic",
    "shift_right_logical", "sign", "sine", "sqrt", "subtract", "tan", "tanh", "xor", "chlo.erf", "chlo.erf_inv",
})  # fmt: skip
"""Operations whose result at a place depends on the operands at that place; a scalar operand of clamp and select counts
for all places."""

KINDS: Mapping[str, str] = {
    **dict.fromkeys(ELEMENTWISE, "pointwise"),
    **dict.fromkeys(("constant", "iota", "broadcast_in_dim"), "pointwise"),
    "reduce": "rows",
    "dot_general": "dot",
    "convolution": "conv",
    **dict.fromkeys(
        ("transpose", "slice", "pad", "concatenate", "reverse", "dynamic_slice", "dynamic_update_slice"), "move"
    ),
    "reduce_window": "window",
    "select_and_scatter": "window",
    "gather": "gather",
    "scatter": "scatter",
    "sort": "sort",
    "chlo.top_k": "sort",
    "rng": "rng",
    "rng_bit_generator": "rng",
    **dict.fromkeys(("all_reduce", "all_gather", "reduce_scatter", "all_to_all"), "collective"),
    **dict.fromkeys(("collective_permute", "partition_id", "replica_id"), "collective"),
    "custom_call": "call",
}
"""Kind of the group that an operation starts."""

WHOLE = frozenset({"while", "case", "if", "call", "reshape", "optimization_barrier"})
"""Operations that stay outside of groups: control flow, and what costs nothing."""

_COMBINERS = frozenset({"add", "maximum", "minimum", "multiply", "and", "or"})


def is_pointwise(op: Op) -> bool:
    """True for what is computed element by element, and for bitcasts between types of one size."""
    if op.name == "bitcast_convert":
        return op.operands[0].type.shape == op.results[0].type.shape
    return op.name in ELEMENTWISE


def kind_of(op: Op) -> str:
    """The kind of group that an operation starts; "" for those that stay outside."""
    if op.name in WHOLE:
        return ""
    if is_pointwise(op):
        return "pointwise"
    if op.name == "bitcast_convert":  # to elements of another size: the same bytes, like a reshape
        return ""
    return KINDS.get(op.name, op.name)


def combiner(op: Op) -> str:
    """The operation that a reduce combines two elements with, if it is a simple one, else ""."""
    if op.name != "reduce" or len(op.results) != 1 or len(op.regions[0].ops) != 1:
        return ""
    region, inner = op.regions[0], op.regions[0].ops[0]
    if not isinstance(inner, Op) or inner.name not in _COMBINERS or set(inner.operands) != set(region.arguments):
        return ""
    return inner.name


def nbytes(kind: TensorType) -> int:
    """Bytes in device memory; truth values take one each."""
    return kind.size * kind.dtype.itemsize
