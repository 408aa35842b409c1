"""Whether a model can be compiled at all, told before any work is done on it."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from nki.core.source import UNKNOWN, Location
from nki.graph.errors import GraphError
from nki.graph.ir import Group, Module, Op, Value
from nki.target.model import Target

_MOST_OPERATIONS = 1_000_000
"""Operations of a model with all its functions inlined; the largest models that are known have a tenth."""


def admit(module: Module, target: Target) -> None:
    """Look at sizes and calls.

    Raises:
        GraphError: "graph.memory" for a value that no device memory holds, "graph.recursion" for a function that calls
            itself, "graph.size" for one that is too long when functions are inlined.
    """
    for value, location in _values(module):
        size = prod(value.type.shape) * value.type.dtype.itemsize
        if size > target.hbm.bytes_per_stack:
            raise GraphError(
                "graph.memory",
                f"a value of type {value.type} has {size:,} bytes",
                rule=f"a core of {target.name} has {target.hbm.bytes_per_stack:,} bytes of device memory",
                fix="compile a smaller batch, or divide the model",
                location=location,
            )
    _count(module)


def _values(module: Module) -> Iterator[tuple[Value, Location]]:
    for function in module.functions.values():
        for value in function.arguments:
            yield value, UNKNOWN
    for op in module.walk():
        for value in op.results:
            yield value, op.location


def _count(module: Module) -> None:
    """Operations after inlining, function by function, those that are called first."""
    counted: dict[str, int] = {}
    open_calls: set[str] = set()
    pending: list[tuple[str, Location, bool]] = [(module.entry, UNKNOWN, False)]
    while pending:
        name, location, done = pending.pop()
        operations, calls = _operations(module, name)
        if done:
            open_calls.discard(name)
            counted[name] = operations + sum(counted.get(callee, 1) for callee, _ in calls)
            if counted[name] > _MOST_OPERATIONS:
                raise GraphError(
                    "graph.size",
                    f"{name} has {counted[name]:,} operations when functions are inlined",
                    rule=f"functions are inlined, and a model has at most {_MOST_OPERATIONS:,} operations then",
                    fix="repeat with stablehlo.while what is called that often",
                    location=location,
                )
        elif name in open_calls:
            raise GraphError(
                "graph.recursion",
                f"{name} calls itself",
                rule="functions are inlined, which does not end where one calls itself",
                fix="repeat with stablehlo.while",
                location=location,
            )
        elif name not in counted and name in module.functions:
            open_calls.add(name)
            pending.append((name, location, True))
            pending.extend((callee, at, False) for callee, at in calls)


def _operations(module: Module, name: str) -> tuple[int, list[tuple[str, Location]]]:
    """How many operations a function has itself, and the functions that it calls, once for every call."""
    function = module.functions.get(name)
    items: list[Op | Group] = list(function.body) if function is not None else []
    count, calls = 0, []
    while items:
        item = items.pop()
        count += 1
        if isinstance(item, Group):
            continue
        callee = item.attributes.get("callee" if item.name == "call" else "decomposition")
        if item.name in ("call", "composite") and isinstance(callee, str):
            calls.append((callee, item.location))
        for region in item.regions:
            items.extend(region.ops)
    return count, calls
