"""Which patterns a model is compiled with, and what tells two such choices apart."""

from __future__ import annotations

import secrets
from collections.abc import Collection
from inspect import unwrap
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary

from nki.core.locks import lock
from nki.frontend.dependencies.manifest import Manifest, manifest_of
from nki.graph.patterns.attention.pattern import ATTENTION
from nki.graph.patterns.pattern import Pattern
from nki.graph.patterns.registry import Origin, installed, installed_names, registered
from nki.graph.patterns.replacement import Replacement
from nki.store.keys import key_of

_OWN = {pattern.name: Origin(pattern) for pattern in (ATTENTION,)}
"""Patterns of this package; others come first, and one of the same name takes its place."""


def pattern_names() -> frozenset[str]:
    """Names of all patterns that are known now."""
    return frozenset((*registered(), *installed_names(), *_OWN))


def origins(names: Collection[str] | None) -> tuple[Origin, ...]:
    """The patterns of these names, in the order in which they are asked: registered ones, installed ones, ours.

    Args:
        names: None for all that are known.

    Raises:
        GraphError: "graph.pattern" for one that cannot be loaded.
    """
    known = registered()
    wanted = [name for name in sorted(installed_names() - known.keys()) if names is None or name in names]
    loaded = {name: origin for name in wanted if (origin := installed(name)) is not None}
    found = _OWN | loaded | known
    order = [*known, *loaded, *(name for name in _OWN if name not in known and name not in loaded)]
    return tuple(found[name] for name in order if names is None or name in names)


def replacements(names: Collection[str] | None) -> tuple[Replacement, ...]:
    """The patterns of these names for the passes. Raises what `origins` raises."""
    return tuple(_replacement(origin) for origin in origins(names))


def _replacement(origin: Origin) -> Replacement:
    pattern = origin.pattern
    code, lasting = _code_of(pattern)
    facts = (pattern.name, origin.distribution, pattern.version, code)
    return Replacement(origin, key_of("pattern", facts=facts), lasting)


def fingerprint(names: Collection[str] | None) -> str:
    """What stands for the patterns of these names in the key of a compiled model: name, version and code of each.

    Code that cannot be compared by value, such as a matcher that reads a file, is equal to nothing in other processes.

    Raises:
        GraphError: "graph.pattern" for one that cannot be loaded.
    """
    facts = [
        (pattern.name, origin.distribution, pattern.version, pattern.choose, _code_of(pattern)[0])
        for origin in origins(names)
        if (pattern := origin.pattern)
    ]
    return key_of("patterns", patterns=facts)


_LOCK = lock()
_TOKENS: WeakKeyDictionary[Pattern, str] = WeakKeyDictionary()
"""For patterns whose code has no value to compare: equal in this process only."""


def _code_of(pattern: Pattern) -> tuple[str, bool]:
    """What stands for the code of a pattern, and whether it does in other processes, too."""
    known = _MANIFESTS.setdefault(pattern, [])
    digests = [_digest(function, known) for function in (pattern.match, pattern.kernel.func)]
    if all(digests):
        return " ".join(digests), True
    with _LOCK:
        return _TOKENS.setdefault(pattern, secrets.token_hex(16)), False


_MANIFESTS: WeakKeyDictionary[Pattern, list[Manifest]] = WeakKeyDictionary()
"""What the functions of patterns could read when they were last looked at. Looking anew takes a tenth of a second."""


def _digest(function: Any, known: list[Manifest]) -> str:
    plain = unwrap(function)
    if not isinstance(plain, FunctionType):
        return ""
    before = next((each for each in known if each.function is plain), None)
    now = manifest_of(plain) if before is None else before.renewed()
    known[:] = [each for each in known if each is not before] + [now]
    return now.digest
