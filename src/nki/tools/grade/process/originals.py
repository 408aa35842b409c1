"""What the modules of a process were before it ran a candidate, so that what was put in their place is found."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterator
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

_MODULES = ("builtins", "time", "os", "random", "math", "json", "inspect", "numpy", "linecache", "sys")
_CODE = (FunctionType, BuiltinFunctionType, type)


class Originals:
    """The functions, classes and methods of this package and of some modules of Python, by name."""

    def __init__(self) -> None:
        self._known = {name: (value, _inside(value)) for name, value in _members()}

    def replaced(self) -> list[str]:
        """Names whose function or class is another one now, in the order of the alphabet."""
        now = dict(_members())
        return sorted(
            name
            for name, (value, inside) in self._known.items()
            if name not in now or _is_other(name, value, now[name]) or _inside(value) != inside
        )


def _is_other(name: str, before: Any, now: Any) -> bool:
    """Whether something else has a name now; installed packages may replace functions of Python's own modules."""
    if now is before:
        return False
    code = getattr(now, "__code__", None)
    return name.startswith("nki.") or code is None or not code.co_filename.startswith((sys.prefix, sys.base_prefix))


def _inside(value: Any) -> tuple[int, ...]:
    """What a function does, which may be replaced without replacing the function."""
    return (id(value.__code__), id(value.__defaults__)) if isinstance(value, FunctionType) else ()


def _members() -> Iterator[tuple[str, Any]]:
    for name, module in sorted(sys.modules.items()):
        if isinstance(module, ModuleType) and (name in _MODULES or name == "nki" or name.startswith("nki.")):
            for member, value in list(vars(module).items()):
                if isinstance(value, _CODE):
                    yield f"{name}.{member}", value
                if isinstance(value, type) and value.__module__ == name and module is not builtins:
                    for method, code in list(vars(value).items()):
                        if isinstance(code, FunctionType | classmethod | staticmethod | property):
                            yield f"{name}.{member}.{method}", code
