"""Copies of operations, regions and models on other values."""

from __future__ import annotations

from dataclasses import replace

from nki.graph.ir import Function, Group, Module, Op, Region, Value


def copy_op(op: Op, values: dict[Value, Value]) -> Op:
    """A copy of an operation on other values; `values` gets what it and its regions make."""
    operands = tuple(values.get(v, v) for v in op.operands)
    regions = tuple(copy_region(region, values) for region in op.regions)
    results = tuple(values[v] if v in values else values.setdefault(v, Value(v.type, v.name)) for v in op.results)
    return Op(op.name, operands, results, op.attributes, regions, op.location)


def copy_region(region: Region, values: dict[Value, Value]) -> Region:
    """A copy of a region; values that it takes from outside are looked up in `values`."""
    arguments = tuple(values.setdefault(v, Value(v.type, v.name)) for v in region.arguments)
    ops = [copy_op(item, values) if isinstance(item, Op) else copy_group(item, values) for item in region.ops]
    return Region(arguments, ops, tuple(values.get(v, v) for v in region.results))


def copy_group(group: Group, values: dict[Value, Value]) -> Group:
    """A copy of a group, as `copy_op`."""
    ops = tuple(copy_op(op, values) for op in group.ops)
    inputs = tuple(values.get(v, v) for v in group.inputs)
    return Group(group.kind, ops, inputs, tuple(values[v] for v in group.outputs), group.name)


def copy_module(module: Module) -> Module:
    """A copy of a model, for passes that use up what they are given."""
    return Module({name: _copy_function(each) for name, each in module.functions.items()}, module.entry)


def _copy_function(function: Function) -> Function:
    values: dict[Value, Value] = {}
    inner = copy_region(Region(function.arguments, function.body, function.results), values)
    return replace(function, arguments=inner.arguments, body=list(inner.ops), results=inner.results)
