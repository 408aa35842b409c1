"""What the names in a function stand for, as far as globals, closures and modules tell without running it."""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import sysconfig
from dataclasses import dataclass
from types import FunctionType, MethodType, ModuleType
from typing import Any

from nki.core.source import is_internal
from nki.frontend.check.scopes import Scope
from nki.frontend.check.source import FunctionSource

UNKNOWN = object()
"""What a name stands for if that cannot be told."""

_LIBRARIES = tuple(sysconfig.get_path(name) + "/" for name in ("stdlib", "platstdlib", "purelib", "platlib"))


@dataclass(frozen=True, slots=True)
class Names:
    """The names of one function.

    Attributes:
        function: the function.
        source: its source.
        free: values of the variables of functions around it.
    """

    function: FunctionType
    source: FunctionSource
    free: dict[str, Any]

    def is_local(self, name: str, scope: Scope) -> bool:
        """Whether the function itself, or a function nested in it, binds the name."""
        home = scope.home(name)
        return home is not None and home.is_inside(self.source.scope)

    def value(self, node: ast.AST, scope: Scope) -> Any:
        """What an expression stands for: a name that is not local, or an attribute of a module or class."""
        match node:
            case ast.Name(name):
                return UNKNOWN if self.is_local(name, scope) else self._outside(name, scope)
            case ast.Attribute(base, name):
                owner = self.value(base, scope)
                if isinstance(owner, ModuleType | type):
                    return _plain(vars(owner).get(name, UNKNOWN))
        return UNKNOWN

    def is_global(self, name: str, scope: Scope) -> bool:
        """Whether the name is one of the module."""
        home = scope.home(name)
        return (home is None or home.parent is None) and name in self.function.__globals__

    def library(self, node: ast.AST, scope: Scope) -> str:
        """The library that a function is taken from, such as "numpy"; "" if it is not an attribute of a module."""
        while isinstance(node, ast.Attribute):
            node = node.value
            owner = self.value(node, scope)
            if isinstance(owner, ModuleType):
                return owner.__name__.partition(".")[0]
        return ""

    def _outside(self, name: str, scope: Scope) -> Any:
        home = scope.home(name)
        if home is not None and home.parent is not None:
            return self.free.get(name, UNKNOWN)
        return self.function.__globals__.get(name, vars(builtins).get(name, UNKNOWN))


def names_of(function: FunctionType, source: FunctionSource) -> Names:
    """The names of a function; a variable that has no value yet is left out."""
    free = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            free[name] = cell.cell_contents
        except ValueError:
            continue
    return Names(function, source, free)


def function_of(value: Any) -> FunctionType | None:
    """The Python function that a call of `value` runs: through decorators, partial objects, methods and classes."""
    while not isinstance(value, FunctionType):
        match value:
            case functools.partial():
                value = value.func
            case MethodType():
                value = value.__func__
            case type():
                value = vars(value).get("__init__")
            case _ if is_kernel(value):
                value = inspect.unwrap(value)
            case _:
                return None
    return inspect.unwrap(value) if hasattr(value, "__wrapped__") else value


KERNEL_ATTRIBUTES = frozenset(
    {*functools.WRAPPER_ASSIGNMENTS, "__wrapped__", "func", "report", "cache", "_profiled", "_launch", "_loading"}
)
"""What `nki.jit` itself puts on a kernel."""


def is_kernel(value: Any) -> bool:
    """Whether it is what ``@nki.jit`` makes of a function."""
    return type(value).__module__ == "nki.kernel" and hasattr(value, "__wrapped__")


def is_ours(value: Any) -> bool:
    """Whether it is a function, class or instruction of this package."""
    if isinstance(value, FunctionType):
        return is_internal(value.__code__)
    kind = value if isinstance(value, type) else type(value)
    return kind.__module__.startswith("nki.")


def is_user_code(function: FunctionType, kernel: FunctionType) -> bool:
    """Whether a function that a kernel calls is the user's own, and not one of a library.

    An installed package of kernels is user code for its own kernels.
    """
    file = function.__code__.co_filename
    if is_internal(function.__code__) or file.startswith("<"):
        return False
    return not file.startswith(_LIBRARIES) or _top(function) == _top(kernel)


def _top(function: FunctionType) -> str:
    return (function.__module__ or "").partition(".")[0]


def _plain(value: Any) -> Any:
    return value.__func__ if isinstance(value, staticmethod | classmethod) else value
