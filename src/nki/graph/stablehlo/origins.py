"""Which part of a model a line of MLIR is: what this package writes, and the name stacks of JAX."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from nki.core.origin import ModuleCall, Origin
from nki.graph.stablehlo import mlir
from nki.graph.stablehlo.attributes import decode
from nki.graph.stablehlo.names import MODULES, OPERATION

_WRAPPED = re.compile(r"(\w+)\((.*)\)")
_FUNCTIONS = frozenset({"jit", "pjit"})
_CONTROL = re.compile(r"while/(body|cond)|cond/branch_\d+_fun")
_CALLS = frozenset({"closed_call", "checkpoint", "remat", "rematted_computation"})


def read_origin(location: Any) -> Origin | None:
    """Where in a model an operation with this location was written; None if its location does not say so."""
    while isinstance(location, mlir.FusedLoc):
        metadata = None if location.metadata is None else decode(location.metadata.maybe_downcast())
        if isinstance(metadata, dict) and {MODULES, OPERATION} == metadata.keys():
            return Origin(tuple(ModuleCall(*map(str, pair)) for pair in metadata[MODULES]), str(metadata[OPERATION]))
        if not location.locations:
            return None
        location = location.locations[0]
    while isinstance(location, mlir.NameLoc) and location.name_str.endswith(":"):
        location = location.child_loc  # JAX repeats the primitive in front of a name stack
    if not isinstance(location, mlir.NameLoc) or isinstance(location.child_loc, mlir.FileLineColLoc):
        return None  # the name of a function in front of its line is no part of a model
    return _of_names(location.name_str)


def _of_names(stack: str) -> Origin:
    """A name stack of JAX, ``jit(f)/jvp(layers_0)/attention/dot_general``: scopes, and the primitive last."""
    *scopes, operation = stack.split("/")
    path: list[str] = []
    modules = []
    for scope in _named(scopes):
        path.append(scope)
        modules.append(ModuleCall("/".join(path)))
    return Origin(tuple(modules), operation)


def _named(scopes: list[str]) -> Iterator[str]:
    """Scopes that somebody named: no functions that were compiled, no control flow, no names of transformations."""
    left = [name for name in map(_unwrapped, scopes) if name and name not in _CALLS]
    while left:
        if _CONTROL.fullmatch("/".join(left[:2])):
            left = left[2:]
        else:
            yield left.pop(0)


def _unwrapped(scope: str) -> str:
    """A scope without the transformations around it; "" for a function that was compiled."""
    while (wrapped := _WRAPPED.fullmatch(scope)) is not None:
        scope = "" if wrapped[1] in _FUNCTIONS else wrapped[2]
    return scope
