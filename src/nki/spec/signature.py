"""Signatures: all that a rule can read of an instruction, so that what was found legal once is not verified again."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from enum import Enum
from typing import Any

from nki.core.dtypes import DType
from nki.core.tensor import Buffer, View
from nki.spec.engine import engine
from nki.spec.operator import Operator
from nki.target.model import Target

_MOST = 1 << 14

Key = tuple[Hashable, ...]
"""The instruction, the identity of the target, and what `add` makes of each argument but the name, which nothing reads.

A default may stand for itself, by its identity.
"""

Seen = dict[Buffer, tuple[int, int]]
"""By buffer: its position among those of the instruction, and the offset of the first view of it."""


class Signature:
    """A legal instruction, as far as rules and executors can tell: two with one signature differ in nothing they read.

    They may differ in which buffers they name (not in which of them are the same), and in where views of HBM begin
    (not in how far apart two views of one buffer are). Executors keep what they know of such instructions under it.

    Attributes:
        engine: that runs them.
        plans: what executors keep, each under a key of its own.
    """

    __slots__ = ("_kept", "engine", "plans")

    def __init__(self, runs_on: engine, kept: tuple[Any, ...]) -> None:
        """`kept` are the objects that the key knows by identity."""
        self.engine = runs_on
        self.plans: dict[Hashable, Any] = {}
        self._kept = kept


_LEGAL: dict[Key, Signature] = {}
"""Forms of instructions that were found legal, for all kernels of the process; emptied at `_MOST`."""


def add_view(key: list[Any], view: View, seen: Seen) -> bool:
    """Append what of a view counts; False if its address is only known at run time."""
    buffer, dtype, shape, strides, offset, dynamic = view
    number, first = seen.setdefault(buffer, (len(seen), offset))
    key += (number, dtype, shape, strides, offset if buffer.on_chip else offset - first, buffer.layout)
    return dynamic is None


def parts_of(value: Any, earlier: Sequence[Any]) -> tuple[Any, ...]:
    """What counts of a tensor: buffer, dtype, shape, strides, offset, dynamic address, layout.

    A number and None have their type in place of the dtype, and what tells them from others of it in that of the shape;
    a value of which that is not known has an address that is not None.

    Args:
        earlier: the arguments before it; an offset in HBM counts from that of the first one in the same buffer.
    """
    if type(value) is View:
        buffer, dtype, shape, strides, offset, dynamic = value
        if not buffer.on_chip:
            offset -= next((v.offset for v in earlier if type(v) is View and v.buffer is buffer), offset)
        return buffer, dtype, shape, strides, offset, dynamic, buffer.layout
    found: list[Any] = []
    known = add(found, value, {})
    return None, type(value), tuple(found), None, None, None if known else value, None


def add(key: list[Any], value: Any, seen: Seen) -> bool:
    """Append what tells an argument from others; False if that is not known.

    1, 1.0 and True differ, and so do 0.0 and -0.0.
    """
    kind = type(value)
    if kind in _BY_IDENTITY:
        key.append(id(value))
    elif kind is View:
        return add_view(key, value, seen)
    elif kind is float:
        key += (kind, value or value.hex())
    elif kind is int or kind is str:
        key += (kind, value)
    elif kind is tuple:
        key += (kind, len(value))
        return all([add(key, item, seen) for item in value])
    elif isinstance(value, Enum):
        _BY_IDENTITY.add(kind)
        key.append(id(value))
    else:
        return False
    return True


_BY_IDENTITY: set[type] = {bool, type(None), Operator, DType}
"""Types whose values are few and stay: members of enumerations as well, as they come."""


def known(key: Key) -> Signature | None:
    """The signature of instructions with this key that were found legal."""
    return _LEGAL.get(key)


def remember(key: Key, target: Target, arguments: tuple[Any, ...], runs_on: engine) -> Signature:
    """Note that instructions with this key are legal on the target: that no rule is broken, warnings included."""
    if len(_LEGAL) >= _MOST:
        _LEGAL.clear()
    found = _LEGAL[key] = Signature(runs_on, (target, _identified(arguments)))
    return found


def _identified(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple([_identified(v) if type(v) is tuple else v for v in arguments if type(v) is not View])
