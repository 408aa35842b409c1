"""Errors that Python itself raises in the lines of a kernel: names without a value, calls without end."""

from __future__ import annotations

import builtins
import difflib
import dis
import re
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, FrameType, MappingProxyType
from typing import Any

from nki.core.dtypes import DType
from nki.core.errors import FrontendError, RemovedError
from nki.core.source import Location, is_internal, of_traceback
from nki.frontend.non_array_arguments import no_array

_QUOTED = re.compile(r"'(\w+)'")
_ENDLESS = 100
"""Calls of the user's functions, one in the other."""

_IMPORTS = MappingProxyType(
    {
        "nki": "import nki",
        "nl": "import nki.language as nl",
        "nisa": "import nki.isa as nisa",
        "np": "import numpy as np",
        "math": "import math",
    }
)


def spelled(
    problem: Exception, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Exception:
    """The error that is raised for what the body of a kernel raised: the same one unless there are better words.

    Args:
        function, args, kwargs: the kernel, and what it was called with.
    """
    if isinstance(problem, TypeError) and problem.args == _DTYPE_CALLED:
        return _called_dtype(problem)
    if isinstance(problem, TypeError | AttributeError):
        return no_array(problem, function, args, kwargs) or problem
    if isinstance(problem, NameError) and problem.name in _REGIONS:
        return _old_region(problem)
    if isinstance(problem, NameError | RecursionError):
        return python_error(problem) or problem
    return problem


def python_error(problem: NameError | RecursionError) -> FrontendError | None:
    """Python's error as one with the line, and with what to write; None if no line of the kernel raised it itself."""
    traceback = problem.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is None:
        return None
    where = of_traceback(problem.__traceback__)
    if isinstance(problem, RecursionError):
        return _endless(where) if len(where.frames) >= _ENDLESS else None
    if is_internal(traceback.tb_frame.f_code):
        return None
    found = _QUOTED.search(str(problem))
    name = found[1] if found else ""
    if isinstance(problem, UnboundLocalError):
        return _unbound(name, traceback.tb_frame.f_code, traceback.tb_lineno, where)
    return _undefined(name, str(problem), traceback.tb_frame, where)


def _unbound(name: str, code: CodeType, line: int, where: Location) -> FrontendError:
    lines = sorted({each for each in _bound_at(code, name) if each != line})
    said = "nothing before it binds it"
    if lines:
        shown = ", ".join(map(str, lines[:4]))
        said = f"line {shown}, which binds it, has" if len(lines) == 1 else f"lines {shown}, which bind it, have"
        said += " not run"
    return FrontendError(
        "python.unbound",
        f"line {line} reads {name}, and {said}",
        rule="a local name has a value after a line that binds it has run, in the branch and in the loop that it is in",
        fix=f"bind {name} on every way to line {line}, or read it only where it is bound",
        facts={"name": name, "lines": ", ".join(map(str, lines))},
        location=where,
    )


def _undefined(name: str, message: str, frame: FrameType, where: Location) -> FrontendError:
    known = {**vars(builtins), **frame.f_globals, **frame.f_locals}
    close = difflib.get_close_matches(name, known, n=1)
    fix = f"write {close[0]}" if close else f"define or import {name}"
    if name in _IMPORTS:
        fix = f"add {_IMPORTS[name]} at the top of the file"
    return FrontendError(
        "python.undefined",
        message,
        rule="a name is that of an argument, of a local or global variable, or of Python itself",
        fix=fix,
        facts={"name": name},
        location=where,
    )


def _endless(where: Location) -> FrontendError:
    names = list(dict.fromkeys(frame.function for frame in where.frames[:_ENDLESS]))[:3]
    said = f"{names[0]} calls itself" if len(names) == 1 else f"{' and '.join(names)} call each other"
    return FrontendError(
        "python.recursion",
        f"{said} without end",
        rule="Python runs the kernel while it is traced, and allows calls some hundred levels deep",
        fix="end the recursion by a condition on Python numbers, or write a loop",
        location=Location(where.frames[:1]),
    )


def _bound_at(code: CodeType, name: str) -> list[int]:
    """Lines that bind a local name."""
    found, line = [], code.co_firstlineno
    for instruction in dis.get_instructions(code):
        if instruction.positions is not None and instruction.positions.lineno is not None:
            line = instruction.positions.lineno
        names = instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,)
        if instruction.opname.startswith("STORE_") and name in names:
            found.append(line)
    return found


_DTYPE_CALLED = (f"{DType.__name__!r} object is not callable",)


def _called_dtype(problem: TypeError) -> FrontendError:
    """Dtypes stay objects that are not callable, as operators and functions among the arguments of kernels are."""
    return FrontendError(
        "dtype.call",
        "a dtype is called, and is no function",
        rule="numbers of a kernel are Python's; tensors have a dtype",
        source="nki/get-started/nki-language-guide.rst, NKI Values",
        fix="write the plain number, or nl.full((1, 1), number, dtype) for a tensor",
        location=of_traceback(problem.__traceback__),
    )


_REGIONS = ("sbuf", "psum", "hbm", "private_hbm", "shared_hbm")
"""Names that kernels of NKI 0.2 had without an import."""


def _old_region(problem: NameError) -> RemovedError:
    region = "shared_hbm" if problem.name == "hbm" else problem.name
    return RemovedError(
        "name.removed",
        f"{problem.name} is not defined",
        rule="memory regions are names of nki.language",
        source="nki/get-started/nki-language-guide.rst, Creating Tensors",
        fix=f"write nl.ndarray(shape, dtype, buffer=nl.{region})",
        location=of_traceback(problem.__traceback__),
    )
