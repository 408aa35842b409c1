"""Operations of chlo: spelled out in StableHLO as MLIR does it, and more exactly where that loses digits."""

from __future__ import annotations

from collections.abc import Sequence

from nki.core import dtypes
from nki.graph.ir import Function, Module, Op, Region, TensorType, Value
from nki.graph.passes.legalization.quotients import halves
from nki.graph.passes.rewriter import Rewriter

KEPT_CHLO = frozenset({"chlo.erf", "chlo.erf_inv", "chlo.top_k"})
"""Operations of chlo that kernels compute themselves."""


def expand(r: Rewriter, op: Op) -> Sequence[Value] | None:
    """An operation of chlo in StableHLO, as MLIR's own pass spells it out."""
    if op.name in KEPT_CHLO:
        return None
    from nki.graph.stablehlo.mlir import expand_chlo  # noqa: PLC0415  - MLIR is loaded when it is needed
    from nki.graph.stablehlo.read import read_module  # noqa: PLC0415
    from nki.graph.stablehlo.write import write  # noqa: PLC0415

    arguments = tuple(Value(value.type) for value in op.operands)
    results = tuple(Value(value.type) for value in op.results)
    function = Function("main", arguments, [Op(op.name, arguments, results, op.attributes)], results)
    expanded = read_module(expand_chlo(write(Module({"main": function})))).main
    body = [item for item in expanded.body if isinstance(item, Op)]
    if any(inner.name == op.name for inner in body):
        return None
    for inner in body:
        inner.location = op.location
    return r.inline(Region(expanded.arguments, list(body), expanded.results), op.operands)


_TAIL = (1.0, 11.0)
"""From where on erfc is a product with ``exp(-x * x)``, and from where on it is 0."""


def erfc(r: Rewriter, op: Op) -> Sequence[Value] | None:
    """The complementary error function, right to a few units in the last place of float32 in its tail too.

    MLIR computes ``exp(-x * x)`` of the rounded square, which is off by up to 43 such units. What the rounding took is
    known exactly from the halves of x, and ``exp(-d)`` of so small a number is ``1 - d``.
    """
    made = expand(r, op)
    (x,) = op.operands
    if made is None or x.type.dtype is not dtypes.float32:
        return made
    upper, lower = halves(r, x)
    both = r.same("multiply", upper, lower)
    rest = r.same("subtract", r.same("multiply", upper, upper), r.same("multiply", x, x))
    for part in (both, both, r.same("multiply", lower, lower)):
        rest = r.same("add", rest, part)
    better = r.same("subtract", made[0], r.same("multiply", made[0], rest))
    truth = TensorType(x.type.shape, dtypes.bool_)
    low, high = (
        r.one("compare", [x, r.full(limit, x.type)], truth, comparison_direction=way, compare_type="FLOAT")
        for limit, way in zip(_TAIL, ("GT", "LT"), strict=True)
    )
    return r.op("select", [r.same("and", low, high), better, made[0]], [x.type])
