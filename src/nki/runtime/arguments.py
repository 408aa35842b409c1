"""What the arguments of the runtime's calls may be, so that every call checks them alike."""

from __future__ import annotations

import functools
import inspect
import operator
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

from nki.core.shown import shown
from nki.runtime.status import NrtError, refused

Call = TypeVar("Call", bound=Callable[..., Any])
Check = Callable[[str, str, Any], Any]
"""Takes the name of a call, the name of a parameter and its value; returns the value as the call wants it."""


def checked(**checks: Check) -> Callable[[Call], Call]:
    """A function whose arguments are looked at first; parameters without a check are judged by the function itself.

    Raises:
        NrtError: "runtime.argument" for another number of arguments, and what the checks raise.
    """

    def decorate(call: Call) -> Call:
        signature = inspect.signature(call)

        @functools.wraps(call)
        def checking(*args: Any, **kwargs: Any) -> Any:
            try:
                bound = signature.bind(*args, **kwargs)
            except TypeError as error:
                written = ", ".join(name for name in signature.parameters if name != "self")
                rule = f"it is called as {call.__name__}({written})"
                raise refused("runtime.argument", f"{call.__name__}: {error}", rule, "give these arguments") from None
            for name, value in bound.arguments.items():
                if name in checks:
                    bound.arguments[name] = checks[name](call.__name__, name, value)
            return call(*bound.args, **bound.kwargs)

        return cast(Call, checking)

    return decorate


def wrong(call: str, name: str, value: Any, rule: str, code: str = "runtime.argument") -> NrtError:
    """The error for an argument that is something else than `rule` says."""
    return refused(code, f"{call}: {name} is {shown(value)}", f"{name} is {rule}", f"give {name} {rule}")


def count(call: str, name: str, value: Any) -> int:
    """An int, or what NumPy has in its place."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise wrong(call, name, value, "an int")
    try:
        return operator.index(value)
    except TypeError:  # an array has the method as well
        raise wrong(call, name, value, "an int") from None


def text(call: str, name: str, value: Any) -> str:
    """A str."""
    if not isinstance(value, str):
        raise wrong(call, name, value, "a str")
    return value


def path(call: str, name: str, value: Any) -> Path:
    """The path of a file."""
    if not isinstance(value, str | os.PathLike) or os.fspath(value) in ("", b"") or "\0" in str(value):
        raise wrong(call, name, value, "the path of a file")
    return Path(value)


def shape(call: str, name: str, value: Any) -> tuple[int, ...]:
    """A tuple of ints; a list does as well."""
    if not isinstance(value, list | tuple):
        raise wrong(call, name, value, "a tuple of ints")
    return tuple(count(call, f"a size in {name}", size) for size in value)


def seconds(call: str, name: str, value: Any) -> float | None:
    """A time, or None."""
    if value is None:
        return None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value <= threading.TIMEOUT_MAX:  # not a number is not in between either
        raise wrong(call, name, value, f"seconds from 0 to {threading.TIMEOUT_MAX:.0f}, or None")
    return float(value)


def function(call: str, name: str, value: Any) -> Any:
    """Something to call, or None."""
    if value is not None and not callable(value):
        raise wrong(call, name, value, "a function, or None")
    return value


def one_of(*kinds: type, rule: str, code: str = "runtime.argument") -> Check:
    """An object of some classes."""

    def check(call: str, name: str, value: Any) -> Any:
        if not isinstance(value, kinds):
            raise wrong(call, name, value, rule, code)
        return value

    return check


def having(attribute: str, *, rule: str) -> Check:
    """None, or an object with an attribute, for classes that are not loaded until they are needed."""

    def check(call: str, name: str, value: Any) -> Any:
        if value is not None and not hasattr(value, attribute):
            raise wrong(call, name, value, rule)
        return value

    return check


def listed(kind: type) -> Check:
    """A list or tuple of objects of a class."""

    def check(call: str, name: str, value: Any) -> Any:
        if not isinstance(value, list | tuple) or not all(isinstance(item, kind) for item in value):
            raise wrong(call, name, value, f"a list of objects of class {kind.__name__}")
        return value

    return check


def by_name(kind: type) -> Check:
    """A dict of objects of a class by name."""

    def check(call: str, name: str, value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise wrong(call, name, value, f"a dict of a {kind.__name__} for each name")
        for key, item in value.items():
            if not isinstance(key, str) or not isinstance(item, kind):
                raise wrong(
                    call, f"an item of {name}", item if isinstance(key, str) else key, f"a {kind.__name__} by name"
                )
        return value

    return check
