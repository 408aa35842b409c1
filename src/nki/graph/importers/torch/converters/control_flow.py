"""``torch.cond``, ``while_loop`` and ``scan``, whose branches and bodies are graphs of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import fx

from nki.core.dtypes import int32
from nki.graph.errors import GraphError
from nki.graph.importers.torch.builder import Builder
from nki.graph.importers.torch.converters.random import DRAWING, SAVING, run_and_save, run_with
from nki.graph.importers.torch.table import Call
from nki.graph.ir import Op, Region, TensorType, Value

Nested = Callable[[fx.GraphModule, Sequence[Any]], tuple[list[Op], list[Any]]]
"""Converts a nested graph for given arguments: its operations and its results."""


def cond(b: Builder, call: Call, nested: Nested, chosen: Any, yes: Any, no: Any, operands: Sequence[Any]) -> Any:
    """``torch.cond(pred, true_fn, false_fn, operands)``; branches see the operands as they are."""
    if not isinstance(chosen, Value):
        ops, results = nested(yes if chosen else no, operands)
        b.ops.extend(ops)
        return results
    regions = tuple(_region(b, call, (), nested(graph, operands)) for graph in (yes, no))
    chosen = chosen if not chosen.type.shape else b.reshape(chosen, ())
    return b.emit("if", (chosen,), [value.type for value in regions[0].results], regions=regions)


def while_loop(
    b: Builder, call: Call, nested: Nested, condition: Any, body: Any, carried: Sequence[Any], more: Sequence[Any] = ()
) -> Any:
    """``while_loop(cond_fn, body_fn, carried_inputs, additional_inputs)``."""
    starts = _tensors(b, call, carried)
    regions = []
    for graph in (condition, body):
        arguments = tuple(Value(value.type) for value in starts)
        regions.append(_region(b, call, arguments, nested(graph, [*arguments, *more])))
    return b.emit("while", starts, [value.type for value in starts], regions=tuple(regions))


def scan(
    b: Builder, call: Call, nested: Nested, body: Any, init: Sequence[Any], xs: Sequence[Any], more: Sequence[Any] = ()
) -> Any:
    """``scan(combine_fn, init, xs)``: a loop over the first dimension, which stacks what each trip makes."""
    carries, sources = _tensors(b, call, init), _tensors(b, call, xs)
    stacked = [type_ for type_ in call.types[len(carries) :] if type_ is not None]
    trips = sources[0].type.shape[0]
    starts = [b.constant(0, int32), *carries, *(b.constant(0, type_.dtype, type_.shape) for type_ in stacked)]
    types = [value.type for value in starts]

    arguments = [Value(type_) for type_ in types]
    test = Builder()
    test.location = b.location
    more_trips = test.compare("LT", arguments[0], test.constant(trips, int32))
    condition = Region(tuple(arguments), list(test.ops), (more_trips,))

    arguments = [Value(type_) for type_ in types]
    inner = Builder()
    inner.location = b.location
    step, held, rows = arguments[0], arguments[1 : 1 + len(carries)], arguments[1 + len(carries) :]
    ops, made = nested(body, [*held, *(_row(inner, source, step) for source in sources), *more])
    results = _tensors(b, call, made)
    inner.ops.extend(ops)
    kept = [_with_row(inner, whole, row, step) for whole, row in zip(rows, results[len(carries) :], strict=True)]
    after = inner.add(step, inner.constant(1, int32))
    region = Region(tuple(arguments), list(inner.ops), (after, *results[: len(carries)], *kept))
    return b.emit("while", starts, types, regions=(condition, region))[1:]


def _row(b: Builder, source: Value, step: Value) -> Value:
    """Element `step` of the first dimension."""
    shape = source.type.shape
    kind = TensorType((1, *shape[1:]), source.type.dtype)
    row = b.one("dynamic_slice", [source, *_start(b, step, len(shape))], kind, slice_sizes=kind.shape)
    return b.reshape(row, shape[1:])


def _with_row(b: Builder, whole: Value, row: Value, step: Value) -> Value:
    shape = whole.type.shape
    operands = [whole, b.reshape(row, (1, *shape[1:])), *_start(b, step, len(shape))]
    return b.one("dynamic_update_slice", operands, whole.type)


def _start(b: Builder, step: Value, rank: int) -> list[Value]:
    return [step, *(b.constant(0, int32) for _ in range(rank - 1))]


def _region(b: Builder, call: Call, arguments: tuple[Value, ...], found: tuple[list[Op], list[Any]]) -> Region:
    ops, results = found
    return Region(arguments, [*ops], tuple(_tensors(b, call, results)))


def _tensors(b: Builder, call: Call, values: Sequence[Any]) -> list[Value]:
    for value in values:
        if not isinstance(value, Value):
            raise GraphError(
                "graph.unsupported",
                f"{call.name}: {value!r} goes through it",
                rule="tensors go through control flow",
                fix="make it a tensor: torch.tensor(...)",
                location=b.location,
            )
    return list(values)


CONTROL: Mapping[str, Callable[..., Any]] = {
    "cond": cond,
    "while_loop": while_loop,
    "scan": scan,
    SAVING: run_and_save,
    DRAWING: run_with,
}
"""By the name of the operator; each takes the builder, the call, what converts nested graphs, and the arguments."""
