"""Variables of kernels: which one holds a tensor that has no name, and which one gets the result of a call."""

from __future__ import annotations

import dis
import sys
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any, NamedTuple

from nki.core.source import is_internal
from nki.core.tensor import MemoryRegion


class Generated(str):
    """A name that nobody chose, such as ``sbuf0``: messages have a variable of the kernel in its place.

    Messages are rare and tensors are many, so that the variable is looked up when a message is formatted.
    """

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        return format(_variable(self) or ("tensor" if "hbm" in str(self) else "tile"), spec)


def named(name: str, region: MemoryRegion) -> str:
    """The name of a tensor, as messages format it; empty where it has none."""
    return Generated(name or "tile") if not name or name.removeprefix(region.name).isdigit() else name


def _variable(name: Generated) -> str | None:
    """The first variable, of the functions that run from the innermost one on, that holds the tensor of this name."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if not is_internal(frame.f_code):
            for variable, value in frame.f_locals.items():
                if type(value).__module__ == _TENSORS and value.name is name:
                    return variable
        frame = frame.f_back
    return None


class Variable(NamedTuple):
    """A variable that is assigned next, and what it holds until then; None if nothing."""

    name: str
    value: Any


def assigned_variable() -> Variable | None:
    """The variable that gets the result of the call that runs, of the innermost function that is none of NKI.

    None where the result goes somewhere else, such as into ``tile[...]``.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_internal(frame.f_code):
        frame = frame.f_back
    if frame is None:
        return None
    name = _stored_after(frame.f_code, frame.f_lasti)
    return Variable(name, frame.f_locals.get(name)) if name else None


@lru_cache(maxsize=1 << 10)  # code of Python never changes
def _stored_after(code: CodeType, at: int) -> str:
    """The variable to which the instruction behind the one at an offset stores; "" if it does something else."""
    behind = next((each for each in dis.get_instructions(code) if each.offset > at), None)
    if behind is None or behind.opcode not in (*dis.haslocal, *dis.hasname, *dis.hasfree):
        return ""
    if not behind.opname.startswith("STORE_") or behind.opname == "STORE_ATTR":
        return ""
    return behind.argval[0] if isinstance(behind.argval, tuple) else str(behind.argval)


_TENSORS = f"{__package__}.tensor"
"""The module of the class; values of others are not asked for a name."""
