"""The arguments of a call, by the names of parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import libcst as cst

from nki.tools.migrate.problems import Unmigrated
from nki.tools.migrate.rewriting.context import Context

HINTS = ("lazy_initialization", "max_free_vec_size", "precise_schedule", "no_reuse")
"""Arguments for the old compiler that change no value."""


def bound(c: Context, call: cst.Call, function: Callable[..., Any] | None) -> dict[str, cst.BaseExpression]:
    """The arguments of a call. Raises Unmigrated for ``*args`` and ``**kwargs``."""
    if function is None or any(arg.star for arg in call.args):
        raise Unmigrated("the arguments of a call are not written one by one")
    parameters = [parameter.name for parameter in inspect.signature(function).parameters.values()]
    found: dict[str, cst.BaseExpression] = {}
    for at, arg in enumerate(call.args):
        if arg.keyword is not None:
            found[arg.keyword.value] = arg.value
        elif at < len(parameters):
            found[parameters[at]] = arg.value
    if "mask" in found and c.one_line(found["mask"]) == "None":
        del found["mask"]
    return {key: node for key, node in found.items() if key not in HINTS}
