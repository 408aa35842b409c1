"""Calls like others that reach more lines: with arrays where there are none, other flags and other numbers."""

from __future__ import annotations

import ast
import inspect
import time
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from nki.core.errors import NkiError
from nki.tools.migrate.calls import Call
from nki.tools.migrate.made_up import Trace, corrected
from nki.tools.migrate.told_shapes import Shapes, frame_of, from_assert, tree_of

SECONDS = 60.0
"""For all variants of the calls of one kernel."""
_MOST = 16
"""How often a variant is corrected by what is wrong with it."""


def variants(kernel: Any, calls: list[Call], trace: Trace) -> list[Call]:
    """Calls that come to lines which the given ones and each other do not come to.

    Args:
        trace: traces a call.
    """
    end = time.monotonic() + SECONDS
    reached: set[Any] = set()
    for call in calls:
        reached |= _lines(call, trace) or frozenset()
    parameters = inspect.signature(kernel.func).parameters
    defaults = {name: each.default for name, each in parameters.items() if each.default is not each.empty}
    found: list[Call] = []
    waiting = list(calls)
    while waiting:
        call = waiting.pop(0)
        given = defaults | dict(zip(parameters, call.args, strict=False)) | call.kwargs
        for name in given:
            for other in _others(given[name]):
                if time.monotonic() > end:
                    return found
                made = _corrected(kernel.func, replace(call, args=(), kwargs={**given, name: other}), name, trace)
                if made is not None and not made[1] <= reached:
                    found.append(made[0])
                    waiting.append(made[0])
                    reached |= made[1]
    return found


def _lines(call: Call, trace: Trace) -> frozenset[Any] | None:
    try:
        return trace(call)
    except Exception:  # noqa: BLE001 - whatever the kernel does
        return None


def _others(value: Any) -> list[Any]:
    """Other values of an argument."""
    match value:
        case None:
            return [_made((1,), np.dtype(np.float32))]
        case bool():
            return [not value]
        case float(number) if number == 0:
            return [0.5]
        case int(number) if number <= 0:
            return [128]
    if is_dataclass(value) and not isinstance(value, type):
        return [changed for each in fields(value) for changed in _with_field(value, each.name)]
    return []


def _with_field(value: Any, name: str) -> list[Any]:
    """Settings with another value in one field: a flag, or twice a size."""
    now = getattr(value, name)
    if isinstance(now, bool):
        return [replace(value, **{name: not now})]
    return [replace(value, **{name: 2 * now})] if isinstance(now, int) and now > 1 else []


def _made(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    made: np.ndarray = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    return made


def _corrected(function: Any, call: Call, name: str, trace: Trace) -> tuple[Call, frozenset[Any]] | None:
    """The call with arrays of the shapes that the kernel asks for, and those that it needs besides; and its lines."""
    own = {key: value for key, value in call.kwargs.items() if isinstance(value, np.ndarray)}
    changed = {name} & own.keys()
    dtype = next((value.dtype for key, value in own.items() if key not in changed), np.dtype(np.float32))
    shapes: Shapes = {key: list(own[key].shape) for key in changed}
    told: dict[str, int] = {}
    kwargs = dict(call.kwargs)
    for _ in range(_MOST):
        kwargs |= {key: _made(tuple(shape), dtype) for key, shape in shapes.items()}
        said = ", ".join(f"{key}={_shown(kwargs[key])}" for key in dict.fromkeys((name, *shapes)))
        made = replace(call, kwargs=dict(kwargs), how=f"{call.how}, with {said}")
        try:
            return made, trace(made)
        except AssertionError as problem:
            if not from_assert(problem, function, shapes, told):
                return None
        except NkiError as problem:
            if not _enlarged(problem, shapes) and not _no_array(problem, kwargs, shapes):
                return None
        except (TypeError, AttributeError, ValueError) as problem:
            if not _more_rank(problem, function, shapes) and not _needed(problem, function, kwargs, shapes):
                return None
        except Exception:  # noqa: BLE001 - whatever the kernel does
            return None
    return None


def _enlarged(problem: NkiError, shapes: Shapes) -> bool:
    """Make an array as large as an access needs it, and twice as large where one access after another needs more."""
    before = {name: list(shape) for name, shape in shapes.items()}
    if not corrected(problem, shapes):
        return False
    for name, shape in before.items():
        for dim, (old, new) in enumerate(zip(shape, shapes[name], strict=True)):
            if old > 1 and new > old:
                shapes[name][dim] = max(new, 2 * old)
    return True


def _no_array(problem: NkiError, kwargs: dict[str, Any], shapes: Shapes) -> bool:
    """Give a parameter an array that the kernel takes an element of, and that is None."""
    if problem.code != "argument.no-array":
        return False
    name = problem.message.partition(" ")[0]
    if name not in kwargs or kwargs[name] is not None or name in shapes:
        return False
    shapes[name] = [1]
    return True


def _shown(value: Any) -> str:
    return "x".join(map(str, value.shape)) if isinstance(value, np.ndarray) else str(value)


def _line_of(problem: BaseException, function: Any) -> list[ast.AST]:
    """The statement of the kernel in which a problem arose, with all that is in it."""
    frame, line = frame_of(problem, function)
    if frame is None:
        return []
    statements = [node for node in ast.walk(tree_of(function)) if isinstance(node, ast.stmt) and node.lineno <= line]
    found = [node for node in statements if line <= (node.end_lineno or node.lineno)]
    return list(ast.walk(found[-1])) if found else []


def _needed(problem: BaseException, function: Any, kwargs: dict[str, Any], shapes: Shapes) -> bool:
    """Give a parameter an array that is None, and that is used as one."""
    if "NoneType" not in str(problem):
        return False
    for node in _line_of(problem, function):
        if isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.value, ast.Name):
            name = node.value.id
            if name in kwargs and kwargs[name] is None and name not in shapes:
                shapes[name] = [1]
                return True
    return False


def _more_rank(problem: BaseException, function: Any, shapes: Shapes) -> bool:
    """Give an array as many dimensions as its shape is taken apart to."""
    for node in _line_of(problem, function):
        match node:
            case ast.Assign(
                targets=[ast.Tuple(elts=names)], value=ast.Attribute(value=ast.Name(id=name), attr="shape")
            ) if name in shapes and len(shapes[name]) != len(names):
                shapes[name] = [*shapes[name], *[1] * len(names)][: len(names)]
                return True
    return False
