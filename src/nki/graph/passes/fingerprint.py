"""Names of groups: equal for groups that compute the same, whatever layer of the model they are from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from nki.graph.ir import Group, Op, Region, Value

_DIGITS = 12


def group_name(group: Group) -> str:
    """The kind and a hash of operations, types, attributes and constants; not of locations and names of values."""
    digest = hashlib.sha256()
    for part in _group(group, {}):
        digest.update(part.encode())
        digest.update(b"\n")
    return f"{group.kind}_{digest.hexdigest()[:_DIGITS]}"


def attribute_text(value: Any) -> str:
    """An attribute as text, arrays by their bytes."""
    if isinstance(value, np.ndarray):
        splat = value.size > 1 and not any(value.strides)
        data = value.reshape(-1)[:1] if splat else np.ascontiguousarray(value)
        return f"{value.dtype}{value.shape}{hashlib.sha256(data.tobytes()).hexdigest()}"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{name}={attribute_text(value[name])}" for name in sorted(value)) + "}"
    if isinstance(value, tuple | list):
        return "(" + ",".join(map(attribute_text, value)) + ")"
    return repr(value)


def op_text(op: Op, names: dict[Value, int]) -> Iterator[str]:
    """An operation in words; `names` numbers the values."""
    attributes = attribute_text(op.attributes)
    yield f"{op.name} {_uses(op.operands, names)} {attributes} -> {_values(op.results, names)}"
    for region in op.regions:
        yield from _region(region, names)


def _group(group: Group, names: dict[Value, int]) -> Iterator[str]:
    yield f"{group.kind} {_values(group.inputs, names)}"
    for op in group.ops:
        yield from op_text(op, names)
    yield _uses(group.outputs, names)


def _region(region: Region, names: dict[Value, int]) -> Iterator[str]:
    yield f"region {_values(region.arguments, names)}"
    for item in region.ops:
        yield from op_text(item, names) if isinstance(item, Op) else _group(item, names)
    yield f"return {_uses(region.results, names)}"


def _values(values: Sequence[Value], names: dict[Value, int]) -> str:
    return ",".join(f"{names.setdefault(value, len(names))}:{value.type}" for value in values)


def _uses(values: Sequence[Value], names: dict[Value, int]) -> str:
    return ",".join(str(names.setdefault(value, len(names))) for value in values)
