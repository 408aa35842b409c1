"""Errors that the user's own Python code raises: shown at the user's lines, and none of ours."""

from __future__ import annotations

import contextlib
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path

from nki.core.errors import FrontendError, NkiError, UsageError
from nki.core.source import UNKNOWN, Frame, Location

_PACKAGE = str(Path(__file__).absolute().parents[1]) + "/"
_LIBRARIES = tuple(sysconfig.get_path(name) + "/" for name in ("stdlib", "purelib", "platlib"))


@contextlib.contextmanager
def kernel_errors(name: str, file: str) -> Iterator[None]:
    """An exception of the kernel `name` in `file` becomes a FrontendError; one of this package stays a traceback."""
    try:
        yield
    except NkiError:
        raise
    except Exception as problem:
        location = _location(problem, file)
        if location is UNKNOWN or _is_ours(problem, file):
            raise
        raise FrontendError(
            "kernel.exception",
            f"the Python code of {name} raised {_headline(problem)}",
            fix="correct the kernel, or the arguments that it was called with",
            facts={"exception": type(problem).__name__},
            location=location,
        ) from problem


@contextlib.contextmanager
def import_errors(file: str) -> Iterator[None]:
    """An exception while `file` is imported becomes a UsageError at the user's line."""
    try:
        yield
    except NkiError:
        raise
    except (Exception, SystemExit) as problem:
        raise UsageError(
            "kernel.import",
            f"{file} cannot be imported: {_headline(problem)}",
            rule="a file of kernels can be imported, and importing it starts nothing",
            fix=_import_fix(problem),
            facts={"exception": type(problem).__name__},
            location=_location(problem, file),
        ) from problem


def _location(problem: BaseException, file: str) -> Location:
    """The user's lines in the traceback, innermost first; where the file does not parse, that line."""
    if isinstance(problem, SyntaxError) and problem.filename is not None:
        line, column = problem.lineno or 1, (problem.offset or 1) - 1
        return Location((Frame(problem.filename, "<module>", line, column, line, column + 1),))
    frames = [
        Frame(item.filename, item.name, item.lineno or 0, item.colno or 0, item.end_lineno or 0, item.end_colno or 0)
        for item in reversed(traceback.extract_tb(problem.__traceback__))
        if _is_users(item.filename, file)
    ]
    return Location(tuple(frames)) if frames else UNKNOWN


def _is_ours(problem: BaseException, file: str) -> bool:
    """True if the user's last line called this package, and the exception came from there."""
    files = [item.filename for item in traceback.extract_tb(problem.__traceback__)]
    last = max(at for at, name in enumerate(files) if _is_users(name, file))
    return any(name.startswith(_PACKAGE) for name in files[last + 1 :])


def _is_users(name: str, file: str) -> bool:
    return name == file or not name.startswith(("<", _PACKAGE, *_LIBRARIES))


def _headline(problem: BaseException) -> str:
    text = problem.msg if isinstance(problem, SyntaxError) else str(problem)
    return f"{type(problem).__name__}: {text}" if text else type(problem).__name__


def _import_fix(problem: BaseException) -> str:
    if isinstance(problem, SystemExit):
        return 'put what runs the program under `if __name__ == "__main__":`'
    if isinstance(problem, ModuleNotFoundError) and (problem.name or "").partition(".")[0] == "neuronxcc":
        return "write `import nki`: neuronxcc.nki was NKI 0.1, and nki/migration/index.rst says what has changed since"
    if isinstance(problem, ModuleNotFoundError):
        return f"install {problem.name}, or run the command in the environment that has it"
    return "correct the file"
