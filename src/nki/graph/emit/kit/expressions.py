"""Pointwise operations on tiles: an instruction for several operations where the engines have one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from nki.graph.emit.kit.arithmetic import ARITHMETIC
from nki.graph.emit.kit.conversions import CONVERSIONS
from nki.graph.emit.kit.engines import EngineOps, Form
from nki.graph.emit.kit.evaluation import Evaluation, Reducer, Rule
from nki.graph.ir import Op, Value
from nki.target.model import Target

_RULES: Mapping[str, Rule] = {**ARITHMETIC, **CONVERSIONS}


def apply(
    ops: Iterable[Op],
    values: Mapping[Value, Form],
    *,
    target: Target | None = None,
    engines: EngineOps | None = None,
    keep: Collection[Value] = (),
    shape: tuple[int, ...] = (1, 1),
    reduce: Reducer | None = None,
) -> dict[Value, Form]:
    """Compute operations whose operands are tiles.

    Tiles have the shape ``(partitions, *free)``, all of one rank; a free size of 1 is broadcast. Each has the dtype of
    its value, truth values are uint8 of 0 and 1; tiles of inputs may be in PSUM and may be float32 where the value is
    a smaller float. Operations that only rename elements (`TRANSPARENT`) pass their operand's tile on, and those
    whose results are in `values` already are skipped: that is how iota, constants that are no splats, and views come
    in.

    Args:
        ops: in topological order.
        values: what is there; it is not changed and its tiles are not overwritten.
        target, engines: one of both; `engines` keeps constants between calls.
        keep: results that are wanted; the others need not exist as tiles.
        shape: of tiles, where `values` has none.
        reduce: computes `reduce` operations.

    Returns:
        All of `values`, and the results in `keep`, as tiles or numbers.

    Raises:
        GraphError: an operation that has no instructions ("graph.unsupported").
    """
    if engines is None:
        assert target is not None, "a target or engines"
        engines = EngineOps(target)
    return Evaluation(engines, values, keep, shape, reduce, _RULES).run(ops)
