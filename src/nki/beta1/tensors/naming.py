"""What messages call a tensor that its kernel has given no name: the variable that holds it."""

from __future__ import annotations

import sys
from types import FrameType

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


_TENSORS = f"{__package__}.tensor"
"""The module of the class; values of others are not asked for a name."""
