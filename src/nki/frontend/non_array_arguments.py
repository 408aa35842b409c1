"""Arguments that are no arrays, where a kernel uses them as tensors: Python's own error names neither."""

from __future__ import annotations

import linecache
import re
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from nki.core.errors import ArgumentError
from nki.core.lists import is_numbers
from nki.core.nki_tensor import NkiTensor
from nki.core.shown import shown
from nki.core.source import Location, of_traceback

_INDEXED = re.compile(r"'(\w+)' object is not subscriptable|(list|tuple) indices must be integers or slices, not tuple")
_CONSTANTS = (bool, int, float, str, tuple, list, dict, type(None))


def no_array(
    problem: AttributeError | TypeError, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> ArgumentError | None:
    """The error in place of Python's own; None if no argument of the kernel is what the user's line stumbled over.

    Args:
        problem: what the kernel's body raised.
        function, args, kwargs: the kernel, and what it was called with.
    """
    if isinstance(problem, ArgumentError):
        return _as_operand(problem, dict(_named(function, args, kwargs)))
    line, used = _use(problem)
    if not used:
        return None
    names = [name for name, value in _named(function, args, kwargs) if _is_meant(value, problem)]
    spelled = [name for name in names if re.search(rf"\b{re.escape(name)}\s*{re.escape(used[0])}", line)]
    found = spelled or names
    if not found:
        return None
    value = dict(_named(function, args, kwargs))[found[0]]
    return _error(found, value, f"uses {found[0]}{used} as of a tensor", of_traceback(problem.__traceback__))


def _as_operand(problem: ArgumentError, named: Mapping[str, Any]) -> ArgumentError | None:
    """The error for an argument that is passed on to an instruction as a tensor; None for what is no argument."""
    frame = problem.location.frame
    if problem.code != "operand.kind" or frame is None:
        return None
    passed = "".join(
        linecache.getline(frame.file, number) for number in range(frame.line, max(frame.line, frame.end_line) + 1)
    )
    for name, value in named.items():
        is_value = isinstance(value, _CONSTANTS) and problem.message.endswith(f"must be a tensor, not {shown(value)}")
        if is_value and re.search(rf"[(=,]\s*{re.escape(name)}\s*[,)]", passed):
            return _error([name], value, f"passes it on: {problem.message}", problem.location)
    return None


def _error(names: Sequence[str], value: Any, used: str, location: Location) -> ArgumentError:
    return ArgumentError(
        "argument.no-array",
        f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} {shown(value)}, and the kernel {used}",
        rule="tensors of a kernel are arrays of the call; numbers, strings, lists and tuples stay what they are",
        source="nki/get-started/nki-language-guide.rst, NKI Values",
        fix=f"pass {_array_of(names[0], value)}",
        facts={"arguments": ", ".join(names)},
        location=location,
    )


def _use(problem: AttributeError | TypeError) -> tuple[str, str]:
    """The user's line, and what it does to a value: ``.shape`` or ``[...]``; empty if that is something else."""
    calls = traceback.extract_tb(problem.__traceback__)
    line = linecache.getline(calls[-1].filename, calls[-1].lineno or 0) if calls else ""
    if isinstance(problem, AttributeError):
        known = isinstance(problem.obj, _CONSTANTS) and hasattr(NkiTensor, problem.name or "")
        return line, f".{problem.name}" if known else ""
    return line, "[...]" if _INDEXED.match(str(problem)) else ""


def _is_meant(value: Any, problem: AttributeError | TypeError) -> bool:
    if isinstance(problem, AttributeError):
        return value is problem.obj
    found = _INDEXED.match(str(problem))
    return found is not None and type(value).__name__ in found.groups()


def _named(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    code = getattr(function, "__code__", None)
    if code is not None:
        yield from zip(code.co_varnames[: code.co_argcount], args, strict=False)
    yield from kwargs.items()


def _array_of(name: str, value: Any) -> str:
    match value:
        case list() | tuple() if is_numbers(value):
            return f"np.asarray({name}, np.float32)"
        case bool() | int() | float():
            return f"an array, for example np.full((128, 512), {value}, np.float32)"
        case [NkiTensor()] | (NkiTensor(),):
            return f"the array itself: {name}[0]"
        case dict() if len(value) == 1 and isinstance(next(iter(value.values())), NkiTensor):
            return f"the array itself: {name}[{next(iter(value))!r}]"
        case list() | tuple() if any(isinstance(item, NkiTensor) for item in value):
            return f"one of its arrays, for example {name}[0], or use the list in the kernel as {name}[0], {name}[1]"
    return "an array"
