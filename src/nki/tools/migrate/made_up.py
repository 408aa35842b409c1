"""Made-up arguments for kernels that the file does not call: sizes are tried until the kernel can be traced."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from nki.beta1.tracing.grid import grid_of
from nki.core.dtypes import float32
from nki.core.errors import NkiError
from nki.tools.migrate.calls import MADE_UP, Call
from nki.tools.migrate.told_shapes import from_assert, written_sizes

Trace = Callable[[Call], frozenset[Any]]
"""Traces a call, raises what is wrong with it, and returns the places of the file that issued instructions."""

SIZES = (128, 512, 1024, 2048, 256, 64, 4096, 8192)
"""Sizes that all dimensions have, one after the other."""
_ENOUGH = 4
"""How many sizes are traced; the one that leads to most lines is taken."""
_LARGEST = 1 << 28
"""Elements of an array that are not tried."""
_MOST = 40
"""How often sizes are corrected after an access outside of a tensor."""


@dataclass
class Seen:
    """What the source says of a parameter.

    Attributes:
        array: whether it is used as a tensor.
        rank: how many dimensions it has; 0 if nothing says so.
    """

    array: bool = False
    rank: int = 0
    sizes: dict[int, int] = field(default_factory=dict)


def made_up(kernel: Any, name: str, trace: Trace) -> tuple[Call | None, str]:
    """A call that can be traced, or None and why the last one could not.

    Args:
        trace: traces a call.
    """
    function = kernel.func
    seen, grid_rank = _seen(function)
    for parameter, sizes in written_sizes(function).items():
        if seen[parameter].array and not seen[parameter].rank:
            seen[parameter].rank = len(sizes)
            seen[parameter].sizes = {at: int(size) for at, size in enumerate(sizes) if size.isdecimal()}
    parameters = inspect.signature(function).parameters
    reason = "no sizes were found for its arguments"
    grids = [()] if not grid_rank else [(2,) * grid_rank, (1,) * grid_rank]
    for grid in grids:
        found: list[tuple[int, int, Call]] = []
        tried: set[str] = set()
        for at, size in enumerate(SIZES):
            lines, call, problem = _with_size(name, function, parameters, seen, size, grid, trace, tried)
            reason = problem or reason
            if call is not None:
                found.append((lines, -at, call))
            if len(found) == _ENOUGH or (len(found) > 1 and found[-1][0] == found[-2][0]):
                break
        if found:
            return max(found, key=lambda each: each[:2])[2], ""
    return None, reason


def _with_size(
    name: str,
    function: Any,
    parameters: Any,
    seen: dict[str, Seen],
    size: int,
    grid: Any,
    trace: Trace,
    tried: set[str],
) -> tuple[int, Call | None, str]:
    shapes = {
        key: [each.sizes.get(at, size) for at in range(each.rank or 2)] for key, each in seen.items() if each.array
    }
    reason = ""
    told: dict[str, int] = {}
    for _ in range(_MOST):
        if str(shapes) in tried or any(prod(shape) > _LARGEST for shape in shapes.values()):
            return 0, None, reason
        tried.add(str(shapes))
        kwargs: dict[str, Any] = {}
        for key, parameter in parameters.items():
            if key in shapes:
                kwargs[key] = np.zeros(tuple(shapes[key]), np.float32)
            elif parameter.default is inspect.Parameter.empty and parameter.kind not in (
                parameter.VAR_POSITIONAL,
                parameter.VAR_KEYWORD,
            ):
                kwargs[key] = _scalar(key, size)
        axes = grid_of(grid if len(grid) != 1 else grid[0], name) if grid else ()
        call = Call(name, (), kwargs, axes, MADE_UP)
        try:
            lines = len(trace(call))
        except NkiError as problem:
            reason = problem.message
            if not corrected(problem, shapes):
                return 0, None, reason
        except AssertionError as problem:
            reason = f"AssertionError: {problem}".splitlines()[0]
            if not from_assert(problem, function, shapes, told):
                return 0, None, reason
        except Exception as problem:  # noqa: BLE001 - whatever the kernel does
            reason = f"{type(problem).__name__}: {problem}".splitlines()[0]
            return 0, None, reason
        else:
            return lines, call, ""
    return 0, None, reason


def corrected(problem: NkiError, shapes: dict[str, list[int]]) -> bool:
    """Make a tensor as large as an access needs it."""
    facts = problem.facts
    told = re.search(r"\[([\d, ]+)\] does not hold the \d+ elements of \w+\[([\d, ]+)\]", problem.message)
    if told is not None:
        wanted, had = ([int(size) for size in text.split(",")] for text in told.groups())
        key = next((key for key, shape in shapes.items() if shape == had), None)
        if key is not None:
            shapes[key] = wanted  # a reshape to the shape that it has is none
        return key is not None
    named = re.search(r"tensor `(\w+)`", problem.message)
    if problem.code != "beta1.tensor_access_out_of_bound" or named is None or named[1] not in shapes:
        return False
    shape, dim, most = shapes[named[1]], int(facts["dimension"]), int(facts["high"])
    if dim >= len(shape) or most < shape[dim] or most > 1 << 17:
        return False
    shape[dim] = most + 1
    return True


def _scalar(name: str, size: int) -> Any:
    if name.endswith("type"):
        return float32
    if "eps" in name:
        return 1e-6
    if any(word in name for word in ("scale", "alpha", "beta", "lr", "prob", "rate")):
        return 0.5
    if name.startswith(("use_", "is_", "causal", "mixed")):
        return False
    return 1 if not any(word in name for word in ("dim", "size", "n_")) else size


def _seen(function: Any) -> tuple[dict[str, Seen], int]:  # noqa: C901 - one case for each form
    """What the source of a function says of its parameters, and the rank of its grid."""
    found = {name: Seen() for name in inspect.signature(function).parameters}
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    grid = 0
    for node in ast.walk(tree):
        match node:
            case ast.Assign(
                targets=[ast.Tuple(elts=names)], value=ast.Attribute(value=ast.Name(id=name), attr="shape")
            ):
                if name in found:
                    found[name].rank = len(names)
            case ast.Subscript(
                value=ast.Attribute(value=ast.Name(id=name), attr="shape"), slice=ast.Constant(value=at)
            ):
                if name in found and isinstance(at, int) and at >= 0:
                    found[name].rank = max(found[name].rank, at + 1)
            case ast.Subscript(value=ast.Name(id=name), slice=index) if name in found:
                parts = index.elts if isinstance(index, ast.Tuple) else [index]
                plain = not any(isinstance(each, ast.Constant) and each.value is Ellipsis for each in parts)
                found[name].array = True
                if plain:
                    found[name].rank = max(found[name].rank, len(parts))
            case ast.Attribute(value=ast.Name(id=name), attr="shape" | "dtype" | "reshape") if name in found:
                found[name].array = True
            case ast.Call(func=ast.Attribute(attr="program_id"), args=[ast.Constant(value=int(axis))]):
                grid = max(grid, axis + 1)
            case ast.Call(
                func=ast.Attribute(attr="program_id"), keywords=[ast.keyword(value=ast.Constant(value=int(axis)))]
            ):
                grid = max(grid, axis + 1)
            case ast.Call(
                func=ast.Attribute(attr="load" | "store" | "load_transpose2d" | "dma_copy" | "dma_transpose"),
                args=[ast.Name(id=name), *_],
            ):
                if name in found:
                    found[name].array = True
        if isinstance(node, ast.Call):
            for keyword in node.keywords:
                if keyword.arg in ("src", "dst") and isinstance(keyword.value, ast.Name) and keyword.value.id in found:
                    found[keyword.value.id].array = True
    return found, grid
