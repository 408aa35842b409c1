"""What is wrong with a call that does not fit a signature, and how to mend it: one text for every kind of function."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping
from enum import Enum
from typing import Any, Literal, NamedTuple

from nki.core.shown import one_line

_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_COLLECTING = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Misfit(NamedTuple):
    """The first thing that does not fit.

    Attributes:
        kind: an argument that there is not, too many, one given twice, or one not given.
        names: the arguments that it is about.
        message, fix: sentences without the name of the function.
    """

    kind: Literal["unknown", "surplus", "twice", "missing"]
    names: tuple[str, ...]
    message: str
    fix: str


def spelled(signature: inspect.Signature) -> str:
    """``dst, src, engine=engine.unknown``: parameters with their defaults, without annotations."""
    return ", ".join(_parameter(p) for p in signature.parameters.values())


def misfit(signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Misfit | None:
    """What is wrong with a call; None if it fits."""
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return _first_misfit(signature, args, kwargs)
    return None


def _first_misfit(signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Misfit:
    parameters = [p for p in signature.parameters.values() if p.kind not in _COLLECTING]
    kinds = {p.kind for p in signature.parameters.values()}
    names = [p.name for p in parameters]
    placed = [p.name for p in parameters if p.kind in _BY_POSITION]
    unknown = [name for name in kwargs if name not in names]
    if unknown and inspect.Parameter.VAR_KEYWORD not in kinds:
        close = difflib.get_close_matches(unknown[0], names, n=1)
        listed = f"the arguments are {', '.join(names)}" if names else "pass no arguments"
        return Misfit(
            "unknown", (unknown[0],), f"has no argument {unknown[0]!r}", f"write {close[0]}=" if close else listed
        )
    if len(args) > len(placed) and inspect.Parameter.VAR_POSITIONAL not in kinds:
        takes = f"takes {len(placed)} argument{'' if len(placed) == 1 else 's'}"
        given = f"{len(args)} {'was' if len(args) == 1 else 'were'} given"
        return Misfit("surplus", (), f"{takes}, {given}", "remove the surplus arguments")
    twice = [name for name in placed[: len(args)] if name in kwargs]
    if twice:
        return Misfit("twice", (twice[0],), f"got {twice[0]} by position and by name", f"pass {twice[0]} once")
    missing = tuple(
        p.name
        for p in parameters
        if p.default is p.empty and p.name not in kwargs and p.name not in placed[: len(args)]
    )
    return Misfit("missing", missing, f"needs {' and '.join(missing)}", f"add {missing[0]}=...")


def _parameter(parameter: inspect.Parameter) -> str:
    if parameter.default is parameter.empty:
        return str(parameter.replace(annotation=parameter.empty))
    text = one_line(repr(parameter.default))
    if isinstance(parameter.default, Enum) and text.startswith("<"):  # Python's own repr of a member
        text = f"{type(parameter.default).__name__}.{parameter.default.name}"
    return f"{parameter.name}={text}"
