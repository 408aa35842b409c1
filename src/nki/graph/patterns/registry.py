"""Patterns that are not of this package: registered in the process, or installed by other distributions."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points

from nki.core.locks import lock
from nki.core.source import UNKNOWN
from nki.graph.errors import GraphError
from nki.graph.patterns.pattern import Matcher, Pattern
from nki.kernel import Kernel

GROUP = "nki.patterns"
"""The group of entry points: the name of one is its pattern's, its object a `Pattern`."""

_LOCK = lock()
_REGISTERED: dict[str, Pattern] = {}
"""What this process was told of, in that order; only `register` and `unregister` change it."""


@dataclass(frozen=True, slots=True)
class Origin:
    """A pattern, and where it comes from.

    Attributes:
        distribution: name and version of what installed it; empty for one that was registered in this process.
    """

    pattern: Pattern
    distribution: str = ""

    def __str__(self) -> str:
        return f"pattern {self.pattern.name!r}" + (f" of distribution {self.distribution}" if self.distribution else "")


def register(pattern: Pattern) -> None:
    """Let a kernel compute every part of a model that a pattern finds, in this process.

    Another pattern of that name, wherever it comes from, is replaced. Models that were compiled stay as they are.
    """
    with _LOCK:
        _REGISTERED[pattern.name] = pattern


def register_pattern(name: str, match: Matcher, kernel: Kernel) -> None:
    """`register` for a pattern that is given in parts."""
    register(Pattern(name, match, kernel))


def unregister(name: str) -> None:
    """Forget a pattern that was registered; nothing happens if there is none of that name."""
    with _LOCK:
        _REGISTERED.pop(name, None)


def registered() -> dict[str, Origin]:
    """By name, in the order of registration."""
    with _LOCK:
        return {name: Origin(pattern) for name, pattern in _REGISTERED.items()}


def installed_names() -> frozenset[str]:
    """Names of the patterns of installed distributions; none of them is loaded for that."""
    return frozenset(_entries(tuple(sys.path)))


def installed(name: str) -> Origin | None:
    """The pattern of an installed distribution, loaded; None if its object is None: the distribution stands back.

    Raises:
        GraphError: "graph.pattern" for one that cannot be loaded or is no pattern, and for a name that two
            distributions have.
    """
    return _loaded(name, tuple(sys.path))


@lru_cache(maxsize=1)  # reading what is installed takes milliseconds; a new sys.path asks again
def _entries(path: tuple[str, ...]) -> dict[str, list[EntryPoint]]:
    found: dict[str, list[EntryPoint]] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda each: (each.name, _distribution(each))):
        found.setdefault(entry.name, []).append(entry)
    return found


@lru_cache(maxsize=64)  # a distribution is loaded once for each sys.path
def _loaded(name: str, path: tuple[str, ...]) -> Origin | None:
    entry, *others = _entries(path)[name]
    where = _distribution(entry)
    if others:
        rivals = ", ".join([where, *map(_distribution, others)])
        raise _refused(f"pattern {name!r} is in several distributions: {rivals}", "uninstall all but one of them")
    switch = "install a version of the distribution that fits this one, or leave the name out of patterns=[...]"
    try:
        pattern = entry.load()
    except Exception as error:
        kind = f"{type(error).__name__}: {error}"
        raise _refused(f"pattern {name!r} of distribution {where} cannot be loaded: {kind}"[:400], switch) from error
    if pattern is None:
        return None
    if not isinstance(pattern, Pattern) or pattern.name != name:
        got = f"pattern {pattern.name!r}" if isinstance(pattern, Pattern) else f"a {type(pattern).__name__}"
        raise _refused(f"{entry.value}, pattern {name!r} of distribution {where}, is {got}", switch)
    return Origin(pattern, where)


def _distribution(entry: EntryPoint) -> str:
    return "" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"


def _refused(message: str, fix: str) -> GraphError:
    return GraphError(
        "graph.pattern",
        message,
        rule=f"an entry point of the group {GROUP} has the name of a nki.graph.patterns.Pattern, which is its object",
        fix=fix,
        location=UNKNOWN,
    )
