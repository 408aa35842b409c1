"""What the settings of a compilation may be, so that all calls that take them refuse the same things."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Mapping
from typing import Any

from nki.core.errors import LaunchError
from nki.core.shown import shown
from nki.core.source import UNKNOWN, Location
from nki.graph.patterns.selection import pattern_names


def accepted(call: str, code: str, given: Mapping[str, Any], location: Location = UNKNOWN) -> dict[str, Any]:
    """Settings by name as the compiler wants them; those that have no rule here stay what they are.

    Args:
        call: what the user called, for the message.
        code: of the error.

    Raises:
        LaunchError: `code`, for a value of another kind.
    """
    made = {}
    for name, value in given.items():
        judge, rule, right = _RULES.get(name, (_anything, "", ""))
        try:
            made[name] = judge(value)
        except (TypeError, ValueError):
            raise LaunchError(
                code, f"{call} got {name}={shown(value)}", rule=f"{name} is {rule}", fix=right, location=location
            ) from None
    return made


def _anything(value: Any) -> Any:
    return value


def _text(value: Any) -> str:
    if type(value) is not str or "\0" in value:
        raise TypeError
    return value


def _name(value: Any) -> str:
    if not _text(value):
        raise ValueError
    return value


def _folder(value: Any) -> Any:
    if value is None or (isinstance(value, os.PathLike) and "\0" not in str(value)):
        return value
    return _text(value)


def _cores(value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError
    return operator.index(value)


def _patterns(value: Any) -> frozenset[str] | None:
    if value is None:
        return None
    if not isinstance(value, list | tuple | set | frozenset) or not all(type(name) is str for name in value):
        raise TypeError
    if not set(value) <= pattern_names():
        raise ValueError
    return frozenset(value)


_RULES: Mapping[str, tuple[Callable[[Any], Any], str, str]] = {
    "target": (_text, "the name of a target; by default that of the environment", 'write target="trn2"'),
    "name": (_name, "a str with at least one character", 'write name="model"'),
    "dump_dir": (_folder, "the path of a folder; by default none", 'write dump_dir="stages"'),
    "lnc": (_cores, "an int: the cores that run a program together", "write lnc=2"),
    "patterns": (
        _patterns,
        "a list of names of patterns that are registered; None for all, empty for none",
        'write patterns=["attention"], or patterns=[]',
    ),
}
