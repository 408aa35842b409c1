"""Kernels are pure functions of their arguments: state that they read or change outside of themselves.

A compiled kernel is remembered under its arguments. What else its Python depends on is not asked again, and what it
changes happens when it is traced, not when it runs.
"""

from __future__ import annotations

import ast
import collections
from collections.abc import Iterator
from functools import lru_cache
from types import FunctionType, ModuleType
from typing import Any

from nki.frontend.check.inspection import CheckedFunction, Found, likely_mistake, text
from nki.frontend.check.mutations import Write, writes, writes_within
from nki.frontend.check.name_resolution import UNKNOWN
from nki.frontend.check.scopes import Scope
from nki.frontend.check.value_kinds import TENSORS

_RULE = "kernels are pure functions of their arguments"
_SOURCE = "nki/get-started/nki-language-guide.rst, Kernel Caching"
_CONTAINERS = (list, dict, set, bytearray, collections.deque)


def reads_of_state(body: CheckedFunction) -> Iterator[Found]:
    """Variables outside of the function that something changes after it was defined."""
    told: set[str] = set()
    for node, scope in body.nodes():
        if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load) or node.id in told:
            continue
        value = body.names.value(node, scope)
        if value is UNKNOWN or isinstance(value, ModuleType | type | FunctionType):
            continue
        write = _change(node.id, value, scope, body)
        if write is not None:
            told.add(node.id)
            yield _state(node, write, body.names.is_global(node.id, scope))


def _state(node: ast.Name, write: Write, is_global: bool) -> Found:
    line = write.node.lineno if isinstance(write.node, ast.stmt | ast.expr) else 0
    whose = "a global" if is_global else "a variable of the function around it"
    return likely_mistake(
        "purity.global" if is_global else "purity.closure",
        node,
        f"the kernel reads {node.id}, {whose}, which line {line} changes",
        rule=f"{_RULE}: a change of what it reads compiles it again",
        source=_SOURCE,
        fix=f"pass {node.id} to the kernel as an argument",
    )


def _change(name: str, value: Any, scope: Scope, body: CheckedFunction) -> Write | None:
    """The first change by somebody else: what the function changes itself is reported where it does so."""
    home = scope.home(name)
    if body.names.is_global(name, scope):
        changes = _function_writes(scope.module).get(name, [])
    elif home is not None and home.parent is not None:
        changes = list(_later_writes(home, name, body.scope))
    else:
        return None
    return next((each for each in changes if _is_change(each, value) and not each.scope.is_inside(body.scope)), None)


@lru_cache(maxsize=128)
def _function_writes(module: Scope) -> dict[str, list[Write]]:
    """Changes of globals by functions: what the module itself does happens once, when it is imported."""
    own = _writes_to_own(module)
    return {name: [write for write in found if _in_function(write.scope)] for name, found in own.items()}


@lru_cache(maxsize=128)  # asked for every name of every kernel in the function
def _writes_to_own(home: Scope) -> dict[str, list[Write]]:
    """Changes of a scope's own variables, by itself and by what is nested in it."""
    found: dict[str, list[Write]] = {}
    for write in writes_within(home):
        if write.home is home:
            found.setdefault(write.name, []).append(write)
    return found


def _later_writes(home: Scope, name: str, kernel: Scope) -> Iterator[Write]:
    """Changes of a variable around the kernel, by code behind the kernel or by other nested functions."""
    end = kernel.owner.end_lineno if not isinstance(kernel.owner, ast.Module) else None
    for write in _writes_to_own(home).get(name, []):
        behind = isinstance(write.node, ast.stmt | ast.expr) and write.node.lineno > (end or 0)
        if behind or write.scope is not home:
            yield write


def _is_change(write: Write, value: Any) -> bool:
    """Items and methods change containers; what they do to other objects is not known."""
    return write.how in ("name", "attribute") or isinstance(value, _CONTAINERS)


def _in_function(scope: Scope) -> bool:
    return any(not isinstance(each.owner, ast.Module | ast.ClassDef) for each in _outwards(scope))


def _outwards(scope: Scope | None) -> Iterator[Scope]:
    while scope is not None:
        yield scope
        scope = scope.parent


def writes_to_state(body: CheckedFunction) -> Iterator[Found]:
    """Changes of globals, and of variables of the functions around this one."""
    for write in writes_within(body.scope):
        if body.names.is_local(write.name, write.scope):
            continue
        value = body.names.value(ast.Name(write.name, ast.Load()), write.scope)
        if not (_is_change(write, value) or value is UNKNOWN) or (value is UNKNOWN and write.how != "name"):
            continue
        yield likely_mistake(
            "purity.write",
            write.node,
            f"{text(write.node)} changes {'a variable' if write.how == 'name' else write.name} outside of the kernel",
            rule=f"{_RULE}: this happens when the kernel is traced, and not in calls that reuse what was compiled",
            source=_SOURCE,
            fix="return what the caller needs as a tensor, or change a variable of the kernel",
        )


def writes_to_arguments(body: CheckedFunction) -> Iterator[Found]:
    """Changes of objects that the caller of the kernel passed; tensors are another matter."""
    if not body.kernel:
        return
    for write in writes(body.scope):
        if write.how == "name" or not _is_argument(write.name, body.scope):
            continue
        if body.kinds.of(ast.Name(write.name, ast.Load()), body.scope) in TENSORS or _is_rows(write.node):
            continue
        yield likely_mistake(
            "purity.argument",
            write.node,
            f"{text(write.node)} changes argument {write.name}",
            rule="a kernel works on copies of its arguments, so that its caller does not see this",
            source=_SOURCE,
            fix=f"change a copy of {write.name}, and return tensors",
        )


def _is_rows(node: ast.AST) -> bool:
    """``x[a:b] = value`` writes into a tensor more likely than into a list."""
    return isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice)


def _is_argument(name: str, kernel: Scope) -> bool:
    bindings = kernel.bindings.get(name, [])
    return len(bindings) == 1 and isinstance(bindings[0].node, ast.arg)
