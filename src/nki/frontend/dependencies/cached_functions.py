"""Whether the answers that a cached function remembers follow from its arguments alone."""

from __future__ import annotations

import builtins
from types import FunctionType, ModuleType
from typing import Any

from nki.frontend.dependencies.code_objects import Read, facts_of
from nki.frontend.dependencies.digest import ATOMS
from nki.frontend.dependencies.foreign_code import module_of, origin_of_code, origin_of_module


def read_outside(function: Any) -> str:
    """What a function can read beside its arguments and what libraries define, in words; empty if nothing.

    ``functools.lru_cache`` hides which answers it has and what they were computed from. An answer can only be right
    later if nothing that it was computed from can change: names of the user's module, variables around the function,
    attributes of arguments, which are compared when they are looked up and may have changed since.
    """
    if not isinstance(function, FunctionType) or origin_of_code(function.__code__) != "user":
        return ""
    facts = facts_of(function.__code__)
    free = set(function.__code__.co_freevars)
    for read in facts.reads:
        if read.kind == "free" and read.name in free:
            return read.name
        if read.kind == "import" or (read.kind == "global" and _is_users(function, read)):
            return ".".join((read.name, *read.attributes))
    known = {name for read in facts.reads for name in (read.name, *read.attributes)}
    attributes = sorted(facts.names - known)
    if attributes:
        return f"the attribute {attributes[0]}"
    defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    return "" if all(_is_constant(value) for value in defaults) else "its defaults"


def _is_users(function: FunctionType, read: Read) -> bool:
    """Whether a name leads to something of the user's, which may be replaced or changed."""
    names = function.__globals__
    if read.name not in names:
        return not hasattr(builtins, read.name)
    value = names[read.name]
    if getattr(value, "__wrapped__", None) is function:  # it calls itself
        return False
    for attribute in read.attributes:
        if not isinstance(value, ModuleType):
            break
        if origin_of_module(value.__name__) != "user":
            return False
        value = vars(value).get(attribute)
    if isinstance(value, ModuleType):
        return origin_of_module(value.__name__) == "user"
    if isinstance(value, FunctionType):
        return origin_of_code(value.__code__) == "user"
    if isinstance(value, type):
        return origin_of_module(module_of(value)) == "user"
    return not callable(value) or origin_of_module(module_of(type(value))) == "user"


def _is_constant(value: Any) -> bool:
    return all(_is_constant(item) for item in value) if type(value) is tuple else type(value) in ATOMS
