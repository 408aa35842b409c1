"""Going on after an error that ends a trace: the statement is left out, and the kernel is traced again."""

from __future__ import annotations

import ast
import contextlib
import io
import linecache
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, FunctionType, TracebackType
from typing import Any, NamedTuple

from nki.core.errors import NkiError, UsageError
from nki.core.source import is_internal
from nki.kernel import Kernel
from nki.tools.check.left_out_statements import NAME, Place, code_without, statement_at
from nki.tools.check.missing_value import MISSING, is_missing

_MOST = 20
"""Statements that are left out before the rest is given up."""


class _Stop(NamedTuple):
    """Where an error ended a trace: the function at the top level of its file, and the statement."""

    function: Any
    statement: ast.stmt
    frame: FrameType


def further_errors(first: NkiError, kernel: FunctionType, trace: Callable[[], Any]) -> list[NkiError]:
    """The errors that come to light when the statements with errors are left out, in the order in which they come.

    What a left-out statement would have computed is missing; an error of a statement that uses something missing is
    not told, and the statement is left out as well. Functions of classes and of other functions are not gone into.

    Args:
        first: what ended the first trace.
        kernel: the function that is traced.
        trace: traces it once more, and raises what ends it.
    """
    found: list[NkiError] = []
    with _patched() as leave_out, contextlib.redirect_stdout(io.StringIO()):
        error: NkiError | None = first
        for _ in range(_MOST):
            stop = None if error is None else _stop_of(error, kernel)
            if stop is None or not leave_out(stop):
                break
            error = _error_of(trace)
            if error is None:
                break
            known = {_key(each) for each in (first, *found)}
            where = _stop_of(error, kernel)
            if error.code == "return.region" or (where is not None and not _uses_missing(where)):
                found += [error] if _key(error) not in known else []
    return found


def _key(error: NkiError) -> tuple[Any, ...]:
    """What tells errors apart: an argument that is no array is wrong wherever it is used."""
    arguments = error.facts.get("arguments") if error.code == "argument.no-array" else None
    return (error.code, arguments) if arguments else (error.code, error.location)


def _error_of(trace: Callable[[], Any]) -> NkiError | None:
    try:
        trace()
    except UsageError:
        return None
    except NkiError as error:
        return error
    return None


def _stop_of(error: NkiError, kernel: FunctionType) -> _Stop | None:
    """Where to go on after an error; None if it belongs to no statement of a function that can be changed."""
    causes = [each for each in (error.__cause__, error, error.__context__) if each is not None]
    frames = next((found for found in (list(_frames(each.__traceback__, kernel)) for each in causes) if found), [])
    for frame, line in reversed(frames):
        tree = _tree(frame.f_code.co_filename)
        statement = None if tree is None else statement_at(tree, line)
        function = None if tree is None else _top_level(tree, line, frame, kernel)
        if function is None or statement is None or isinstance(statement, ast.FunctionDef | ast.ClassDef | ast.Import):
            return None
        return _Stop(function, statement, frame)
    return None


def _frames(traceback: TracebackType | None, kernel: FunctionType) -> Iterator[tuple[FrameType, int]]:
    """The user's frames of a traceback from the kernel inwards, with their lines."""
    inside = False
    while traceback is not None:
        code = traceback.tb_frame.f_code
        inside = inside or (code.co_filename == kernel.__code__.co_filename and code.co_name == kernel.__name__)
        if inside and not is_internal(code) and not code.co_filename.startswith("<"):
            yield traceback.tb_frame, traceback.tb_lineno
        traceback = traceback.tb_next


def _tree(file: str) -> ast.Module | None:
    lines = linecache.getlines(file)
    try:
        return ast.parse("".join(lines)) if lines else None
    except SyntaxError:
        return None


def _top_level(tree: ast.Module, line: int, frame: FrameType, kernel: FunctionType) -> FunctionType | None:
    """The function of a file that a line belongs to."""
    around = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.lineno <= line <= (n.end_lineno or n.lineno)]
    if not around:
        return None
    found = frame.f_globals.get(around[0].name)
    function = found.func if isinstance(found, Kernel) else found
    if kernel.__name__ == around[0].name:
        function = kernel
    return function if isinstance(function, FunctionType) else None


def _uses_missing(stop: _Stop) -> bool:
    frame = stop.frame
    names = {node.id for node in ast.walk(stop.statement) if isinstance(node, ast.Name)}
    return any(is_missing(frame.f_locals.get(name, frame.f_globals.get(name))) for name in names - {NAME})


@contextlib.contextmanager
def _patched() -> Iterator[Callable[[_Stop], bool]]:
    """Gives a function that leaves out one more statement, if that is possible; everything is as before at the end."""
    before: dict[FunctionType, CodeType] = {}
    places: dict[str, set[Place]] = {}

    def leave_out(stop: _Stop) -> bool:
        function, statement = stop.function, stop.statement
        file, place = function.__code__.co_filename, (statement.lineno, statement.col_offset)
        chosen = places.setdefault(file, set())
        tree = _tree(file)
        if place in chosen or tree is None:
            return False
        chosen.add(place)
        code = code_without(tree, chosen, before.get(function, function.__code__))
        if code is None:
            return False
        before.setdefault(function, function.__code__)
        function.__globals__[NAME] = MISSING
        function.__code__ = code
        return True

    try:
        yield leave_out
    finally:
        for function, code in before.items():
            function.__code__ = code
            function.__globals__.pop(NAME, None)
