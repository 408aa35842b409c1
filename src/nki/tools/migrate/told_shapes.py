"""What a kernel says of the shapes of its parameters: in asserts that failed, in its docstring, in annotations."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from types import FrameType
from typing import Any

Shapes = dict[str, list[int]]
Dim = tuple[str, int]

_LARGEST = 1 << 17
"""The largest size of a dimension that is made up."""


def from_assert(problem: AssertionError, function: Any, shapes: Shapes, told: dict[str, int]) -> bool:
    """Change shapes so that an assert of the kernel holds which did not; returns whether anything changed.

    Args:
        told: how often an assert changed each parameter: of two that have to be alike, the other one changes.
    """
    frame, line = frame_of(problem, function)
    if frame is None:
        return False
    tree = tree_of(function)
    test = next((n.test for n in ast.walk(tree) if isinstance(n, ast.Assert) and n.lineno <= line <= _end(n)), None)
    if test is None:
        return False
    before = {name: list(shape) for name, shape in shapes.items()}
    dims = _dims(tree, shapes)
    for compared in _comparisons(test):
        for one, other in _sides(compared, dims, shapes, told):
            if _made_true(one, compared[1], other, frame, dims, shapes):
                break
    for name in shapes:
        told[name] = told.get(name, 0) + (shapes[name] != before[name])
    return shapes != before


def _end(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


def frame_of(problem: BaseException, function: Any) -> tuple[FrameType | None, int]:
    """The frame of the kernel itself, if the problem arose there, and its line."""
    trace = problem.__traceback__
    last = None
    while trace is not None:
        last, trace = trace, trace.tb_next
    if last is None or last.tb_frame.f_code is not function.__code__:
        return None, 0
    return last.tb_frame, last.tb_lineno


def tree_of(function: Any) -> ast.Module:
    """The syntax tree of a function, with the line numbers of its file."""
    lines, first = inspect.getsourcelines(function)
    tree = ast.parse(textwrap.dedent("".join(lines)))
    ast.increment_lineno(tree, first - 1)
    return tree


def _dims(tree: ast.AST, shapes: Shapes) -> dict[str, Dim]:
    """Names that stand for a dimension of a parameter."""
    found: dict[str, Dim] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Assign(
                targets=[ast.Tuple(elts=names)], value=ast.Attribute(value=ast.Name(id=owner), attr="shape")
            ) if owner in shapes:
                found |= {each.id: (owner, at) for at, each in enumerate(names) if isinstance(each, ast.Name)}
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if (dim := _dim(value, {}, shapes)) is not None:
                found[name] = dim
    return found


def _dim(node: ast.expr, dims: dict[str, Dim], shapes: Shapes) -> Dim | None:
    """The dimension that an expression is."""
    match node:
        case ast.Name(id=name):
            return dims.get(name)
        case ast.Subscript(
            value=ast.Attribute(value=ast.Name(id=owner), attr="shape"), slice=ast.Constant(value=int(at))
        ) if owner in shapes and 0 <= at < len(shapes[owner]):
            return owner, at
    return None


def _comparisons(test: ast.expr) -> Iterator[tuple[ast.expr, ast.cmpop, ast.expr]]:
    """Comparisons that all have to be true."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        for each in test.values:
            yield from _comparisons(each)
    elif isinstance(test, ast.Compare):
        yield from zip([test.left, *test.comparators], test.ops, test.comparators, strict=False)


def _sides(
    compared: tuple[ast.expr, ast.cmpop, ast.expr], dims: dict[str, Dim], shapes: Shapes, told: dict[str, int]
) -> list[tuple[ast.expr, ast.expr]]:
    """Both sides of a comparison, the one that may change first."""

    def count(node: ast.expr) -> int:
        dim = _dim(node, dims, shapes)
        return told.get(dim[0] if dim is not None else _shape_of(node), 0)

    left, _, right = compared
    pairs = [(right, left), (left, right)]
    return pairs if count(right) <= count(left) else pairs[::-1]


def _made_true(
    one: ast.expr, relation: ast.cmpop, other: ast.expr, frame: FrameType, dims: dict[str, Dim], shapes: Shapes
) -> bool:
    """Change one side of a comparison, if it is a dimension or a shape, so that it holds."""
    value = _value(other, frame)
    if isinstance(relation, ast.Eq) and _shape_of(one) in shapes and isinstance(value, tuple | list):
        shapes[_shape_of(one)] = [int(size) for size in value]
        return True
    multiple = False
    if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Mod) and value == 0:
        multiple, value, one = True, _value(one.right, frame), one.left
    dim = _dim(one, dims, shapes)
    if dim is None or not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= _LARGEST:
        return False
    owner, at = dim
    if at >= len(shapes[owner]):
        return False
    shapes[owner][at] = -(-shapes[owner][at] // value) * value if multiple else value
    return True


def _shape_of(node: ast.expr) -> str:
    """The parameter whose whole shape an expression is."""
    match node:
        case ast.Call(func=ast.Name(id="tuple" | "list"), args=[inner]):
            return _shape_of(inner)
        case ast.Attribute(value=ast.Name(id=owner), attr="shape"):
            return owner
    return ""


def _value(node: ast.expr, frame: FrameType) -> Any:
    try:
        return eval(compile(ast.Expression(node), "<assert>", "eval"), frame.f_globals, frame.f_locals)
    except Exception:  # noqa: BLE001 - whatever is written there
        return None


def written_sizes(function: Any) -> dict[str, list[str]]:
    """The dimensions of parameters as docstrings and annotations have them: ``q: shape (batch, heads, 128, d)``."""
    found: dict[str, list[str]] = {}
    text = inspect.getdoc(function) or ""
    for name, parameter in inspect.signature(function).parameters.items():
        told = re.search(rf"\b{re.escape(name)}\b[^\n]{{0,40}}?[(\[]((?:\s*[\w*/+ -]+,)+\s*[\w*/+ -]*)[)\]]", text)
        annotation = re.search(r"tensor\[([^\]]+)\]", str(parameter.annotation))
        if annotation is not None or told is not None:
            inner = (annotation or told)[1]  # type: ignore[index]
            found[name] = [size.strip() for size in inner.split(",") if size.strip()]
    return found
