"""Errors that the user's own Python code raises: shown at the user's lines, and none of ours."""

from __future__ import annotations

import contextlib
import difflib
import linecache
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

import nki
from nki.core.errors import FrontendError, NkiError, UsageError
from nki.core.source import UNKNOWN, Frame, Location

_PACKAGE = str(Path(nki.__file__).absolute().parent) + "/"
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
def script_errors(file: str) -> Iterator[None]:
    """An exception of a script becomes a FrontendError at the user's line; one of this package stays a traceback."""
    try:
        yield
    except NkiError:
        raise
    except (Exception, SystemExit) as problem:
        if isinstance(problem, SystemExit) and problem.code in (None, 0):
            return
        location = _location(problem, file)
        if location is UNKNOWN or _is_ours(problem, file):
            raise
        raise FrontendError(
            "step.script",
            f"{file} raised {_headline(problem)}",
            fix="correct this line; results of compiled graphs are zeros here, and nothing is sent or received",
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
            fix=_import_fix(problem, file),
            facts={"exception": type(problem).__name__},
            location=_location(problem, file),
        ) from problem


def _location(problem: BaseException, file: str) -> Location:
    """The user's lines in the traceback, innermost first; where the file does not parse, that line."""
    if isinstance(problem, SyntaxError) and problem.filename is not None:
        line, column = problem.lineno or 1, (problem.offset or 1) - 1
        if not linecache.getline(problem.filename, line):  # no text in any encoding that Python knows
            return UNKNOWN
        return Location((Frame(problem.filename, "<module>", line, column, line, column + 1),))
    frames = [
        Frame(item.filename, item.name, item.lineno or 0, item.colno or 0, item.end_lineno or 0, item.end_colno or 0)
        for item in reversed(traceback.extract_tb(problem.__traceback__))
        if _is_users(item.filename, file)
    ]
    return Location(tuple(frames)) if frames else UNKNOWN


def _is_ours(problem: BaseException, file: str) -> bool:
    """True if the user's last line called this package, and the exception came from there."""
    calls = traceback.extract_tb(problem.__traceback__)
    last = max(at for at, item in enumerate(calls) if _is_users(item.filename, file))
    beyond = [item.name for item in calls[last + 1 :] if item.filename.startswith(_PACKAGE)]
    # A name that is not there is asked for by the user, and denied by one of our modules and tensors.
    return bool(beyond) and not (isinstance(problem, AttributeError) and set(beyond) == {"__getattr__"})


def _is_users(name: str, file: str) -> bool:
    return name == file or not name.startswith(("<", _PACKAGE, *_LIBRARIES))


def _headline(problem: BaseException) -> str:
    """Kind and text of an exception, and of what it was raised from."""
    text = problem.msg if isinstance(problem, SyntaxError) else str(problem)
    line = f"{type(problem).__name__}: {text}" if text else type(problem).__name__
    cause = problem.__cause__
    return line if cause is None or isinstance(cause, SystemExit) else f"{line}, because of {_headline(cause)}"


def _import_fix(problem: BaseException, file: str) -> str:
    match problem:
        case SystemExit():
            return 'put what runs the program under `if __name__ == "__main__":`'
        case ModuleNotFoundError():
            return _module_fix((problem.name or "").partition(".")[0], problem.name or "")
        case ImportError() if "relative import" in problem.msg:
            return f"add an __init__.py to {Path(file).parent}, or import without the dot what lies beside the file"
        case ImportError() if (problem.name or "").partition(".")[0] == "nki":
            return _name_fix(problem.name or "", _IMPORTED.findall(problem.msg))
        case SyntaxError() if "codec can't decode" in problem.msg:
            return "save the file as UTF-8"
        case SyntaxError():
            return "correct the syntax of this line, or of the one before"
        case NameError() if problem.name:
            return f"define or import {problem.name} above this line"
    return f"correct this line; `python {file}` shows all calls that led there"


def _module_fix(package: str, name: str) -> str:
    if package == "neuronxcc":
        return "write `import nki`: neuronxcc.nki was NKI 0.1, and nki/migration/index.rst says what has changed since"
    if package == "nki":
        return f"remove the import: {package} has no module {name}"
    return f"install {name}, or run the command in the environment that has it"


_IMPORTED = re.compile(r"cannot import name '(\w+)'")


def _name_fix(module: str, names: Sequence[str]) -> str:
    if not names:
        return f"correct the import of {module}"
    close = difflib.get_close_matches(names[0], dir(sys.modules.get(module)), n=1)
    return f"import {close[0]}" if close else f"remove {names[0]} from the import: {module} has no such name"
