"""Names of a running function: what they hold, and how one comes to hold something else."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping
from types import FrameType
from typing import Any

MISSING = object()
"""The value of a name that nothing is bound to."""


def value_of(frame: FrameType, name: str) -> Any:
    """The value of a name, or of a dotted name whose attributes are plain ones; `MISSING` if there is none."""
    first, *attributes = name.split(".")
    value = frame.f_locals.get(first, frame.f_globals.get(first, MISSING))
    for attribute in attributes:
        value = getattr(value, "__dict__", {}).get(attribute, MISSING)
    return value


def bind(frame: FrameType, values: Mapping[str, Any]) -> None:
    """Bind local names of a function that runs to other values, as a debugger does.

    Since Python 3.13 the mapping of a frame is its variables (PEP 667); before, it is a copy that is written back.
    """
    if not values:
        return
    variables = frame.f_locals
    variables.update(values)
    if sys.version_info < (3, 13):
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
